"""The records that the native runtime works on. Python allocates them (NumPy), native code follows their addresses.

All are 64-bit integers, so that native arithmetic has one type; times are nanoseconds of virtual time. An index of
−1 means none. A packet is an index into the pool; its slot in the pool is::

    | … PACKET | PHV | headroom, frame … |
                     ^ WORLD.data_offset

The data area starts at the same place for every switch, so that a frame need not move between switches whose
programs have PHVs of different size: the PACKET record of a switch begins `phv_bytes + PACKET.itemsize` before the
data area.
"""

from __future__ import annotations

from typing import Final

import numpy as np

PRIORITIES: Final = 8
PORT_NUMBERS: Final = 512
LOOPBACK: Final = PORT_NUMBERS
"""Number of the port through which packets come again."""
ABSENT: Final = PORT_NUMBERS + 1
"""Number of the port whose queue takes what is sent to port numbers that the switch does not have."""
GENERATED_WAITING: Final = 10_000
"""Packets of a host's queue beyond which a traffic generator's are dropped and counted there."""
SHARE_SHIFT: Final = 16
"""Fraction bits of what queues with a minimum share are owed."""
UNLIMITED: Final = 1 << 62
NONE: Final = -1
ALLOWANCE: Final = 16384
"""Maximum number of packets made from one frame or event. It ends exponential duplication."""


def _record(*names: str, unsigned: tuple[str, ...] = (), real: tuple[str, ...] = ()) -> np.dtype[np.void]:
    fields = [(name, "<i8") for name in names]
    fields += [(name, "<u8") for name in unsigned] + [(name, "<f8") for name in real]
    return np.dtype(fields)


WORLD: Final = _record(
    "now",
    "until",
    "sequence",  # of the next event: ties are served in the order in which they were scheduled
    "events",  # processed so far
    "fuel",  # steps until the next pause
    # addresses of the arrays below
    "pool",
    "meta",
    "heap",
    "ports",
    "queues",
    "switches",  # addresses of SWITCH records, one int64 each
    "hosts",
    "taps",
    "flows",
    "traces",
    "ready",
    "due",
    # sizes
    "slot_bytes",
    "data_offset",
    "max_frame",
    "free_head",
    "free_count",
    "heap_count",
    "heap_capacity",
    "packet_reserve",  # packets that one step may allocate
    "allowance",  # times that packets may still be made anew before the next frame or event is taken up
    "ready_head",
    "ready_count",
    "ready_capacity",
    "due_count",
    "tap_count",
    "capture_host",  # takes what leaves through ports without a link
    "meter",  # address of `int64 meter(const void *frame, int64 bytes, int64 argument)`; 0: none
    "meter_argument",
    # arguments and results of the operation being called
    "port",
    "host",
    "priority",
    "flow",  # whose frames are sent; NONE: nobody's
    "at",
    "frames",
    "lengths",
    "in_ports",
    "times",
    "count",
    "size",
    "repeat",
    "done",
    "keep",
)

META: Final = _record("next", "start", "length", "queued_bytes", "flow", "priority", "port", "time", "passes")
"""The runtime's own record of a packet, at any node. `flow` is -1 except for frames of flows; `passes` counts how often
the present switch has made the packet, or its origin, again.
"""

EVENT: Final = _record("time", "sequence", "kind", "subject", "packet")
EVENT_ARRIVAL: Final = 0  # subject: receiving port
EVENT_PORT: Final = 1  # subject: port whose transmitter falls idle
EVENT_POLL: Final = 2  # subject: host
EVENT_TIMER: Final = 3  # subject: host
EVENT_FLOW: Final = 4  # subject: flow
EVENT_SAMPLE: Final = 5  # subject: trace

NODE_SWITCH: Final = 0
NODE_HOST: Final = 1

PORT: Final = _record(
    "kind",
    "node",
    "number",
    "peer",
    "rate_bps",  # 0: infinite
    "overhead_bytes",
    "longest",  # frame in bytes that the link takes; 0: any
    "delay_ns",
    "up",
    "reorder_ns",
    "busy_until",
    "early",  # time by which the last frame had left before `busy_until`, in 1/rate_bps of a nanosecond
    "wakeup",  # an EVENT_PORT is pending
    "ready",  # in the ready ring
    "backlog",  # bit p: the queue of priority p holds packets
    "share_first",  # priorities that have a minimum share: from this one
    "share_last",  # to this one
    "share_weight",  # 2^-16 bytes that each of them is owed for a byte sent by a higher one; 0: strict priority alone
    "depth_packets",
    "depth_bytes",
    "max_depth_packets",
    "max_depth_bytes",
    "tx_packets",
    "tx_bytes",
    "flow_bytes",  # of tx_bytes: frames of flows
    "metered_packets",
    "metered_bytes",  # sum of `WORLD.meter`'s results for the frames sent
    "rx_packets",
    "rx_bytes",
    "lost_packets",  # by the link, going out
    "oversized_packets",  # longer than the link takes, and not sent
    "draws",  # of the fault generator: one per frame sent
    unsigned=("key", "digest", "loss", "duplicate", "reorder", "corrupt"),  # probabilities × 2⁶⁴
)

QUEUE: Final = _record(
    "head",
    "tail",
    "depth_packets",
    "depth_bytes",
    "limit_packets",
    "limit_bytes",
    "drops",
    "dropped_bytes",
    "max_depth_packets",
    "max_depth_bytes",
    "credit",  # what it is owed before higher ones of the port's shares, in 2^-16 bytes; 0 while it is empty
)

SWITCH: Final = _record(
    "ingress",
    "egress",
    "deparse",
    "reparse",
    "preserve",
    "state",
    "steps",  # address of the notes of table lookups (`emulator.compiler.steps`); 0: the program is not traced
    "phv_bytes",
    "port_index",  # address of int64[PORT_NUMBERS]: index into ports, or -1
    "groups",  # address of GROUP[group_count], by group id
    "group_count",
    "sessions",  # address of GROUP[session_count], by session id
    "session_count",
    "replicas",  # address of REPLICA[]
    "loopback",  # index of the port whose queue holds what was resubmitted or recirculated
    "absent",  # index of the port that stands for all ports that the switch does not have
    "started_ns",
    "no_program",
    "no_port",
    "no_group",
    "no_session",
    "oversize",
    "ingress_drops",
    "egress_drops",
    "ingress_packets",
    "egress_packets",
    "copied_packets",
    "queue_full",
    "too_many_passes",
    "clones_refused",
    "stale_packet_ins",
    "stale_packet_outs",
    "max_passes",
    "drop_port",
    "packet_id",  # of the last packet that got a fresh record
    unsigned=("seed",),
)

GROUP: Final = _record("first", "count", "truncate", "priority")
"""A multicast group or clone session: `count` replicas from `first`; 0 if there is none of that id.

`truncate` is as in PACKET.
"""
REPLICA: Final = _record("port", "instance")

HOST: Final = _record(
    "poll_ns",
    "sink",
    "cpu",
    "head",
    "tail",
    "pending_packets",
    "pending_bytes",
    "poll_scheduled",
    "due",
    "timer_ns",
    "timer_event",
    "timer_fired",
    "rx_packets",
    "rx_bytes",
    "sunk_packets",
    "sunk_bytes",
    "tapped",  # its frames go to its taps alone
    "tap",  # index of the first one
)

TAP: Final = _record(
    "next",  # index of the host's next tap
    "open",
    "port",  # index of the host's NIC
    "priority",
    "key_at",  # place in a frame of the 16 bits, in network order, that say whether the frame is this tap's
    "key",
    "rows",  # of either ring; a power of two
    "row_bytes",
    "frame_at",  # place of the frame in a row, whose first word is the frame's length
    "inbound",  # address of the ring of frames from the process
    "outbound",  # address of the ring of frames to the process
    "shared",  # address of the words that both sides read
    "bell",  # eventfd that wakes the process
    "in_tail",
    "out_head",
    "out_tail",
    "told",  # `out_head` as the process knows it
    "missed_packets",  # found the ring full
)
"""One process's way to a host's NIC: two rings of frames in memory that it shares."""

DUE: Final = _record("host", "packets", "bytes", "timer")
"""A host whose turn it is: frames that it has not been handed, and whether its timer fired."""

FLOW: Final = _record(
    "port",
    "frame",
    "length",
    "priority",
    "stop_ns",
    "draws",
    "sent_packets",
    "delivered_packets",
    "delivered_bytes",
    "delay_sum_ns",
    "by_hand",  # no generator's: hosts send its frames, and are handed them
    unsigned=("key",),
    real=("interval_ns", "jitter", "due_ns"),
)

TRACE: Final = _record("port", "queue", "interval_ns", "capacity", "count", "times", "depths")
"""Samples of a queue's depth. `queue` is -1 for the sum over a port's priorities."""

OP_RUN: Final = 0
OP_SEND: Final = 1
OP_TIMER: Final = 2
OP_SCHEDULE_FLOW: Final = 3
OP_SCHEDULE_TRACE: Final = 4
OP_DRAIN: Final = 5
OP_PROCESS: Final = 6

STATUS_DONE: Final = 0
STATUS_WAKE: Final = 1
STATUS_PAUSE: Final = 2
STATUS_TRACE_FULL: Final = 3
