"""Predicted completion times, by hand, and what is no problem or no tree."""

from __future__ import annotations

import random
from dataclasses import replace

import networkx
import numpy as np
import pytest

from weir.controller.placement import Costs, Placement, PlacementError, Problem, predicted_completion_time
from weir.controller.placement.cost import Streams
from weir.controller.placement.links import Links
from weir.controller.placement.loads import LinkLoad
from weir.topologies import Endpoint, Routes, TopologyError, leaf_spine

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
    seconds = np.random.default_rng(1).uniform(1, 2, len(directed))
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
    streams = Streams(2)
    for _ in range(6):
        streams.add([(1, 0.5)])
    assert streams.load(1) == 3.5
    assert streams.load(1, 1) == 4.5
    assert streams.load(0) == 0.0


@pytest.mark.parametrize(
    ("aggregators", "parents", "root", "message"),
    [
        ({"h1": "s1"}, {"s1": "h4"}, "h4", "placement is for h1; the job's workers are h1, h2"),
        ({"h1": "s1", "h2": "s1"}, {}, "s1", "has root s1; the job has server h4, which must be it"),
        ({"h1": "s1", "h2": "h4"}, {}, "h4", "gives s1 no parent, and the root is h4"),
        ({"h1": "h3", "h2": "h4"}, {}, "h4", "makes h3 aggregate; only switches and the server can"),
        ({"h1": "s2", "h2": "s2"}, {"s2": "h4"}, "h4", "uses s2, which has no slots free for this job"),
        ({"h1": "h4", "h2": "h4"}, {"s1": "h4"}, "h4", "gives s1 a parent but no children"),
        ({"h1": "s1", "h2": "h4"}, {"s1": "s3", "s3": "s1"}, "h4", "goes in a circle: s1 → s3 → s1"),
        ({"h1": "s1", "h2": "h4"}, {"s1": "h4", "h4": "s1"}, "h4", "gives its root h4 a parent, s1"),
        ({"h1": "s1", "h2": "s1"}, {"s1": "s3"}, "h4", "has h4 as root, but nothing leads to it"),
    ],
)
def test_what_is_no_tree_is_refused(
    aggregators: dict[str, str], parents: dict[str, str], root: str, message: str
) -> None:
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1", "h2"), "h4", 1, room={"s1": 1, "s3": 2})
    with pytest.raises(PlacementError, match=message):
        Placement(aggregators, parents, root).check(problem)


def test_what_is_a_tree_is_what_networkx_says() -> None:
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


def test_what_is_no_job_is_refused() -> None:
    routes = Routes(leaf_spine(2, 1, 2))
    with pytest.raises(PlacementError, match="without workers"):
        Problem(routes, (), "h1", 1)
    with pytest.raises(PlacementError, match="named twice"):
        Problem(routes, ("h1", "h2"), "h1", 1)
    with pytest.raises(PlacementError, match="gradient_bytes 0 must be positive"):
        Problem(routes, ("h1",), "h2", 0)
    with pytest.raises(PlacementError, match="fan_in 33 is not in 1…32"):
        Problem(routes, ("h1",), "h2", 1, fan_in=33)
    with pytest.raises(TopologyError, match='no host "h9"'):
        Problem(routes, ("h1", "h9"), "h2", 1)


@pytest.mark.parametrize("load", [LinkLoad(float("nan")), LinkLoad(-1.0), LinkLoad(0.0, float("inf"))])
def test_a_reading_that_is_no_figure_is_refused_with_its_link(load: LinkLoad) -> None:
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1",), "h2", 1, {Endpoint("s1", 3): load})
    with pytest.raises(PlacementError, match=r"loads of s1-p3: background_bps .* both are figures of 0 and above"):
        Costs(problem)


def test_a_reading_of_a_link_that_is_not_there_is_refused() -> None:
    problem = Problem(Routes(leaf_spine(2, 1, 2)), ("h1",), "h2", 1, {Endpoint("s1", 9): LinkLoad()})
    with pytest.raises(PlacementError, match="loads name s1-p9, which is no port with a link in leaf-spine"):
        Costs(problem)
