"""Format of probes: what they ask of each switch, and their length."""

from __future__ import annotations

import struct
from typing import Final

from ...wire.int_md import PROBE_INSTRUCTIONS, DomainInstruction, Instruction, hop_words, hops_that_fit, probe_frame

INSTRUCTIONS: Final = PROBE_INSTRUCTIONS | Instruction.EGRESS_TIMESTAMP
"""Requested items; the egress timestamp next to the byte counter lets a rate use the switch's own clock alone."""

DOMAIN_INSTRUCTIONS: Final = DomainInstruction.BYTES_SENT
PAYLOAD: Final = struct.Struct("!II")
PAYLOAD_BYTES: Final = PAYLOAD.size
SEQUENCES: Final = 1 << 31
"""Probes' sequence numbers are less, and begin again: all ones would be read as a number that is not there."""
MAX_HOPS: Final = min(hops_that_fit(hop_words(INSTRUCTIONS, DOMAIN_INSTRUCTIONS), PAYLOAD_BYTES), 16)
_EMPTY_BYTES: Final = len(
    probe_frame(source=0, destination=0, source_mac=0, destination_mac=0, payload=bytes(PAYLOAD_BYTES))
)


def probe_bytes(hops: int) -> int:
    """Return the length in bytes of a probe's frame on its `hops`-th link, Ethernet header included."""
    return _EMPTY_BYTES + 4 * hops * hop_words(INSTRUCTIONS, DOMAIN_INSTRUCTIONS)
