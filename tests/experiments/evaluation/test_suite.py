"""A suite's file: its conditions, and errors."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from weir.experiments.errors import ExperimentError
from weir.experiments.evaluation.scenario import Scenario
from weir.experiments.evaluation.suite import Suite
from weir.tests.paths import ROOT

LEAF_SPINE = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 3}


def told(**grid: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "seeds": 2,
        "strategies": ["ps", "blind", "widest", "ring"],
        "grids": [{"name": "one", "fabrics": [LEAF_SPINE], "workers": [3], **grid}],
    }


def read(path: Path, data: object) -> Suite:
    path.write_text(yaml.safe_dump(data))
    return Suite.load(path)


def test_lists_are_crossed_and_drawn_for_every_seed(tmp_path: Path) -> None:
    suite = read(
        tmp_path / "suite.yaml", told(load=[0.0, 0.4], spread=["packed", "random"], telemetry=["fresh", "old"])
    )
    points = list(suite.points())
    assert len(points) == 2 * 2 * 2 * 2
    assert len({point.key for point in points}) == len(points)
    assert {(p.load, p.spread, p.telemetry, p.seed) for p in points} == {
        (load, spread, age, seed)
        for load in (0.0, 0.4)
        for spread in ("packed", "random")
        for age in ("fresh", "old")
        for seed in (1, 2)
    }
    assert all(point.strategies == ("ps", "blind", "widest", "ring") for point in points)


def test_conditions_without_a_tree_are_left_out_of_packets(tmp_path: Path) -> None:
    suite = read(tmp_path / "suite.yaml", told(engine="packets", gradient_bytes=100_000))
    assert {point.strategies for point in suite.points()} == {("ps", "blind", "widest")}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (told(load=[0.9]), "grids.0.load.0: 0.9 is not right; write 0.8 or less"),
        (told(spread=["heap"]), 'grids.0.spread.0: "heap" is not right; write packed, spread or random'),
        (told(colour=[1]), 'grids.0: unknown key "colour"; there are name, about'),
        (
            told(strategies=["fastest"]),
            'grids.0.strategies: strategy "fastest" is unknown; there are agg, atp, best-spine',
        ),
        (
            told(fabrics=[{"kind": "torus"}]),
            'grids.0.fabrics: fabric: generate: kind "torus" is unknown; write leaf-spine',
        ),
        (
            told(fabrics=[LEAF_SPINE, {**LEAF_SPINE, "rate": "10Gbit"}]),
            "grids.0.fabrics: two fabrics are called leaf-spine 2×2×3, and their figures would be one condition's; "
            "give each a grid of its own",
        ),
        (told(workers=[6]), "grids.0: 1 jobs of 6 workers and a server want 7 hosts; leaf-spine 2×2×3 has 6"),
        (
            told(engine="packets", jobs=[2], workers=[2]),
            "grids.0: jobs 2 is not for packets; write 1, or use engine flows",
        ),
        (
            told(engine="packets"),
            "grids.0: gradient_bytes 25000000 is not for packets; write 1228840 or less, or use engine flows",
        ),
        (
            told(engine="packets", rates=["mixed"]),
            "grids.0: rates mixed is not for packets; write equal, or use engine flows",
        ),
        (
            told(engine="packets", memory=["ample", "scarce"]),
            "grids.0: memory scarce is not for packets; write ample, or use engine flows",
        ),
        (told(workers=[2, 1]), 'grid "one": ring of 1 worker sends nothing; write workers of 2 and more, or'),
        (told(workers=[1], strategies=["ring", "ps"]), 'grid "one": ring of 1 worker sends nothing'),
        (told(engine="packets", strategies=["ring"]), "grids.0: strategy ring is not for packets; use engine flows"),
        ({**told(), "strategies": ["ps", "ps"]}, "strategies: a strategy is named twice; name each once"),
        ({**told(), "grids": told()["grids"] * 2}, 'two grids are called "one"; give each its own name'),
        (
            told(load=[0.1] * 1000, spread=["packed"] * 1000),
            "2,000,000 points (conditions and seeds); at most 1,000,000 are possible",
        ),
        ([1], "a suite is a YAML mapping with name, strategies and grids"),
    ],
)
def test_errors_name_key_and_value(tmp_path: Path, data: Any, message: str) -> None:
    path = tmp_path / "suite.yaml"
    with pytest.raises(ExperimentError) as raised:
        read(path, data)
    assert re.match(rf"{path}: (line \d+: )?{re.escape(message)}", str(raised.value))


def test_one_worker_needs_no_ring(tmp_path: Path) -> None:
    assert len(list(read(tmp_path / "suite.yaml", told(workers=[1], strategies=["ps"])).points())) == 2
    assert (
        len(list(read(tmp_path / "suite.yaml", told(workers=[1], engine="packets", gradient_bytes=100_000)).points()))
        == 2
    )


OWN = (ROOT / "examples" / "user_strategy.py").read_text()


def test_strategies_of_ones_own_stand_beside_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their results are kept as long as their files are the same."""
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "other.py").write_text(OWN)
    monkeypatch.chdir("/")
    data = told(strategies=["ps", "other.py"])
    data["grids"].append({**data["grids"][0], "name": "two", "strategies": None})
    points = list(read(tmp_path / "suite.yaml", {**data, "strategies": ["mine.py", "widest"]}).points())
    assert points[0].strategies == ("ps", str(tmp_path / "other.py"))
    assert points[-1].strategies == (str(tmp_path / "mine.py"), "widest")
    before = [point.key for point in points]
    (tmp_path / "mine.py").write_text(OWN + "\n# another\n")
    assert [point.key == key for point, key in zip(points, before, strict=True)] == [True, True, False, False]


@pytest.mark.parametrize("of_grid", [False, True])
def test_a_missing_user_strategy_is_reported_before_any_run(tmp_path: Path, of_grid: bool) -> None:
    data = told(strategies=["mine.py"]) if of_grid else {**told(), "strategies": ["mine.py"]}
    with pytest.raises(ExperimentError) as raised:
        read(tmp_path / "suite.yaml", data)
    where, mine = "grids.0.strategies" if of_grid else "strategies", tmp_path / "mine.py"
    said = f"{where}: {mine}: no such file"
    assert re.match(rf"{tmp_path / 'suite.yaml'}: (line \d+: )?{re.escape(said)}", str(raised.value))


def test_the_suite_that_ships_is_one() -> None:
    with resources.as_file(resources.files("weir.experiments") / "evaluation.yaml") as path:
        suite = Suite.load(Path(path))
    assert suite.seeds >= 20
    assert {grid.engine for grid in suite.grids} == {"flows", "packets"}


def test_a_suite_names_fabrics_and_flow_sizes_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"name": "mine", "generate": LEAF_SPINE}))
    (tmp_path / "sizes.csv").write_text("bytes,share\n1000,0\n2000,1\n")
    monkeypatch.chdir("/")
    suite = read(
        tmp_path / "suite.yaml",
        told(fabrics=["mine.yaml", "leaf_spine.yaml"], background=["static", "sizes.csv"], load=[0.3]),
    )
    points = list(suite.points())
    assert {point.conditions["fabric"] for point in points} == {"mine", "leaf-spine"}
    assert {point.background for point in points} == {"static", str(tmp_path / "sizes.csv")}
    assert len({point.key for point in points}) == len(points)
    names = {Scenario.drawn(point).routes.topology.name for point in points}
    assert names == {"mine", "leaf-spine"}
    drawn = next(point for point in points if point.background != "static")
    before = drawn.key
    (tmp_path / "sizes.csv").write_text("1000 0\n4000 100\n")
    assert drawn.key != before, "the file's contents count"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, ""),
        ("", ""),
        ("1000,1\n", ""),
        ("1000,0\n2000,0.5\n", ""),
        ("1000,0.5\n2000,0.4\n3000,1\n", ": line 2"),
        ("1000,0\n10,1\n", ": line 2"),
        ("1000,0\nnan,1\n", ": line 2"),
        ("1000,0\n2000,0.5,3\n", ": line 2"),
        ("1000,0\n\n# more\ntwo,1\n", ": line 4"),
    ],
)
def test_a_file_that_has_no_flow_sizes_is_refused_by_its_line(text: str | None, line: str, tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ExperimentError, match=re.escape(f"grids.0.background.0: {path}{line}: ")):
        read(tmp_path / "suite.yaml", told(background=["sizes.csv"]))
