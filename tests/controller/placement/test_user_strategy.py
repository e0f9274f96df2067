"""A file of the user's own is a strategy by its path."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from weir.controller.placement import PlacementError, Problem
from weir.controller.placement.model.loads import LinkLoad
from weir.controller.placement.strategies import STRATEGIES, strategy
from weir.experiments.config import RunConfig
from weir.experiments.records.report import label_of
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Routes, load_topology

EXAMPLE = ROOT / "examples" / "user_strategy.py"


def problem(loads: dict[Endpoint, LinkLoad]) -> Problem:
    return Problem(Routes(load_topology("leaf_spine.yaml")), ("h1", "h4", "h7"), "h12", 1 << 20, loads)


def test_the_example_goes_where_others_send_least() -> None:
    own = strategy(str(EXAMPLE))
    idle = own.place(problem({}), random.Random(1))
    hub = set(idle.aggregators.values())
    assert len(hub) == 1
    busy = {Endpoint(next(iter(hub)), port): LinkLoad(background_bps=8e8) for port in range(1, 5)}
    moved = own.place(problem(busy), random.Random(1))
    assert set(moved.aggregators.values()).isdisjoint(hub)
    assert len(set(moved.aggregators.values())) == 1


def test_it_has_its_own_name_and_is_not_listed() -> None:
    assert STRATEGIES[str(EXAMPLE)].resolves
    assert label_of(str(EXAMPLE)) == "quietest hub"
    assert str(EXAMPLE) in STRATEGIES
    assert not [name for name in STRATEGIES if name.endswith(".py")]


def test_a_run_file_names_it_from_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text())
    run = {"name": "x", "fabric": "leaf_spine.yaml", "job": {"workers": ["h1", "h4"]}, "strategies": ["mine.py"]}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    monkeypatch.chdir("/")
    assert RunConfig.load(tmp_path / "run.yaml").strategies == [str(tmp_path / "mine.py")]


def test_it_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_the_strategy.py").write_text(EXAMPLE.read_text())
    (tmp_path / "mine.py").write_text("from beside_the_strategy import DESCRIPTION\n")
    assert label_of(str(tmp_path / "mine.py")) == "quietest hub"


@pytest.mark.parametrize(
    ("text", "key"), [(None, ""), ("pass", ": DESCRIPTION"), ("DESCRIPTION = 'best'", ": DESCRIPTION")]
)
def test_a_file_that_is_none_is_said_to_be_none(text: str | None, key: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with raises(PlacementError, place=f"{path}{key}"):
        strategy(str(path))
    assert label_of(str(path)) == str(path)


@pytest.mark.parametrize(
    ("answer", "place", "value"),
    [
        ("None", "", None),
        (
            "Placement({'h1': 's1', 'h2': 's1'}, {'s1': 'h12'}, 'h12')",
            ": placement.aggregators",
            ("h1", "h2"),
        ),
        ("Placement(dict.fromkeys(problem.workers, 's1'), {}, 's1')", ": placement.root", "s1"),
        ("Placement(dict.fromkeys(problem.workers, 's1'), {}, 'h12')", ": placement.root", "h12"),
    ],
)
def test_an_answer_that_is_no_placement_of_the_job_is_refused(
    answer: str, place: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from weir.controller.placement import Placement\n"
        "from weir.controller.placement.strategies import StrategyDescription\n"
        "class Mistaken:\n"
        "    def place(self, problem, rng):\n"
        f"        return {answer}\n"
        "DESCRIPTION = StrategyDescription('mine', 'mine', 'is mistaken', Mistaken)\n"
    )
    with raises(PlacementError, place=f"{path}{place}", value=value):
        strategy(str(path)).place(problem({}), random.Random(1))
