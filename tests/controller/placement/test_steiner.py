"""Trees of low price in native code, against the cheapest there are over drawn graphs."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from weir.controller.placement.exact.steiner import cheap_tree
from weir.tests.controller.placement.steiner_oracle import exact_tree


@pytest.mark.parametrize("seed", range(200))
def test_a_tree_joins_exactly_the_ends_below_twice_the_optimum(seed: int) -> None:
    rng = random.Random(seed)
    switches = rng.randint(2, 9)
    every = [(a, b) for a in range(switches) for b in range(a + 1, switches)]
    pairs = rng.sample(every, rng.randint(1, len(every)))
    usable = np.array([rng.random() < 0.85 for _ in pairs])
    costs = np.array([rng.choice([1e-12, 1.0, 2.0, rng.expovariate(1)]) for _ in pairs])
    ends = rng.sample(range(switches), rng.randint(1, switches))
    links: Any = SimpleNamespace(pairs=np.array(pairs), switches=range(switches))
    found = cheap_tree(links, usable, costs, ends)
    best, least = exact_tree(pairs, usable, costs, ends)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert usable[list(found)].all()
    tree = nx.Graph([pairs[pair] for pair in found])
    tree.add_nodes_from(ends)
    assert nx.is_tree(tree)
    assert all(degree > 1 or node in ends for node, degree in tree.degree)
    assert costs[list(found)].sum() <= least * max(1.0, 2 - 2 / len(ends)) * (1 + 1e-9)


def test_a_switch_is_dropped_once_a_later_way_is_cheaper() -> None:
    """5 is joined to 1 by 3, as that is nearest; when 6 is by 0 and 7, the way from 7 to 5 is cheaper than from 3."""
    pairs = [(5, 7), (0, 7), (3, 5), (1, 3), (6, 7), (0, 1)]
    costs = np.array([0.27, 0.22, 0.33, 0.01, 0.59, 0.01])
    links: Any = SimpleNamespace(pairs=np.array(pairs), switches=range(9))
    found = cheap_tree(links, np.ones(len(pairs), np.bool_), costs, [1, 5, 6])
    assert found is not None
    assert {pairs[pair] for pair in found} == {(0, 1), (0, 7), (5, 7), (6, 7)}


def test_large_trees_cost_little_more_than_by_all_shortest_ways() -> None:
    """Compared with networkx's approximation by the metric closure (Kou, Markowsky, Berman), over 30 draws of 60
    switches: it is better on average.
    """
    ours, theirs = 0.0, 0.0
    for seed in range(30):
        rng = random.Random(seed)
        graph = nx.connected_watts_strogatz_graph(60, 6, 0.3, seed=seed)
        pairs = [(min(a, b), max(a, b)) for a, b in graph.edges]
        costs = np.array([rng.expovariate(1) + 1e-9 for _ in pairs])
        nx.set_edge_attributes(graph, dict(zip(graph.edges, costs.tolist(), strict=True)), "weight")
        ends = rng.sample(range(60), 20)
        links: Any = SimpleNamespace(pairs=np.array(pairs), switches=range(60))
        found = cheap_tree(links, np.ones(len(pairs), np.bool_), costs, ends)
        assert found is not None
        ours += float(costs[list(found)].sum())
        theirs += nx.algorithms.approximation.steiner_tree(graph, ends, method="kou").size(weight="weight")
    assert ours <= theirs
