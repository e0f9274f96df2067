"""Predicted completion times, compared with calculations by hand; invalid problems and trees."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from ipaddress import IPv4Address

import networkx
import numpy as np
import pytest

from weir.controller.placement import Placement, PlacementCosts, PlacementError, Problem, predicted_completion_time
from weir.controller.placement.model.cost import LinkStreams
from weir.controller.placement.model.links import Links
from weir.controller.placement.model.loads import IDLE, LinkLoad
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Host, Link, Routes, Switch, Topology, TopologyError, leaf_spine

GBIT = 1_000_000_000


def test_completion_time_by_hand() -> None:
    """Two workers on one leaf, the server on another, one spine: s1 sums, its stream crosses s3 once."""
    topology = leaf_spine(2, 1, 2, delay_ns=1_000)
    busy, queued = Endpoint("s1", 3), Endpoint("s2", 1)
    loads = {busy: LinkLoad(0.5 * GBIT), queued: LinkLoad(0.0, queue_packets=10)}
    problem = Problem(Routes(topology), ("h1", "h2"), "h3", 1_250_000, loads)
    rack = Placement({"h1": "s1", "h2": "s1"}, {"s1": "h3"}, "h3")
    # 10 Mbit at 500 Mbit/s; 4 links of 1 µs each way; 10 packets of 12,000 bits
    assert predicted_completion_time(rack, problem) == pytest.approx(0.020 + 8e-6 + 120e-6)
    ps = Placement({"h1": "h3", "h2": "h3"}, {}, "h3")
    assert predicted_completion_time(ps, problem) == pytest.approx(0.040 + 8e-6 + 120e-6)


def test_a_saturated_link_is_slow_and_not_endless() -> None:
    topology = leaf_spine(2, 1, 1)
    problem = Problem(Routes(topology), ("h1",), "h2", 1_250_000, {Endpoint("s1", 2): LinkLoad(2.0 * GBIT)})
    assert predicted_completion_time(Placement({"h1": "h2"}, {}, "h2"), problem) == pytest.approx(0.2, rel=0.001)


def test_parallel_links_add_their_rates_up() -> None:
    """Between s1 and s3 there are three cables, between s2 and s3 one."""
    one = leaf_spine(2, 1, 1)
    [cable] = (link for link in one.links if {link.a.node, link.b.node} == {"s1", "s3"})
    more = [replace(cable, a=Endpoint("s1", port), b=Endpoint("s3", port)) for port in (20, 21)]
    routes = Routes(replace(one, links=(*one.links, *more)))
    links = Links.of(routes)
    directed = routes.topology.directed_links
    assert {links.pair_of[links.number[Endpoint(host.name, 0)]] for host in routes.topology.hosts} == {-1}
    seconds = np.random.default_rng(1).uniform(1, 2, len(directed))
    assert links.parallel(seconds)[1].tolist() == [[3, 1]] * 2
    leaves_lower = [link.node < routes.topology.peer(link).node for link in directed]
    rates, counts = links.parallel(np.where(leaves_lower, seconds, np.inf))
    assert (rates[0] > 0).all(), "up is to the higher number"
    assert (rates[1] == 0).all()
    rates, counts = links.parallel(seconds)
    between: dict[tuple[str, str], list[float]] = {}
    for link, taken in zip(directed, seconds, strict=True):
        ends = link.node, routes.topology.peer(link).node
        if all(map(routes.topology.is_switch, ends)):
            between.setdefault(ends, []).append(taken)
    expected = sorted((len(each), sum(1 / taken for taken in each)) for each in between.values())
    assert [count for count, _ in expected] == [1, 1, 3, 3]
    found = sorted(zip(counts.ravel().tolist(), rates.ravel().tolist(), strict=True))
    np.testing.assert_allclose(found, expected)


def test_hashed_streams_find_themselves_and_the_means_of_others() -> None:
    streams = LinkStreams(2)
    for _ in range(6):
        streams.add([(1, 0.5)])
    assert streams.load(1) == 3.5
    assert streams.load(1, 1) == 4.5
    assert streams.load(1, 2, 0.25) == 3.0 + 0.5 + 1 - 0.25
    assert (streams.load(0), streams.load(0, 0, 0.5), streams.load(0, 2, 0.5)) == (0.0, 0.0, 1.5)
    assert streams.loads().tolist() == [0.0, 3.5]
    streams.add([(0, 0.25), (1, 1.0)])
    assert streams.loads().tolist() == [1.0, 4.5], "the least share counts, whichever came last"


def test_other_jobs_streams_delay_a_job_on_its_ways() -> None:
    """10 Mbit take 10 ms on an idle link of 1 Gbit/s, and 20 ms on one that is half taken."""
    topology = leaf_spine(2, 1, 2, delay_ns=1_000)
    up, access, apart = Endpoint("s1", 3), Endpoint("h1", 0), Endpoint("h4", 0)
    loads = {up: LinkLoad(0.5 * GBIT, queue_packets=10)}
    others = {up: 1_250_000.0, access: 2_500_000.0, apart: 25_000_000.0, Endpoint("h2", 0): 0.0}
    problem = Problem(Routes(topology), ("h1", "h2"), "h3", 1_250_000, loads, others=others)
    costs = PlacementCosts(problem)
    links = costs.links
    one, times = costs.with_one, costs.streams_within(0.05)
    assert [one[links.number[link]] for link in (up, access, apart)] == pytest.approx([0.04, 0.03, 0.21])
    assert [times[links.number[link]] for link in (up, access, apart)] == [1, 3, 0]
    assert costs.streams_within(0.01)[links.number[up]] == 0
    assert costs.link_seconds(links.number[up], 3) == pytest.approx(120e-6 + 0.02 + 3 * 0.02)
    assert [costs.access_seconds(hosts) for hosts in (("h1", "h2"), ("h2",), ())] == pytest.approx([0.03, 0.01, 0.0])
    assert costs.slowest_link_there_is == pytest.approx(0.02 * 2 + 0.2)
    busy, idle = (links.pair[links.switch[leaf], links.switch["s3"]] for leaf in ("s1", "s2"))
    for pair, seconds, latency in ((busy, 0.04, 121e-6), (idle, 0.01, 1e-6)):
        assert costs.seconds_of_pair(pair) == costs.seconds_of_pairs()[pair] == pytest.approx(seconds)
        assert costs.latency_of_pairs()[pair] == pytest.approx(latency)
    assert costs.slowest_link_seconds(Placement({"h1": "h3", "h2": "h3"}, {}, "h3")) == pytest.approx(2 * 0.02 + 0.02)
    assert LinkLoad() == IDLE == LinkLoad(0.0, 0.0, 0.0, None)


def test_after_a_change_times_are_those_of_the_new_problem() -> None:
    topology, rng = leaf_spine(2, 2, 2), random.Random(3)
    directed = topology.directed_links

    def drawn(base: Problem, at: list[Endpoint]) -> Problem:
        """Problem with other load, or none, on these links."""
        loads, others = dict(base.loads), dict(base.others)
        for link in at:
            loads.pop(link, None)
            others.pop(link, None)
            if rng.random() < 0.6:
                loads[link] = LinkLoad(rng.uniform(0, 9e8), rng.uniform(0, 9), rng.uniform(0, 0.5))
            if rng.random() < 0.6:
                others[link] = rng.uniform(0, 1e7)
        return replace(base, loads=loads, others=others)

    problem = drawn(Problem(Routes(topology), ("h1", "h2"), "h3", 3_000_000), [*directed])
    placement = Placement({"h1": "s1", "h2": "h3"}, {"s1": "h3"}, "h3")
    costs = PlacementCosts(problem)
    for _ in range(10):
        changed = rng.sample(directed, 5)
        problem = drawn(problem, changed)
        costs.change(problem, changed)
        fresh = PlacementCosts(problem)
        for kept, new in ((costs.seconds, fresh.seconds), (costs.wait, fresh.wait), (costs.others, fresh.others)):
            np.testing.assert_array_equal(kept, new)
        assert costs.completion_seconds(placement) == fresh.completion_seconds(placement)
        assert costs.problem is problem


def test_a_stream_goes_where_it_is_counted() -> None:
    """The stream goes to the server, to a switch with slots by the only shortest path, or to a neighbour by any
    cable.
    """
    one = leaf_spine(2, 2, 2)
    [cable] = (link for link in one.links if {link.a.node, link.b.node} == {"s1", "s3"})
    twice = replace(one, links=(*one.links, replace(cable, a=Endpoint("s1", 20), b=Endpoint("s3", 20))))
    problem = Problem(Routes(twice), ("h1", "h2"), "h3", 1)
    hops = [("h1", "h3"), ("h1", "s1"), ("h1", "s3"), ("s1", "s3"), ("h1", "s4"), ("s4", "s2")]
    assert [problem.may_send(*hop) for hop in hops] == [True] * 6
    assert not problem.may_send("h1", "s2"), "by either spine"
    assert not replace(problem, routes=Routes(twice, [Endpoint("s1", 4)])).may_send("h1", "s2"), "by either cable"
    assert replace(problem, routes=Routes(one, [Endpoint("s1", 4)])).may_send("h1", "s2")
    alone = replace(problem, routes=Routes(one, [Endpoint("s1", 3), Endpoint("s1", 4)]))
    assert [alone.may_send(*hop) for hop in hops] == [False, True, False, False, False, True]
    full = replace(problem, room={"s1": 1})
    assert [full.may_send(*hop) for hop in hops] == [True, True, False, False, False, False]


def test_a_switch_takes_a_job_where_it_has_registers_and_room() -> None:
    fabric = leaf_spine(2, 2, 1)
    slots = {"s1": 0, "s2": 1, "s3": 256, "s4": 256}
    fabric = replace(fabric, switches=tuple(replace(switch, slots=slots[switch.name]) for switch in fabric.switches))
    problem = Problem(Routes(fabric), ("h1",), "h2", 1)
    assert [problem.takes(switch) for switch in slots] == [False, True, True, True]
    some = replace(problem, room={"s1": 1, "s2": 1, "s3": 0})
    assert [some.takes(switch) for switch in slots] == [False, True, False, False]


def test_names_have_one_meaning_in_any_form_and_source() -> None:
    """Hosts and switches in no order of the alphabet; a placement out of a journal has strings of its own."""
    hosts = tuple(Host(name, IPv4Address("10.0.0.1") + index) for index, name in enumerate(("ant", "zebra", "mole")))
    switches = Switch("bee", 1), Switch("yak", 2)
    ends = (("ant", 0, "yak", 1), ("zebra", 0, "yak", 2), ("mole", 0, "bee", 1), ("bee", 2, "yak", 3))
    links = tuple(Link(Endpoint(a, at), Endpoint(b, to)) for a, at, b, to in ends)
    problem = Problem(Routes(Topology("zoo", hosts, switches, links)), ("ant", "zebra"), "mole", 1_000, room={})

    def saved(aggregators: dict[str, str], parents: dict[str, str], root: str) -> Placement:
        return Placement(*json.loads(json.dumps([aggregators, parents, root])))

    at_yak = {"ant": "yak", "zebra": "yak"}
    roomy, tree = replace(problem, room=None), saved(at_yak, {"yak": "bee", "bee": "mole"}, "mole")
    tree.check(roomy)
    saved({"ant": "mole", "zebra": "mole"}, {}, "mole").check(problem)
    (server,) = json.loads('["mole"]')
    assert problem.may_send("ant", server)
    assert not problem.may_send("ant", "bee")
    assert not problem.may_send("ant", "yak")
    seconds = predicted_completion_time(Placement(at_yak, {"yak": "bee", "bee": "mole"}, "mole"), roomy)
    assert predicted_completion_time(tree, roomy) == seconds
    for root in ("ant", "zebra"):
        with raises(PlacementError, place="placement.root", value=root):
            saved({"ant": root, "zebra": root}, {}, root).check(problem)
        with raises(PlacementError, place="placement.aggregators", value=root):
            saved({"ant": "mole", "zebra": root}, {}, "mole").check(problem)
    for switch in ("bee", "yak"):
        with raises(PlacementError, place="placement.switches", value=switch):
            saved({"ant": switch, "zebra": "mole"}, {switch: "mole"}, "mole").check(problem)
        with raises(PlacementError, place="placement.aggregators", value="mole"):
            saved({"ant": switch, "zebra": "mole"}, {}, switch).check_tree(problem.topology, "mole")
        with raises(PlacementError, place=f"placement.parents.{switch}", value=None):
            saved({"ant": switch, "zebra": "mole"}, {}, "mole").check(roomy)
    apart = replace(problem, routes=Routes(problem.topology, down=[Endpoint("bee", 2)]))
    with raises(PlacementError, place="", value=("ant", "zebra", "mole")):
        apart.check_ways()
    replace(apart, server=None).check_ways()


def test_a_node_has_as_many_children_as_it_takes() -> None:
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1", "h2", "h3"), "h4", 1, fan_in=2)
    by_leaf = Placement({"h1": "s1", "h2": "s1", "h3": "h4"}, {"s1": "h4"}, "h4")
    by_leaf.check(problem)
    at_server = Placement(dict.fromkeys(problem.workers, "h4"), {}, "h4")
    at_server.check(replace(problem, fan_in=3))
    with raises(PlacementError, place="placement.children.h4", value=3):
        at_server.check(problem)
    with raises(PlacementError, place="placement.children.h4", value=2):
        by_leaf.check(replace(problem, fan_in=1))


def test_placements_with_equal_entries_are_equal() -> None:
    plain = Placement({"h1": "h2"}, {}, "h2")
    assert plain.noted("late") == plain
    assert plain.noted("late").noted("less").note == "less; late"


@pytest.mark.parametrize(
    ("aggregators", "parents", "root", "place", "value"),
    [
        ({"h1": "s1"}, {"s1": "h4"}, "h4", "aggregators", ("h1",)),
        (
            dict.fromkeys(("h1", "h2", "h3"), "h4"),
            {},
            "h4",
            "aggregators",
            ("h1", "h2", "h3"),
        ),
        ({"h1": "s1", "h2": "s1"}, {}, "s1", "root", "s1"),
        ({"h1": "s1", "h2": "h4"}, {}, "h4", "parents.s1", None),
        ({"h1": "h3", "h2": "h4"}, {}, "h4", "aggregators", "h3"),
        ({"h1": "s2", "h2": "s2"}, {"s2": "h4"}, "h4", "switches", "s2"),
        ({"h1": "h4", "h2": "h4"}, {"s1": "h4"}, "h4", "parents.s1", ()),
        ({"h1": "s1", "h2": "h4"}, {"s1": "s3", "s3": "s1"}, "h4", "parents", ("s1", "s3", "s1")),
        ({"h1": "s1", "h2": "h4"}, {"s1": "h4", "h4": "s1"}, "h4", "parents.h4", "s1"),
        ({"h1": "s1", "h2": "s1"}, {"s1": "s3"}, "h4", "root", "h4"),
    ],
)
def test_a_placement_that_is_no_tree_is_refused(
    aggregators: dict[str, str], parents: dict[str, str], root: str, place: str, value: object
) -> None:
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1", "h2"), "h4", 1, room={"s1": 1, "s3": 2})
    with raises(PlacementError, place=f"placement.{place}", value=value):
        Placement(aggregators, parents, root).check(problem)


def test_trees_are_those_of_networkx() -> None:
    """Over drawn parents of seven switches: whether each of them leads to the root."""
    fabric, rng, sound = leaf_spine(5, 2, 1), random.Random(5), 0
    names = [switch.name for switch in fabric.switches]
    for _ in range(2_000):
        root, *others = rng.sample(names, len(names))
        parents = {name: rng.choice(names) for name in others[: rng.randrange(len(others))]}
        above = networkx.DiGraph([*parents.items(), ("h1", others[0])])
        inner = {node for node in above if above.in_degree(node)}
        is_tree = all(node in parents for node in inner - {root}) and parents.keys() <= inner
        is_tree = is_tree and root in inner and networkx.is_directed_acyclic_graph(above)
        placement = Placement({"h1": others[0]}, parents, root)
        try:
            placement.check_tree(fabric, None)
        except PlacementError:
            assert not is_tree, placement
        else:
            assert is_tree, placement
            sound += 1
    assert sound > 20


def test_a_job_may_have_any_fan_in_of_the_program() -> None:
    fabric = leaf_spine(2, 1, 150)
    names = [host.name for host in fabric.hosts]
    for fan_in, slack in ((1, 0.0), (2, 0.5), (32, 0.99)):
        assert len(Problem(Routes(fabric), tuple(names[1:]), names[0], 1, fan_in=fan_in, slack=slack).hosts) == 300


def test_an_invalid_job_is_refused() -> None:
    routes = Routes(leaf_spine(2, 1, 2))
    with raises(PlacementError, place="workers", value=()):
        Problem(routes, (), "h1", 1)
    with raises(PlacementError, place="hosts", value=("h1", "h2", "h1")):
        Problem(routes, ("h1", "h2"), "h1", 1)
    with raises(PlacementError, place="gradient_bytes", value=0):
        Problem(routes, ("h1",), "h2", 0)
    for fan_in in (0, 33):
        with raises(PlacementError, place="fan_in", value=fan_in):
            Problem(routes, ("h1",), "h2", 1, fan_in=fan_in)
    for slack in (-0.1, 1.0, 1.5):
        with raises(PlacementError, place="slack", value=slack):
            Problem(routes, ("h1",), "h2", 1, slack=slack)
    with raises(TopologyError, value="h9"):
        Problem(routes, ("h1", "h9"), "h2", 1)


@pytest.mark.parametrize("load", [LinkLoad(float("nan")), LinkLoad(-1.0), LinkLoad(0.0, float("inf"))])
def test_a_reading_that_is_no_figure_is_refused_with_its_link(load: LinkLoad) -> None:
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1",), "h2", 1, {Endpoint("s1", 3): load})
    with raises(PlacementError, place="loads of s1-p3", value=load):
        PlacementCosts(problem)


def test_a_reading_and_what_others_bring_may_be_none_at_all() -> None:
    link = Endpoint("s1", 3)
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1",), "h2", 1, {link: LinkLoad()}, others={link: 0.0})
    assert (
        PlacementCosts(problem).with_one.tolist()
        == PlacementCosts(replace(problem, loads={}, others={})).with_one.tolist()
    )


def test_a_reading_of_a_link_that_is_not_there_is_refused() -> None:
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1",), "h2", 1, {Endpoint("s1", 9): LinkLoad()})
    with raises(PlacementError, place="loads of s1-p9", value=Endpoint("s1", 9)):
        PlacementCosts(problem)


def test_one_switch_alone_is_no_pair() -> None:
    costs = PlacementCosts(Problem(Routes(leaf_spine(1, 0, 2)), ("h1",), "h2", 1))
    assert costs.seconds_of_pairs().shape == costs.latency_of_pairs().shape == (0,)
