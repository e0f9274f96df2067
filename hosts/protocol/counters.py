"""Counts of received, sent and dropped packets of a protocol core, by reason."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Counters:
    """Packet counts of one core since it was made.

    Every received packet ends in `accepted`, `answered` or one drop reason.
    """

    received: int = 0
    accepted: int = 0
    """Contributions added, or results taken."""
    answered: int = 0
    """Repeated contributions and fetches that were answered from the kept results."""
    sent: int = 0
    retransmitted: int = 0
    """Packets among `sent` that a timer sent again."""

    malformed: int = 0
    """Version, type or length is off."""
    unexpected_type: int = 0
    """A good message of a type that this host, or this round, does not take."""
    bad_checksum: int = 0
    """Messages whose header checksum is wrong."""
    bad_check: int = 0
    """Messages whose linear check, over lanes and weight, is wrong."""
    unknown_job: int = 0
    stale_generation: int = 0
    """Messages of another generation than the plan's."""
    foreign: int = 0
    """Messages not from the aggregator or holder that was asked (at a worker), or a child with its own bit (server)."""
    bad_slot: int = 0
    duplicate: int = 0
    """The round is complete here, or already has this child's contribution."""
    late: int = 0
    """Messages of a round that its slot has left behind."""
    out_of_window: int = 0
    """Messages of a round that cannot be in flight yet: their tag is damaged."""
    unknown_round: int = 0
    """A fetch of a round that is not kept here."""
    paused: int = 0

    def drop_failing(self, *tests: tuple[str, NDArray[np.bool_]]) -> None:
        """Count each row that fails a test, by the first one; a test is a drop reason and which rows pass it."""
        left = np.ones(len(tests[0][1]), np.bool_)
        for reason, passed in tests:
            setattr(self, reason, getattr(self, reason) + int(np.count_nonzero(left & ~passed)))
            left &= passed

    @property
    def drops(self) -> dict[str, int]:
        """Packets dropped, by reason."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NOT_DROPS}

    @property
    def dropped(self) -> int:
        """All drops together."""
        return sum(self.drops.values())


_NOT_DROPS = frozenset({"received", "accepted", "answered", "sent", "retransmitted"})
