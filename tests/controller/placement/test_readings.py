"""Placement with odd readings and fabrics: a stated rule, or a clear error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from weir.controller.placement import NoTree, PlacementCosts, PlacementError, Problem
from weir.controller.placement.model.loads import LinkLoad
from weir.controller.placement.strategies import STRATEGIES, Need, strategy
from weir.controller.planning.planner import FULL, LinkConditions
from weir.controller.telemetry.snapshot import LinkView, Snapshot
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Host, Link, Routes, Switch, Topology, TopologyError, leaf_spine

MBIT = 1_000_000
UP = Endpoint("s1", 3)
"""Port from the first leaf to the first spine, s3."""


def problem(loads: Mapping[Endpoint, LinkLoad] | None = None, room: Mapping[str, int] | None = None) -> Problem:
    topology = leaf_spine(2, 2, 2)
    return Problem(Routes(topology), ("h1", "h2"), "h3", 1_000_000, loads or {}, room)


def spine(placed: Problem) -> str:
    """The one that the widest tree goes by."""
    placement = strategy("widest").place(placed, random.Random(0))
    ways = [way for edge in placement.edges for way in placed.routes.unique_path(*edge) or ()]
    nodes = {placement.root, *placement.parents, *(placed.topology.peer(way).node for way in ways)}
    (found,) = nodes & {"s3", "s4"}
    return found


def test_a_lossy_link_is_slower_by_what_it_repeats() -> None:
    idle, lossy = (PlacementCosts(problem(loads={UP: LinkLoad(loss=loss)})) for loss in (0.0, 0.2))
    number = idle.links.number[UP]
    assert lossy.seconds[number] == pytest.approx(idle.seconds[number] / 0.8)
    dead = PlacementCosts(problem(loads={UP: LinkLoad(loss=1.0)}))
    assert dead.seconds[number] == pytest.approx(idle.seconds[number] / 0.05)


def test_a_pair_of_switches_is_as_slow_alone_as_among_all() -> None:
    rng = random.Random(5)
    ends = leaf_spine(2, 2, 2).directed_links
    costs = PlacementCosts(problem(loads={end: LinkLoad(background_bps=rng.uniform(0, 9e8)) for end in ends}))
    assert [costs.seconds_of_pair(pair) for pair in range(4)] == costs.seconds_of_pairs().tolist()


@pytest.mark.parametrize("load", [LinkLoad(loss=0.3), LinkLoad(background_bps=3e8), LinkLoad(latency_seconds=1e-3)])
def test_a_job_goes_round_a_link_that_loses_or_carries_or_delays(load: LinkLoad) -> None:
    usual = spine(problem())
    links = [end for end in leaf_spine(2, 2, 2).directed_links if end.node == usual]
    assert spine(problem(loads=dict.fromkeys(links, load))) != usual


def test_measured_latency_counts_before_a_queue_s_depth() -> None:
    number = PlacementCosts(problem()).links.number[UP]
    by_depth = PlacementCosts(problem(loads={UP: LinkLoad(queue_packets=10)})).wait[number]
    assert by_depth == pytest.approx(10 * 1500 * 8 / 1e9)
    assert PlacementCosts(problem(loads={UP: LinkLoad(queue_packets=10, latency_seconds=7e-6)})).wait[number] == 7e-6


@pytest.mark.parametrize(
    "load", [LinkLoad(loss=1.5), LinkLoad(loss=float("nan")), LinkLoad(loss=-0.1), LinkLoad(latency_seconds=-1.0)]
)
def test_invalid_loss_and_latency_are_refused_with_their_link(load: LinkLoad) -> None:
    with raises(PlacementError, place="loads of s1-p3", value=load):
        PlacementCosts(problem(loads={UP: load}))


def view(**changes: float | None) -> LinkView:
    fields = {"rate_bps": 8e8, "background_bps": 4e8, "queue_packets": 8.0, "latency_us": 100.0, "loss": 0.1}
    return LinkView(**{**fields, "age_ns": 0, "confidence": 1.0, **changes})  # type: ignore[arg-type]


def surroundings(seen: LinkView) -> LinkConditions:
    return LinkConditions.of(Snapshot({UP: seen}, frozenset(), frozenset()), {})


def test_a_queue_counts_as_far_as_the_traffic_is_others() -> None:
    assert surroundings(view()).loads[UP] == LinkLoad(4e8, 4.0, 0.1, 0.5 * 100.0 * 1e-6)
    own = surroundings(view(background_bps=0.0)).loads[UP]
    assert (own.queue_packets, own.latency_seconds) == (0.0, 0.0)
    assert surroundings(view(age_ns=None)).loads[UP].latency_seconds is None


@pytest.mark.parametrize("name", ["rate_bps", "background_bps", "queue_packets", "latency_us", "loss"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_an_invalid_reading_makes_its_link_count_as_full(name: str, value: float) -> None:
    around = surroundings(view(**{name: value}))
    assert around.loads[UP] is FULL
    assert spine(problem(loads=around.loads)) == "s4"
    assert (
        around.discard_untrusted([], own_links=[UP]).loads[UP] == LinkLoad()
    )  # a job that is there has no reason to leave
    assert around.discard_untrusted([], own_links=[]).loads[UP] is FULL


def test_readings_in_doubt_speak_for_no_move() -> None:
    around = LinkConditions({UP: LinkLoad(3e8), Endpoint("s1", 4): LinkLoad(2e8)}, {})
    remaining = around.discard_untrusted([UP, Endpoint("s1", 4)], own_links={UP: 1.0})
    assert remaining.loads == {UP: LinkLoad(), Endpoint("s1", 4): FULL}


# --- fabrics ---


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_fabric_in_two_pieces_is_refused_by_every_strategy(name: str) -> None:
    topology = leaf_spine(2, 2, 2)
    apart = Routes(topology, down=[Endpoint("s1", 3), Endpoint("s1", 4)])
    job = Problem(apart, ("h1", "h4"), "h3", 1_000_000)
    with raises(PlacementError, place="", value=("h1", "h3")):
        strategy(name).place(job, random.Random(0))
    if Need.SERVER not in STRATEGIES[name].needs:
        with raises(PlacementError, place="", value=("h4", "h1")):
            strategy(name).place(replace(job, server=None), random.Random(0))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_without_slots_the_server_sums_alone_or_placement_fails(name: str) -> None:
    full = problem(room={})
    placement = strategy(name).place(full, random.Random(0))
    assert (placement.aggregators, placement.parents) == ({"h1": "h3", "h2": "h3"}, {})
    with pytest.raises(PlacementError) as refused:
        strategy(name).place(replace(full, server=None), random.Random(0))
    assert isinstance(refused.value, NoTree) or refused.value.place == f"strategy {name}: server"


def test_a_link_without_a_rate_is_no_link() -> None:
    with pytest.raises(TopologyError, match="rate_bps 0 is not a rate"):
        Link(Endpoint("h1", 0), Endpoint("s1", 1), rate_bps=0)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_link_of_one_bit_per_second_is_finite_and_avoided(name: str) -> None:
    hosts = tuple(Host(f"h{at}", IPv4Address("10.0.0.0") + at) for at in (1, 2, 3))
    switches = tuple(Switch(f"s{at}", at) for at in (1, 2))
    links = (
        Link(Endpoint("h1", 0), Endpoint("s1", 1)),
        Link(Endpoint("h2", 0), Endpoint("s1", 2)),
        Link(Endpoint("h3", 0), Endpoint("s2", 1)),
        Link(Endpoint("s1", 3), Endpoint("s2", 3), rate_bps=1),
    )
    slow = Problem(Routes(Topology("slow", hosts, switches, links)), ("h1", "h2"), "h3", 1_000)
    placement = strategy(name).place(slow, random.Random(0))
    placement.check(slow)
    assert 8_000 <= PlacementCosts(slow).slowest_link_seconds(placement) <= 16_000
