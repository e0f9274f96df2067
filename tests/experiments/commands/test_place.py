"""`weir place`: plans as people and programs read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.controller.placement import PlacementError
from weir.experiments.commands.app import app
from weir.experiments.errors import ExperimentError
from weir.topologies import TopologyError, dump_topology, leaf_spine


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.yaml"
    dump_topology(leaf_spine(4, 2, 3), path)
    return path


def place(fabric: Path, *words: object) -> str:
    done = CliRunner().invoke(app, ["place", str(fabric), *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_a_plan_says_who_sums_how_long_it_takes_and_which_link_is_slowest(fabric: Path, tmp_path: Path) -> None:
    loads = tmp_path / "loads.yaml"
    loads.write_text("s1-p4: 700Mbit\n")
    job = ("--workers", "h1,h2,h4", "--server", "h12", "--size", 1_000_000, "--loads", loads)
    printed = json.loads(place(fabric, *job, "--strategy", "widest", "--strategy", "rack", "--json"))
    widest, rack = printed["plans"]
    assert printed["unimodular"] is None
    assert (widest["strategy"], widest["root"]) == ("widest", "h12")
    assert widest["workers"] == {"h1": "s1", "h2": "s1", "h4": "s6"}
    assert {node["node"]: node["parent"] for node in widest["nodes"]} == {"s1": "s6", "s6": "h12", "h12": None}
    assert widest["slowest_link_seconds"] == pytest.approx(0.008)
    assert (rack["slowest_link"], rack["slowest_link_seconds"]) == ("s1-p4", pytest.approx(8e6 / 3e8))
    # the slowest link is busy all the time but for a round's first way up and its last one down, and the scale rounds
    assert 0.008 < widest["completion_seconds"] < 0.0088
    assert not widest["bound_by_window"]
    (narrow,) = json.loads(place(fabric, *job, "--window", 1, "--json"))["plans"]
    assert narrow["bound_by_window"]
    rounds = round(1_000_000 / 1094)
    assert narrow["completion_seconds"] == pytest.approx(rounds * narrow["round_trip_seconds"], rel=0.02)
    text = place(fabric, *job)
    assert "2 workers are on it; makes one stream of 2" in text
    assert "the slowest link is" in text


def test_a_plan_is_drawn_keeps_off_full_switches_and_its_matrix_is_proven(fabric: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    job = ("--workers", "h1,h2,h4", "--server", "h12")
    printed = place(fabric, *job, "--full", "s5", "--draw", picture, "--check")
    assert "totally unimodular" in " ".join(printed.split())
    assert "s5" not in printed
    assert "sums 2" in picture.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s1-p99: 1Mbit", "s1-p99: leaf-spine: nothing is linked to port s1-p99"),
        ("s1-p4: fast", 's1-p4: rate "fast" is not a rate'),
        ("s1-p4: .nan", "s1-p4: rate nan is not a rate"),
        ("s1-p4: -5", "s1-p4: rate -5 is not a rate"),
        ("[1, 2]", "loads are a YAML mapping, such as s1-p3: 300Mbit; this is a list"),
    ],
)
def test_loads_that_are_none_are_named(fabric: Path, tmp_path: Path, text: str, says: str) -> None:
    loads = tmp_path / "loads.yaml"
    loads.write_text(text)
    with pytest.raises(ExperimentError, match=r"loads\.yaml: ") as caught:
        place(fabric, "--server", "h12", "--loads", loads)
    assert says in str(caught.value)


def test_a_host_that_is_not_there_is_named(fabric: Path) -> None:
    with pytest.raises(TopologyError, match='no host "h99"'):
        place(fabric, "--workers", "h1,h99", "--server", "h12")


TWO = """
name: two
hosts: {h1: , h2: , h3: }
switches: {s1: , s2: }
links: [{ends: [h1, s1-p1]}, {ends: [h2, s1-p2]}, {ends: [h3, s2-p1]}%s]
"""


def test_a_fabric_in_pieces_or_with_a_link_that_carries_nothing_is_none(tmp_path: Path) -> None:
    apart, still = tmp_path / "apart.yaml", tmp_path / "still.yaml"
    apart.write_text(TWO % "")
    still.write_text(TWO % ", {ends: [s1-p3, s2-p2], rate: 0}")
    with pytest.raises(TopologyError, match=r"apart\.yaml: two: the fabric is in 2 pieces; h3, s2 cannot reach h1"):
        place(apart, "--server", "h3")
    with pytest.raises(TopologyError, match=r"still\.yaml: line 5: link s1-p3: rate 0 is not a rate"):
        place(still, "--server", "h3")


def test_without_memory_anywhere_the_server_sums_alone_and_without_a_server_nobody(fabric: Path) -> None:
    full = [word for number in range(1, 7) for word in ("--full", f"s{number}")]
    (plan,) = json.loads(place(fabric, "--workers", "h1,h4", "--server", "h12", "--json", *full))["plans"]
    assert plan["workers"] == {"h1": "h12", "h4": "h12"}
    with pytest.raises(PlacementError, match="no switch"):
        place(fabric, "--workers", "h1,h4", *full)


def test_a_plan_of_ones_own_strategy_that_leaves_a_worker_out_is_refused(fabric: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from weir.controller.placement import Placement\n"
        "from weir.controller.placement.strategies import Description\n"
        "class Careless:\n"
        "    def place(self, problem, rng):\n"
        "        return Placement(dict.fromkeys(problem.workers[:2], 's1'), {}, 's1')\n"
        "DESCRIPTION = Description('mine', 'mine', 'forgets a worker', Careless)\n"
    )
    with pytest.raises(PlacementError, match="placement is for h1, h2; the job's workers are h1, h2, h4"):
        place(fabric, "--workers", "h1,h2,h4", "--strategy", path)
