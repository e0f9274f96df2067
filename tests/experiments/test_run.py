"""A training job on the emulated fabric: exact whatever carries it, and faster along the widest tree."""

from __future__ import annotations

import asyncio
import logging
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from weir.experiments import run
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.records import page, report
from weir.experiments.records.record import RunRecord, StrategyResult
from weir.experiments.run import execute, run_strategy
from weir.hosts import reference_sum
from weir.tests.browser import chromium, look, words_at_fault
from weir.training.replicated import train_without_network
from weir.training.workloads.digits import TrainingJob

Logged = tuple[tuple[RunRecord, Path], list[str]]
"""A run's record with its folder, and the lines of its log."""


@pytest.fixture(scope="module")
def console() -> Console:
    return Console(file=StringIO(), record=True)


class LoggedLines(logging.Handler):
    """Messages of a logger, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def logged(short: RunConfig, console: Console, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """A short run, and its log as `weir -v` shows it."""
    handler, logger = LoggedLines(), logging.getLogger(run.__name__)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        return execute(short, tmp_path_factory.mktemp("runs"), console), handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.fixture(scope="module")
def executed(logged: Logged) -> tuple[RunRecord, Path]:
    return logged[0]


@pytest.fixture(scope="module")
def results(executed: tuple[RunRecord, Path]) -> dict[str, StrategyResult]:
    return {result.strategy: result for result in executed[0].results}


def reference(config: RunConfig) -> TrainingJob:
    job = TrainingJob(config.training.options, len(config.job.workers), config.seed)
    train_without_network(job, reference_sum)
    return job


def test_final_weights_are_those_of_training_without_a_network(
    short: RunConfig, results: dict[str, StrategyResult]
) -> None:
    expected = reference(short).digests()
    assert len(set(expected)) == 1
    assert {name: result.weights for name, result in results.items()} == dict.fromkeys(short.strategies, expected[0])


def test_workers_may_compute_longer_than_any_other_limit(short: RunConfig) -> None:
    long = short.replaced(
        "a test",
        strategies=["ps"],
        background=[],
        training={**short.training.model_dump(), "compute": "11s", "steps": 2},
        control={"interval": "2s", "solve_interval": "20s", "warm_up": "11s"},
    )
    assert len(asyncio.run(run_strategy(long, "ps")).iteration_ns) == 2


@pytest.mark.long
def test_a_page_that_cannot_be_drawn_loses_no_record(
    short: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*told: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(page, "write", broken)
    with pytest.raises(ZeroDivisionError) as error:
        execute(short.replaced("a test", strategies=["ps"]), tmp_path, Console(quiet=True))
    [kept] = tmp_path.iterdir()
    assert [result.strategy for result in RunRecord.load(kept).results] == ["ps"]
    assert error.value.__notes__ == [f"{kept}: has the record, without its page"]


def test_the_demo_learns_its_digits(demo: RunConfig) -> None:
    assert reference(demo).accuracy() >= 0.95


def test_the_widest_tree_is_the_fastest_by_far(results: dict[str, StrategyResult]) -> None:
    assert results["widest"].mean_ms <= 0.6 * results["ps"].mean_ms
    assert results["widest"].mean_ms < min(result.mean_ms for name, result in results.items() if name != "widest")


def test_the_widest_tree_avoids_a_busy_link_without_any_effect(
    short: RunConfig, results: dict[str, StrategyResult]
) -> None:
    moves = results["widest"].moves
    assert moves
    change_ns = max(flow.start for flow in short.background)
    assert all(move.time_ns > change_ns for move in moves)
    assert results["widest"].weights == results["ps"].weights


def test_every_queue_keeps_its_bound_under_every_strategy(results: dict[str, StrategyResult]) -> None:
    assert {name: result.broken for name, result in results.items()} == {name: [] for name in results}
    assert {None in result.promised.values() for result in results.values()} == {False}
    assert all("N = " in promise.text for result in results.values() for promise in result.promises)


def test_screen_has_no_formulas_and_verbose_log_has_them(console: Console, logged: Logged) -> None:
    assert " = " not in console.export_text()
    for name in ("ps", "widest"):
        assert [line for line in logged[1] if line.startswith(f"queue bounds, {name}: s") and " = " in line]


def test_fullest_queue_is_compared_with_its_own_bound(results: dict[str, StrategyResult]) -> None:
    for result in results.values():
        assert result.fullest_queue is not None
        assert result.promised[result.fullest_queue.port] == result.fullest_queue.bound
        assert result.fullest_queue.packets <= result.largest_queue_packets
        assert 0 < result.fullest_queue.share <= 1


def test_results_have_the_bounds_of_traffic_classes_and_what_their_queues_held(short: RunConfig) -> None:
    config = short.replaced(
        "a test",
        strategies=["ps"],
        background=[],
        training={**short.training.model_dump(), "steps": 2},
        job={**short.job.model_dump(), "traffic_class": 4},
    )
    result = asyncio.run(run_strategy(config, "ps"))
    assert result.broken == []
    assert {queue.split(", ")[1] for queue in result.class_promised} == {"class 4"}
    assert {f"{queue}: at most {bound} packets" for queue, bound in result.class_promised.items()} <= {
        promise.text.split(" = ")[0] for promise in result.promises
    }
    held = {use.port: use for use in result.queue_uses if use.port in result.class_promised}
    assert held
    assert all(use.packets <= use.bound == result.class_promised[use.port] for use in held.values())


def test_notes_of_an_earlier_strategy_are_not_repeated() -> None:
    console = Console(file=StringIO(), record=True)
    announced: dict[str, str] = {}
    for name, text in (("ps", "a\nb"), ("rack", "a\nb"), ("widest", "a\nc")):
        run._announce(console, name, announced, text)
    assert console.export_text().splitlines() == [
        "queue bounds, ps: a",
        "queue bounds, ps: b",
        "queue bounds, rack: same as under ps",
        "queue bounds, widest: a",
        "queue bounds, widest: c",
    ]


def test_the_server_alone_carries_every_stream_on_one_link(
    short: RunConfig, results: dict[str, StrategyResult]
) -> None:
    assert results["ps"].trees == [dict.fromkeys(short.job.workers, short.job.server)]
    assert results["ps"].busiest_link_bytes > 4 * results["widest"].busiest_link_bytes


@pytest.mark.long
async def test_random_values_come_from_the_runs_seed(short: RunConfig) -> None:
    trees = []
    for seed in (1, 1, 2):
        async with Cluster(short.model_copy(update={"seed": seed}), "random") as cluster:
            trees += cluster.job.trees
    first, again, other = trees
    assert first == again
    assert first != other


def test_the_page_of_a_run_shows_what_its_history_has(
    short: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("aiohttp")
    from weir.controller.live import watch
    from weir.controller.live.history import HistoryFile, run_query

    monkeypatch.setattr(watch, "LOOK_S", 0.0)
    kept = tmp_path / "seen.duckdb"
    with HistoryFile(kept) as history:
        training = short.training.model_copy(update={"steps": 8})
        config = short.model_copy(update={"strategies": ["widest"], "training": training})
        record, folder = execute(config, tmp_path, Console(quiet=True), watch=watch.Watch(None, history))
    page = (folder / "index.html").read_text()
    assert page.count("<h2>Links and queues by telemetry</h2>") == 1
    for name, column in (("seen-loads", "load"), ("seen-queues", "queue_packets")):
        drawn = (folder / f"{name}.svg").read_text()
        query = f"SELECT link FROM links GROUP BY link ORDER BY max({column}) DESC, avg({column}) DESC, link LIMIT 3"
        assert [link for (link,) in run_query(kept, query)[1] if f">{link}<" not in drawn] == []
        assert f">{record.config.name}, widest<" in drawn
        assert drawn in page
    with chromium() as browser:
        browser.get((folder / "index.html").as_uri())
        for width in (1400, 390):
            look(browser, width)
            assert words_at_fault(browser) == [], width


def test_the_page_of_a_run_is_legible_on_desk_and_phone(executed: tuple[RunRecord, Path]) -> None:
    """Pictures fit, no words overlap, are cut off or tiny; narrow pages show their own drawings."""
    shown = (
        '[...document.querySelectorAll(".broad, .narrow")].filter(each => each.offsetWidth).map(each => each.className)'
    )
    with chromium() as browser:
        browser.get((executed[1] / "index.html").as_uri())
        for width, kind in ((1400, "broad"), (1000, "both"), (390, "narrow"), (360, "narrow")):
            look(browser, width)
            assert words_at_fault(browser) == [], width
            kinds = {word for name in browser.execute_script(f"return {shown}") for word in name.split()}
            assert kinds == ({"broad", "narrow"} if kind == "both" else {kind}), width
            pictures = browser.execute_script(f"return {shown}.length")
            assert pictures == 3 + sum(len(result.phases or [0]) for result in executed[0].results)


@pytest.mark.parametrize("strategy", ["widest", pytest.param("ps", marks=pytest.mark.long)])
def test_loss_costs_time_only(demo: RunConfig, strategy: str) -> None:
    """And not much: where each worker waited for as long as full queues take, it was seven times as much."""
    clean = demo.model_copy(update={"training": demo.training.model_copy(update={"steps": 2})})
    config = clean.model_copy(update={"loss": 0.01})
    expected = reference(config).digests()[0]
    result = asyncio.run(run_strategy(config, strategy))
    assert result.weights == expected
    assert result.drops["link loss"] > 0
    assert result.resends > 0
    without = asyncio.run(run_strategy(clean, strategy))
    assert sum(without.iteration_ns) < sum(result.iteration_ns) < 4 * sum(without.iteration_ns)


def test_loss_is_the_links_loss_in_every_fabric(demo: RunConfig) -> None:
    fabric = {**demo.fabric, "generate": {**demo.fabric["generate"], "loss": 0.5}}
    lossy = demo.replaced("a test", fabric=fabric, loss=0.1)
    assert [link.loss for link in lossy.topology.links] == [pytest.approx(0.55)] * len(demo.topology.links)
    assert {link.loss for link in demo.topology.links} == {0.0}


@pytest.mark.long
def test_the_widest_tree_is_fastest_and_weights_are_equal(
    demo: RunConfig, short: RunConfig, results: dict[str, StrategyResult]
) -> None:
    for name in sorted(set(demo.strategies) - set(short.strategies)):
        result = asyncio.run(run_strategy(short, name))
        assert result.weights == results["widest"].weights
        assert result.mean_ms > results["widest"].mean_ms
        assert (result.broken, None in result.promised.values()) == ([], False)


@pytest.mark.long
def test_loss_costs_only_time_for_every_strategy(demo: RunConfig) -> None:
    expected = reference(demo).digests()[0]
    for strategy in demo.strategies:
        result = asyncio.run(run_strategy(demo.model_copy(update={"loss": 0.01}), strategy))
        assert result.weights == expected, strategy


@pytest.mark.long
def test_a_replay_reproduces_every_figure(short: RunConfig, results: dict[str, StrategyResult]) -> None:
    again = asyncio.run(run_strategy(short, "widest"))
    assert again.reproducible() == results["widest"].reproducible()


def test_the_record_says_what_the_run_was(short: RunConfig, executed: tuple[RunRecord, Path]) -> None:
    record, folder = executed
    assert RunRecord.load(folder) == record
    assert record.config == short
    assert record.differences(RunRecord.load(folder)) == []
    changed = record.model_copy(update={"results": [record.results[0].model_copy(update={"resends": -1})]})
    assert record.model_copy(update={"results": record.results[:1]}).differences(changed) == ["ps: resends differs"]


def test_the_page_shows_table_plots_and_fabrics(executed: tuple[RunRecord, Path]) -> None:
    record, folder = executed
    fabrics = {
        f"fabric-{result.strategy}{f'-{number}' if number > 1 else ''}.svg"
        for result in record.results
        for number in range(1, len(result.phases) + 1)
    }
    assert "fabric-widest-2.svg" in fabrics, "before and after its move"
    names = {"record.json", "index.html", "iterations.svg", "queues.svg", "throughput.svg"} | fabrics
    assert {path.name for path in folder.iterdir()} == names
    page = (folder / "index.html").read_text()
    assert page.count("<svg") == 2 * (3 + len(fabrics)), "each for wide pages and for narrow ones"
    for row in report.rows(record.results):
        assert all(cell in page for cell in row)


def test_a_fabric_is_drawn_before_and_after_a_move(short: RunConfig, results: dict[str, StrategyResult]) -> None:
    result = results["widest"]
    assert [phase.end_ns for phase in result.phases[:-1]] == [phase.start_ns for phase in result.phases[1:]]
    assert result.phases[0].start_ns == 0
    steps_ns = np.array(result.iteration_ns) + short.training.compute
    assert result.phases[-1].end_ns == short.control.warm_up + steps_ns.sum(), "steps are all that passes after that"
    assert result.phases[0].trees != result.phases[-1].trees == result.trees
    assert all(phase.end_ns >= move.time_ns for phase, move in zip(result.phases, result.moves, strict=False))
    whole_ns = result.phases[-1].end_ns
    for end, load in result.link_load.items():
        parts = sum((phase.end_ns - phase.start_ns) * phase.link_load[end] for phase in result.phases)
        assert parts / whole_ns == pytest.approx(load, abs=3e-6), end
    assert [len(result.phases) for name, result in results.items() if not result.moves] == [1] * sum(
        not result.moves for result in results.values()
    )


def test_the_page_is_for_phones_and_for_the_dark_too(executed: tuple[RunRecord, Path]) -> None:
    page = (executed[1] / "index.html").read_text()
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "@media (prefers-color-scheme: dark)" in page
