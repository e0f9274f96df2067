"""Counts of a job's generations, and its last use of each switch: the old tags that could still match.

A slot keeps its last round until it is overwritten. A switch takes any generation except the slot's own for a newer one
(docs/design.md §3.2), and there are 255: after that many, a leftover would pass for the present. So a job that has not
used a switch for that long must not use it again; and a number that is given to a new job continues its counter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...wire.aggregation import FIRST_GENERATION, GENERATIONS

LONGEST_ABSENCE: Final = 240
"""Generations; below 255, for a move that loses hosts takes several at once."""


@dataclass(slots=True)
class GenerationHistory:
    """The generations of one job's number."""

    count: int = 0
    """Number of generations since the first job that had this number."""
    last_used: dict[str, int] = field(default_factory=dict)
    """Last generation, counted as `count` does, that each switch summed."""

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> GenerationHistory:
        """Decode the fields by name. Raises TypeError, ValueError or AttributeError for malformed ones."""
        history = cls(**saved)
        return cls(int(history.count), {switch: int(at) for switch, at in history.last_used.items()})

    def next(self) -> int:
        """Return the generation that a job with this number begins with."""
        return _generation(self.count + 1)

    def go(self, generation: int, switches: Iterable[str]) -> None:
        """Continue the job in this generation, which is the next one or one soon after, in these switches."""
        while self.count == 0 or _generation(self.count) != generation:
            self.count += 1
        for switch in switches:
            self.last_used[switch] = self.count

    def pass_by(self, generations: Collection[int]) -> None:
        """Skip generations in which hosts of a forgotten job with this number may still send, as long as any is
        left.
        """
        self.count = max(self.count, *generations)
        for _ in range(GENERATIONS):
            if self.next() not in generations:
                break
            self.count += 1

    def may_use(self, switch: str) -> bool:
        """Return True if everything that the switch may still hold of this job is older than coming rounds."""
        return self.count - self.last_used.get(switch, self.count) < LONGEST_ABSENCE


def previous_generation(generation: int) -> int:
    """Return the generation before this one."""
    return _generation(generation - 1)


def _generation(count: int) -> int:
    return FIRST_GENERATION + (count - 1) % (GENERATIONS - 1)
