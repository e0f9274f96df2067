"""Counterfactual of a switch in a tree: the same job, placed by the same strategy as if that switch had no slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final

from ..controller.placement import Placement, PlacementError, Problem
from ..controller.planning.completion import Expected

LONGEST_SECONDS: Final = 1.0
"""Time limit for all switches of an output, in seconds of wall-clock time: an interactive user waits for it."""
_AS_FAST: Final = 0.01
"""A step that takes longer by this share or less is as fast."""


@dataclass(frozen=True)
class Without:
    """The job as it would be placed if one of its tree's switches had no room."""

    expected: Expected | None
    """None: there is no tree."""
    instead: tuple[str, ...]
    """The switches that then sum, and do not in the tree with it."""

    def outcome(self, switch: str, seconds: float) -> str:
        """Describe the outcome in a sentence, given the step's duration with the switch."""
        if self.expected is None:
            return f"without {switch} there is no tree"
        if abs(self.expected.seconds / seconds - 1) <= _AS_FAST:
            by = f", by {', '.join(self.instead)}" if self.instead else ""
            return f"without {switch} a step is as fast{by}"
        return (
            f"without {switch} a step takes {1e3 * self.expected.seconds:.3f} ms, with {self.expected.slowest_link} "
            f"for its slowest link, instead of {1e3 * seconds:.3f} ms"
        )

    def described(self, switch: str, seconds: float) -> dict[str, Any]:
        """Return the same with its parts, for programs."""
        return {
            "completion_seconds": None if self.expected is None else self.expected.seconds,
            "slowest_link": None if self.expected is None else str(self.expected.slowest_link),
            "instead": list(self.instead),
            "told": self.outcome(switch, seconds),
        }


class RemovalStudy:
    """Asks for one switch after another, as long as there is time."""

    def __init__(self, seconds: float | None = None) -> None:
        self._left = LONGEST_SECONDS if seconds is None else seconds

    def without_each(
        self,
        problem: Problem,
        plan: Placement,
        place: Callable[[Problem], Placement],
        expected: Callable[[Problem, Placement], Expected],
        placed_in: float,
    ) -> Mapping[str, Without]:
        """Return the outcome without each switch of the tree, in the tree's order.

        Switches are left out if the time does not suffice, estimated from the time that placing the job took, in
        seconds.
        """
        without: dict[str, Without] = {}
        room = problem.room or {switch.name: 1 for switch in problem.topology.switches}
        inner = [node for node in plan.children if node != problem.server]
        longest = placed_in
        for switch in inner:
            if longest > self._left:
                break
            started = perf_counter()
            other = replace(problem, room={**room, switch: 0})
            try:
                tree = place(other)
                tree.check(other)
            except PlacementError:
                without[switch] = Without(None, ())
            else:
                instead = tree.children.keys() - set(inner) - {problem.server}
                without[switch] = Without(expected(other, tree), tuple(sorted(instead)))
            taken = perf_counter() - started
            self._left -= taken
            longest = max(longest, taken)
        return without
