"""Queues that telemetry reports with more packets than their bound. An assumption of the bound is then violated: others
send more than declared, or a host exceeds its window. It reads no clock.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...topologies.model import Endpoint
from ..telemetry.link_state import LinkState
from .cross_traffic import listed
from .queue_budget import LinkBudget
from .window_controller import WindowController


class Exceeded:
    """Those queues, by the newest report of each."""

    def __init__(self, links: LinkState, windows: WindowController) -> None:
        self._links = links
        self._windows = windows
        self._budgets: Mapping[Endpoint, LinkBudget] = {}
        self._bounds = np.full(len(links.links), np.inf)
        self.told: dict[Endpoint, str] = {}
        """First report of each queue that exceeded its present bound."""

    def poll(self) -> list[str]:
        """Return a line of each queue that was not told yet. No report counts of before all obeyed the windows in
        force, for larger bounds of before may have been in force then.
        """
        if self._windows.budgets is not self._budgets:
            self._budgets = self._windows.budgets
            promised = {link: budget.bound for link, budget in self._budgets.items() if not budget.refusal}
            self._bounds = np.floor([promised.get(link, np.inf) for link in self._links.links])
            self.told = {}
        depths = self._links.depths
        over = np.flatnonzero(depths > self._bounds)
        if not len(over):
            return []
        drained_ns = self._windows.drained_ns
        since_ns = [max(self._windows.obeyed_ns, drained_ns.get(self._links.links[at], 0)) for at in over.tolist()]
        fresh = over[self._links.state["at_ns"][over] >= np.array(since_ns) + self._links.period_ns]
        depths_and_bounds = ((self._links.links[at], depths[at], self._bounds[at]) for at in fresh.tolist())
        new = {
            link: f"{link}: {depth:.0f} packets were reported, and {bound:.0f} are promised: {self._cause(link)}"
            for link, depth, bound in depths_and_bounds
            if link not in self.told
        }
        self.told |= new
        return list(new.values())

    def _cause(self, link: Endpoint) -> str:
        declared = self._windows.declared.get(link, ())
        if not declared:
            return "traffic that is not declared crosses it, or a worker exceeds its window"
        return f"traffic across it is more than was declared ({listed(declared)}), or a worker exceeds its window"
