"""Promises as people are told them: those that have changed, and a few of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ..planning.plan import JobPlan
from ..telemetry.probes import Probe
from .budget import window_alone
from .changes import Windows
from .options import CongestionOptions
from .promise import Promise, promises
from .queue_budget import LinkBudget

PROMISES: Final = __name__
"""The log of promises: each is told at level INFO when it is made, or cannot be kept any more."""
MOST: Final = 2
"""Of those that are kept, and of those that cannot be, so many are told each; the others are counted."""


class PromiseChanges:
    """What is promised now, and what of it is new. It reads no clock."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._budgets: Mapping[Endpoint, LinkBudget] = {}
        self.known: Sequence[Promise] = ()
        """Of every queue, when `take` was last called."""

    def take(self) -> list[Promise]:
        """The promises that are others than at the last call."""
        if self._windows.budgets is self._budgets:
            return []
        before = set(self.known)
        self._budgets = self._windows.budgets
        self.known = promises(self._budgets.values())
        return [promise for promise in self.known if promise not in before]


def summary(told: Sequence[Promise]) -> list[str]:
    """A line each: of what cannot be kept, and of the fullest queues; and how many more there are."""
    refused = [promise for promise in told if promise.bound_packets is None]
    kept = sorted(
        (promise for promise in told if promise.bound_packets is not None), key=lambda each: -(each.bound_packets or 0)
    )
    lines = []
    for group, what in ((refused, "cannot be kept either"), (kept, "at most as much each")):
        lines += [promise.text for promise in group[:MOST]]
        if len(group) > MOST:
            lines.append(f"{len(group) - MOST} more queues: {what}")
    return lines


def window_advice(
    topology: Topology, routes: Routes, plan: JobPlan, probes: Iterable[Probe], options: CongestionOptions
) -> str:
    """Where the queues on a job's ways allow it less than the window that it asks for, even beside no other job: what
    to ask for, as so many rounds of exponents as that window has come before each sum; else nothing.
    """
    allowed = window_alone(topology, routes, plan, probes, options)
    if allowed == plan.spec.window:
        return ""
    return (
        f"job {plan.spec.job}: its queues allow a window of {allowed} of {plan.spec.window} even alone; ask for that: "
        f"before each sum it has up to {plan.spec.window} rounds of exponents, of which no more go at once"
    )
