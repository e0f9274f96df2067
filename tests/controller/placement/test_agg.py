"""Strategy agg: compared with all assignments of drawn jobs, and its limits."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from weir.controller.placement import NoTree, Placement, PlacementCosts, PlacementError, Problem
from weir.controller.placement.strategies import agg, strategy
from weir.controller.placement.strategies.agg import Agg
from weir.tests.controller.placement.agg_oracle import Enumeration
from weir.tests.controller.placement.fabrics import jellyfish, random_fabric, random_loads, random_others
from weir.tests.support.errors import raises
from weir.topologies import Routes, TopologyError, fat_tree, leaf_spine

CLOSE = 1.001
"""Share by which the search may end before the optimum."""


def drawn(seed: int) -> tuple[Problem, Agg]:
    """A job of 4 to 7 workers on one of four kinds of fabric, with limits in one of two."""
    rng = random.Random(seed)
    match seed % 4:
        case 0:
            topology = leaf_spine(rng.randint(2, 4), rng.randint(1, 3), 4)
        case 1:
            topology = fat_tree(4)
        case 2:
            topology = random_fabric(rng, 2)
        case _:
            topology = jellyfish(rng)
    hosts = [host.name for host in topology.hosts]
    server, *workers = rng.sample(hosts, min(len(hosts), rng.randint(4, 7)))
    room = {switch.name: int(rng.random() < 0.8) for switch in topology.switches}
    problem = Problem(Routes(topology), tuple(workers), server, 1_000_000, random_loads(topology, rng), room)
    if rng.random() < 0.3:
        problem = replace(problem, others=random_others(topology, rng))
    if rng.random() < 0.5:
        return problem, Agg()
    return problem, Agg(rng.randint(0, 3), {name: rng.randint(0, 3) for name in rng.sample([*room], 2)})


def over_the_best(seed: int) -> float:
    """Time of a step over that of the fastest assignment there is; its note must not claim a gap where none is."""
    problem, method = drawn(seed)
    placement = method.place(problem, random.Random(seed))
    placement.check(problem)
    assert set(placement.parents.values()) <= {problem.server}
    assert len(placement.parents) <= method.aggregations, f"seed {seed}"
    assert all(len(placement.children[name]) <= method.most(problem, name) for name in placement.parents)
    best = Enumeration(problem, method.streams, method.aggregations).fastest()
    assert placement.note == "", f"seed {seed}"
    return PlacementCosts(problem).completion_seconds(placement) / best


@pytest.mark.parametrize(
    "seeds",
    [range(24), *(pytest.param(range(index, index + 50), marks=pytest.mark.long) for index in range(100, 500, 50))],
)
def test_no_assignment_makes_a_step_faster(seeds: range) -> None:
    for seed in seeds:
        assert 1 - 1e-9 <= over_the_best(seed) <= CLOSE, f"seed {seed}"


@pytest.mark.parametrize("seed", range(0, 20, 2))
def test_times_are_lexicographically_least_with_equal_switches(seed: int) -> None:
    """Compared with all assignments with the same switches and the same streams that hashing spreads, and by the
    enumeration's own count of each link's streams. Only a faster step may have longer times.
    """
    problem, method = drawn(seed)
    placement = method.place(problem, random.Random(seed))
    costs, enumeration = PlacementCosts(problem), Enumeration(problem, method.streams, method.aggregations)
    network = method._program(problem, str(problem.server)).network
    racks = {worker: rack for rack, workers in problem.racks.items() for worker in workers}

    def fixed(sinks: dict[str, str]) -> list[tuple[str, str]]:
        pairs = [(racks[worker], sink) for worker, sink in sinks.items()]
        return sorted(pair for pair in pairs if pair not in network.paths)

    slowest = costs.slowest_link_seconds(placement) + costs.longest_path_seconds(placement)
    mine, best = None, None
    for each in enumeration.all():
        sinks = dict(zip(enumeration.workers, each.sinks, strict=True))
        if set(each.sinks) - {problem.server} != set(placement.parents) or fixed(sinks) != fixed(
            dict(placement.aggregators)
        ):
            continue
        times = each.sorted_times(costs)
        if sorted((racks[w], s) for w, s in sinks.items()) == sorted(
            (racks[w], s) for w, s in placement.aggregators.items()
        ):
            mine = times
            assert each.slowest(costs) + each.path_seconds == pytest.approx(slowest)
        if best is None or times < best:
            best, step = times, each.slowest(costs) + each.path_seconds
    assert mine is not None
    assert mine == best or slowest <= step * (1 + 1e-9)


def test_streams_that_hashing_spreads_share_their_links() -> None:
    """Six workers without a switch that sums: links to the server's rack carry the streams of both other racks."""
    topology = leaf_spine(3, 2, 4)
    workers = ("h1", "h2", "h3", "h5", "h6", "h7")
    problem = Problem(Routes(topology), workers, "h9", 1_000_000, room={})
    only = Enumeration(problem).fastest()
    placement = Agg().place(problem, random.Random(0))
    costs = PlacementCosts(problem)
    assert costs.completion_seconds(placement) == pytest.approx(only)
    assert costs.slowest_link_seconds(placement) == pytest.approx(6 * 8e6 / 1e9)  # the server's own link
    proof = Agg().proof(problem)
    assert "totally unimodular" in proof
    assert "streams of s1, s2 to h9 are not in it" in proof
    assert "not in it" not in Agg().proof(replace(problem, routes=Routes(leaf_spine(3, 1, 4))))


def test_agg_placements_never_beat_the_widest_tree() -> None:
    for seed in range(0, 40, 3):
        problem, method = drawn(seed)
        costs = PlacementCosts(problem)
        widest = costs.slowest_link_seconds(strategy("widest").place(problem, random.Random(0)))
        mine = costs.slowest_link_seconds(method.place(problem, random.Random(0)))
        assert widest <= mine * (1 + 1e-9), f"seed {seed}"


def test_a_switchs_limit_decides_the_streams_way() -> None:
    """Three workers are on one rack whose switch takes two: the third goes on to a spine, or to the server."""
    problem = Problem(Routes(leaf_spine(2, 2, 4)), ("h1", "h2", "h3"), "h5", 1_000_000)
    free = Agg().place(problem, random.Random(0))
    assert set(free.aggregators.values()) == {"s1"}
    two = Agg(streams={"s1": 2}).place(problem, random.Random(0))
    assert [*two.aggregators.values()].count("s1") in (0, 2)
    assert strategy("agg", {"streams": {"s1": 2}}).place(problem, random.Random(0)) == two
    with raises(PlacementError, place="strategy agg", value="limits"):
        strategy("agg", {"limits": 2})
    none = Agg(streams={switch.name: 0 for switch in problem.topology.switches}).place(problem, random.Random(0))
    assert set(none.aggregators.values()) == {"h5"}
    with raises(PlacementError, place="streams of s1", value=-1):
        Agg(streams={"s1": -1})
    with raises(PlacementError, place="streams", value=4):
        strategy("agg", {"streams": 4})
    with raises(PlacementError, place="aggregations", value=-1):
        Agg(-1)
    with pytest.raises(TopologyError):
        Agg(streams={"s99": 1}).place(problem, random.Random(0))


def test_more_streams_than_switches_take_are_refused() -> None:
    """The server takes 32 of 35, and the switches one each, which is one stream to the server again."""
    topology = leaf_spine(4, 1, 10)
    hosts = [host.name for host in topology.hosts]
    problem = Problem(Routes(topology), tuple(hosts[:35]), hosts[-1], 1_000_000)
    Agg().place(problem, random.Random(0)).check(problem)
    with pytest.raises(NoTree):
        Agg(streams={switch.name: 1 for switch in topology.switches}).place(problem, random.Random(0))


def test_the_gap_is_told_where_the_fabric_limits_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agg, "LARGEST", 100)
    rng = random.Random(5)
    topology = fat_tree(8)
    hosts = [host.name for host in topology.hosts]
    server, *workers = rng.sample(hosts, 121)
    problem = Problem(Routes(topology), tuple(workers), server, 1_000_000, random_loads(topology, rng))
    placement = Agg(4).place(problem, rng)
    placement.check(problem)
    assert len(placement.parents) <= 4
    assert placement.note.startswith("with other switches its step might take up to ")
    again: Placement = Agg(4).place(problem, random.Random(1))
    assert (again, again.note) == (placement, placement.note)
