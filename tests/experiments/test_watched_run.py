"""Runs whose flows are watched: training does not notice, and the run says what telemetry cost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from weir.experiments.config import RunConfig
from weir.experiments.records.record import StrategyResult
from weir.experiments.run import run_strategy
from weir.topologies.generators import leaf_spine
from weir.topologies.schema import dump_topology

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=200_000_000)
STEPS = 3


def run(tmp_path: Any, telemetry: dict[str, Any] | None) -> StrategyResult:
    dump_topology(TOPOLOGY, tmp_path / "fabric.yaml")
    file = tmp_path / "run.yaml"
    file.write_text(
        f"""
name: watched
fabric: fabric.yaml
job: {{workers: [h1, h2, h3], server: h4, window: 8, slots: 16}}
training: {{hidden: 32, steps: {STEPS}}}
background: [{{source: h4, destination: h1, rate: 20Mbit}}]
strategies: [widest]
telemetry: {json.dumps(telemetry)}
"""
    )
    return asyncio.run(run_strategy(RunConfig.load(file), "widest"))


WATCHED: dict[str, dict[str, Any]] = {
    "every packet, by INT-MD, to a host of the job": {"collector": "h4", "watch": [{"mode": "md"}], "changes": False},
    "some packets, by the nodes, to a host of the job": {
        "collector": "h4",
        "watch": [{"mode": "xd", "every": 20}],
        "changes": False,
        "reports": {"per_second": 1000, "burst": 4},
    },
    "changes, by the nodes, to the controller": {"watch": [{"mode": "xd"}], "queues": {"depth_step": 8}},
}


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> StrategyResult:
    return run(tmp_path_factory.mktemp("run"), None)


@pytest.mark.parametrize("how", WATCHED)
def test_training_gives_the_same_bits_and_the_cost_is_told(tmp_path: Any, how: str, unwatched: StrategyResult) -> None:
    watched = run(tmp_path, WATCHED[how])
    assert (watched.sums, watched.weights) == (unwatched.sums, unwatched.weights)
    assert watched.drops.keys() <= {"duplicate", "late"}
    assert watched.broken == []
    assert unwatched.telemetry is not None
    assert unwatched.telemetry.reports == 0
    cost = watched.telemetry
    assert cost is not None
    assert cost.forwarded is not None
    assert cost.packets > 0
    assert 0 < cost.largest_share < 1
    text = f"{cost.reports} reports, one for {cost.forwarded / cost.reports:.0f} packets forwarded"
    assert text in str(cost)
    assert (unwatched.telemetry.int_packets, unwatched.telemetry.int_bytes) == (0, 0)
    assert cost.int_packets is not None
    assert cost.int_bytes is not None
    promised = {port for port, bound in watched.promised.items() if bound is not None}
    if "some packets" in how:
        assert promised == set(watched.promised), "reports are declared, and queues on their way have bounds"
        assert cost.report_packets >= cost.reports > 10
    elif "changes" in how:
        assert promised == set(watched.promised) == {port for port, bound in unwatched.promised.items() if bound}
        assert (cost.int_packets, cost.int_bytes) == (0, 0)
        assert cost.reports < 0.1 * cost.forwarded
        assert (cost.report_packets, cost.report_bytes) == (0, 0)
    else:
        # reports are on all ways to h4 and may fill a queue there, so that the job may send any number of copies
        assert promised == {"s1-p3", "s2-p3", "s3-p1"}, "links of the flow and of the job that no report crosses"
        assert f"INT headers in {cost.int_packets} packets on links, {cost.int_bytes / 1e6:.2f} MB" in str(cost)
        # shim, header, and 8 words by each of the nodes so far: one or two behind a source and a transit
        assert (16 + 32) * cost.int_packets <= cost.int_bytes <= (16 + 64) * cost.int_packets
        assert 0 < cost.int_packets < cost.forwarded
        assert cost.reports > 0.2 * cost.forwarded  # each packet twice, at the end of its two or three hops
        assert cost.reports <= cost.report_packets <= 3 * cost.reports
        assert cost.report_bytes > 100 * cost.report_packets
