"""How long steps take by the model, against the packet fabric: the compiled program and the real protocol."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from weir.controller.placement import Placement, Problem
from weir.controller.placement.loads import LinkLoad
from weir.controller.planning.completion import Step, expected_step
from weir.controller.planning.plan import JobSpec, rounds_of_step
from weir.experiments.backends.rounds import Rounds
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.topologies import Endpoint, Routes, leaf_spine

CLOSE = 0.10
HASHED = 0.45
"""Where hashing decides a way, of which the model knows the mean alone."""
STRATEGIES = ("ps", "rack", "hierarchy", "root", "nearest", "random", "blind", "widest", "scarce")


def drawn_run(seed: int) -> RunConfig:
    """A small fabric of any kind, a job anywhere, any window, perhaps others' traffic."""
    rng = random.Random(seed)
    fabric: dict[str, Any] = rng.choice(
        (
            {
                "kind": "leaf-spine",
                "leaves": rng.randint(2, 4),
                "spines": rng.randint(1, 3),
                "hosts_per_leaf": rng.randint(3, 6),
            },
            {"kind": "fat-tree", "k": 4},
            {"kind": "jellyfish", "switches": 6, "degree": 3, "hosts_per_switch": 3, "seed": seed},
            {"kind": "random", "switches": 5, "links": 6, "hosts_per_switch": 3, "seed": seed},
        )
    )
    count = {
        "leaf-spine": fabric.get("hosts_per_leaf", 0) * fabric.get("leaves", 0),
        "fat-tree": 16,
        "jellyfish": 18,
        "random": 15,
    }[fabric["kind"]]
    hosts = [f"h{number + 1}" for number in range(count)]
    rng.shuffle(hosts)
    source, sink = hosts.pop(), hosts.pop()
    window, rate = rng.choice((4, 8, 16, 32, 64)), rng.choice((500, 1000))
    flow = {"source": source, "destination": sink, "rate": f"{round(rate * rng.uniform(0.05, 0.6))}Mbit"}
    return RunConfig.model_validate(
        {
            "name": "model",
            "seed": seed,
            "fabric": {"name": fabric["kind"], "generate": {**fabric, "rate": f"{rate}Mbit"}},
            "job": {
                "workers": hosts[1 : 1 + rng.randint(2, min(8, len(hosts) - 1))],
                "server": hosts[0],
                "window": window,
                "slots": 2 * window,
            },
            "training": {"hidden": rng.randint(100, 700)},
            "host_poll": rng.choice((0, 0, 30_000)),
            "background": [flow] if rng.random() < 0.5 else [],
            "control": {"warm_up": "5ms", "solve_interval": "10s"},
            "strategies": [rng.choice(STRATEGIES)],
        }
    )


async def measured(config: RunConfig, steps: int = 2) -> tuple[float, Placement, dict[Endpoint, float], int, int]:
    """Seconds of a step, where it was summed, others' traffic on each link, the window that its workers had, and frames
    that were repeated.
    """
    gradients = [
        np.full(config.training.options.parameters, 1.0 + rank, np.float32) for rank in range(len(config.job.workers))
    ]
    (strategy,) = config.strategies
    async with Cluster(config, strategy) as cluster:
        durations = [(await cluster.allreduce(gradients, 1))[1] for _ in range(steps)]
        placement = cluster._controller.jobs[1].plan.placement
        seconds = cluster.now_ns * 1e-9
        others = {
            link.end: max(link.load * config.topology.link_at(link.end).rate_bps - 8 * link.job_bytes / seconds, 0.0)
            for link in cluster.links()
        }
        window = cluster._controller.jobs[1].plan.pacing.window
        return float(np.mean(durations)) * 1e-9, placement, others, window, cluster.resends


async def compare_run(config: RunConfig) -> int:
    """Hold the model to a run; how many frames that repeated."""
    took, placement, others, window, resends = await measured(config)
    rounds = Rounds.of_gradient(config, 256)
    problem = Problem(
        Routes(config.topology),
        tuple(config.job.workers),
        config.job.roots[0],
        rounds.bytes(256),
        {link: LinkLoad(rate) for link, rate in others.items()},
    )
    ways = [way for child, parent in placement.edges for way in ((child, parent), (parent, child))]
    close = HASHED if any(problem.routes.unique_path(*way) is None for way in ways) else CLOSE
    step = Step(rounds.chunks, rounds.scales, window, 1094, config.host_poll * 1e-9)
    expected = expected_step(problem, placement, step, config.congestion.bound)
    assert expected.seconds == pytest.approx(took, rel=close), f"seed {config.seed}: {expected}"
    return resends


@pytest.mark.parametrize("seed", [1, 7, 11])
async def test_steps_take_as_long_as_the_model_says(seed: int) -> None:
    await compare_run(drawn_run(seed))


async def test_on_slow_links_nothing_is_repeated_in_vain() -> None:
    """A round with lanes takes ten times as long there as a scale round, and eight of them meet at the server."""
    config = RunConfig.model_validate(
        {
            "name": "slow",
            "fabric": {
                "name": "slow",
                "generate": {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 5, "rate": "200Mbit"},
            },
            "job": {"workers": [f"h{n}" for n in range(1, 9)], "server": "h9", "window": 16, "slots": 32},
            "training": {"hidden": 100},
            "host_poll": 0,
            "control": {"warm_up": "5ms", "solve_interval": "10s"},
            "strategies": ["ps"],
        }
    )
    assert await compare_run(config) == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
async def test_steps_take_as_long_as_the_model_says_widely(seed: int) -> None:
    await compare_run(drawn_run(seed))


def test_a_step_s_rounds_are_told_from_its_bytes() -> None:
    topology = leaf_spine(2, 1, 2)
    for chunks, window in ((1, 4), (3, 4), (40, 32), (10_000, 64)):
        bytes_ = chunks * 1094 + min(chunks, window) * 70
        spec = JobSpec(1, ("h1",), slots=2 * window, window=window, gradient_bytes=bytes_)
        assert rounds_of_step(spec, topology) == (min(chunks, window), chunks)
        assert Step.of(spec, topology) == Step(chunks, min(chunks, window), window, 1094)


def test_long_steps_go_on_as_they_have_begun() -> None:
    """Carried on in a line, the recursion ends where it would have."""
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1", "h2"), "h3", 1_000_000)
    placement = Placement({"h1": "s1", "h2": "s1"}, {"s1": "h3"}, "h3")
    for window, poll in ((2, 0.0), (8, 0.0), (8, 30e-6), (64, 0.0)):
        short, long = (
            expected_step(problem, placement, Step(chunks, window, window, 1094, poll)) for chunks in (2_000, 20_000)
        )
        assert long.seconds == pytest.approx(10 * short.seconds, rel=0.01)
        assert short.is_bound_by_window == (window < 64)


def test_a_window_bounds_a_job_where_links_do_not() -> None:
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1",), "h3", 1_000_000)
    placement = Placement({"h1": "h3"}, {}, "h3")
    wide, narrow = (expected_step(problem, placement, Step(1_000, each, each, 1094)) for each in (64, 1))
    assert narrow.seconds == pytest.approx(1_000 * narrow.round_trip_seconds, rel=0.05)
    assert wide.seconds == pytest.approx(1_000 * wide.link_seconds, rel=0.05)
    marked = expected_step(problem, placement, Step(1_000, 64, 64, 1094), 1)
    assert marked.window < 64
