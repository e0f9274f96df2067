"""Effects of telemetry on bounds: switches' reports to a host, and packets that INT lengthens. Pure.

The number of reports depends on events: a watched packet, a queue that changes, a drop. So a queue on their path has a
bound only if their maximum is declared (`ReportLimit`); then they are flows like others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ...wire.frames import CONTROL_CODE_POINTS
from ..int_config.settings import IntConfig
from ..int_config.table_entries import report_links
from .cross_traffic import Uncontrolled
from .options import CongestionOptions
from .queue_budget import LinkBudget


def with_reports(options: CongestionOptions, topology: Topology, watching: IntConfig | None) -> CongestionOptions:
    """Return the options with each switch's declared reports as a flow, and with the bytes that INT adds to packets."""
    if watching is None:
        return options
    limit, flows = watching.report_limit, list(options.uncontrolled)
    if limit is not None and watching.collector is not None and watching.reports_anything:
        length = watching.largest_report_bytes
        flows += [
            Uncontrolled(
                switch.name,
                watching.collector,
                8 * length * limit.per_second,
                length,
                limit.burst,
                in_control_class=watching.dscp in CONTROL_CODE_POINTS,
            )
            for switch in topology.switches
        ]
    return replace(options, uncontrolled=tuple(flows), int_bytes=watching.largest_header_bytes)


def crossed_by_reports(topology: Topology, routes: Routes, watching: IntConfig | None) -> frozenset[Endpoint]:
    """Return links that reports of undeclared number may cross on their way to the collector."""
    if watching is None or watching.report_limit is not None:
        return frozenset()
    return frozenset(report_links(topology, routes, watching))


def without_reported(
    budgets: Mapping[Endpoint, LinkBudget], crossed: Collection[Endpoint], watching: IntConfig | None
) -> Mapping[Endpoint, LinkBudget]:
    """Return the budgets, without the bounds of the links that reports of undeclared number cross."""
    if watching is None or not crossed:
        return budgets
    bring = {"watched packets": watching.flows, "changes of queues": watching.queue_steps, "drops": watching.drops}
    listed = ", ".join(kind for kind, wanted in bring.items() if wanted)
    why = (
        f"telemetry's reports to {watching.collector} cross it, as many as {listed} bring; "
        "declare the most as telemetry.reports: {per_second: …, burst: …}"
    )
    return {link: budget.refused(why) if link in crossed else budget for link, budget in budgets.items()}
