"""Runs of queues/: no queue exceeds its bound at any enqueue, and long sums reach the achievable throughput."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import numpy as np
import pytest

from weir.controller.planning.plan import round_bytes
from weir.experiments.backends.round_count import Rounds
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.baselines import SchemeFigures
from weir.experiments.config import RunConfig
from weir.experiments.records.fairness import joins
from weir.experiments.run import run_strategy
from weir.tests.paths import ROOT
from weir.wire.aggregation import LANES

QUEUES: Final = ROOT / "experiments" / "queues"
SHARE: Final = 0.97
"""Required share of the achievable throughput."""
SHORTENED: Final = {
    # steps, units of the hidden layer; whether the sums are long enough for the share
    "deep": (1, 340, True),
    "incast-2": (1, 340, True),
    "incast-16": (1, 340, True),
    "incast-64": (1, 80, False),
    "incast-256": (1, 20, False),
    "joins": (8, 680, True),
    "mixed-rtts": (1, 2_048, True),
    "shallow": (1, 340, True),
    "steady": (1, 2_048, True),
    "yielding": (2, 300, True),
}
APART: Final = {"liar", "transfers"}
"""Runs without a bound, and with traffic that other tests hold to its bound."""


def run_of(name: str) -> RunConfig:
    return RunConfig.load(QUEUES / f"{name}.yaml")


def test_all_runs_about_queues_are_held_to_their_promises() -> None:
    assert {path.stem for path in QUEUES.glob("*.yaml")} == SHORTENED.keys() | APART


@pytest.mark.parametrize(
    "name",
    [name if name == "shallow" else pytest.param(name, marks=pytest.mark.long) for name in SHORTENED],
)
def test_a_shortened_run_keeps_what_it_promises(name: str) -> None:
    steps, hidden, is_long = SHORTENED[name]
    config = run_of(name)
    training = config.training.model_copy(update={"steps": steps, "hidden": hidden})
    kept_by(config.model_copy(update={"training": training}), share=SHARE if is_long else None)


def test_bounds_below_any_window_are_refused_and_paced() -> None:
    """Sixteen streams where a queue is to hold twelve packets: each sends less than one in a round trip, and the queue
    holds one of each at most.
    """
    config, said = run_of("incast-16"), list[str]()
    training = config.training.model_copy(update={"steps": 1, "hidden": 60})
    config = config.model_copy(
        update={"training": training, "congestion": config.congestion.model_copy(update={"bound": 12})}
    )
    result = asyncio.run(run_strategy(config, "ps", note=said.append))
    [refused] = [line for line in "\n".join(said).splitlines() if "cannot be kept" in line]
    assert re.fullmatch(
        r"s1-p17: cannot be kept because 16 streams, 1 probes and a burst of 0 packets may meet: 17 packets where 12 "
        r"are wanted; each stream waits 140\.0 us between packets",
        refused,
    )
    assert pytest.approx(16 * 8 * round_bytes(config.topology), rel=0.001) == 140e3, "at 1 Gbit/s"
    assert result.largest_queue_packets <= 17
    assert (result.drops, result.resends, result.broken) == ({}, 0, [])
    assert max(result.iteration_ns) > 140_000 * 18, "a gap before each round"


@pytest.mark.long
def test_an_incasts_jobs_share_alike_with_one_round_per_stream() -> None:
    """All 64 need 0.56 ms to send once, which is more than ten round trips in empty queues; and one job has exponents
    to sum while the other has lanes.
    """
    config = run_of("incast-64")
    training = config.training.model_copy(update={"steps": 1})
    result = asyncio.run(run_strategy(config.model_copy(update={"training": training}), "ps"))
    second = result.jobs[1]
    assert second.turn_ns == round(64 * 8 * round_bytes(config.topology))  # at 1 Gbit/s
    assert second.turn_ns > 10 * second.round_trip_ns
    [join] = joins(result.jobs)
    assert join.jobs == 2
    assert join.index >= 0.99


@pytest.mark.long
@pytest.mark.parametrize("name", SHORTENED)
def test_a_run_of_the_file_keeps_what_it_promises(name: str) -> None:
    kept_by(run_of(name), share=SHARE)


def kept_by(config: RunConfig, share: float | None = None) -> None:
    """Check that a run keeps each queue's bound, which is at most Q*, and has this share."""
    result = asyncio.run(run_strategy(config, config.strategies[0]))
    assert result.broken == []
    assert (result.drops, result.resends) == ({}, 0)
    switches = [end for end in config.topology.directed_links if config.topology.is_switch(end.node)]
    assert set(result.promised) == {str(end) for end in switches}
    assert result.loosest_promise is not None
    assert result.loosest_promise <= config.congestion.bound
    assert result.share is not None
    assert (share or 0) <= result.share <= (1.002 if config.steady else 1), "what waits of others' at the end"
    if result.jobs:  # the last look is a few rounds before the end, and fewer than a window of exponents
        chunks = len(result.iteration_ns) * Rounds.of(config.gradient_values, LANES, config.job.window).chunks
        assert chunks - config.job.window / 2 <= result.jobs[0].chunks[-1] <= chunks


@pytest.mark.long
def test_a_window_beyond_what_queues_allow_costs_nothing() -> None:
    """Jobs of `incast-64` request 32 rounds and never have more than two in the network: only two rounds of exponents
    precede each sum, not 32 that would go one by one.
    """
    config = run_of("incast-64")

    def summed_bps(window: int) -> float:
        jobs = [config.job, *config.other_jobs]
        first, *others = [job.model_copy(update={"window": window}) for job in jobs]
        asking = config.model_copy(update={"job": first, "other_jobs": others})
        result = asyncio.run(run_strategy(asking, "ps"))
        assert (result.broken, result.drops, result.resends) == ([], {}, 0)
        return SchemeFigures.of(config, "explicit", result).summed_bps

    assert summed_bps(32) == pytest.approx(summed_bps(2), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "streams", "rounds"), [("incast-2", 2, 600), pytest.param("incast-64", 64, 360, marks=pytest.mark.long)]
)
def test_a_long_sum_has_what_is_achievable(name: str, streams: int, rounds: int) -> None:
    """Other jobs have begun, and are in a long sum as well."""
    config = run_of(name)
    others = [job.model_copy(update={"values": 8 * LANES * rounds}) for job in config.other_jobs]
    config = config.model_copy(update={"other_jobs": others})
    workers = len(config.job.workers)
    assert workers + sum(len(job.workers) for job in config.other_jobs) == streams

    async def run() -> float:
        async with Cluster(config, "ps") as cluster:
            gradients = [np.full(LANES * rounds, rank, np.float32) for rank in range(workers)]
            await cluster.allreduce([gradient[: LANES * rounds // 3] for gradient in gradients], 1)
            await cluster.allreduce(gradients, 1)
            assert not cluster.figures.refusals
            assert not cluster.figures.broken_promises
            assert not await cluster.figures.drops()
            assert not cluster.figures.resends
            return cluster.job.sums[-1].share

    assert SHARE <= asyncio.run(run()) <= 1
