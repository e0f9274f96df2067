"""Jobs that come and go in mid-run, over the compiled program: no queue exceeds its bound at any enqueue, who joins has
its share at once, and nothing of the shared link is lost.
"""

from __future__ import annotations

import asyncio
import html
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from weir.controller.planning.plan import JobPlan
from weir.experiments.backends.round_count import Rounds
from weir.experiments.backends.throughput_bound import SumTime
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records import page as pages
from weir.experiments.records import report
from weir.experiments.records.fairness import (
    flows_that_share,
    jain,
    jobs_that_share,
    joins,
    over_time,
    rounds_between,
)
from weir.experiments.records.record import FlowTrace, JobTrace, RunRecord, StrategyResult
from weir.experiments.run import run_strategy
from weir.tests.browser import chromium, look, words_at_fault
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.wire.aggregation import MESSAGE_BYTES
from weir.wire.frames import FRAME_HEADER_BYTES

RUN: Final = ROOT / "experiments" / "queues" / "joins.yaml"
RATE_BPS: Final = 1_000_000_000
GUIDE: Final = " ".join((ROOT / "docs" / "congestion.md").read_text().split())


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return RunConfig.load(RUN)


@pytest.fixture(scope="module")
def result(config: RunConfig) -> StrategyResult:
    return asyncio.run(run_strategy(config, "widest"))


def test_no_queue_exceeds_its_bound_while_jobs_come_and_go(config: RunConfig, result: StrategyResult) -> None:
    assert result.broken == []
    assert result.loosest_promise is not None
    assert result.loosest_promise <= config.congestion.bound
    assert result.largest_queue_packets > config.congestion.bound // 2, "the jobs do meet in a queue"
    assert (result.drops, result.resends) == ({}, 0)


def test_a_joining_job_has_its_share_within_twenty_round_trips(result: StrategyResult) -> None:
    second, third = joins(result.jobs)
    assert (second.job, second.jobs, third.job, third.jobs) == (2, 2, 3, 3)
    assert second.index >= 0.99
    assert third.index >= 0.99
    assert third.held_ns > 1_000_000, "for a lease, and until the packets of larger windows are gone"


def test_present_jobs_use_all_of_the_link(config: RunConfig, result: StrategyResult) -> None:
    """The first has what others leave it: of three jobs and then of two, as soon as the third sends."""
    first, second, third = result.jobs
    assert second.left_ns is not None
    assert config.other_jobs[0].stop is not None
    assert second.left_ns > config.other_jobs[0].stop
    assert result.share is not None
    assert 0.97 <= result.share <= 1
    begun_ns = first.sends_ns + np.cumsum([0, *result.iteration_ns[:-1]])
    steps = zip(begun_ns, result.achievable_ns, result.iteration_ns, strict=True)
    shares = [(best or 0) / took for start_ns, best, took in steps if start_ns >= third.sends_ns]
    assert len(shares) >= 3
    assert all(0.98 <= share <= 1 for share in shares)


@pytest.mark.long
def test_hpcc_takes_in_who_comes_and_goes_with_short_queues(config: RunConfig) -> None:
    """There is no bound and no loss, and the shares are even, though the link is not full."""
    law = {**config.congestion.model_dump(), "law": "hpcc"}
    result = asyncio.run(run_strategy(config.replaced("a test", congestion=law), "widest"))
    assert None in result.promised.values()
    assert (result.broken, result.drops, result.resends) == ([], {}, 0)
    assert 0 < result.largest_queue_packets < config.congestion.bound
    found = joins(result.jobs)
    assert [join.jobs for join in found] == [2, 3]
    assert all(join.held_ns == config.control.latency and join.index >= 0.85 for join in found), "nobody holds back"


def four_jobs_at_once(bound: int, host_poll: str) -> tuple[JobPlan, SumTime, int]:
    """The liar's run with the fourth job honest, too, while three of the four hold back: the plan of the first, its
    first sum, and for how long the others hold back.
    """
    config = RunConfig.load(ROOT / "experiments" / "queues" / "liar.yaml")
    others = [{**other_job.model_dump(), "window": 32, "slots": 64, "obeys": True} for other_job in config.other_jobs]
    congestion = {**config.congestion.model_dump(), "bound": bound}
    config = config.replaced("a test", other_jobs=others, congestion=congestion, host_poll=host_poll)

    async def run() -> tuple[JobPlan, SumTime, int]:
        gradients = [np.full(config.gradient_values, rank, np.float32) for rank in range(3)]
        async with Cluster(config, "ps") as cluster:
            await cluster.allreduce(gradients, 1)
            assert not cluster.figures.broken_promises
            first, *newcomers = cluster.figures.jobs
            [held_ns] = {trace.sends_ns - first.sends_ns for trace in newcomers}
            return cluster.controller.jobs[1].plan, cluster.job.sums[0], held_ns

    return asyncio.run(run())


@pytest.mark.long
def test_a_job_that_shrinks_first_leaves_its_unused_share_idle() -> None:
    """Three of four jobs hold back for as long as the first sums, which has a quarter of Q* already: 7 rounds, and 8.8
    fill its round trip. With a Q* that leaves it 11 it has the link.
    """
    config = RunConfig.load(ROOT / "experiments" / "queues" / "liar.yaml")
    rounds = Rounds.of(config.gradient_values, 256, config.job.window)
    plan, took, held_ns = four_jobs_at_once(96, "0us")
    frame_ns = 8e9 * (MESSAGE_BYTES + FRAME_HEADER_BYTES) / RATE_BPS
    fill = plan.round_trip_ns / (3 * frame_ns)
    assert 8.5 < fill < 9
    cycle_ns = plan.round_trip_ns + 2 * frame_ns
    assert held_ns >= 0.98 * took.took_ns
    assert 0.93 * took.took_ns <= rounds.chunks / 7 * cycle_ns <= took.took_ns
    assert took.share < 7 / fill
    _, polled, _ = four_jobs_at_once(96, "10us")
    _, larger, _ = four_jobs_at_once(144, "10us")
    assert larger.share >= 0.97
    assert larger.achievable_ns is not None
    for told in (
        f"its first sum takes {polled.took_ns / 1e6:.1f} ms, and {larger.achievable_ns / 1e6:.1f} ms are achievable",
        f"takes {larger.took_ns / 1e6:.1f} ms",
        f"hold back for {held_ns / 1e6:.1f} ms",
        f"where {fill:.1f} fill its round trip of {plan.round_trip_ns / 1e3:.0f} µs",
        f"go in {cycle_ns / 1e3:.0f} µs, {7 * 3 * frame_ns / cycle_ns:.2f} of the link",
    ):
        assert told in GUIDE, told


@pytest.mark.long
def test_jobs_of_unlike_round_trips_have_the_same_rate() -> None:
    """65, 161 and 461 us in empty queues. With windows of one size the nearest has 1.3 times what the farthest has, and
    Jain's index is 0.988.
    """
    config = RunConfig.load(ROOT / "experiments" / "queues" / "mixed-rtts.yaml")
    result = asyncio.run(run_strategy(config, "rack"))
    assert (result.broken, result.drops, result.resends) == ([], {}, 0)
    assert result.loosest_promise is not None
    assert 64 < result.largest_queue_packets <= result.loosest_promise <= config.congestion.bound
    assert [trace.round_trip_ns // 1_000 for trace in result.jobs] == [64, 160, 460]
    for join in joins(result.jobs):
        assert join.jobs == 3
        assert join.index >= 0.998
    start_ns = max(trace.sends_ns for trace in result.jobs) + 4_605_120
    chunks = [rounds_between(trace, start_ns, start_ns + 4_605_120) for trace in result.jobs]  # in mid-sum
    rounds = Rounds.of(config.gradient_values, 256, config.job.window)
    assert sum(chunks) / rounds.chunks * 8e9 * rounds.bytes(256) / RATE_BPS >= 0.97 * 4_605_120
    nearest, middle, farthest = (round(chunk) for chunk in chunks)
    held = f"held at most {result.largest_queue_packets} packets; its bound is {result.promised[result.largest_queue]}"
    index = joins(result.jobs)[-1].index
    for told in (f"{nearest}, {middle} and {farthest} chunks. Jain's index is {index:.4f}", held):
        assert told in GUIDE, told


def test_fairness_over_time_is_plotted_as_jobs_share(
    config: RunConfig, result: StrategyResult, drawn: Callable[[RunRecord], dict[str, Any]]
) -> None:
    """Windows cover ten round trips, and restart when a job comes or goes; the second one after a join is its
    criterion.
    """
    record = RunRecord.begin(config, result.weights, result.accuracy)
    record.results.append(result)
    [axes] = drawn(record)["fairness"].axes
    [stairs] = axes.patches
    values, edges, _ = stairs.get_data()
    indices, begins, ends = values[::2], edges[::2] * 1e6, edges[1::2] * 1e6
    first, second, third = result.jobs
    assert second.left_ns is not None
    lasts_ns = 10 * first.round_trip_ns
    assert ends - begins == pytest.approx(np.full(len(begins), lasts_ns))
    for index, begin_ns, end_ns in zip(indices, begins, ends, strict=True):
        there = [job for job in result.jobs if job.sends_ns <= begin_ns + 1 and end_ns <= job.time_ns[-1] + 1]
        had = np.array([np.diff(np.interp([begin_ns, end_ns], job.time_ns, job.rounds))[0] for job in there])
        assert index == pytest.approx(had.sum() ** 2 / (len(had) * (had**2).sum()))
    assert begins[0] == pytest.approx(second.sends_ns)
    for join, job in zip(joins(result.jobs), (second, third), strict=True):
        [at] = np.flatnonzero(np.isclose(begins, job.sends_ns + lasts_ns))
        assert indices[at] == pytest.approx(join.index)
    spans_ns = np.diff([second.sends_ns, third.sends_ns, second.time_ns[-1], first.time_ns[-1]])
    assert len(begins) == (spans_ns // lasts_ns).sum(), "and none is left out"
    marks = {(round(line.get_xdata()[0] * 1e6), line.get_linestyle()) for line in axes.lines}
    assert marks == {(job.sends_ns, "--") for job in result.jobs} | {(second.time_ns[-1], ":")}


def test_the_page_shows_the_jobs(config: RunConfig, result: StrategyResult, tmp_path: Path) -> None:
    record = RunRecord.begin(config, result.weights, result.accuracy)
    record.results.append(result)
    page = pages.write(record, tmp_path, lambda *_, **__: '<svg width="9pt"></svg>').read_text()
    assert "Jobs beside each other" in page
    assert "<h2>Fairness</h2>" in page
    assert "<h2>Throughput</h2>" not in page, "each job's is among theirs"
    assert (tmp_path / "jobs.svg").exists()
    assert (tmp_path / "fairness.svg").exists()
    lines = report.condition_lines(record)
    assert any("job 3 joined at" in line and "of the 3 jobs" in line for line in lines)
    assert all(html.escape(line) in page for line in lines)


def test_the_page_of_jobs_is_legible_on_desk_and_phone(
    config: RunConfig, result: StrategyResult, tmp_path: Path
) -> None:
    record = RunRecord.begin(config, result.weights, result.accuracy)
    record.results.append(result)
    path = pages.write(record, tmp_path, lambda *_, **__: '<svg width="9pt"></svg>')
    with chromium() as browser:
        browser.get(path.as_uri())
        for width in (1400, 390):
            look(browser, width)
            assert words_at_fault(browser) == [], width


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 40))
def test_the_bound_holds_whoever_comes_and_goes(seed: int, config: RunConfig) -> None:
    """Jobs of any sizes and windows, over several ways, next to flows that never yield."""
    rng = random.Random(seed)
    hosts = [f"h{n}" for n in range(1, 17)]
    rng.shuffle(hosts)
    flow = {"source": hosts.pop(), "destination": hosts.pop(), "rate": rng.randrange(50, 300) * 1_000_000}

    def drawn(**times: int) -> dict[str, Any]:
        window = 1 << rng.randrange(2, 7)
        members = [hosts.pop() for _ in range(rng.randrange(2, 4))]
        return {"workers": members[:-1], "server": members[-1], "window": window, "slots": 2 * window, **times}

    leaf_spine = {"kind": "leaf-spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 4, "rate": "1Gbit", "delay": "2us"}
    data = {
        "name": "drawn",
        "seed": seed,
        "fabric": {"name": "drawn", "generate": leaf_spine},
        "job": drawn(),
        "training": {"hidden": 100, "steps": 20, "compute": 0},
        "other_jobs": [
            {**drawn(start=(start := rng.randrange(10_000_000)), stop=start + rng.randrange(1, 10_000_000))}
            for _ in range(3)
        ],
        "background": [flow],
        "host_poll": rng.choice([0, 10_000, 30_000]),
        "congestion": {"bound": 96, "lease": rng.choice([500_000, 2_000_000])},
        "control": {"interval": "1ms", "warm_up": "5ms", "solve_interval": "2ms", "latency": "50us"},
        "strategies": [rng.choice(["ps", "rack", "widest"])],
    }
    drawn_run = RunConfig.model_validate(data)
    result = asyncio.run(run_strategy(drawn_run, drawn_run.strategies[0]))
    assert result.broken == [], f"seed {seed}: {data}"
    assert result.drops.get("queue full", 0) == 0, f"seed {seed}"
    assert len(result.jobs) > 1, f"seed {seed}: nobody joined"


# --- arithmetic ---


def test_jains_index() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([5, 0, 0, 0]) == pytest.approx(1 / 4)
    assert jain([1, 2]) == pytest.approx(9 / 10)
    assert jain([0, 0]) == 1


def trace(job: int, sends_ns: int, pace: float, until_ns: int = 100_000) -> JobTrace:
    times = list(range(sends_ns, until_ns + 1, 100))
    rounds = [int(pace * (time - sends_ns)) for time in times]
    return JobTrace(
        job=job,
        workers=1,
        round_trip_ns=1_000,
        joined_ns=sends_ns - 500,
        sends_ns=sends_ns,
        time_ns=times,
        chunks=[0] * len(times),
        rounds=rounds,
    )


def test_a_join_is_measured_in_its_second_ten_round_trips() -> None:
    [join] = joins([trace(1, 1_000, 1.0), trace(2, 50_000, 3.0)])
    assert (join.job, join.joined_ns, join.held_ns, join.jobs) == (2, 49_500, 500, 2)
    assert join.index == pytest.approx(jain([1, 3]), rel=1e-3)
    assert rounds_between(trace(1, 1_000, 2.0), 5_000, 6_000) == pytest.approx(2_000)
    assert joins([trace(1, 1_000, 1.0), trace(2, 90_000, 1.0)]) == [], "it ends before there is anything to say"


def test_a_round_trip_is_no_shorter_than_all_streams_take_turns() -> None:
    """Two jobs have half of each turn of 16 us: over less than a turn nothing can be told of their shares."""
    turn_ns = 16_000

    def taking_turns(job: int, sends_ns: int) -> JobTrace:
        times = list(range(sends_ns, 1_000_001, 100))
        mine = [min(max(time % turn_ns - job * turn_ns // 2, 0), turn_ns // 2) // 250 for time in times]
        rounds = [32 * (time // turn_ns) + had for time, had in zip(times, mine, strict=True)]
        return trace(job, sends_ns, 0).model_copy(update={"turn_ns": turn_ns, "time_ns": times, "rounds": rounds})

    first, second = taking_turns(0, 1_000), taking_turns(1, 52_000)
    [join] = joins([first, second])
    assert join.index == pytest.approx(1, abs=1e-3)
    windows = over_time(jobs_that_share([first, second]))
    assert [window.start_ns for window in windows] == [52_000 + 160_000 * number for number in range(5)]
    assert all(window.index == pytest.approx(1, abs=1e-3) for window in windows)
    [short] = joins([each.model_copy(update={"turn_ns": 0}) for each in (first, second)])
    assert short.index == pytest.approx(jain([32, 8]), abs=1e-3), "of two shares that are the same"


def test_exponents_before_a_sum_are_no_smaller_share() -> None:
    """One job has exponents alone while the other sums: each had the same number of rounds."""
    first, second = trace(1, 1_000, 1.0), trace(2, 50_000, 1.0)
    summing = first.model_copy(update={"chunks": first.rounds})
    [join] = joins([summing, second])
    assert join.index == pytest.approx(1)
    old = [each.model_copy(update={"rounds": []}) for each in (first, second)]
    assert joins(old) == []
    assert over_time(jobs_that_share(old)) == []


def test_flows_without_arrivals_have_no_fairness() -> None:
    nothing = {"packet_bytes": 1514, "sent": 9, "acknowledged": 0, "marked": 0, "lost": 9, "mean_delay_us": 0.0}
    ends = {"source": "h1", "destination": "h2", "start_ns": 0, "stop_ns": None}
    flows = [FlowTrace(**nothing, **ends, port=port, time_ns=[0, 10**6], packets=[0, 0]) for port in (1, 2)]
    assert over_time(flows_that_share(flows)) == []


def test_chunks_are_counted_without_the_rounds_of_exponents() -> None:
    rounds = Rounds.of(10_000, 256, 32)
    assert (rounds.chunks, rounds.scales, rounds.total) == (40, 32, 72)
    counted = np.array([rounds.chunks_in(index) for index in range(145)])
    assert counted[[0, 32, 33, 72, 104, 105, 144]].tolist() == [0, 0, 1, 40, 40, 41, 80]
    assert (np.diff(counted) >= 0).all()


# --- files ---


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"workers": ["h3"], "server": "h4", "start": "5ms", "stop": "5ms"}, "a job comes before it goes"),
        ({"workers": ["h3"], "server": "h3"}, "server h3 is a worker too"),
        ({"workers": ["h3"], "servers": ["h4", "h5"]}, 'other_jobs.0: unknown key "servers", did you mean "server"'),
        ({"workers": ["h3"], "values": 0}, "other_jobs.0.values"),
        ({"workers": ["h99"], "server": "h4"}, 'has no host "h99"'),
    ],
)
def test_impossible_other_jobs_are_refused(
    other: dict[str, Any], complaint: str, tmp_path: Path, config: RunConfig
) -> None:
    with pytest.raises(ExperimentError, match=complaint):
        config.replaced("a test", other_jobs=[other]).check_names("a test")


def test_heartbeats_are_bounded_for_one_worker_a_host(config: RunConfig) -> None:
    both = config.replaced("a test", heartbeats={"to": "h12"}, other_jobs=[{"workers": ["h1", "h3"], "server": "h9"}])
    with raises(ExperimentError, place="a test: heartbeats", value="h1"):
        both.check_names("a test")
