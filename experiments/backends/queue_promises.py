"""What was promised of every queue in a run, beside what it held."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...controller.congestion.changes import Windows
from ...controller.congestion.promise import promises
from ...topologies import Endpoint
from .emulated import LinkFigures


class QueuePromises:
    """Of a run: over all of it, the loosest that was promised of each queue."""

    def __init__(self, windows: Windows) -> None:
        """`windows` are the controller's."""
        self._windows = windows
        self._bounds: dict[Endpoint, float] = {}

    def note(self) -> None:
        """To be called whenever promises may have changed, before anything is sent under them."""
        for link, budget in self._windows.budgets.items():
            bound = math.inf if budget.refusal else budget.bound
            self._bounds[link] = max(bound, self._bounds.get(link, 0.0))

    @property
    def promised(self) -> dict[Endpoint, int | None]:
        """By egress port: packets that its data queue was never to exceed; None where nothing was promised."""
        return {link: math.floor(bound) if bound < math.inf else None for link, bound in self._bounds.items()}

    def broken(self, links: Iterable[LinkFigures]) -> list[str]:
        """Queues that held more than was promised, over every enqueue of the run."""
        promised = self.promised
        return [
            f"{link.end} held {link.largest_queue_packets} packets, and {bound} were promised"
            for link in links
            if (bound := promised.get(link.end)) is not None and link.largest_queue_packets > bound
        ]

    @property
    def refusals(self) -> list[str]:
        """Why nothing is promised of some queues as the jobs are now."""
        return [promise.text for promise in promises(self._windows.budgets.values()) if promise.bound_packets is None]
