"""Native code over pairs of switches, against plain loops over drawn graphs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from weir.controller.placement import Placement
from weir.controller.placement.exact.spanning import connected, covered, grown, last_that_connects
from weir.controller.placement.exact.trees import shortened
from weir.topologies import Routes, leaf_spine

Pairs = Sequence[tuple[int, int]]


def drawn_pairs(rng: random.Random, switches: int) -> list[tuple[int, int]]:
    every = [(a, b) for a in range(switches) for b in range(a + 1, switches)]
    return rng.sample(every, rng.randint(1, len(every)))


def reached(pairs: Pairs, start: int) -> dict[int, int]:
    """Hops from the start."""
    distance, level = {start: 0}, [start]
    while level:
        beyond: list[int] = []
        for node in level:
            for other in next_to(pairs, node):
                if other not in distance:
                    distance[other] = distance[node] + 1
                    beyond.append(other)
        level = beyond
    return distance


def next_to(pairs: Pairs, node: int) -> list[int]:
    return [b if node == a else a for a, b in pairs if node in (a, b)]


@pytest.mark.parametrize("seed", range(200))
def test_the_connecting_pair_is_the_first_that_joins_them(seed: int) -> None:
    rng = random.Random(seed)
    switches = rng.randint(2, 12)
    pairs = drawn_pairs(rng, switches)
    nodes = rng.sample(range(switches), rng.randint(2, switches))
    order = rng.sample(range(len(pairs)), len(pairs))
    usable = np.array([rng.random() < 0.8 for _ in pairs])
    links: Any = SimpleNamespace(pairs=np.array(pairs), switches=range(switches))
    so_far: list[tuple[int, int]] = []
    for at in order:
        so_far += [pairs[at]] if usable[at] else []
        if reached(so_far, nodes[0]).keys() >= set(nodes):
            assert last_that_connects(links, np.array(order), usable, nodes) == at
            assert connected(links, usable, nodes)
            return
    assert last_that_connects(links, np.array(order), usable, nodes) is None
    assert not connected(links, usable, nodes)


def plain_tree(
    pairs: Pairs, weights: Mapping[tuple[int, int], float], children: Mapping[int, int], root: int, fan_in: int
) -> dict[int, int] | None:
    """Level by level from the far end: a parent that is in use, then who serves most, then who does so by the lightest
    links, then the lowest number; it takes those with the lightest links, as many as it may.
    """
    distance = reached(pairs, root)
    if not children.keys() <= distance.keys():
        return None
    parents: dict[int, int] = {}
    used, room = set(children), {node: fan_in - children.get(node, 0) for node in distance}
    for level in range(max(distance.values()), 0, -1):
        left = {node for node in distance if distance[node] == level and node in used}
        asked: set[int] = set()
        while left:
            offers = {
                node: {other: weights[min(node, other), max(node, other)] for other in next_to(pairs, node)}
                for node, far in distance.items()
                if far == level - 1 and node not in asked
            }
            offers = {node: {o: w for o, w in mine.items() if o in left} for node, mine in offers.items()}
            ranks = [
                (node not in used, -min(len(mine), room[node]), sum(mine.values()) / len(mine), node)
                for node, mine in offers.items()
                if mine
            ]
            if not ranks:
                return None
            parent = min(ranks)[-1]
            asked.add(parent)
            for child in sorted(offers[parent], key=lambda child: (offers[parent][child], child))[: room[parent]]:
                parents[child] = parent
                used.add(parent)
                left.discard(child)
                room[parent] -= 1
    return parents


@pytest.mark.parametrize("seed", range(300))
def test_a_tree_grows_as_by_a_plain_loop(seed: int) -> None:
    """Weights are sums of powers of two, so that sums of them are exact in any order, and often the same."""
    rng = random.Random(seed)
    switches, fan_in = rng.randint(2, 14), rng.randint(1, 5)
    pairs = drawn_pairs(rng, switches)
    weights = {pair: rng.choice((1.0, 1.5, 2.0, 4.0)) for pair in pairs}
    allowed = [pair for pair in pairs if rng.random() < 0.8]
    root, *racks = rng.sample(range(switches), rng.randint(1, switches))
    children = {root: 0, **{rack: rng.randint(0, fan_in) for rack in racks}}
    taken = np.full(switches, -1)
    taken[[*children]] = [*children.values()]
    given = np.array(pairs), np.array([pair in allowed for pair in pairs]), np.array([weights[pair] for pair in pairs])
    found, parents = grown(*given, taken, root, fan_in)
    tree = {int(node): int(parents[node]) for node in np.flatnonzero(parents >= 0)}
    assert (tree if found else None) == plain_tree(allowed, weights, children, root, fan_in)


@pytest.mark.parametrize("seed", range(100))
def test_a_greedy_cover_is_a_tree_within_fan_in(seed: int) -> None:
    """All trees that the plain loop finds have fewest hops; the cover may find more, and is exact without fan-in."""
    rng = random.Random(seed)
    switches, fan_in = rng.randint(2, 14), rng.choice((1, 2, 3, 5, 100))
    pairs = drawn_pairs(rng, switches)
    allowed = [pair for pair in pairs if rng.random() < 0.8]
    root, *racks = rng.sample(range(switches), rng.randint(1, switches))
    children = {root: 0, **{rack: rng.randint(0, fan_in) for rack in racks}}
    taken = np.full(switches, -1)
    taken[[*children]] = [*children.values()]
    may = np.array([pair in allowed for pair in pairs])
    found, parents = covered(np.array(pairs), may, np.ones(len(pairs)), taken, root, fan_in)
    tree = {int(node): int(parents[node]) for node in np.flatnonzero(parents >= 0)}
    if found:
        assert {*children} - {root} <= tree.keys()
        assert all((child, parent) in allowed or (parent, child) in allowed for child, parent in tree.items())
        counts = Counter(children) + Counter(tree.values())
        assert max(counts.values(), default=0) <= fan_in
        for node in tree:
            way = [node]
            while way[-1] in tree:
                way.append(tree[way[-1]])
                assert len(way) <= switches
            assert way[-1] == root
    if fan_in == 100:
        graph = nx.Graph(allowed)
        graph.add_nodes_from(range(switches))
        assert found == (set(children) <= nx.node_connected_component(graph, root))


def test_switches_that_sum_nothing_are_left_out_all_along_a_way() -> None:
    """h1 – s1 – s3 – s2 – h2, with one worker: nothing meets anywhere."""
    whole = Placement({"h1": "s1"}, {"s1": "s3", "s3": "s2", "s2": "h2"}, "h2")
    assert shortened(Routes(leaf_spine(2, 1, 1)), whole) == Placement({"h1": "h2"}, {}, "h2")
