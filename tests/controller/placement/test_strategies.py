"""Every strategy's placements on the demo's fabric, and how they compare there."""

from __future__ import annotations

import random
import re

import pytest
import scipy.optimize  # type: ignore[import-untyped]

from weir.controller.placement import (
    Placement,
    PlacementError,
    Problem,
    fitted,
    predicted_completion_time,
    should_move,
)
from weir.controller.placement.strategies import STRATEGIES, strategy
from weir.controller.planning.plan import JobSpec
from weir.controller.planning.planner import Planner
from weir.controller.telemetry.link_state import Snapshot
from weir.controller.telemetry.loads import LinkLoad
from weir.topologies import Endpoint, Routes, Topology, fat_tree, leaf_spine
from weir.wire.aggregation import FAN_IN

GBIT = 1_000_000_000
WORKERS = tuple(f"h{i}" for i in range(1, 9))
BUSY = {"s1-p4": 0.7, "s5-p1": 0.6, "s2-p5": 0.75, "s6-p2": 0.6, "s3-p4": 0.8, "s5-p4": 0.6, "s4-p4": 0.6}
"""Of some links between leaves and spines, the share that background traffic takes."""


def demo(fabric: Topology | None = None, busy: dict[str, float] | None = None) -> Problem:
    fabric = fabric or leaf_spine(4, 2, 3)
    loads = {Endpoint.parse(link): LinkLoad(share * GBIT) for link, share in (BUSY if busy is None else busy).items()}
    return Problem(Routes(fabric), WORKERS, "h12", 4_000_000, loads)


def place(name: str, problem: Problem, seed: int = 0) -> Placement:
    return strategy(name).place(problem, random.Random(seed))


def test_ps_sends_everything_to_the_server() -> None:
    assert place("ps", demo()) == Placement(dict.fromkeys(WORKERS, "h12"), {}, "h12")


def test_rack_sums_on_leaves_with_two_workers() -> None:
    problem = Problem(Routes(leaf_spine(4, 2, 3)), ("h1", "h2", "h4"), "h12", 1)
    assert place("rack", problem) == Placement({"h1": "s1", "h2": "s1", "h4": "h12"}, {"s1": "h12"}, "h12")


def test_rack_leaves_out_a_full_leaf() -> None:
    problem = Problem(Routes(leaf_spine(4, 2, 3)), ("h1", "h2", "h4", "h5"), "h12", 1, room={"s2": 1})
    assert place("rack", problem).parents == {"s2": "h12"}
    assert place("rack", problem).switches == {"s2"}


def test_random_is_eligible_and_replays_from_its_seed() -> None:
    problem = demo()
    placements = [place("random", problem, seed) for seed in range(20)]
    assert placements == [place("random", problem, seed) for seed in range(20)]
    used = {node for placement in placements for node in placement.aggregators.values()}
    assert used == {"s1", "s2", "s3", "s5", "s6"}  # s4 is two ways away from every worker
    for placement in placements:
        for worker, node in placement.aggregators.items():
            assert node in {"s5", "s6", problem.topology.attached_switch(worker).name}


def test_agg_beats_all_others_under_load() -> None:
    problem = demo()
    seconds = {name: predicted_completion_time(place(name, problem), problem) for name in STRATEGIES}
    assert seconds["agg"] < 0.6 * seconds["ps"]
    assert seconds["agg"] < 0.7 * seconds["rack"]
    assert all(
        seconds["agg"] < predicted_completion_time(place("random", problem, seed), problem) for seed in range(20)
    )


def test_agg_uses_both_spines_where_each_is_the_free_one_for_some_racks() -> None:
    """s1 and s3 reach only s6 freely, s2 only s5; the server's leaf s4 makes one stream of both."""
    problem = demo()
    placement = place("agg", problem)
    assert placement.aggregators == {w: problem.topology.attached_switch(w).name for w in WORKERS}
    assert placement.parents == {"s1": "s6", "s2": "s5", "s3": "s6", "s4": "h12", "s5": "s4", "s6": "s4"}
    # the slowest link left is s5 to s4, 60 % taken: 4 MB at 400 Mbit/s, and microseconds of wire
    assert predicted_completion_time(placement, problem) == pytest.approx(0.08, rel=0.001)


def test_agg_in_an_idle_fabric_loads_no_link_twice() -> None:
    problem = demo(busy={})
    placement = place("agg", problem)
    assert predicted_completion_time(placement, problem) == pytest.approx(4_000_000 * 8 / GBIT, rel=0.001)


def test_agg_without_a_server_has_a_switch_for_root() -> None:
    problem = Problem(Routes(leaf_spine(4, 2, 3)), WORKERS, None, 4_000_000, demo().loads)
    placement = place("agg", problem)
    placement.check(problem)
    assert problem.topology.is_switch(placement.root)
    assert predicted_completion_time(placement, problem) < predicted_completion_time(place("rack", demo()), demo())
    with pytest.raises(PlacementError, match="strategy ps needs a parameter server"):
        place("ps", problem)


def test_agg_keeps_to_switches_with_room() -> None:
    problem = demo()
    tight = Problem(problem.routes, problem.workers, "h12", 4_000_000, problem.loads, room={"s5": 1, "s1": 0})
    assert set(place("agg", tight).parents) <= {"s5"}
    none = Problem(problem.routes, problem.workers, "h12", 4_000_000, problem.loads, room={})
    assert place("agg", none) == place("ps", none)
    with pytest.raises(PlacementError, match="no switch has room for the job of h1"):
        place("agg", Problem(problem.routes, ("h1", "h2"), None, 1, room={}))


def fits(problem: Problem, placement: Placement) -> None:
    """A tree over the workers, fan-in kept, all streams on paths that no hash decides, but for those to the server."""
    placement.check(problem)
    assert max(map(len, placement.children.values())) <= FAN_IN
    for child, parent in placement.edges:
        assert parent == problem.server or problem.routes.unique_path(child, parent) is not None, (child, parent)


def test_more_workers_than_one_node_takes_become_a_tree() -> None:
    fabric = leaf_spine(2, 1, 40)
    workers = tuple(f"h{i}" for i in range(1, 71))
    problem = Problem(Routes(fabric), workers, "h80", 1_000_000)
    with pytest.raises(
        PlacementError, match=r"ps sums at h80 alone, which takes at most 32 children, and .* 70 workers"
    ):
        place("ps", problem)
    for name in ("rack", "random", "agg"):
        fits(problem, place(name, problem))
    rack = place("rack", problem)
    off = [worker for worker in workers if rack.aggregators[worker] != fabric.attached_switch(worker).name]
    assert (len(off), rack.parents) == (8, {"s1": "h80", "s2": "h80"})  # 8 of s1's 40, for whom the server has places


def test_rack_sends_the_sums_that_the_server_cannot_take_by_a_spine() -> None:
    problem = Problem(Routes(leaf_spine(40, 2, 3)), tuple(f"h{i}" for i in range(1, 118)), "h120", 1_000_000)
    placement = place("rack", problem)
    fits(problem, placement)
    assert placement.aggregators == {w: problem.topology.attached_switch(w).name for w in problem.workers}
    assert len(placement.parents) == 40, "39 racks, and no more than one spine"
    assert len(placement.children["h120"]) <= FAN_IN


@pytest.mark.parametrize("name", ["rack", "random"])
@pytest.mark.parametrize("server", [True, False])
def test_a_fat_tree_of_more_racks_than_one_node_takes(name: str, server: bool) -> None:
    fabric = fat_tree(10)  # 50 racks of 5
    hosts = [host.name for host in fabric.hosts]
    problem = Problem(Routes(fabric), tuple(hosts[:-1]), hosts[-1] if server else None, 1_000_000)
    fits(problem, place(name, problem))


@pytest.mark.parametrize("name", ["rack", "random", "agg"])
def test_random_fabrics_get_a_tree_or_the_reason_why_not(name: str) -> None:
    """All ways agree on whether there is a tree."""
    placed = 0
    for seed in range(8 if name == "agg" else 40):
        rng = random.Random(seed)
        fabric = leaf_spine(rng.randint(2, 5), rng.randint(1, 3), rng.randint(20, 40))
        server, *workers = rng.sample([host.name for host in fabric.hosts], rng.randint(34, len(fabric.hosts)))
        room = {switch.name: int(rng.random() < 0.7) for switch in fabric.switches}
        with_server = rng.random() < 0.7
        problem = Problem(Routes(fabric), tuple(workers), server if with_server else None, 1_000_000, room=room)
        try:
            fitted(problem, {})
        except PlacementError as refused:
            with pytest.raises(PlacementError, match=re.escape(str(refused))):
                place(name, problem, seed)
        else:
            placed += 1
            fits(problem, place(name, problem, seed))
    assert placed


def test_why_nothing_fits_is_said() -> None:
    routes = Routes(leaf_spine(2, 1, 40))
    workers = tuple(f"h{i}" for i in range(1, 71))
    for name in ("rack", "random", "agg"):
        with pytest.raises(PlacementError, match="server h80 and the 1 switches with room at most 63 workers"):
            place(name, Problem(routes, workers, "h80", 1, room={"s3": 1}))
        with pytest.raises(PlacementError, match="no switch has room for the job of h1, h2; free slots"):
            place(name, Problem(routes, ("h1", "h2"), None, 1, room={}))
    # with two spines, only s1 has room, which racks 2 and 3 reach by two ways each
    two_ways = Problem(Routes(leaf_spine(3, 2, 2)), ("h1", "h3", "h5"), None, 1, room={"s1": 1})
    with pytest.raises(PlacementError, match="no switch with room is one that h1, h3, h5 can be summed at: paths must"):
        place("rack", two_ways)


def test_the_controller_falls_back_on_the_server_with_no_more_switches_than_its_fan_in_needs() -> None:
    topology = leaf_spine(2, 1, 40)
    planner = Planner(topology, Routes(topology), strategy("ps"), 0)
    links = Snapshot({}, frozenset(), frozenset())
    spec = JobSpec(1, tuple(f"h{i}" for i in range(1, 71)), "h80")
    grant = planner.grant(spec, links)
    fits(planner.problem(spec, spec.workers, links), grant.placement)
    assert len(grant.placement.parents) == 2
    assert re.match(
        r"summed at its server h80 and in s\d, s\d, since it takes 32 children: strategy ps sums at h80 alone",
        grant.note,
    )
    few = planner.grant(JobSpec(2, spec.workers[:FAN_IN], "h80"), links)
    assert (few.placement.parents, few.note) == ({}, "")
    planner.out_of_reach = frozenset(("s1", "s2"))
    with pytest.raises(
        PlacementError, match=r"ps sums at h80 alone.*; and otherwise no tree sums 70 .* at most 63 workers"
    ):
        planner.grant(spec, links)


def test_a_job_is_told_that_time_was_up_before_its_tree_was_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = leaf_spine(2, 1, 40)
    planner = Planner(topology, Routes(topology), strategy("rack"), 0)
    links = Snapshot({}, frozenset(), frozenset())
    spec = JobSpec(1, tuple(f"h{i}" for i in range(1, 71)), "h80")
    assert planner.grant(spec, links).note == ""
    stopped = scipy.optimize.OptimizeResult(status=1, x=None, message="time limit reached")
    monkeypatch.setattr(scipy.optimize, "milp", lambda *how, **more: stopped)
    grant = planner.grant(spec, links)
    fits(planner.problem(spec, spec.workers, links), grant.placement)
    told = "its tree is one by first fit, for the search for the nearest to the strategy's ended after 2 s"
    assert grant.note == told
    assert planner.place_anew(spec, spec.workers, links) == (grant.placement, told)
    planner.strategy = strategy("ps")
    assert re.fullmatch(
        f"summed at its server h80 and in .*: strategy ps sums .*; {told}", planner.grant(spec, links).note
    )


def test_unknown_strategy_is_answered_with_the_right_ones() -> None:
    with pytest.raises(PlacementError, match='strategy "lp" is unknown; there are agg, ps, rack, random'):
        strategy("lp")


def test_a_job_moves_for_a_clear_gain_only() -> None:
    problem = demo()
    ps, agg = place("ps", problem), place("agg", problem)
    assert should_move(ps, agg, problem)
    assert not should_move(agg, ps, problem)
    assert not should_move(agg, agg, problem, gain=0.0)
    share = 1 - predicted_completion_time(agg, problem) / predicted_completion_time(ps, problem)
    assert should_move(ps, agg, problem, gain=share - 0.01)
    assert not should_move(ps, agg, problem, gain=share + 0.01)
