"""Figures and their tables: medians, ratios, aims, and the text written into a document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from weir.bench import __main__ as command
from weir.bench.machine import MachineDescription
from weir.bench.measure import Aim, Figure, TimedWork, compare
from weir.bench.report import amount, markdown_table
from weir.experiments.page_tables import check_places
from weir.tests.paths import ROOT
from weir.topologies import TopologyError

MACHINE = MachineDescription("A processor", 2, 23.4, "6.1", "3.11.2", 0.25)


def test_the_ratio_is_that_of_the_turns_and_never_of_runs_apart() -> None:
    # A slow second turn slows both; the medians apart would give 100 / 40.
    figure = Figure("x", "packets/s", (100, 50, 200), "peer", (40, 25, 100))
    assert (figure.value, figure.peer_value, figure.ratio, figure.spread) == (100, 40, 2, 1.5)


def test_a_time_beats_its_peer_by_being_less() -> None:
    figure = Figure("x", "s", (2.0, 2.0), "peer", (8.0, 8.0), less_is_better=True, aim=Aim(4, of_ratio=True))
    assert figure.ratio == 4
    assert figure.met is True


@pytest.mark.parametrize(
    ("values", "less", "bound", "met"),
    [((5.0,), False, 5, True), ((4.9,), False, 5, False), ((5.0,), True, 5, True), ((5.1,), True, 5, False)],
)
def test_an_aim_bounds_the_value_from_its_good_side(
    values: tuple[float, ...], less: bool, bound: float, met: bool
) -> None:
    assert Figure("x", "s", values, less_is_better=less, aim=Aim(bound)).met is met


def test_an_aim_of_a_ratio_is_missed_without_a_peer() -> None:
    assert Figure("x", "s", (1.0,), aim=Aim(2, of_ratio=True)).met is False


def test_contenders_take_turns() -> None:
    order: list[str] = []
    figure = compare(
        "x",
        "packets/s",
        TimedWork("mine", 1, lambda: order.append("mine")),
        TimedWork("theirs", 1, lambda: order.append("theirs")),
        runs=2,
    )
    assert order == ["mine", "theirs"] * 3
    assert figure.peer == "theirs"
    assert len(figure.values) == len(figure.peer_values) == 2


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5_123_456, "packets/s", "5.12 M packets/s"),
        (1_039e6, "lanes/s", "1.04 G lanes/s"),
        (999, "packets/s", "999 packets/s"),
        (0.6123, "s", "612 ms"),
        (4.2e-8, "s", "42 ns"),
        (12.0, "s", "12 s"),
        (0.953, "of the line rate", "0.953 of the line rate"),
    ],
)
def test_amounts_have_three_digits_and_a_unit(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


def test_a_table_names_its_machine_and_whether_the_aim_is_met() -> None:
    figure = Figure("forwarding", "packets/s", (600e3,), "bmv2", (30e3,), aim=Aim(20, of_ratio=True))
    text = markdown_table([figure], MACHINE)
    assert "A processor, 2 cores, 23 GB, Linux 6.1, Python 3.11.2, load 0.2" in text
    assert "| forwarding | 600 k packets/s | 0% | bmv2 | 30 k packets/s | 20 | ≥ 20 × | ✓ |" in text


def test_a_document_without_a_place_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "results.md"
    document.write_text("<!-- bench a -->\n<!-- end bench a -->\n")
    monkeypatch.setattr(command, "BENCHMARKS", ("a", "b"))
    with pytest.raises(SystemExit, match=r"no place .*bench b: .*<!-- bench b --> .*<!-- end bench b -->"):
        command.main(["--write", str(document)])


def test_the_command_runs_named_benchmarks_and_reports_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure() -> Iterator[Figure]:
        yield Figure("steps", "steps/s", (3.0, 1.0, 2.0), "peer", (1.0, 1.0, 1.0))

    def fail() -> Iterator[Figure]:
        yield Figure("steps", "steps/s", (3.0,))
        raise TopologyError("the switch did not start")

    able, unable, broken = (
        ModuleType(f"weir.bench.{name}", "Title.\n\nMore.") for name in ("able", "unable", "broken")
    )
    able.__dict__["figures"] = measure
    broken.__dict__["figures"] = fail
    unable.__dict__["obstacle"] = lambda: "it takes root"
    for module in (able, unable, broken):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(command, "BENCHMARKS", ("broken", "able", "unable", "other"))
    with pytest.raises(SystemExit, match="failed: broken"):
        command.main(["--only", "broken", "--only", "able", "--only", "unable", "--json"])
    out, err = capsys.readouterr()
    report = json.loads(out)["benchmarks"]
    assert report["unable"] == {"skipped": "it takes root"}
    assert [(figure["name"], figure["value"], figure["ratio"]) for figure in report["able"]["figures"]] == [
        ("steps", 2, 2)
    ]
    assert report["broken"] == {"failed": "the switch did not start"}
    assert set(report) == {"able", "unable", "broken"}
    assert "unable is skipped: it takes root" in err


def test_every_benchmark_has_title_figures_and_place() -> None:
    for name in command.BENCHMARKS:
        module = __import__(f"weir.bench.{name}", fromlist=[name])
        assert (module.__doc__ or "").partition("\n")[0], name
        assert callable(module.figures), name
    check_places(ROOT / "docs" / "results.md", map(command.place_of, command.BENCHMARKS))
