"""Queues that lose their bound because jobs of higher traffic classes go first.

The bounds of bulk queues assume that all bulk traffic is served in order of arrival, at the rate that the control class
leaves. A link that messages of a class above bulk cross serves its bulk queue at a smaller rate. So that queue has no
bound, nor have the queues behind it that its traffic reaches in larger bursts than declared. A job that waits for a
higher class repeats rounds that are only late, so none of its queues has a bound either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...topologies.model import Endpoint
from ...topologies.routing import Routes
from ...wire.frames import BULK_PRIORITY
from .cross_traffic import Hops, hop_by_hop, probe_way
from .options import CongestionOptions
from .queue_budget import LinkBudget

if TYPE_CHECKING:
    from ..telemetry.probes import Probe
    from .budget import JobStreams


def raised_links(jobs: Iterable[JobStreams]) -> Mapping[Endpoint, int]:
    """Links that messages of classes above bulk may cross, each with the highest of these."""
    raised: dict[Endpoint, int] = {}
    for job in jobs:
        if (highest := max(job.classes)) > BULK_PRIORITY:
            raised |= {link: max(highest, raised.get(link, 0)) for link in job.links}
    return raised


def waits_for_others(job: JobStreams, raised: Mapping[Endpoint, int]) -> bool:
    """Return whether a job's packets may wait for those of a higher class."""
    return any(raised.get(link, BULK_PRIORITY) > min(job.classes) for link in job.links)


def without_delayed(
    budgets: Mapping[Endpoint, LinkBudget],
    routes: Routes,
    jobs: Sequence[JobStreams],
    probes: Iterable[Probe],
    options: CongestionOptions,
) -> Mapping[Endpoint, LinkBudget]:
    """Return the budgets, without the bounds of queues that higher classes delay, and of those behind them.

    Args:
        budgets: Budgets by egress port, made as if all jobs were in one class.
        routes: Routes of the fabric.
        jobs: Streams of the running jobs.
        probes: Telemetry's probes.
        options: Declared traffic.
    """
    raised = raised_links(jobs)
    if not raised:
        return budgets
    reasons = {
        link: f"jobs of traffic class {priority} cross, and bulk traffic waits for them"
        for link, priority in raised.items()
    }
    for job in jobs:
        if waits_for_others(job, raised):
            for link in job.links:
                reasons.setdefault(link, "a job that crosses waits for jobs of a higher traffic class elsewhere")
    for ways in _ways(routes, probes, options):
        first = next((index for index, hop in enumerate(ways) if not raised.keys().isdisjoint(hop)), len(ways))
        for link in (link for hop in ways[first:] for link in hop):
            reasons.setdefault(link, "traffic comes to it that has waited for jobs of a higher traffic class")
    return {link: budget.refused(reasons[link]) if link in reasons else budget for link, budget in budgets.items()}


def _ways(routes: Routes, probes: Iterable[Probe], options: CongestionOptions) -> Iterable[Hops]:
    """Yield the ways of all bulk traffic that jobs do not send, hop by hop."""
    for probe in probes:
        yield probe_way(routes, probe)
    flows = [(flow.source, flow.destination) for flow in options.uncontrolled if not flow.in_control_class]
    for flow in options.windowed:
        flows += [(flow.source, flow.destination), (flow.destination, flow.source)]
    for source, destination in flows:
        if routes.reaches(source, destination):
            yield hop_by_hop(routes, routes.shares(source, destination), destination)
