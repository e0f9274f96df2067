"""A queue's bound in words: value, formula, inputs; or the reason why there is none. Computed before a packet is
sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...topologies.model import Endpoint
from .queue_budget import LinkBudget


@dataclass(frozen=True, slots=True)
class Promise:
    """Bound of one egress queue."""

    link: Endpoint
    bound_packets: int | None
    """Maximum number of packets in the data queue; None: no bound."""
    text: str
    """One line for people."""

    @classmethod
    def of(cls, budget: LinkBudget) -> Promise:
        """Return the promise that a link's budget allows, with its inputs as text."""
        most = budget.streams * budget.window
        windows = (
            f" of W {'≤' if budget.windows < most else '='} {budget.window} "
            f"{'' if budget.windows == most else f'and ΣW = {budget.windows} '}"
            f"{'with what is left of others ' if budget.windows > most else ''}"
            f"(w = {budget.congested_window} from K = {budget.threshold} on)"
        )
        inputs = (
            f"N = {budget.streams} streams{windows if budget.windows else ''}, "
            f"{f'{budget.copies} copies, ' if budget.copies else ''}"
            f"{f'{budget.fetches} packets of rounds that moved jobs fetch, ' if budget.fetches else ''}"
            f"{budget.probes} probes, "
            f"others u = {budget.share:.2f} and σ = {budget.burst:.1f}"
            f"{f', by windows of their own ΣM = {budget.others}' if budget.others else ''}"
        )
        if budget.refusal:
            pace = f"; each stream waits {budget.gap_ns / 1e3:.1f} us between packets" if budget.gap_ns else ""
            return cls(budget.link, None, f"{budget.link}: cannot be kept because {budget.refusal}{pace}")
        bound = math.floor(budget.bound)
        return cls(budget.link, bound, f"{budget.link}: at most {bound} packets = {budget.formula}; {inputs}")


def class_promises(bounds: Mapping[tuple[Endpoint, int], int]) -> tuple[Promise, ...]:
    """Return the promises of queues of jobs' traffic classes, from their bounds by egress port and class, sorted."""
    return tuple(
        Promise(link, packets, f"{link}, class {priority}: at most {packets} packets = ΣW + copies of its jobs")
        for (link, priority), packets in sorted(bounds.items())
    )


def promises(budgets: Iterable[LinkBudget]) -> tuple[Promise, ...]:
    """Return the promise of each egress queue, sorted by link."""
    return tuple(Promise.of(budget) for budget in sorted(budgets, key=lambda one: one.link))
