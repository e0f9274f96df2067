"""Expected slowest link among changing loads, against an enumeration; and the tree that `widest` takes then."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from weir.controller.placement import Placement, PlacementError, Problem
from weir.controller.placement.model.cost import PlacementCosts
from weir.controller.placement.model.expectation import expected_slowest_seconds
from weir.controller.placement.model.loads import LinkLoad
from weir.controller.placement.strategies import strategy
from weir.tests.controller.placement.fabrics import GBIT
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Routes, leaf_spine

SPINES = leaf_spine(3, 2, 2, rate_bps=GBIT)


def problem_with(loads: dict[tuple[str, int], float], persistence: float) -> Problem:
    """Three racks and a server in the first one; `loads` as shares of the rates of the links at these ports."""
    given = {Endpoint(*end): LinkLoad(share * GBIT) for end, share in loads.items()}
    return Problem(Routes(SPINES), ("h1", "h3", "h5"), "h2", 1 << 20, given, persistence=persistence)


def drawn(seed: int) -> tuple[Problem, Placement]:
    """A problem with a load on half of the links between switches, and the widest tree of it."""
    rng = random.Random(seed)
    between = [end for end in SPINES.directed_links if not SPINES.is_host(end.node) and "s" in SPINES.peer(end).node]
    loads = {end: LinkLoad(rng.choice((0.2, 0.5, 0.8)) * GBIT) for end in between if rng.random() < 0.5}
    others = {end: rng.choice((0.0, 1 << 19)) for end in between}
    problem = Problem(Routes(SPINES), ("h1", "h3"), "h2", 1 << 20, loads, others=others)
    return problem, strategy("widest").place(problem, rng)


def enumerated(costs: PlacementCosts, placement: Placement, persistence: float) -> float:
    """Sum over all outcomes of all links of the tree."""
    links, streams = costs.links, costs.loads(placement)
    between = [at for at in range(len(streams)) if links.pair_of[at] >= 0]
    slowness = [costs.seconds[at] * links.rate_bps[at] for at in between]
    of_links: list[list[tuple[float, float]]] = []
    for at in range(len(streams)):
        now = float(streams[at] * costs.seconds[at] + costs.others[at])
        if streams[at] and at in between:
            scale = streams[at] / links.rate_bps[at]
            redrawn = [(float(costs.others[at] + scale * each), (1 - persistence) / len(slowness)) for each in slowness]
            of_links.append([(now, persistence), *redrawn])
        elif streams[at]:
            of_links.append([(now, 1.0)])
    outcomes = {0.0: 1.0}
    for of_link in of_links:
        joined: dict[float, float] = {}
        for (before, share), (seconds, chance) in itertools.product(outcomes.items(), of_link):
            worst = max(before, seconds)
            joined[worst] = joined.get(worst, 0.0) + share * chance
        outcomes = joined
    return sum(seconds * share for seconds, share in outcomes.items())


@pytest.mark.parametrize("persistence", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_expected_slowest_link_is_that_of_all_outcomes(seed: int, persistence: float) -> None:
    problem, placement = drawn(seed)
    costs = PlacementCosts(problem)
    assert expected_slowest_seconds(costs, placement, persistence) == pytest.approx(
        enumerated(costs, placement, persistence), rel=1e-9
    )


def test_lasting_loads_give_the_slowest_link_of_now() -> None:
    for seed in range(20):
        problem, placement = drawn(seed)
        costs = PlacementCosts(problem)
        assert expected_slowest_seconds(costs, placement, 1.0) == pytest.approx(costs.slowest_link_seconds(placement))


def test_fast_changes_favour_the_tree_with_fewer_links() -> None:
    """Each spine has one busy link to a rack: the widest tree takes both spines, with a hop more."""
    loads = {("s2", 3): 0.5, ("s3", 4): 0.5}
    lasting, changing = problem_with(loads, 1.0), problem_with(loads, 0.1)
    widest = strategy("widest").place(lasting, random.Random(0))
    simple = strategy("widest").place(changing, random.Random(0))
    assert len(simple.parents) < len(widest.parents)
    costs = PlacementCosts(lasting)
    assert costs.slowest_link_seconds(widest) < costs.slowest_link_seconds(simple)
    assert expected_slowest_seconds(costs, simple, 0.1) < expected_slowest_seconds(costs, widest, 0.1)


def test_loads_that_mostly_last_change_no_decision() -> None:
    for seed in range(20):
        problem, placement = drawn(seed)
        again = strategy("widest").place(replace(problem, persistence=0.6), random.Random(0))
        assert again == placement


def test_persistence_outside_a_share_is_refused() -> None:
    for value in (-0.1, 1.1, float("nan")):
        with raises(PlacementError, place="persistence", value=value):
            problem_with({}, value)
