"""The fabric of a run under one strategy: loads of the links, roles of the hosts, and the switches that summed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from ...topologies import Endpoint
from ...topologies.drawing import Drawing, DrawnFlow
from ...topologies.units import format_rate
from ..config import RunConfig
from ..config.background import AnyFlow, SteadyFlow
from .record import PlacementPhase, StrategyResult
from .report import name_of

_FLOWS: Final = {"yielding": "yields", "transfer": "messages"}
"""Labels of flows without a rate, by kind."""
MAX_ARROWS: Final = 24
"""Maximum number of arrows for background flows in one picture: more of them cannot be told apart."""


def draw_fabric(config: RunConfig, result: StrategyResult, phase: PlacementPhase, *, upright: bool = False) -> str:
    """Return SVG text of the fabric during one phase of a run.

    Args:
        config: The run.
        result: Result of the strategy.
        phase: The phase, with its trees and the load of links.
        upright: True for narrow pages.
    """
    topology = config.topology
    streams = Counter(node for tree in phase.trees for node in tree.values() if topology.is_switch(node))
    servers = [host for host in config.job.roots if host is not None]
    arrows, left_out = arrows_of(
        flow
        for flow in config.background
        if flow.start < phase.end_ns and (flow.stop is None or flow.stop > phase.start_ns)
    )
    return Drawing(
        topology=topology,
        loads={Endpoint.parse(name): min(load, 1.0) for name, load in phase.link_load.items()},
        summing={switch: f"sums {count}" for switch, count in streams.items()},
        roles={**dict.fromkeys(config.job.workers, "worker"), **dict.fromkeys(servers, "server")},
        flows=arrows,
        title=f"{config.name}: {name_of(result.strategy)}{left_out}",
        upright=upright,
    ).svg()


def arrows_of(flows: Iterable[AnyFlow]) -> tuple[list[DrawnFlow], str]:
    """Combine flows into one arrow for each pair of hosts and kind; of many arrows, keep those with the most flows.

    Returns:
        The arrows, and a note on the rest for the title, which is empty if there is none.
    """
    groups = defaultdict[tuple[str, str, str], list[AnyFlow]](list)
    for flow in flows:
        groups[flow.source, flow.destination, flow.kind].append(flow)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    arrows = []
    for (source, destination, kind), alike in largest[:MAX_ARROWS]:
        steady = [flow.rate for flow in alike if isinstance(flow, SteadyFlow)]
        label = format_rate(sum(steady)) if steady else _FLOWS[kind]
        arrows.append(DrawnFlow(source, destination, label if len(alike) == 1 else f"{len(alike)} flows, {label}"))
    rest = sum(len(alike) for _, alike in largest[MAX_ARROWS:])
    return arrows, f" (and {rest} flows between other hosts)" if rest else ""
