"""The fabric of a run under one strategy: loads of the links, roles of the hosts, and the switches that summed."""

from __future__ import annotations

from collections import Counter

from experiments.config import RunConfig
from experiments.record import StrategyResult
from topologies import Endpoint
from topologies.drawing import Drawing, Flow
from topologies.units import format_rate


def draw_fabric(config: RunConfig, result: StrategyResult) -> str:
    """SVG text."""
    topology = config.topology
    streams = Counter(node for node in result.tree.values() if topology.is_switch(node))
    return Drawing(
        topology=topology,
        loads={Endpoint.parse(name): min(load, 1.0) for name, load in result.link_load.items()},
        summing={switch: f"sums {count}" for switch, count in streams.items()},
        roles={**dict.fromkeys(config.job.workers, "worker"), config.job.server: "server"},
        flows=[Flow(flow.source, flow.destination, format_rate(flow.rate)) for flow in config.background],
        title=f"{config.name}: {result.strategy}",
    ).svg()
