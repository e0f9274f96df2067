"""How often a job has changed its generation, and when it last used which switch: what its old tags may still match.

A slot keeps its last round until somebody else writes it. A switch takes any generation but the slot's own for a newer
one (docs/design.md §3.2), and there are 255: after so many, what was left behind would pass for the present. So a job
that has not used a switch for so long must not use it again; and a number that is given to a new job goes on counting
where the last one ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...wire.aggregation import FIRST_GENERATION, GENERATIONS

LONGEST_ABSENCE: Final = 240
"""Generations; below 255, for a move that loses hosts takes several at once."""


@dataclass(slots=True)
class History:
    """The generations of one job's number."""

    count: int = 0
    """How many there have been, from the first job that had this number."""
    last_used: dict[str, int] = field(default_factory=dict)
    """Which generation, counted as `count` does, each switch summed last, by switch."""

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> History:
        """Of the fields by name. Raises TypeError, ValueError or AttributeError for what is none."""
        history = cls(**saved)
        return cls(int(history.count), {switch: int(at) for switch, at in history.last_used.items()})

    def next(self) -> int:
        """The generation that a job with this number begins with."""
        return _generation(self.count + 1)

    def go(self, generation: int, switches: Iterable[str]) -> None:
        """The job goes on in this generation, which is the next one or one soon after, in these switches."""
        while self.count == 0 or _generation(self.count) != generation:
            self.count += 1
        for switch in switches:
            self.last_used[switch] = self.count

    def pass_by(self, generations: Collection[int]) -> None:
        """Hosts of a forgotten job with this number may still send in these: the next one is none of them, if any is
        left.
        """
        self.count = max(self.count, *generations)
        for _ in range(GENERATIONS):
            if self.next() not in generations:
                break
            self.count += 1

    def may_use(self, switch: str) -> bool:
        """Whether what the switch may still hold of this job is sure to be older than what comes."""
        return self.count - self.last_used.get(switch, self.count) < LONGEST_ABSENCE


def previous_generation(generation: int) -> int:
    """The one before it."""
    return _generation(generation - 1)


def _generation(count: int) -> int:
    return FIRST_GENERATION + (count - 1) % (GENERATIONS - 1)
