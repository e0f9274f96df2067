"""Promises follow what telemetry sees of traffic that nobody declared."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from weir.controller.congestion.announcement import PROMISES
from weir.controller.congestion.undeclared import LOOK_PERIODS, LOOKS
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.run import run_strategy
from weir.tests.paths import ROOT
from weir.topologies import Endpoint

RUNS = ROOT / "experiments"
MS = 1_000_000
QUEUE = Endpoint("s1", 3)
"""To h3, which both of the flows below go to."""


def config_of(declared: str | None) -> RunConfig:
    """A job of two hosts with a server, and another host's flow of 400 Mbit/s to a fourth; links of 1 Gbit/s."""
    flow = {"source": "h4", "destination": "h3", "rate": declared, "port": 7}
    return RunConfig.model_validate(
        {
            "name": "seen",
            "fabric": {
                "name": "seen",
                "generate": {"kind": "leaf-spine", "leaves": 1, "spines": 0, "hosts_per_leaf": 5, "rate": "1Gbit"},
            },
            "job": {"workers": ["h1", "h2"], "server": "h3", "window": 8, "slots": 16},
            "background": [flow] if declared is not None else [],
            "congestion": {"bound": 96},
            "control": {"interval": "1ms", "warm_up": "5ms"},
            "strategies": ["ps"],
        }
    )


@pytest.mark.parametrize(("undeclared_bps", "withdrawn"), [(400_000_000, True), (60_000_000, False)])
def test_what_nobody_declared_ends_a_promise_as_long_as_it_is_seen(
    undeclared_bps: int, withdrawn: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside a declared flow of 300 Mbit/s, which changes nothing; less than a tenth of the link is taken for noise."""
    caplog.set_level(logging.INFO, PROMISES)
    config, wait_ns = config_of("300Mbit"), (LOOKS + 2) * LOOK_PERIODS * MS

    async def run() -> None:
        async with Cluster(config, "ps") as cluster:
            assert cluster.promised[QUEUE] is not None
            await cluster.compute(wait_ns)
            assert cluster.promised[QUEUE] is not None, "as declared"
            began_ns = cluster.now_ns
            cluster._emulated.add_flow(
                "h5",
                "h3",
                payload_bytes=1_000,
                rate_bps=undeclared_bps,
                source_port=9,
                start_ns=began_ns,
                stop_ns=began_ns + 2 * wait_ns,
            )
            await cluster.compute(wait_ns)
            seen = cluster._controller.windows
            assert (seen.undeclared == {QUEUE}) == withdrawn
            assert (seen.budgets[QUEUE].refusal != "") == withdrawn
            assert all(not budget.refusal for link, budget in seen.budgets.items() if link != QUEUE)
            await cluster.compute(2 * wait_ns)
            assert not seen.undeclared
            assert not seen.budgets[QUEUE].refusal, "it is over"

    asyncio.run(run())
    told = [record.getMessage() for record in caplog.records if record.name == PROMISES]
    assert [line for line in told if "more of others' traffic" in line] == [
        f"{QUEUE}: cannot be kept because telemetry sees more of others' traffic there than is declared"
    ] * withdrawn


@pytest.mark.parametrize("name", ["queues/joins.yaml", "queues/yielding.yaml"])
def test_jobs_that_come_and_go_are_not_taken_for_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor flows that yield, whose windows are declared and not their rates."""
    assert never_seen(RunConfig.load(RUNS / name), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("path", [RUNS / "demo.yaml", *sorted((RUNS / "queues").glob("*.yaml"))], ids=lambda p: p.stem)
def test_no_run_sees_what_it_did_not_declare(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert never_seen(RunConfig.load(path), monkeypatch)


def never_seen(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether no link of a run is ever taken for one that undeclared traffic crosses."""
    seen = list[Endpoint]()
    act = Cluster._act

    async def looking(self: Cluster) -> None:
        await act(self)
        seen.extend(self._controller.windows.undeclared)

    monkeypatch.setattr(Cluster, "_act", looking)
    asyncio.run(run_strategy(config, config.strategies[-1]))
    return not seen
