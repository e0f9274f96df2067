"""Jobs of a run in virtual time report their steps and the phases of these to the controller."""

from __future__ import annotations

import numpy as np

from weir.controller.jobs.reports import Phases
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig

FABRIC = {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 3, "rate": "1Gbit", "delay": "2us"}
LATENCY_NS = 100_000


async def test_phases_are_the_times_of_computation_and_of_sums() -> None:
    config = RunConfig.model_validate(
        {
            "name": "reported",
            "fabric": {"name": "reported", "generate": FABRIC},
            "job": {"workers": ["h1", "h4"], "window": 8, "slots": 16},
            "training": {"hidden": 16},
            "other_jobs": [{"workers": ["h2", "h5"], "values": 5_000, "sums": 4, "window": 8, "slots": 16}],
            "control": {"latency": f"{LATENCY_NS}ns", "warm_up": "1ms"},
            "strategies": ["hierarchy"],
        }
    )
    gradients = [np.ones(config.training.options.parameters, np.float32)] * 2
    async with Cluster(config, "hierarchy") as cluster:
        jobs, expected, other = cluster.controller.jobs, Phases(), Phases()
        for step, compute_ns in enumerate((500_000, 0, 3_000_000)):
            await cluster.compute(compute_ns)
            _, exposed_ns = await cluster.allreduce(gradients, 1)
            assert jobs[1].reports.phases == expected, "a report takes the latency of a message"
            await cluster.compute(LATENCY_NS)
            expected = Phases(step + 1, expected.compute_ns + compute_ns, expected.exposed_ns + exposed_ns)
            if step:
                expected.compute_ns += LATENCY_NS
            newest = jobs[1].reports.newest
            assert newest is not None
            assert (jobs[1].reports.phases, newest.step) == (expected, step)
            other = jobs[2].reports.phases if 2 in jobs else other
        assert (other.steps, other.compute_ns, other.waiting_ns) == (5, 0, 0), "the start, and four sums"
        trace = next(trace for trace in cluster.figures.jobs if trace.job == 2)
        assert trace.left_ns is not None
        assert 0 < other.exposed_ns <= trace.left_ns - trace.joined_ns
