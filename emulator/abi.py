"""The record that generated code and the runtime share: one packet in flight.

The compiler (`emulator.compiler`) emits native functions for a P4 program; the runtime (`emulator.runtime`) owns
packets, queues and time, and calls them through bare addresses. Both sides know a packet only by this layout::

    buffer:  | PACKET record | PHV of the program (phv_bytes) | headroom | frame ... capacity |
                                                              ^ data area

Offsets `start` and `payload` count from the beginning of the data area. A frame is received at `start == HEADROOM`.
Ingress copies headers to the PHV and leaves the frame as it was (so that a clone of the received packet is a copy of
these bytes); egress writes the emitted headers in front of `payload` and moves `start`.

All integers are native little-endian. Standard metadata live here and nowhere else. Times are microseconds, as v1model
has them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

HEADROOM: Final = 1536
"""Bytes in front of a received frame: the limit by which a program may grow a packet. simple_switch's is 512; 256 lanes
of 32 bits are 1024."""

DROP_PORT: Final = 511
"""The port that means drop, unless the switch is configured with another one."""

PACKET: Final = np.dtype(
    [
        ("start", "<u4"),
        ("length", "<u4"),  # of the frame, from `start`
        ("payload", "<u4"),  # first byte that no header covers; set by the parser
        ("truncate", "<u4"),  # 0: no truncation; else one more than the number of bytes to send
        # standard_metadata
        ("ingress_global_timestamp", "<u8"),
        ("egress_global_timestamp", "<u8"),
        ("packet_length", "<u4"),
        ("enq_timestamp", "<u4"),
        ("enq_qdepth", "<u4"),
        ("deq_timedelta", "<u4"),
        ("deq_qdepth", "<u4"),
        ("parser_error", "<u4"),
        ("instance_type", "<u4"),
        ("ingress_port", "<u2"),
        ("egress_spec", "<u2"),
        ("egress_port", "<u2"),
        ("mcast_grp", "<u2"),
        ("egress_rid", "<u2"),
        ("checksum_error", "u1"),
        ("priority", "u1"),
        ("qid", "u1"),
        ("reserved", "u1"),
        # requests to the traffic manager, set by extern calls; 0: none
        ("clone_session", "<u4"),  # session id + 1, I2E in ingress and E2E in egress
        ("clone_field_list", "<u4"),  # field-list id; 0: preserve nothing
        ("resubmit", "<u4"),  # field-list id; 0: do not resubmit
        ("recirculate", "<u4"),
        ("digest", "<u4"),  # learn-list id; 0: none
        ("random_state", "<u8"),
        (
            "now",
            "<u8",
        ),  # time of the switch in microseconds; used by meters and last-hit times
        ("drop_port", "<u8"),  # the switch's, which `mark_to_drop` writes to egress_spec
        ("spare", "<u8"),
    ],
    align=True,
)
"""One packet's record. `PACKET.itemsize` is a multiple of 16, so the PHV behind it is aligned."""

PLACES: Final = {
    "standard_metadata": frozenset(
        {"ingress_port", "packet_length", "instance_type", "egress_spec", "egress_port"}
        | {"parser_error", "checksum_error"}
    ),
    "intrinsic_metadata": frozenset(
        {"ingress_global_timestamp", "egress_global_timestamp", "mcast_grp", "egress_rid", "priority"}
    ),
    "queueing_metadata": frozenset({"enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth", "qid"}),
}
"""Metadata header in which simple_switch looks for each field of PACKET.

A program of today's v1model has all of them in `standard_metadata`, and aliases say so.
"""

# Signatures of the entry points of a compiled program; the addresses come from `Program.entry_points`.
#
#   void ingress(void *state, PACKET *packet)   parser, checksum verification, ingress control
#   void egress(void *state, PACKET *packet)    egress control, checksum update, deparser; the control alone where it
#                                               asks for a clone, which has the headers as they are then
#   void deparse(void *state, PACKET *packet)   checksum update and deparser of such a packet, once it is cloned; there
#                                               only where a program asks for clones in egress
#   void reparse(void *state, PACKET *packet)   parser alone, for an ingress clone
#   void preserve(PACKET *from, PACKET *to)     clear `to`'s user metadata, then copy the fields of the field list that
#                                               `to->clone_field_list` names
#
# `state` is the switch's own memory (registers, counters, meters, table storage), laid out by the compiler.


class InstanceType:
    """Values of `standard_metadata.instance_type` (simple_switch)."""

    NORMAL: Final = 0
    INGRESS_CLONE: Final = 1
    EGRESS_CLONE: Final = 2
    COALESCED: Final = 3
    RECIRC: Final = 4
    REPLICATION: Final = 5
    RESUBMIT: Final = 6


assert PACKET.itemsize % 16 == 0, PACKET.itemsize
