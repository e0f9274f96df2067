"""Yielding background flows, through the compiled program: a bound if their receivers' windows allow one, the share of
a job's link that they use, and an announcement if no bound is possible.
"""

from __future__ import annotations

import asyncio
import html
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from weir.experiments.backends.round_count import Rounds
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.baselines import SchemeFigures
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records import page as pages
from weir.experiments.records import report
from weir.experiments.records.fairness import all_send, jain, rate_bps
from weir.experiments.records.record import RunRecord, StrategyResult
from weir.experiments.run import execute, run_strategy
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.topologies import Endpoint
from weir.topologies.mininet.fabric import SwitchKind
from weir.wire.transfer import TRANSFER_PORT

RUN: Final = ROOT / "experiments" / "queues" / "yielding.yaml"
RATE_BPS: Final = 1e9
UP: Final = Endpoint("s1", 7)
"""The one way from the first rack to the second."""
MS: Final = 1_000_000


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return RunConfig.load(RUN)


@pytest.fixture(scope="module")
def result(config: RunConfig) -> StrategyResult:
    return asyncio.run(run_strategy(config, "widest"))


def with_windows(config: RunConfig, window: int) -> RunConfig:
    flows = [{**flow.model_dump(), "window": window, "start": 2 * MS, "stop": None} for flow in config.background]
    return config.replaced("a test", background=flows)


def test_the_bound_holds_with_others_windows_in_it(config: RunConfig, result: StrategyResult) -> None:
    """A round of the job's window, three times eight packets of others, a probe and a copy."""
    assert result.promised[str(UP)] == config.job.window + 3 * 8 + 2
    assert None not in result.promised.values()
    assert max(bound for bound in result.promised.values() if bound is not None) <= config.congestion.bound
    assert result.broken == []
    assert result.largest_queue == str(UP)
    assert result.largest_queue_packets > config.job.window, "they do meet"
    assert (result.drops, result.resends) == ({}, 0)
    assert [flow.lost for flow in result.flows] == [0, 0, 0]
    assert all(0 <= flow.sent - flow.acknowledged <= 8 for flow in result.flows), "all else has been acknowledged"
    assert all(flow.packets[-1] - flow.acknowledged <= 8 for flow in result.flows)


def test_flows_yield_to_the_job_and_take_what_it_leaves(config: RunConfig, result: StrategyResult) -> None:
    """Between two sums they use all of the link; during a sum less than half of it, though two or sometimes three flows
    share it with one stream of the job.
    """
    ends = np.cumsum(np.array(result.iteration_ns) + config.training.compute) + config.control.warm_up
    for end_ns, took_ns in zip(ends[1:], result.iteration_ns[1:], strict=True):
        begins_ns = end_ns - took_ns
        idle = sum(rate_bps(flow, begins_ns - 1.2 * MS, begins_ns - 0.2 * MS) for flow in result.flows)
        busy = sum(rate_bps(flow, begins_ns + 0.5 * MS, end_ns - 0.5 * MS) for flow in result.flows)
        assert 0.97 * RATE_BPS <= idle <= 1.01 * RATE_BPS
        assert 0.05 * RATE_BPS < busy < 0.5 * RATE_BPS
    assert all(flow.marked > 0 for flow in result.flows)


def test_yielding_flows_share_the_remaining_rate(result: StrategyResult) -> None:
    """While all three send; the third in 10 of its round trips."""
    span = all_send(result.flows)
    assert span == (18 * MS, 24 * MS)
    assert jain([rate_bps(flow, *span) for flow in result.flows]) > 0.9
    assert rate_bps(result.flows[2], 25 * MS, 30 * MS) == 0, "it has left"


def test_figures_lines_and_page(config: RunConfig, result: StrategyResult, tmp_path: Path) -> None:
    figures = SchemeFigures.of(config, "explicit", result)
    assert figures.yielding_bps is not None
    assert 0.3 * RATE_BPS < figures.yielding_bps < RATE_BPS
    assert figures.row[6] == f"{figures.yielding_bps / 1e6:.0f}"
    own = len(result.iteration_ns) * Rounds.of(config.gradient_values, 256, config.job.window).bytes(256)
    assert own <= result.busiest_link_bytes < 1.05 * own, "the job's alone, and probes"
    record = RunRecord.begin(config, result.weights, result.accuracy)
    record.results.append(result)
    lines = report.condition_lines(record)
    assert sum("h3 to h8 from 2.0 to" in line for line in lines) == 1
    assert sum("Jain's index of the 3 from 18.0 to 24.0 ms" in line for line in lines) == 1
    page = pages.write(record, tmp_path, lambda *_, **__: '<svg width="9pt"></svg>').read_text()
    assert "Background flows that yield" in page
    assert all(html.escape(line) in page for line in lines)
    assert "<h2>Fairness</h2>" in page
    assert "<h2>Throughput</h2>" in page
    assert all((tmp_path / f"{name}.svg").exists() for name in ("flows", "fairness", "throughput"))


@pytest.mark.long
def test_beyond_the_bound_marks_hold_the_queue(config: RunConfig) -> None:
    """Three times 64 packets are more than Q*, which the run reports. Marks then hold the queue: once the flows have
    found their windows, while the job waits, it is near K = Q*/4, and the link is full.
    """

    async def run() -> None:
        async with Cluster(with_windows(config, 64), "widest") as cluster:
            [refused] = [line for line in cluster.figures.refusals if line.startswith(str(UP))]
            assert "192 packets of others' own windows" in refused
            assert cluster.figures.promised[UP] is None
            await cluster.compute(10 * MS)
            cluster.emulated.pop_longest_queues()
            before = [flow.packets[-1] for flow in cluster.figures.flows]
            await cluster.compute(10 * MS)
            longest = cluster.emulated.pop_longest_queues()[UP]
            assert longest <= 16 + 3 * 3, "K + N, and what a host sends at once after its poll"
            brought = sum(flow.packets[-1] for flow in cluster.figures.flows) - sum(before)
            assert brought * 8 * 1042 >= 0.97 * RATE_BPS * 10e-3
            gradients = [np.full(51_010, rank, np.float32) for rank in range(2)]
            totals, _ = await cluster.allreduce(gradients, 1)
            assert [np.unique(total.array).tolist() for total in totals] == [[1.0], [1.0]]
            assert not await cluster.figures.drops()
            assert cluster.figures.resends == 0

    asyncio.run(run())


# --- files ---


@pytest.mark.parametrize(
    ("flow", "complaint"),
    [
        ({"kind": "yeilding"}, 'kind "yeilding" is unknown, did you mean "yielding"'),
        ({"kind": "yielding", "rate": "1Mbit"}, 'unknown key "rate"'),
        ({"kind": "yielding", "windw": 4}, 'unknown key "windw", did you mean "window"'),
        ({"kind": "yielding", "window": 0}, "background.0.window"),
        ({"window": 4, "rate": "1Mbit"}, 'unknown key "window"'),
        ({}, "rate"),
    ],
)
def test_impossible_flows_are_refused(flow: dict[str, Any], complaint: str, config: RunConfig) -> None:
    with pytest.raises(ExperimentError, match=complaint):
        config.replaced("a test", background=[{"source": "h3", "destination": "h8", **flow}])


def test_two_flows_with_the_same_ends_are_no_two(config: RunConfig) -> None:
    twice = config.replaced("a test", background=[config.background[0].model_dump()] * 2)
    with raises(ExperimentError, place="a test: background", value=("h3", "h8", 9)):
        twice.check_names("a test")


def test_flows_that_yield_are_refused_in_mininet(config: RunConfig, tmp_path: Path, monkeypatch: Any) -> None:
    from rich.console import Console

    monkeypatch.setattr("weir.experiments.run.obstacle", lambda _: None)
    with raises(ExperimentError, place="--fabric mininet", value=config.yielding):
        execute(config, tmp_path, Console(quiet=True), SwitchKind.WEIR)


@pytest.mark.long
def test_flows_start_with_the_run_by_default_and_share_a_port(config: RunConfig) -> None:
    ways = (("h3", "h8"), ("h8", "h3"))
    flow = {"kind": "yielding", "window": 8, "port": TRANSFER_PORT}
    flows = [{**flow, "source": source, "destination": destination} for source, destination in ways]
    result = asyncio.run(run_strategy(config.replaced("a test", background=flows), "widest"))
    assert [(flow.source, flow.destination, flow.start_ns, flow.lost) for flow in result.flows] == [
        ("h3", "h8", 0, 0),
        ("h8", "h3", 0, 0),
    ]
    for trace in result.flows:
        assert rate_bps(trace, 0, trace.time_ns[-1]) > 0.3 * RATE_BPS
