"""Position of INT in a packet and the marks that announce it (INT 2.1, section "INT over TCP/UDP").

A fabric marks the packets that carry INT in one of three ways::

    UDP_PORT      Ethernet | IPv4          | UDP to 5000      | shim | header | stack | UDP payload               NPT 1
                  Ethernet | IPv4, proto 17 | new UDP to 5000 | shim | header | stack | TCP header and the rest   NPT 2
    DSCP          Ethernet | IPv4, DSCP bit | UDP or TCP      | shim | header | stack | the rest                  NPT 0
    PROBE_MARKER  Ethernet | IPv4           | UDP or TCP | 64-bit marker | shim | header | stack | the rest       NPT 0

Over TCP, INT is in front of TCP's options: behind the 20 bytes that every segment has. The shim's length counts the
words of header and stack, not the shim itself. The header is INT-MD's or, if the shim has type 3, INT-MX's; both have
12 bytes.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

import numpy as np


class Presence(Enum):
    """Mark of packets that carry INT; the value is its name in topology files."""

    UDP_PORT = "udp-port"
    DSCP = "dscp"
    PROBE_MARKER = "probe-marker"


DSCP_BIT: Final = 0x01
"""The DSCP's bit that means "INT follows" in fabrics that mark by DSCP: code points of services have it at 0 (RFC 2474,
section 6: those that end in 1 are for local use)."""

PROBE_MARKER: Final = 0x5765_6972_2D49_4E54
"""The 64 bits in front of the shim in fabrics that mark by a probe marker."""

MARKER_BYTES: Final = 8


class ShimType(IntEnum):
    """Kind of header behind the shim (section "INT Header Types")."""

    MD = 1
    DESTINATION = 2
    MX = 3


class NextProtocol(IntEnum):
    """NPT: contents of the shim's last two bytes."""

    UNCHANGED = 0
    """The original DSCP in the upper six bits of the last byte; the UDP or TCP header is the packet's own."""
    UDP_PORT = 1
    """The original UDP destination port."""
    PROTOCOL = 2
    """The original IP protocol in the last byte; the UDP header in front is the source's, and goes with INT."""


SHIM: Final = np.dtype(
    [
        ("type_npt", "u1"),  # type 4, next protocol type 2, reserved 2
        ("length", "u1"),  # words behind the shim
        ("original", ">u2"),  # port, protocol or DSCP
    ]
)
"""The 4 bytes in front of INT's header."""

MX: Final = np.dtype(
    [
        ("version_discard", "u1"),  # version 4, D, reserved 3
        ("reserved", "u1", (3,)),
        ("instructions", ">u2"),
        ("domain", ">u2"),
        ("domain_instructions", ">u2"),
        ("domain_flags", ">u2"),
    ]
)
"""INT-MX's 12 bytes (section "INT-MX Header Format"). Bytes inserted by a source behind them count in the shim's
length.
"""
