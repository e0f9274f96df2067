"""Every entry of the table of papers has a complete record, a strong baseline, and its section of the page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import pytest

from weir.experiments.errors import ExperimentError
from weir.experiments.papers import PAPERS, record_path, repeat, whole_page
from weir.experiments.repetition.compressed_courses import MODELS
from weir.experiments.repetition.graph_caches import HITS
from weir.experiments.repetition.large_batches import BEST_RATE, SAME_RATE
from weir.experiments.repetition.page import page, strongest
from weir.experiments.repetition.paper import Contender, Paper, Quantity, Sample, command
from weir.experiments.repetition.record import PaperRecord, missing, results
from weir.imports.extras import MissingExtra
from weir.tests.paths import ROOT

TIME: Final = Quantity("time", "s")


def times(paper: Paper) -> Iterator[Sample]:
    """The system takes 1 s and 3 s, the first baseline twice that, the second one never ends in its limit of 5 s."""
    for seed in (1, 2):
        yield Sample("time", "idle", "mine", seed, 2.0 * seed - 1)
        yield Sample("time", "idle", "twice", seed, 2 * (2.0 * seed - 1))
        yield Sample("time", "idle", "endless", seed, 5.0, limited=True)


ENTRY: Final = Paper(
    name="entry",
    title="An entry",
    published="nowhere",
    headline="half the time",
    system=Contender("mine", "Mine"),
    baselines=(Contender("twice", "Twice", strong=True), Contender("endless", "Endless", strong=True)),
    figures=(TIME,),
    regime="two seeds",
    run_files=(),
    seeds=2,
    findings="None.",
    measure=times,
)
RECORD: Final = PaperRecord.of(ENTRY, "entry", times(ENTRY), 12.4)


@pytest.mark.parametrize("name", PAPERS)
class TestRegisteredEntries:
    def test_record_has_every_contender_figure_and_seed(self, name: str) -> None:
        record = PaperRecord.load(record_path(name))
        assert record.paper == name
        assert missing(PAPERS[name], record) == []

    def test_record_names_the_command_that_repeats_it(self, name: str) -> None:
        assert PaperRecord.load(record_path(name)).command == command(name)

    def test_a_baseline_is_strong(self, name: str) -> None:
        assert any(baseline.strong for baseline in PAPERS[name].baselines)

    def test_run_files_exist(self, name: str) -> None:
        assert [file for file in PAPERS[name].files if not file.is_file()] == []


def test_page_follows_from_the_records() -> None:
    """`weir papers page docs/papers.md` writes it again."""
    assert (ROOT / "docs" / "papers.md").read_text() == whole_page()


def test_no_record_is_without_entry() -> None:
    folder = ROOT / "experiments" / "papers" / "records"
    assert {path.stem for path in folder.iterdir()} == set(PAPERS)


def test_changes_compare_the_means_of_paired_seeds() -> None:
    mine, twice, endless = results(ENTRY, RECORD)
    assert mine.change is None
    assert (mine.mean.value, twice.mean.value) == (2.0, 4.0)
    assert twice.change is not None
    assert (twice.change.value, twice.change.low, twice.change.high) == (-0.5, -0.5, -0.5)
    assert endless.limited == 2
    assert endless.change is not None
    assert endless.change.value == pytest.approx(2 / 5 - 1)


def test_a_system_at_its_limit_has_no_change() -> None:
    samples = [replace(sample, limited=sample.contender == "mine") for sample in times(ENTRY)]
    record = PaperRecord.of(ENTRY, "entry", samples, 1)
    assert [result.change for result in results(ENTRY, record)] == [None, None, None]


def test_a_figure_that_may_be_near_0_has_no_change() -> None:
    entry = replace(ENTRY, figures=(replace(TIME, compared=False),))
    assert [result.change for result in results(entry, RECORD)] == [None, None, None]


def test_the_summary_has_the_best_strong_baseline() -> None:
    assert [result.contender.name for result in strongest(ENTRY, RECORD)] == ["twice"]
    more = replace(ENTRY, figures=(replace(TIME, less_is_better=False),))
    assert [result.contender.name for result in strongest(more, RECORD)] == ["endless"]
    assert "| [entry](#an-entry) | time | idle | Twice: 4" in page([(ENTRY, RECORD)])


def test_an_incomplete_record_is_told_by_what_it_lacks() -> None:
    samples = [sample for sample in times(ENTRY) if (sample.contender, sample.seed) != ("twice", 2)]
    assert missing(ENTRY, PaperRecord.of(ENTRY, "entry", samples, 1)) == ["twice, idle: 1 seeds instead of 2"]
    samples = [sample for sample in samples if sample.contender != "endless"]
    assert len(missing(ENTRY, PaperRecord.of(ENTRY, "entry", samples, 1))) == 2
    assert missing(ENTRY, PaperRecord.of(ENTRY, "entry", [], 1)) == ["entry: no samples"]


MINE: Final = """
from weir.tests.experiments.test_papers import ENTRY

DESCRIPTION = ENTRY
"""
THREADS: Final = """
from dataclasses import replace

from threadpoolctl import threadpool_info

from weir.tests.experiments.test_papers import ENTRY, times


def threads(paper):
    for sample in times(paper):
        yield replace(sample, value=max(library["num_threads"] for library in threadpool_info()))


DESCRIPTION = replace(ENTRY, measure=threads)
"""


def test_a_users_file_is_repeated_beside_itself(tmp_path: Path) -> None:
    (tmp_path / "my_paper.py").write_text(MINE)
    heard: list[Sample] = []
    record = repeat(str(tmp_path / "my_paper.py"), heard.append)
    assert heard == list(times(ENTRY))
    assert PaperRecord.load(tmp_path / "my_paper.json") == record
    assert record.series == RECORD.series


def test_measurements_use_one_thread(tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(THREADS)
    record = repeat(str(tmp_path / "threads.py"))
    assert {value for series in record.series for value in series.values} == {1}


def recorded(name: str, figure: str) -> dict[tuple[str, str], float]:
    """Means over the seeds of an entry's record, by condition and contender."""
    series = PaperRecord.load(record_path(name)).series
    return {(each.condition, each.contender): fmean(each.values) for each in series if each.figure == figure}


def test_recorded_caches_are_ordered_on_graphs_with_hubs() -> None:
    found = recorded("gloader", HITS.name)
    conditions = {condition for condition, _ in found if condition.startswith(("Barabási", "LFR"))}
    assert len(conditions) == 4
    for condition in conditions:
        ratios = [found[condition, cache] for cache in ("oracle", "presampled", "degree", "random")]
        assert ratios == sorted(ratios, reverse=True), condition


@pytest.mark.parametrize("figure", [SAME_RATE, BEST_RATE], ids=lambda figure: figure.name)
def test_recorded_steps_of_large_batches_are_of_all_ways_at_8_to_64_workers(figure: Quantity) -> None:
    found = recorded("adasum", figure.name)
    conditions = {condition for condition, _ in found}
    for workload in ("digits", "mnist"):
        workers = {int(each.split()[-2]) for each in conditions if each.startswith(workload)}
        assert {8, 32, 64} <= workers
    ways = {"mean", "sum", "adasum", "racks", "adacons", "lars", "lamb"}
    assert found.keys() == {(condition, way) for condition in conditions for way in ways}


@pytest.mark.parametrize("name", ["adasum", "compression"])
def test_missing_images_are_an_error_before_any_measurement(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: Any, **__: Any) -> Any:
        raise AssertionError("measured")

    for function in ("large_batches.steps_to_loss", "compressed_courses.gradient_s", "compressed_courses.PowerMean"):
        monkeypatch.setattr(f"weir.experiments.repetition.{function}", measured)
    monkeypatch.setattr("weir.training.workloads.mnist.find_spec", lambda name: None)
    with pytest.raises(MissingExtra):
        next(iter(PAPERS[name].measure(PAPERS[name])))


@pytest.mark.parametrize("name", ["in-network-aggregation", "compression"])
def test_missing_pytorch_is_an_error_before_any_measurement(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: Any, **__: Any) -> Any:
        raise AssertionError("measured")

    monkeypatch.setattr("weir.topologies.mininet.fabric.obstacle", lambda: None)
    monkeypatch.setattr("weir.experiments.backends.all_reduce.turns", measured)
    monkeypatch.setattr("weir.experiments.repetition.measures.find_spec", lambda name: None)
    monkeypatch.setattr("weir.experiments.repetition.compressed_courses.MODELS", MODELS[:1])
    monkeypatch.setattr("weir.experiments.repetition.compressed_courses.gradient_s", measured)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExperimentError):
        next(iter(PAPERS[name].measure(PAPERS[name])))


@pytest.mark.parametrize("content", [None, "{}", "no JSON"])
def test_a_missing_or_damaged_record_is_an_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "record.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ExperimentError):
        PaperRecord.load(path)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ExperimentError):
        repeat("no-such-paper")
