"""Every strategy's placements on the demo's fabric, and how they compare there."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
import scipy.optimize  # type: ignore[import-untyped]

from weir.controller.placement import (
    NoTree,
    Placement,
    PlacementCosts,
    PlacementError,
    Problem,
    fitted,
    predicted_completion_time,
)
from weir.controller.placement.baseline_trees import spine_trees
from weir.controller.placement.model.loads import LinkLoad
from weir.controller.placement.reference_schemes import REFERENCE_SCHEMES
from weir.controller.placement.strategies import STRATEGIES, Need, strategy
from weir.controller.planning.completion import Expected
from weir.controller.planning.improvement import better_alone
from weir.controller.planning.plan import JobSpec
from weir.controller.planning.planner import LinkConditions, Planner
from weir.tests.controller.placement.fabrics import any_problem
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Routes, Topology, fat_tree, leaf_spine
from weir.wire.aggregation import FAN_IN

GBIT = 1_000_000_000
WORKERS = tuple(f"h{i}" for i in range(1, 9))
BUSY = {"s1-p4": 0.7, "s5-p1": 0.6, "s2-p5": 0.75, "s6-p2": 0.6, "s3-p4": 0.8, "s5-p4": 0.6, "s4-p4": 0.6}
"""Background share of some links between leaves and spines."""


def demo(fabric: Topology | None = None, busy: dict[str, float] | None = None) -> Problem:
    fabric = fabric or leaf_spine(4, 2, 3)
    loads = {Endpoint.parse(link): LinkLoad(share * GBIT) for link, share in (BUSY if busy is None else busy).items()}
    return Problem(Routes(fabric), WORKERS, "h12", 4_000_000, loads)


ROUTES = Routes(leaf_spine(4, 2, 3))


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


def test_every_strategy_says_what_it_is_and_does() -> None:
    assert {name: known.name for name, known in STRATEGIES.items()} == {name: name for name in STRATEGIES}
    assert len({known.label for known in STRATEGIES.values()}) == len(STRATEGIES)
    problem = demo()
    alone = replace(problem, server=None)
    for name, known in STRATEGIES.items():
        place(name, problem).check(problem)
        if Need.SERVER in known.needs:
            with raises(PlacementError, place=f"strategy {name}: server", value=None):
                place(name, alone)
        else:
            place(name, alone).check(alone)
        if Need.ROOM not in known.needs:
            assert not place(name, problem).parents
        if Need.TELEMETRY not in known.needs:
            assert place(name, problem) == place(name, replace(problem, loads={}))


def test_two_level_sums_meet_at_the_servers_switch() -> None:
    placement = place("atp", demo())
    assert placement.aggregators == {worker: demo().topology.attached_switch(worker).name for worker in WORKERS}
    assert placement.parents == {"s1": "s4", "s2": "s4", "s3": "s4", "s4": "h12"}


def test_the_hierarchy_has_one_spine_whatever_the_load() -> None:
    assert place("hierarchy", demo()).parents == {"s1": "s5", "s2": "s5", "s3": "s5", "s5": "s4", "s4": "h12"}
    fabric = fat_tree(4)
    problem = Problem(Routes(fabric), tuple(f"h{i}" for i in range(1, 13)), "h16", 1_000_000)
    placement = place("hierarchy", problem)
    assert {fabric.switch(name).tier for name in placement.parents} == {"edge", "aggregation", "core"}
    assert predicted_completion_time(placement, problem) == pytest.approx(8e6 / GBIT, rel=0.01)


def test_hashed_hierarchies_of_several_jobs_spread_over_spines() -> None:
    routes = Routes(leaf_spine(4, 4, 3))
    problems = [Problem(routes, (f"h{at}", f"h{at + 3}"), f"h{at + 6}", 1_000_000) for at in (1, 2, 3)]
    spines = [place("hashed-hierarchy", problem).parents["s1"] for problem in problems]
    assert len(set(spines)) > 1
    assert spines == [place("hashed-hierarchy", problem, seed=1).parents["s1"] for problem in problems]
    assert {place("hierarchy", problem).parents["s1"] for problem in problems} == {"s5"}


def test_the_best_spine_is_the_fastest_of_all_hierarchies() -> None:
    """Telemetry favours the other spine; enumeration finds no faster one."""
    problem = demo(busy={"s1-p4": 0.7, "s4-p5": 0.3})
    assert place("best-spine", problem).parents == {"s1": "s6", "s2": "s6", "s3": "s6", "s6": "s4", "s4": "h12"}
    slower = faster = 0
    for seed in range(60):
        problem = any_problem(seed)
        costs = PlacementCosts(problem)
        trees = list(spine_trees(problem, [switch.name for switch in problem.topology.switches]))
        if trees:
            best = costs.slowest_link_seconds(place("best-spine", problem))
            assert best <= min(map(costs.slowest_link_seconds, trees)) * (1 + 1e-9), f"seed {seed}"
            fixed = costs.slowest_link_seconds(place("hierarchy", problem))
            slower, faster = slower + (best > fixed * (1 + 1e-9)), faster + (best < fixed * (1 - 1e-9))
    assert slower == 0
    assert faster > 5


def test_racks_beyond_fan_in_share_several_spines() -> None:
    """Forty racks under three spines of 32 children: two of them have all racks, and by telemetry the free two."""
    routes = Routes(leaf_spine(41, 3, 1))
    workers = tuple(f"h{index}" for index in range(1, 41))
    busy = {Endpoint.parse(f"s42-p{leaf}"): LinkLoad(0.9 * GBIT) for leaf in range(1, 42)}
    problem = Problem(routes, workers, "h41", 1_000_000, busy)
    for name, spines in (("hierarchy", {"s42", "s43"}), ("best-spine", {"s43", "s44"})):
        placement = place(name, problem)
        placement.check(problem)
        assert {placement.parents[f"s{leaf}"] for leaf in range(1, 41)} == spines


def test_root_only_is_one_switch() -> None:
    assert place("root", demo()) == Placement(dict.fromkeys(WORKERS, "s5"), {"s5": "h12"}, "h12")


def test_nearest_greedy_stays_in_the_rack() -> None:
    placement = place("nearest", demo())
    assert placement.aggregators == {worker: demo().topology.attached_switch(worker).name for worker in WORKERS}


def test_congestion_aware_trees_avoid_each_switchs_busy_port() -> None:
    """Each rack takes its own free spine, though from one of them the way on to s4 is busy."""
    assert place("canary", demo()).parents == {"s1": "s6", "s2": "s5", "s3": "s6", "s5": "s4", "s6": "s4", "s4": "h12"}


def test_rounding_draws_from_the_seed() -> None:
    problem = demo()
    placements = [place("grid", problem, seed) for seed in range(10)]
    assert placements == [place("grid", problem, seed) for seed in range(10)]
    assert len({str(placement) for placement in placements}) > 1


def test_without_solved_shares_racks_sum_and_the_note_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solve, limits = scipy.optimize.linprog, []

    def stopped(*how: Any, **more: Any) -> Any:
        limits.append(more["options"])
        return solve(*how, **{**more, "options": {"maxiter": 0}})

    monkeypatch.setattr(scipy.optimize, "linprog", stopped)
    note = "the program of strategy grid was not solved in 200000 iterations: racks sum"
    assert place("grid", demo()) == replace(place("rack", demo()), note=note)
    assert limits == [{"maxiter": 200_000}]


def test_shares_are_solved_again_only_if_links_change(monkeypatch: pytest.MonkeyPatch) -> None:
    solve, calls = scipy.optimize.linprog, []

    def counted(*how: Any, **more: Any) -> Any:
        calls.append(1)
        return solve(*how, **more)

    monkeypatch.setattr(scipy.optimize, "linprog", counted)
    grid = strategy("grid")
    for problem in (demo(), replace(demo(), loads=dict(demo().loads)), demo(busy={}), demo(busy={"s1-p4": 0.5})):
        grid.place(replace(problem, routes=ROUTES), random.Random(0)).check(problem)
    assert len(calls) == 3


def test_blind_is_the_widest_tree_of_the_idle_fabric() -> None:
    assert place("blind", demo()) == place("widest", demo(busy={}))


def test_no_strategy_is_faster_than_the_widest_tree() -> None:
    for seed in range(8):
        problem = any_problem(seed)
        costs = PlacementCosts(problem)
        best = costs.slowest_link_seconds(place("widest", problem))
        for name, known in STRATEGIES.items():
            if name not in ("oracle", "scarce") and (problem.server is not None or Need.SERVER not in known.needs):
                seconds = costs.slowest_link_seconds(place(name, problem, seed))
                assert seconds >= best * (1 - 1e-9), f"{name}, seed {seed}"


def test_the_widest_tree_beats_all_others_under_load() -> None:
    problem = demo()
    seconds = {
        name: min(predicted_completion_time(place(name, problem, seed), problem) for seed in range(20 if drawn else 1))
        for name, drawn in ((name, name in ("random", "grid")) for name in STRATEGIES)
    }
    widest = seconds.pop("widest")
    exact = {name: seconds.pop(name) for name in ("oracle", "scarce")}
    assert exact == pytest.approx(dict.fromkeys(exact, widest), rel=1e-3)
    assert seconds.pop("canary") == pytest.approx(widest, rel=1e-3)  # looks as well, and is lucky with two spines
    assert seconds.pop("agg") > 1.1 * widest  # the best of one level
    assert {name: 0.7 * each for name, each in seconds.items() if 0.7 * each <= widest} == {}


def test_widest_uses_both_spines_when_each_suits_some_racks() -> None:
    """s1 and s3 reach only s6 freely, s2 only s5; the server's leaf s4 makes one stream of both."""
    problem = demo()
    placement = place("widest", problem)
    assert placement.aggregators == {w: problem.topology.attached_switch(w).name for w in WORKERS}
    assert placement.parents == {"s1": "s6", "s2": "s5", "s3": "s6", "s4": "h12", "s5": "s4", "s6": "s4"}
    # the slowest link left is s5 to s4, 60 % taken: 4 MB at 400 Mbit/s, and microseconds of wire
    assert predicted_completion_time(placement, problem) == pytest.approx(0.08, rel=0.001)


def test_widest_in_an_idle_fabric_loads_no_link_twice() -> None:
    problem = demo(busy={})
    placement = place("widest", problem)
    assert predicted_completion_time(placement, problem) == pytest.approx(4_000_000 * 8 / GBIT, rel=0.001)


def test_widest_without_a_server_has_a_switch_for_root() -> None:
    problem = Problem(Routes(leaf_spine(4, 2, 3)), WORKERS, None, 4_000_000, demo().loads)
    placement = place("widest", problem)
    placement.check(problem)
    assert problem.topology.is_switch(placement.root)
    assert predicted_completion_time(placement, problem) < predicted_completion_time(place("rack", demo()), demo())
    with raises(PlacementError, place="strategy ps: server"):
        place("ps", problem)


def test_widest_keeps_to_switches_with_room() -> None:
    problem = demo()
    tight = Problem(problem.routes, problem.workers, "h12", 4_000_000, problem.loads, room={"s5": 1, "s1": 0})
    assert set(place("widest", tight).parents) <= {"s5"}
    none = Problem(problem.routes, problem.workers, "h12", 4_000_000, problem.loads, room={})
    assert place("widest", none) == place("ps", none)
    with pytest.raises(NoTree):
        place("widest", Problem(problem.routes, ("h1", "h2"), None, 1, room={}))


def fits(problem: Problem, placement: Placement) -> None:
    """Check for a tree over the workers within fan-in, all streams on unhashed paths, except those to the server."""
    placement.check(problem)
    assert max(map(len, placement.children.values())) <= FAN_IN
    for child, parent in placement.edges:
        assert problem.may_send(child, parent), (child, parent)


def test_more_workers_than_one_node_takes_become_a_tree() -> None:
    fabric = leaf_spine(2, 1, 40)
    workers = tuple(f"h{i}" for i in range(1, 71))
    problem = Problem(Routes(fabric), workers, "h80", 1_000_000)
    with raises(PlacementError, value=70):
        place("ps", problem)
    for name in ("rack", "random", "widest"):
        fits(problem, place(name, problem))
    rack = place("rack", problem)
    off = [worker for worker in workers if rack.aggregators[worker] != fabric.attached_switch(worker).name]
    assert (len(off), rack.parents) == (8, {"s1": "h80", "s2": "h80"})  # 8 of s1's 40, for whom the server has places


def test_rack_sends_sums_beyond_the_servers_fan_in_via_a_spine() -> None:
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


@pytest.mark.parametrize("name", ["rack", "random", "widest"])
def test_random_fabrics_get_a_tree_or_the_reason_why_not(name: str) -> None:
    """All ways agree on whether there is a tree."""
    placed = 0
    for seed in range(8 if name == "widest" else 40):
        rng = random.Random(seed)
        fabric = leaf_spine(rng.randint(2, 5), rng.randint(1, 3), rng.randint(20, 40))
        server, *workers = rng.sample([host.name for host in fabric.hosts], rng.randint(34, len(fabric.hosts)))
        room = {switch.name: int(rng.random() < 0.7) for switch in fabric.switches}
        with_server = rng.random() < 0.7
        problem = Problem(Routes(fabric), tuple(workers), server if with_server else None, 1_000_000, room=room)
        try:
            fitted(problem, {})
        except PlacementError as refused:
            with raises(type(refused), args=refused.args, place=refused.place, value=refused.value):
                place(name, problem, seed)
        else:
            placed += 1
            fits(problem, place(name, problem, seed))
    assert placed


def test_why_nothing_fits_is_said() -> None:
    routes = Routes(leaf_spine(2, 1, 40))
    workers = tuple(f"h{i}" for i in range(1, 71))
    for name in ("rack", "random", "widest"):
        with pytest.raises(PlacementError, match=r"server h80 and the 1 switches .*at most 63 workers"):
            place(name, Problem(routes, workers, "h80", 1, room={"s3": 1}))
        with pytest.raises(PlacementError, match=r"no switch has room .*h1, h2; free slots"):
            place(name, Problem(routes, ("h1", "h2"), None, 1, room={}))
    down = frozenset({"s1", "s2", "s3"})
    with pytest.raises(PlacementError, match=r"path is down: s1, s2, s3 do not answer .*live link"):
        place("widest", Problem(routes, ("h1", "h2"), None, 1, room={}, unreachable=down))
    # with two spines, only s1 has room, which racks 2 and 3 reach by two ways each
    two_ways = Problem(Routes(leaf_spine(3, 2, 2)), ("h1", "h3", "h5"), None, 1, room={"s1": 1})
    with pytest.raises(PlacementError, match=r"no switch with room .*h1, h3, h5 .*summed at: paths must"):
        place("rack", two_ways)


def test_the_fallback_on_the_server_uses_minimal_switches() -> None:
    topology = leaf_spine(2, 1, 40)
    planner = Planner(topology, Routes(topology), strategy("ps"), 0)
    links = LinkConditions({}, {})
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
    with pytest.raises(PlacementError, match=r"ps sums at h80 alone.* no tree sums 70 .* at most 63 workers"):
        planner.grant(spec, links)


def test_a_job_is_told_of_a_timeout_before_the_nearest_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = leaf_spine(2, 1, 40)
    planner = Planner(topology, Routes(topology), strategy("rack"), 0)
    links = LinkConditions({}, {})
    spec = JobSpec(1, tuple(f"h{i}" for i in range(1, 71)), "h80")
    assert planner.grant(spec, links).note == ""
    stopped = scipy.optimize.OptimizeResult(status=4, x=None, message="Solution limit reached")
    monkeypatch.setattr(scipy.optimize, "milp", lambda *how, **more: stopped)
    grant = planner.grant(spec, links)
    fits(planner.problem(spec, spec.workers, links), grant.placement)
    told = "its tree is one by first fit, for the search for the nearest to the strategy's ended after 500 branches"
    assert grant.note == told
    assert planner.place_anew(spec, spec.workers, links) == (grant.placement, told)
    planner.strategy = strategy("ps")
    assert re.fullmatch(
        f"summed at its server h80 and in .*: strategy ps sums .*; {told}", planner.grant(spec, links).note
    )


def test_unknown_strategy_is_answered_with_the_right_ones() -> None:
    with raises(PlacementError, value="lp", allowed=tuple(sorted(STRATEGIES))):
        strategy("lp")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ring", "its hosts sum without switches; only weir evaluate compares it"),
        (
            "striped",
            "it places all jobs together; weir place does so by --jobs and --stripes, .*--stripes, or stripes: ",
        ),
    ],
)
def test_a_comparison_without_trees_is_refused_by_name(name: str, why: str) -> None:
    assert name not in STRATEGIES
    with pytest.raises(PlacementError, match=f'strategy "{name}" places no job: {why}'):
        strategy(name)


def test_the_guide_has_every_strategy() -> None:
    guide = (ROOT / "docs" / "placement.md").read_text()
    assert [name for name in STRATEGIES if f"`{name}`" not in guide] == []
    for name, beside in REFERENCE_SCHEMES.items():
        needs = "telemetry" if Need.TELEMETRY in beside.needs else ""
        row = f"| `{name}` | {needs} | {'yes' if beside.resolves else 'no'} | {beside.summary}"
        assert row.replace("|  |", "| |") in guide


def test_a_job_moves_for_a_clear_gain_only() -> None:
    problem = demo()
    ps, widest = place("ps", problem), place("widest", problem)

    def expected(problem: Problem, placement: Placement) -> Expected:
        seconds = predicted_completion_time(placement, problem)
        return Expected(seconds, seconds, Endpoint("s1", 1), window=1, round_trip_seconds=0.0)

    def should_move(current: Placement, proposed: Placement, problem: Problem, gain: float = 0.15) -> bool:
        better = better_alone(lambda _: proposed, current, [problem], gain, expected)
        assert better is None or better.placement == proposed
        return better is not None

    assert should_move(ps, widest, problem)
    assert not should_move(widest, ps, problem)
    assert not should_move(widest, widest, problem, gain=0.0)
    share = 1 - predicted_completion_time(widest, problem) / predicted_completion_time(ps, problem)
    assert should_move(ps, widest, problem, gain=share - 0.01)
    assert not should_move(ps, widest, problem, gain=share + 0.01)
