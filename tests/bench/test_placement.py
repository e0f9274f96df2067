"""The placement benchmark on a small fabric: its comparisons, and trees that stay or change."""

from __future__ import annotations

import random

import pytest

from weir.bench import placement as bench
from weir.bench.measure import Aim
from weir.controller.placement.exact.tree_program import TreeProgram
from weir.topologies import Routes, leaf_spine


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RUNS": 2, "CHANGES": 40, "WORKERS": 12, "JOBS": 3, "SIZES": (4, 6), "FEW_WORKERS": 5}.items():
        monkeypatch.setattr(bench, name, value)


def test_the_widest_tree_is_compared_with_search_and_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = Routes(leaf_spine(4, 2, 4))
    placed, *beside = bench._large(routes)
    assert (placed.name, len(placed.values)) == ("12 workers, 6 switches placed", 2)
    names = [figure.name for figure in beside]
    assert [name.partition(":")[0] for name in names] == [
        what + how
        for how in ("AGG", "GRID-like", "one mixed-integer program")
        for what in ("the same by ", "slowest link of the same by ")
    ]
    assert names[-2].endswith("hops, proven the best")
    assert {figure.peer for figure in beside} == {"widest tree"}
    best = beside[-1].values[0]
    assert beside[-1].peer_values[0] == pytest.approx(best)
    assert all(figure.values[0] >= best * (1 - 1e-6) for figure in beside[1::2])
    monkeypatch.setattr(TreeProgram, "fastest", lambda *_: (None, 0.0))
    *_, program = bench._large(routes)
    assert program.name.endswith("hops, no tree in 100 branches")


def test_trees_stay_and_change_where_jobs_are_solved_again() -> None:
    stays, other = bench._again(Routes(leaf_spine(4, 4, 4)))
    assert (stays.name, other.name) == (
        "the same after one link's load changed: the tree stays",
        "the same after one link's load changed: another tree",
    )
    assert all(len(figure.values) == 2 and figure.aim == Aim(0.002) for figure in (stays, other))


def test_a_named_links_change_is_measured_on_several_sizes() -> None:
    figures = list(bench._named())
    assert [figure.name for figure in figures] == [
        f"5 workers, {switches} switches, a named link's load changed: the tree stays" for switches in (20, 45)
    ]
    assert all(len(figure.values) == 2 for figure in figures)


def test_jobs_together_have_as_many_workers_in_all_or_each() -> None:
    hosts = [f"h{index}" for index in range(16)]
    apart = bench._apart(hosts, random.Random(0))
    assert [len(each) for each in apart] == [4, 4, 4]
    assert len({host for each in apart for host in each}) == 12
    assert [len(set(each)) for each in bench._all_over(hosts, random.Random(0))] == [13, 13, 13]
