"""The records that the packet loop adds to `emulator.runtime.memory`: interfaces, and memory shared with Python.

As in that module: 64-bit integers, addresses included, that Python allocates and native code follows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..compiler.steps import STEP_WORDS

BATCH: Final = 32
"""Frames that a system call sends, or that one turn takes from one interface."""
MAILBOX_SLOTS: Final = 1024
TRACE_NOTES: Final = 4096
NOTE_WORDS: Final = 4
"""Words of a note in the log of packets; behind them stands what a traced program has noted of a table."""
TRACE_WORDS: Final = NOTE_WORDS + STEP_WORDS
SLOT_HEADER: Final = 16
"""Bytes at the start of a mailbox's slot, before the frame's own: its length and its instant (ns)."""


def _record(*names: str) -> np.dtype[np.void]:
    return np.dtype([(name, "<i8") for name in names])


FUNCTIONS: Final = (
    "clock_gettime",
    "ppoll",
    "send",
    "sendmmsg",
    "recvmmsg",
    "getsockopt",
    "read",
    "write",
    "writev",
    "ftruncate",
)
"""libc functions that native code calls."""

LOOP: Final = _record(
    "world",
    "switch",
    "nics",
    "nic_count",
    "nic_of",  # address of int64 per port of the engine: index of its interface, or -1
    "cpu_port",  # index of the CPU port
    "shared",  # address of int64[SHARED_WORDS]
    "polls",  # address of a pollfd for `wake_fd`, then two per interface: receiving and sending
    "scratch",  # address of SCRATCH_BYTES for system calls
    "wake_fd",  # eventfd that Python writes to
    "told_fd",  # eventfd that native code writes to: packet-ins are waiting
    "told",  # packet-ins have been put down since the last write
    "packet_outs",  # address of MAILBOX_SLOTS slots
    "packet_ins",
    "slot_bytes",
    "trace",  # address of TRACE_NOTES notes of packet events; 0: tracing is off
    "trace_seen",  # address of int64 per reason of drops: counted when last noted
    "trace_lost",  # notes that found no room
    "packet_in_drops",  # found the mailbox full
    "realtime_ns",  # CLOCK_REALTIME - CLOCK_MONOTONIC, for capture files
    "turns",
    "sleeps",
    *FUNCTIONS,  # their addresses
    "errno_location",
)

NIC: Final = _record(
    "port",  # index among the engine's ports
    "receive_fd",
    "send_fd",
    "ring",  # address of the mapped ring; 0: frames are received by recvmmsg
    "ring_frames",
    "ring_frame_bytes",
    "ring_head",  # frame that the kernel fills next
    "send_ring",  # address of the mapped ring for sending, of frames as large; 0: sendmmsg sends
    "send_frames",
    "send_head",  # frame that the kernel sends next
    "longest",  # frame that the interface sends, in bytes
    "held",  # packets of the batch to send
    "packets",  # address of int64[BATCH]: that batch
    "messages",  # address of mmsghdr[BATCH]
    "vectors",  # address of iovec[BATCH]
    "blocked",  # the kernel takes no more: wait until it does
    "continuing",  # a frame waited when the last one was sent: the next begins when that one ends
    # addresses for recvmmsg, without a ring
    "receive_messages",  # mmsghdr[BATCH]
    "receive_vectors",  # two iovecs for each: header and frame
    "receive_packets",  # int64[BATCH]
    "receive_headers",  # HEADER_BYTES for each
    "receive_controls",  # CONTROL_BYTES for each
    "receive_count",  # frames that the last call has put into the packets
    "receive_next",  # of these: the first that the switch has not taken
    "capture_in",  # addresses of capture files' records, or 0
    "capture_out",
    # counters
    "oversize",
    "too_long",
    "refused",
    "unreachable",
    "waits",
    "outages",
    "tags_restored",
    "checksums_completed",
)

CAPTURE: Final = _record(
    "descriptor",  # of the file
    "size",  # its bytes so far
    "frames",  # of these
    "error",  # errno that ended the capture; 0: it goes on
)

SHARED_WORDS: Final = 8
SHARED_INTERRUPT: Final = 0  # Python wants native code to come back
SHARED_OUT_HEAD: Final = 1  # packet-outs put down so far (Python)
SHARED_OUT_TAIL: Final = 2  # and taken up (native code)
SHARED_IN_HEAD: Final = 3  # packet-ins put down so far (native code)
SHARED_IN_TAIL: Final = 4  # and taken up (Python)
SHARED_LOG_HEAD: Final = 5  # notes for the log put down so far (native code)
SHARED_LOG_TAIL: Final = 6  # and taken up (Python)

SCRATCH_BYTES: Final = 256

OP_SERVE: Final = 0

MESSAGE_BYTES: Final = 64
"""Size of an mmsghdr on a 64-bit machine."""
HEADER_BYTES: Final = 64
"""Bytes per frame for recvmmsg: its virtio_net_hdr, and from byte 16 on its sockaddr_ll."""
CONTROL_BYTES: Final = 64
"""Ancillary data of such a frame: a cmsghdr and tpacket_auxdata."""
VIRTIO_HEADER_BYTES: Final = 10
