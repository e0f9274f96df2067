"""Counterfactual of a switch in a tree: the same job, placed by the same strategy as if that switch had no slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ..controller.placement import Placement, PlacementError, Problem
from ..controller.placement.model.search_limit import SearchLimit
from ..controller.planning.completion import Expected

VISITS: Final = 20_000
"""Limit for all switches of an output, in visits of links: one or two seconds, which an interactive user waits."""
_DECISION: Final = 500
"""Visits that a decision counts as on any fabric. It also counts each link once, and each worker on a hundredth of the
links, by which linear programs grow.
"""
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


def decision_visits(problem: Problem) -> int:
    """Return the visits of links that placing the job once more counts as, whatever the strategy."""
    links = len(problem.topology.directed_links)
    return _DECISION + links + links * len(problem.workers) // 100


class RemovalStudy:
    """Places the job without one switch after another, up to a limit that does not depend on the machine."""

    def __init__(self, visits: int | None = None) -> None:
        self._limit = SearchLimit(VISITS if visits is None else visits)

    def without_each(
        self,
        problem: Problem,
        plan: Placement,
        place: Callable[[Problem], Placement],
        expected: Callable[[Problem, Placement], Expected],
    ) -> Mapping[str, Without]:
        """Return the outcome without each switch of the tree, in the tree's order.

        Switches are left out at the limit.
        """
        without: dict[str, Without] = {}
        room = problem.room or {switch.name: 1 for switch in problem.topology.switches}
        inner = [node for node in plan.children if node != problem.server]
        for switch in inner:
            self._limit.spend(decision_visits(problem))
            if self._limit.is_reached:
                break
            other = replace(problem, room={**room, switch: 0})
            try:
                tree = place(other)
                tree.check(other)
            except PlacementError:
                without[switch] = Without(None, ())
            else:
                instead = tree.children.keys() - set(inner) - {problem.server}
                without[switch] = Without(expected(other, tree), tuple(sorted(instead)))
        return without
