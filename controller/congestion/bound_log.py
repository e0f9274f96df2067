"""Log of queue bounds: changed bounds, and a few examples of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ..planning.plan import JobPlan
from ..telemetry.probes import Probe
from .budget import window_alone
from .options import CongestionOptions
from .queue_bound import Promise, class_promises, promises
from .queue_budget import LinkBudget
from .window_controller import WindowController

PROMISES: Final = __name__
"""Logger of bounds: each is logged at level INFO when it is made or can no longer be kept."""
MAX_LISTED: Final = 2
"""Maximum number of queues listed per category (bounded, unbounded); the rest are only counted."""


class PromiseChanges:
    """The present bounds, and which of them are new. It reads no clock."""

    def __init__(self, windows: WindowController) -> None:
        self._windows = windows
        self._budgets: Mapping[Endpoint, LinkBudget] = {}
        self.known: Sequence[Promise] = ()
        """Bounds of every port's data queue at the last call of `pop_changes`."""
        self.known_classes: Sequence[Promise] = ()
        """The same of queues of jobs' traffic classes, those with a bound."""
        self.class_bounds: Mapping[tuple[Endpoint, int], int] = {}
        """Bounds of these queues in packets, by egress port and class."""

    def pop_changes(self) -> list[Promise]:
        """Return the bounds that have changed since the last call."""
        class_bounds = self._windows.class_bounds
        if self._windows.budgets is self._budgets and class_bounds == self.class_bounds:
            return []
        before = {*self.known, *self.known_classes}
        self._budgets, self.class_bounds = self._windows.budgets, class_bounds
        self.known, self.known_classes = promises(self._budgets.values()), class_promises(class_bounds)
        return [promise for promise in (*self.known, *self.known_classes) if promise not in before]


def summary(told: Sequence[Promise]) -> list[str]:
    """Return lines for the queues without a bound and for the fullest queues, and the number of further ones."""
    refused = [promise for promise in told if promise.bound_packets is None]
    kept = sorted(
        (promise for promise in told if promise.bound_packets is not None),
        key=lambda promise: -(promise.bound_packets or 0),
    )
    lines = []
    for group, what in ((refused, "cannot be kept either"), (kept, "at most as much each")):
        lines += [promise.text for promise in group[:MAX_LISTED]]
        if len(group) > MAX_LISTED:
            lines.append(f"{len(group) - MAX_LISTED} more queues: {what}")
    return lines


def window_advice(
    topology: Topology, routes: Routes, plan: JobPlan, probes: Iterable[Probe], options: CongestionOptions
) -> str:
    """Return advice on a window, if the queues on a job's paths allow less than it requests, even without other jobs.

    The advised window has as many rounds of exponents as that window has before each sum.

    Args:
        topology: The fabric.
        routes: Its routes.
        plan: Plan of the job.
        probes: Telemetry's probes.
        options: Options of congestion control.

    Returns:
        The advice as text; empty if none is needed.
    """
    allowed = window_alone(topology, routes, plan, probes, options)
    if allowed == plan.spec.window:
        return ""
    return (
        f"job {plan.spec.job}: its window of {plan.spec.window} packets is more than its queues allow even alone, "
        f"{allowed}; with a window of {allowed} each of its sums would begin earlier (docs/queue-bounds.md, section 7)"
    )
