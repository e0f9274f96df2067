"""Incasts of queues/: no queue holds more than was promised at any enqueue, and long sums fill the server's link."""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np
import pytest

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.run import run_strategy
from weir.tests.paths import ROOT
from weir.topologies.model import Endpoint
from weir.wire.aggregation import LANES

SHARE: Final = 0.97
"""Of the rate of the server's link, which carries a stream for each worker."""


def run_of(name: str) -> RunConfig:
    return RunConfig.load(ROOT / "experiments" / "queues" / f"{name}.yaml")


@pytest.mark.parametrize("name", ["incast-2", pytest.param("incast-64", marks=pytest.mark.long)])
def test_a_run_of_the_file_keeps_what_it_promises(name: str) -> None:
    config = run_of(name)
    result = asyncio.run(run_strategy(config, "ps"))
    assert result.broken == []
    assert result.drops == {}
    bounds = [bound for bound in result.promised.values() if bound is not None]
    assert len(bounds) == len(result.promised) == 1 + sum(len(job.workers) for job in (config.job, *config.other_jobs))
    assert max(bounds) <= config.congestion.bound


@pytest.mark.parametrize(
    ("name", "streams", "rounds"), [("incast-2", 2, 600), pytest.param("incast-64", 64, 180, marks=pytest.mark.long)]
)
def test_the_servers_link_is_full_while_a_long_sum_lasts(name: str, streams: int, rounds: int) -> None:
    """Jobs beside the trained one have begun, and are in a long sum, too: in a short one, rounds of exponents take
    much of the time, and with windows of one, each of them takes a round trip.
    """
    config = run_of(name)
    others = [job.model_copy(update={"values": 8 * LANES * rounds}) for job in config.other_jobs]
    config = config.model_copy(update={"other_jobs": others})
    workers = len(config.job.workers)
    assert workers + sum(len(job.workers) for job in config.other_jobs) == streams
    link = Endpoint("s1", streams + 1)

    async def run() -> float:
        async with Cluster(config, "ps") as cluster:
            assert cluster.topology.peer(link).node == config.job.server

            def sent() -> tuple[int, int]:
                """Bytes, and the time in ns."""
                [figures] = [each for each in cluster.links() if each.end == link]
                return figures.job_bytes, cluster.now_ns

            gradients = [np.full(LANES * rounds, rank, np.float32) for rank in range(workers)]
            await cluster.allreduce([each[: LANES * rounds // 3] for each in gradients], 1)
            before, began_ns = sent()
            await cluster.allreduce(gradients, 1)
            after, ended_ns = sent()
            assert not cluster.refusals
            assert not cluster.broken_promises
            assert not await cluster.drops()
            assert not cluster.resends
            return 8e9 * (after - before) / (ended_ns - began_ns) / cluster.topology.link_at(link).rate_bps

    share = asyncio.run(run())
    assert SHARE <= share <= 1
