"""One strategy at one point, in the packet fabric: the compiled P4, the real controller, probes and hosts.

Others' traffic runs between hosts that take no part in the job, in pairs, so that no host sends or gets more than one
flow. Where it shifts, all pairs change at half the time that the steps would take on idle links, and again so often.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...controller.placement import PlacementError
from ...topologies import Endpoint
from ...topologies.mininet.processes import run_until_ended
from ..backends.virtual_time import Cluster
from ..config import RunConfig
from ..errors import ExperimentError
from .records import StrategyFigures
from .scenario import JobHosts, Scenario, rng_of
from .suite import CLASSES, INPUTS, PARAMETER_BYTES, as_file

WINDOW: Final = 32
_SHARES: Final = (0.6, 1.4)
"""A flow's rate is between these shares of the mean load times the link's rate."""
_FULLEST: Final = 0.45
"""Two flows may be hashed onto one link; so none has more than this share of it."""


def run(scenario: Scenario, name: str) -> StrategyFigures:
    """Return the job's steps under one strategy."""
    try:
        config = run_config(scenario, name)
        return run_until_ended(_run(scenario, config, name))
    except (PlacementError, ExperimentError) as error:
        return StrategyFigures.of_failure(name, scenario.point.load, error)


async def _run(scenario: Scenario, config: RunConfig, name: str) -> StrategyFigures:
    size = config.training.options.parameters
    gradients = [np.full(size, 1.0 + rank, np.float32) for rank in range(scenario.point.workers)]
    durations, moves = [], 0
    predicted, errors = [], []  # by the controller's model, of the steps in which the job stays where it is
    async with Cluster(config, name) as cluster:
        for _ in range(scenario.point.timing.steps):
            await cluster.compute(config.training.compute)
            trees, before = cluster.job.trees, _others_bytes(cluster)
            durations.append((await cluster.allreduce(gradients, 1))[1] * 1e-9)
            moves += len(cluster.pop_moves())
            if cluster.job.trees == trees:
                after = _others_bytes(cluster)
                rates_bps = {link: 8 * (after[link] - before[link]) / durations[-1] for link in after}
                seconds = cluster.job.expected_step_s(
                    cluster.routes, rates_bps, config.host_poll, config.congestion.bound
                )
                predicted.append(seconds)
                errors.append(predicted[-1] / durations[-1] - 1)
        links = list(cluster.figures.links())
        now = cluster.now_ns * 1e-9
        decisions, broken = cluster.decisions_ms, cluster.figures.broken_promises
    topology = scenario.routes.topology
    inside = [
        link for link in links if topology.is_switch(link.end.node) and topology.is_switch(topology.peer(link.end).node)
    ]
    others = [link.load - 8 * link.job_bytes / (topology.link_at(link.end).rate_bps * now) for link in inside]
    return StrategyFigures(
        strategy=name,
        mean_s=float(np.mean(durations)),
        p95_s=float(np.percentile(durations, 95)),
        max_link_load=max(link.load for link in links),
        decision_ms=float(np.median(decisions)),
        moves=moves,
        background=float(np.mean(others)),
        predicted_s=float(np.mean(predicted)) if predicted else None,
        errors=tuple(errors),
        broken=tuple(broken),
    )


def _others_bytes(cluster: Cluster) -> dict[Endpoint, int]:
    """Bytes that others have sent on each directed link so far."""
    return {link.end: link.background_bytes for link in cluster.figures.links()}


def run_config(scenario: Scenario, name: str) -> RunConfig:
    """Return the point as a run."""
    point, timing = scenario.point, scenario.point.timing
    (job,) = scenario.jobs
    hidden = max(1, round((point.gradient_bytes / PARAMETER_BYTES - CLASSES) / (INPUTS + 1 + CLASSES)))
    config = RunConfig.model_validate(
        {
            "name": "point",
            "seed": point.seed,
            "fabric": as_file(point.fabric, scenario.routes.topology.name),
            "job": {
                "workers": list(job.workers),
                "server": job.server,
                "window": WINDOW,
                "slots": 2 * WINDOW,
            },
            "training": {"hidden": hidden, "steps": timing.steps, "compute": timing.compute},
            "background": _background(scenario, job),
            "control": {
                "interval": 2_000_000,
                "warm_up": 3 * timing.interval,
                "solve_interval": timing.interval,
                "dwell": 2 * timing.interval,
                "gain": timing.gain,
            },
            "strategies": [name],
        }
    )
    return config


def _background(scenario: Scenario, job: JobHosts) -> list[dict[str, Any]]:
    point = scenario.point
    if not point.load:
        return []
    topology, rng = scenario.routes.topology, rng_of(point, "background")
    idle = [host.name for host in topology.hosts if host.name not in {*job.workers, job.server}]
    flows: list[dict[str, Any]] = []
    shift = point.timing.shift
    spans = [(0, None)]
    if point.background == "shifting":
        ends = [*range(shift, 40 * shift, shift)]
        spans = [(0, ends[0]), *zip(ends, [*ends[1:], None], strict=True)]
    for start, stop in spans:
        order = rng.sample(idle, len(idle))
        for source, sink in zip(order, [*order[1:], order[0]], strict=True):
            if topology.attached_switch(source) == topology.attached_switch(sink):
                continue
            share = min(rng.uniform(*_SHARES) * point.load, _FULLEST)
            rate = round(share * scenario.rate_bps)
            flow = {"source": source, "destination": sink, "rate": rate, "start": start, "port": rng.randint(1, 9_999)}
            flows.append(flow if stop is None else {**flow, "stop": stop})
    if not flows:
        raise ExperimentError(
            f"load {point.load} needs two hosts at different switches that take no part in the job; idle are "
            f"{', '.join(idle) or 'none'}",
            value=point.load,
        )
    return flows
