"""Devices and peers for which the kernel may cut long UDP messages into datagrams (UDP_SEGMENT), in a fraction of time.

Such datagrams have UDP checksums. The kernel leaves these, and the cutting, to a device that offers to do both. A
network card does. A virtual device passes on whole buffers without checksums: right for a UDP socket at its other end,
but a switch that reads frames there (AF_PACKET, libpcap) can use neither. So a virtual device must leave checksums, and
with them the cutting, to the kernel::

    device                                             messages are cut
    loopback, for 127/8                                yes: sockets read it
    a card on a bus                                    yes
    virtual, such as veth: `ethtool -K DEVICE tx off`  yes, by the kernel
    virtual otherwise                                  no
    with the queueing discipline netem                 no: it loses and delays whole buffers

Beyond loopback only messages to switches are cut. A switch that sums them sends what leaves without a checksum. But one
that removes INT from a message to a host, and lowers its window, would leave the message with a wrong checksum.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SWITCHES: Final = 0x0AFF
"""Upper 16 bits of switches' addresses, 10.255.0.0/16 (docs/design.md §2.1)."""
_SIOCGIFCONF: Final = 0x8912
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_GDRVINFO: Final = 0x03
_ETHTOOL_GTXCSUM: Final = 0x16
_DRIVER_INFO: Final = struct.Struct("I32s32s32s32s32s12s5I")
"""`struct ethtool_drvinfo`: command, driver, version, firmware's version, bus, and others (linux/ethtool.h)."""
_VALUE: Final = struct.Struct("II")
"""`struct ethtool_value`: command, value."""
_IFREQ_BYTES: Final = 40
_NAME_BYTES: Final = 16
_MAX_ADDRESSES: Final = 4096

_LOSSY_DISCIPLINE: Final = "netem"
_RTM_GETLINK: Final = 18
_NLM_F_REQUEST: Final = 1
_IFLA_QDISC: Final = 6
_NLMSGHDR: Final = struct.Struct("IHHII")
_IFINFOMSG: Final = struct.Struct("BxHiII")
_RTATTR: Final = struct.Struct("HH")
_ANSWER_BYTES: Final = 1 << 16


def may_segment(address: int) -> bool:
    """Return whether messages from this IPv4 address may be cut by the kernel; False if its device is not found."""
    if is_loopback(address):
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            device = _device_of(asking, address)
            if device is None or _queueing_discipline(device) == _LOSSY_DISCIPLINE:
                return False
            return _has_bus(asking, device) or not _leaves_checksums(asking, device)
        except OSError:
            return False


def is_loopback(address: int) -> bool:
    """Return whether an IPv4 address is in 127/8, where all peers are sockets."""
    return address >> 24 == socket.INADDR_LOOPBACK >> 24


def are_switches(addresses: NDArray[np.uint32]) -> bool:
    """Return whether all these IPv4 addresses are switches'."""
    return not np.count_nonzero(addresses >> 16 != _SWITCHES)


def _device_of(asking: socket.socket, address: int) -> str | None:
    """Return the device that has an address; None: there is none, or it is loopback."""
    answer = array.array("B", bytes(_IFREQ_BYTES * _MAX_ADDRESSES))
    request = struct.pack("iP", len(answer), answer.buffer_info()[0])
    length, _ = struct.unpack("iP", fcntl.ioctl(asking, _SIOCGIFCONF, request))
    wanted = address.to_bytes(4, "big")
    for start in range(0, length, _IFREQ_BYTES):
        entry = answer[start : start + _IFREQ_BYTES].tobytes()
        if entry[_NAME_BYTES + 4 : _NAME_BYTES + 8] == wanted:
            name = entry[:_NAME_BYTES].partition(b"\0")[0].decode().partition(":")[0]  # "eth0:1" is a label of eth0
            return None if name == "lo" else name
    return None


def _ethtool(asking: socket.socket, device: str, command: bytes) -> bytes:
    answer = array.array("B", command)
    fcntl.ioctl(asking, _SIOCETHTOOL, struct.pack("16sP16x", device.encode(), answer.buffer_info()[0]))
    return answer.tobytes()


def _has_bus(asking: socket.socket, device: str) -> bool:
    """Return whether it is a card: its driver names a place on a bus, as no virtual device's does except tun's."""
    unset = _ETHTOOL_GDRVINFO, *[b""] * 6, *[0] * 5
    _, driver, _, _, bus, *_ = _DRIVER_INFO.unpack(_ethtool(asking, device, _DRIVER_INFO.pack(*unset)))
    return bool(bus.strip(b"\0")) and driver.strip(b"\0") != b"tun"


def _leaves_checksums(asking: socket.socket, device: str) -> bool:
    """Return whether datagrams reach the device's other end without checksums."""
    _, value = _VALUE.unpack(_ethtool(asking, device, _VALUE.pack(_ETHTOOL_GTXCSUM, 0)))
    return bool(value)


def _queueing_discipline(device: str) -> str:
    """Return the name of a device's queueing discipline, from the kernel's answer to RTM_GETLINK (rtnetlink(7))."""
    request = _IFINFOMSG.pack(socket.AF_UNSPEC, 0, socket.if_nametoindex(device), 0, 0)
    header = _NLMSGHDR.pack(_NLMSGHDR.size + len(request), _RTM_GETLINK, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asking:
        asking.send(header + request)
        answer = asking.recv(_ANSWER_BYTES)
    at = _NLMSGHDR.size + _IFINFOMSG.size
    while at + _RTATTR.size <= len(answer):
        length, kind = _RTATTR.unpack_from(answer, at)
        if kind == _IFLA_QDISC:
            return answer[at + _RTATTR.size : at + length].rstrip(b"\0").decode()
        at += max(_RTATTR.size, -(-length // 4) * 4)
    return ""
