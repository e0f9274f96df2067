"""Heartbeats on the wire: a host's state for the controller, in the control class (docs/design.md §2.3).

UDP port 22344, DSCP 48, 40 bytes, big-endian::

    magic 0x5748 · version 1 · flags (1: waits for rounds) · job 16 · 16 zero bits · sequence 32
    rounds 64 · sent 64 (ns) · proof 96: BLAKE2s over the preceding bytes, keyed with the token of the host's seat

A datagram that fails a check is treated as lost: the next one follows soon.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final, Self

from .aggregation import check_rounds
from .errors import WireError

HEARTBEAT_PORT: Final = 22344
HEARTBEAT_BYTES: Final = 40

_MAGIC: Final = 0x5748
_VERSION: Final = 1
_WAITING: Final = 1
_BODY: Final = struct.Struct(">HBBHHIQQ")
_PROOF_BYTES: Final = HEARTBEAT_BYTES - _BODY.size


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One host lives, in one job."""

    job: int
    sequence: int
    """Number of this host's heartbeats in the job, modulo 2³²: older ones are ignored."""
    rounds: int
    """Number of completed rounds."""
    waiting: bool
    """True if the host waits for more rounds."""
    sent_ns: int
    """Time on the host's own clock: delays of heartbeats are measured against the smallest difference ever seen."""

    def pack(self, token: str) -> bytes:
        """Return the datagram, which only who knows the seat's token can make."""
        flags = _WAITING if self.waiting else 0
        sequence = self.sequence & 0xFFFF_FFFF
        body = _BODY.pack(_MAGIC, _VERSION, flags, self.job, 0, sequence, self.rounds, self.sent_ns)
        return body + _proof(body, token)

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Decode a heartbeat. Its sender is checked by `is_from`.

        Raises:
            WireError: The payload is no heartbeat, or its number of rounds is out of range.
        """
        if len(payload) != HEARTBEAT_BYTES:
            raise WireError(
                f"a heartbeat has {HEARTBEAT_BYTES} bytes, not {len(payload)}", place="heartbeat", value=len(payload)
            )
        magic, version, flags, job, zero, sequence, rounds, sent_ns = _BODY.unpack_from(payload)
        if (magic, version, zero) != (_MAGIC, _VERSION, 0) or flags & ~_WAITING:
            raise WireError(
                f"no heartbeat begins like {payload[:8].hex()}; 5748 01 is magic and version",
                place="heartbeat",
                value=payload[:8].hex(),
            )
        check_rounds("heartbeat", rounds)
        return cls(job, sequence, rounds, bool(flags & _WAITING), sent_ns)


def is_from(payload: bytes, token: str) -> bool:
    """Return True if a heartbeat's datagram was made with this token."""
    return hmac.compare_digest(payload[_BODY.size :], _proof(payload[: _BODY.size], token))


def _proof(body: bytes, token: str) -> bytes:
    key = hashlib.blake2s(token.encode()).digest()
    return hashlib.blake2s(body, digest_size=_PROOF_BYTES, key=key).digest()
