/* The least a switch on AF_PACKET sockets can do: whatever arrives at the first interfaces leaves through the last.
 *
 *     relay IN... OUT
 *
 * recvmmsg and sendmmsg of up to 32 frames, and nothing in between. Ends with its parent.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { BATCH = 32, FRAME = 2048, INTERFACES = 8 };

static int open_interface(const char *name)
{
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = (int)if_nametoindex(name),
    };
    int on = 1, bytes = 4 << 20;
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    if (fd < 0 || address.sll_ifindex == 0
        || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0
        || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0
        || bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror(name);
        exit(2);
    }
    return fd;
}

int main(int count, char **names)
{
    static char frames[BATCH][FRAME];
    struct iovec vectors[BATCH];
    struct mmsghdr messages[BATCH];
    struct pollfd inputs[INTERFACES];
    int ports = count - 2;
    if (ports < 1 || ports > INTERFACES)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (int i = 0; i < ports; i++)
        inputs[i] = (struct pollfd){.fd = open_interface(names[1 + i]), .events = POLLIN};
    int out = open_interface(names[count - 1]);
    puts("ready");
    fflush(stdout);
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < BATCH; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
    for (;;) {
        int work = 0;
        for (int port = 0; port < ports; port++) {
            for (int i = 0; i < BATCH; i++)
                vectors[i] = (struct iovec){frames[i], FRAME};
            int received = recvmmsg(inputs[port].fd, messages, BATCH, MSG_DONTWAIT, NULL);
            if (received <= 0)
                continue;
            work = 1;
            for (int i = 0; i < received; i++)
                vectors[i].iov_len = messages[i].msg_len;
            for (int sent = 0; sent < received;) {
                int done = sendmmsg(out, messages + sent, (unsigned)(received - sent), 0);
                sent += done > 0 ? done : 1;
            }
        }
        if (!work)
            poll(inputs, (nfds_t)ports, -1);
    }
}
