"""The fabric of a run under one strategy: loads of the links, roles of the hosts, and the switches that summed."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ...topologies import Endpoint
from ...topologies.drawing import Drawing, Flow
from ...topologies.units import format_rate
from ..config import RunConfig
from ..config.background import SteadyFlow
from .record import PlacementPhase, StrategyResult
from .report import name_of

_FLOWS: Final = {"yielding": "yields", "transfer": "messages"}
"""Labels of flows without a rate, by kind."""


def draw_fabric(config: RunConfig, result: StrategyResult, phase: PlacementPhase, *, upright: bool = False) -> str:
    """SVG text of the fabric during one phase of a run."""
    topology = config.topology
    streams = Counter(node for tree in phase.trees for node in tree.values() if topology.is_switch(node))
    servers = [host for host in config.job.roots if host is not None]
    return Drawing(
        topology=topology,
        loads={Endpoint.parse(name): min(load, 1.0) for name, load in phase.link_load.items()},
        summing={switch: f"sums {count}" for switch, count in streams.items()},
        roles={**dict.fromkeys(config.job.workers, "worker"), **dict.fromkeys(servers, "server")},
        flows=[
            Flow(
                flow.source,
                flow.destination,
                format_rate(flow.rate) if isinstance(flow, SteadyFlow) else _FLOWS[flow.kind],
            )
            for flow in config.background
            if flow.start < phase.end_ns and (flow.stop is None or flow.stop > phase.start_ns)
        ],
        title=f"{config.name}: {name_of(result.strategy)}",
        upright=upright,
    ).svg()
