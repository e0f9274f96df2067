"""Training gives the same bits for any roots of a job's trees: a parameter server, several, or a switch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from weir.controller.planning.plan import round_bytes
from weir.experiments.config import RunConfig
from weir.experiments.records import report
from weir.experiments.records.record import RunRecord, StrategyResult
from weir.experiments.run import execute, run_strategy
from weir.hosts import reference_sum
from weir.hosts.numerics.quantization import chunk_count
from weir.tests.paths import ROOT
from weir.topologies.drawing import ROLES
from weir.training.replicated import train_without_network
from weir.training.workloads.digits import TrainingJob

SERVERS = ["h12", "h9", "h6"]
ROOTS: Mapping[str, dict[str, Any]] = {
    "server": {"server": "h12"},
    "switch": {"server": None},
    "servers": {"servers": SERVERS},
    "stripes": {"stripes": 2},
}


def rooted(config: RunConfig, kind: str, strategies: list[str], *, steps: int = 6, **job: Any) -> RunConfig:
    """A few steps of the demo's job, with such a root, as a run file would say it."""
    data = config.model_dump()
    data["job"] = {**{k: v for k, v in data["job"].items() if k not in ("server", "servers")}, **ROOTS[kind], **job}
    data["training"] = {**data["training"], "steps": steps}
    return RunConfig.model_validate({**data, "strategies": strategies})


@pytest.fixture(scope="module")
def executed(short: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[RunRecord, Path]]:
    out, quiet = tmp_path_factory.mktemp("runs"), Console(quiet=True)
    strategies = {"server": ["widest"], "switch": ["rack", "widest"], "servers": ["widest"]}
    return {kind: execute(rooted(short, kind, names, steps=2), out, quiet) for kind, names in strategies.items()}


@pytest.fixture(scope="module")
def widest(executed: dict[str, tuple[RunRecord, Path]]) -> dict[str, StrategyResult]:
    return {kind: record.results[-1] for kind, (record, _) in executed.items()}


def test_sums_and_weights_are_the_same_bits_under_every_root(
    short: RunConfig, executed: dict[str, tuple[RunRecord, Path]], widest: dict[str, StrategyResult]
) -> None:
    config = rooted(short, "switch", ["widest"], steps=2)
    alone = TrainingJob(config.training.options, len(config.job.workers), config.seed)
    train_without_network(alone, reference_sum)
    assert {result.weights for record, _ in executed.values() for result in record.results} == {alone.digests()[0]}
    assert widest["switch"].sums == widest["servers"].sums == widest["server"].sums
    assert all(report.claims(record)[0][0] for record, _ in executed.values())


def test_without_a_server_a_switch_is_the_root_of_all_workers(
    short: RunConfig, executed: dict[str, tuple[RunRecord, Path]]
) -> None:
    for result in executed["switch"][0].results:
        (tree,) = result.trees
        assert set(short.job.workers) <= tree.keys()
        (root,) = set(tree.values()) - tree.keys()
        assert short.topology.is_switch(root)


def test_servers_have_a_tree_each_and_part_of_the_load(
    short: RunConfig, executed: dict[str, tuple[RunRecord, Path]]
) -> None:
    for result in executed["servers"][0].results:
        assert [set(tree.values()) - tree.keys() for tree in result.trees] == [{server} for server in SERVERS]
    quiet = short.model_copy(update={"background": []})  # which ends at the hosts of two of the servers
    at_three, at_one = (
        asyncio.run(run_strategy(rooted(quiet, kind, ["ps"], steps=3), "ps")) for kind in ("servers", "server")
    )
    assert at_three.busiest_link_bytes < 0.4 * at_one.busiest_link_bytes
    # the second and third server's jobs join the first one's, so they hold back for a lease before they begin
    at_once, alone = (result.iteration_ns[1:] for result in (at_three, at_one))
    assert max(at_once) < 0.6 * min(alone)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["switch", "servers"])
def test_a_lossy_run_is_exact_and_its_replay_equal(short: RunConfig, kind: str) -> None:
    config = rooted(short, kind, ["widest"], steps=3).model_copy(update={"loss": 0.01})
    first, again = (asyncio.run(run_strategy(config, "widest")) for _ in range(2))
    clean = TrainingJob(config.training.options, len(config.job.workers), config.seed)
    train_without_network(clean, reference_sum)
    assert first.weights == clean.digests()[0]
    assert first.resends > 0
    assert again.reproducible() == first.reproducible()


@pytest.mark.long
def test_stripes_share_what_others_leave_on_all_ways() -> None:
    """Others take 400 Mbit/s of every way over a spine: one tree has 600, two fill the hosts' own links."""
    shipped = RunConfig.load(ROOT / "experiments" / "striped.yaml")
    whole, striped = (
        asyncio.run(run_strategy(rooted(shipped, "stripes", ["widest"], steps=2, stripes=count), "widest"))
        for count in (1, 2)
    )
    assert whole.sums == striped.sums
    assert (len(whole.trees), len(striped.trees)) == (1, 2)
    ways = [set(tree.values()) & {"s5", "s6"} for tree in striped.trees]
    assert sorted(ways, key=min) == [{"s5"}, {"s6"}]
    assert sum(striped.iteration_ns) < 0.70 * sum(whole.iteration_ns)
    sent_ns = chunk_count(shipped.gradient_values, 256) * 8 * round_bytes(shipped.topology)  # by a host, at 1 Gbit/s
    assert max(striped.iteration_ns) < 1.1 * sent_ns, "the second part does not wait for the first one's windows"
    assert not striped.broken
    assert None not in striped.promised.values()


def test_records_load_and_pictures_show_every_server(executed: dict[str, tuple[RunRecord, Path]]) -> None:
    marks = {}
    for kind, (record, folder) in executed.items():
        assert RunRecord.load(folder) == record
        marks[kind] = (folder / "fabric-widest.svg").read_text().count(ROLES["server"])
    assert marks["switch"] == 0 < marks["server"] < marks["servers"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["switch", "servers"])
def test_a_job_moves_under_every_root_without_effect_on_training(short: RunConfig, kind: str) -> None:
    config = rooted(short, kind, ["widest"])
    steps = 72  # a step takes half a millisecond longer at the old place, and a move, which must be earned, 24
    config = config.model_copy(update={"training": short.training.model_copy(update={"steps": steps})})
    result = asyncio.run(run_strategy(config, "widest"))
    assert result.moves
    assert {move.shard for move in result.moves} <= set(range(len(config.job.roots)))
    assert all(move.switches for move in result.moves)
    alone = TrainingJob(config.training.options, len(config.job.workers), config.seed)
    train_without_network(alone, reference_sum)
    assert result.weights == alone.digests()[0]
