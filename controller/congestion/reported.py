"""Effects of telemetry on bounds: queues that switches' reports cross, or that packets with INT lengthen. Pure.

The number of reports depends on events: a watched packet, a queue that changes, a drop. No leaky bucket limits them, so
a queue on their path has no bound.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ..int_config.settings import IntConfig
from ..int_config.table_entries import report_links
from .queue_budget import LinkBudget


def crossed_by_reports(topology: Topology, routes: Routes, watching: IntConfig | None) -> frozenset[Endpoint]:
    """Links that switches' telemetry reports may cross on their way to the collector."""
    return frozenset() if watching is None else frozenset(report_links(topology, routes, watching))


def without_reported(
    budgets: Mapping[Endpoint, LinkBudget], topology: Topology, routes: Routes, watching: IntConfig | None
) -> Mapping[Endpoint, LinkBudget]:
    """The budgets, of which those have no bound that reports cross; nor have those that others cross where watched
    packets carry INT, as these are longer than the frames by which others' share was reckoned.
    """
    if watching is None:
        return budgets
    crossed = report_links(topology, routes, watching)
    bring = {"watched packets": watching.flows, "changes of queues": watching.queue_steps, "drops": watching.drops}
    listed = ", ".join(kind for kind, wanted in bring.items() if wanted)
    reports = f"telemetry's reports to {watching.collector} cross it, as many as {listed} bring"
    longer = "packets with INT are longer than those by which others' share is reckoned"
    refused = dict(budgets)
    for link, budget in budgets.items():
        if link in crossed:
            refused[link] = budget.refused(reports)
        elif watching.puts_headers and budget.share:
            refused[link] = budget.refused(longer)
    return refused
