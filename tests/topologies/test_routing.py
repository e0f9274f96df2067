"""Routes against networkx's shortest paths, and the paths that only one can be."""

from __future__ import annotations

import itertools
import random

import networkx
import pytest

from weir.tests.controller.placement.fabrics import any_fabric
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Routes, Topology, TopologyError, fat_tree, leaf_spine


@pytest.mark.parametrize("fabric", [leaf_spine(3, 2, 1), leaf_spine(4, 1, 2), fat_tree(4)], ids=lambda f: str(f.name))
def test_next_hops_are_all_first_steps_of_shortest_paths(fabric: Topology) -> None:
    routes = Routes(fabric)
    for destination in fabric.nodes:
        for node in fabric.nodes:
            if node is destination:
                assert routes.next_hops(node.name, destination.name) == ()
                continue
            paths = list(networkx.all_shortest_paths(fabric.graph, node.name, destination.name))
            ports = {far.node: port for port, far in fabric.neighbours(node.name).items()}
            assert set(routes.next_hops(node.name, destination.name)) == {ports[path[1]] for path in paths}
            assert routes.hops(node.name, destination.name) == len(paths[0]) - 1
            unique = routes.unique_path(node.name, destination.name)
            assert (unique is not None) == routes.is_single(node.name, destination.name) == (len(paths) == 1)
            if unique is not None:
                assert [end.node for end in unique] == paths[0][:-1]


@pytest.mark.parametrize("seed", range(20))
def test_the_only_shortest_path_is_the_same_back(seed: int) -> None:
    rng = random.Random(seed)
    fabric = fat_tree(4) if seed % 2 else leaf_spine(5, 3, 1)
    links = [end for end in fabric.directed_links if fabric.is_switch(end.node)]
    routes = Routes(fabric, down=rng.sample(links, rng.randrange(len(links) // 3)))
    for a, b in itertools.permutations(sorted(node.name for node in fabric.nodes), 2):
        there, back = routes.unique_path(a, b), routes.unique_path(b, a)
        assert (there is None) == (back is None)
        assert there is None or (back is not None and there == tuple(fabric.peer(end) for end in reversed(back)))


@pytest.mark.parametrize("seed", range(30))
def test_a_walk_is_the_only_path_as_it_is_among_all(seed: int) -> None:
    """Judged near its ends alone, with links down; about half of the drawn walks are."""
    rng = random.Random(seed)
    fabric = any_fabric(rng)
    routes = Routes(fabric, rng.sample(fabric.directed_links, rng.randint(0, 2)))
    for _ in range(60):
        walk = [rng.choice(fabric.switches).name]
        for _ in range(rng.randint(1, 5)):
            if fabric.is_switch(walk[-1]):
                near = [end.node for end in fabric.neighbours(walk[-1]).values() if end.node not in walk]
                walk += rng.sample(near, min(len(near), 1))
        if fabric.is_host(walk[-1]) and not routes.reaches(walk[-2], walk[-1]):
            continue
        path = routes.unique_path(walk[0], walk[-1])
        expected = path is not None and [fabric.peer(link).node for link in path] == walk[1:]
        assert routes.is_only_path(walk) == expected, f"seed {seed}: {walk}"


def test_parts_without_a_path_between_them_are_told_apart() -> None:
    routes = Routes(leaf_spine(2, 1, 1), [Endpoint.parse("s1-p2")])
    assert routes.reaches("s2", "s3")
    assert routes.reaches("h1", "s1")
    assert not routes.reaches("h1", "h2")
    assert not routes.reaches("s3", "s1")


def test_the_largest_fat_tree_has_addresses_for_all() -> None:
    fabric = fat_tree(34)
    addresses = {host.address for host in fabric.hosts}
    assert len(addresses) == len(fabric.hosts) == 34**3 // 4
    assert len({switch.address for switch in fabric.switches}) == 5 * 34**2 // 4
    assert Routes(fabric).hops("h1", fabric.hosts[-1].name) == 6


def test_shares_split_evenly_and_meet_again() -> None:
    routes = Routes(leaf_spine(2, 2, 1))
    assert routes.shares("h1", "h2") == {
        Endpoint("h1", 0): 1.0,
        Endpoint("s1", 2): 0.5,
        Endpoint("s1", 3): 0.5,
        Endpoint("s3", 2): 0.5,
        Endpoint("s4", 2): 0.5,
        Endpoint("s2", 1): 1.0,
    }


def test_shares_conserve_the_flow_at_every_node() -> None:
    fabric = fat_tree(4)
    shares = Routes(fabric).shares("h1", "h16")
    inflow: dict[str, float] = {"h1": 1.0}
    outflow: dict[str, float] = {"h16": 1.0}
    for link, share in shares.items():
        outflow[link.node] = outflow.get(link.node, 0.0) + share
        far = fabric.peer(link).node
        inflow[far] = inflow.get(far, 0.0) + share
    assert inflow == pytest.approx(outflow)


def test_links_that_are_down_are_avoided() -> None:
    fabric = leaf_spine(2, 2, 1)
    routes = Routes(fabric, down=[Endpoint("s3", 1)])
    assert routes.next_hops("s1", "h2") == (3,)
    assert routes.unique_path("h1", "s3") is not None
    assert routes.hops("h1", "s3") == 4
    alone = Routes(fabric, down=[Endpoint("h2", 0)])
    assert not alone.reaches("h1", "h2")
    assert alone.unique_path("h1", "h2") is None
    with raises(TopologyError, place="leaf-spine", value="h1"):
        alone.next_hops("h1", "h2")


def test_hosts_forward_nothing() -> None:
    routes = Routes(leaf_spine(2, 1, 2))
    assert routes.unique_path("h1", "h2") == (Endpoint("h1", 0), Endpoint("s1", 2))


def test_only_a_host_with_a_down_link_is_unreachable() -> None:
    fabric = fat_tree(4)
    routes = Routes(fabric, down=[fabric.peer(Endpoint("h3", 0))])
    names = {node.name for node in fabric.nodes}
    for name in names - {"h3"}:
        assert not routes.reaches(name, "h3")
        assert not routes.reaches("h3", name)
        assert routes.unique_path(name, "h3") is None
        assert all(routes.reaches(name, other) for other in names - {"h3"})
    assert routes.hops("h3", "h3") == 0


def test_a_node_that_is_not_there_is_named() -> None:
    routes = Routes(leaf_spine(2, 1, 1))
    for node, destination in (("h9", "h1"), ("h1", "h9"), ("s9", "s9")):
        with raises(TopologyError, place=routes.topology.name, value="s9" if "s9" in (node, destination) else "h9"):
            routes.hops(node, destination)
