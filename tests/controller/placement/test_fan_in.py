"""The tree nearest to a wanted one: found wherever there is one, and any that fits where time is up."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import networkx
import pytest
import scipy.optimize  # type: ignore[import-untyped]

from weir.controller.placement import NoTree, Placement, PlacementError, Problem, fitted
from weir.controller.placement.baseline_trees import rack_sums, rack_switches
from weir.controller.placement.exact.fan_in import _Program
from weir.controller.placement.exact.greedy_fan_in import gathered
from weir.controller.placement.strategies import strategy
from weir.tests.controller.placement.fabrics import random_fabric
from weir.topologies import Routes, fat_tree, leaf_spine


def has_tree(problem: Problem, fan_in: int) -> bool:
    """True if any set of switches and any root makes a tree of parents closer to the root, by a flow for each."""
    switches = [switch.name for switch in problem.topology.switches if problem.takes(switch.name)]
    return any(
        _flows(problem, fan_in, root, frozenset(chosen) - {root})
        for root in ([problem.server] if problem.server is not None else switches)
        for size in range(len(switches) + 1)
        for chosen in itertools.combinations(switches, size)
    )


def _flows(problem: Problem, fan_in: int, root: str, chosen: frozenset[str]) -> bool:
    routes, graph = problem.routes, networkx.DiGraph()
    for parent in (root, *chosen):
        graph.add_edge(("into", parent), "end", capacity=fan_in)
    for child in (*problem.workers, *chosen):
        graph.add_edge("start", child, capacity=1)
        for parent in (root, *chosen):
            nearer = child in problem.workers or routes.hops(parent, root) < routes.hops(child, root)
            if child != parent and nearer and problem.may_send(child, parent):
                graph.add_edge(child, ("into", parent), capacity=1)
    flow: float = networkx.maximum_flow_value(graph, "start", "end")
    return flow == len(problem.workers) + len(chosen)


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 60), marks=pytest.mark.long)])
def test_a_tree_is_found_wherever_one_exists(seeds: range) -> None:
    """Nodes take 2 or 3 children, so that small fabrics are narrow; compared with all sets of switches."""
    found = {True: 0, False: 0}
    for seed in seeds:
        rng = random.Random(seed)
        fan_in = rng.choice((2, 3))
        topology = rng.choice((leaf_spine(3, 2, 3), leaf_spine(3, 1, 3), random_fabric(rng)))
        server, *workers = rng.sample([host.name for host in topology.hosts], rng.randint(4, len(topology.hosts)))
        room = {switch.name: int(rng.random() < 0.8) for switch in topology.switches}
        with_server = rng.random() < 0.6
        problem = Problem(Routes(topology), tuple(workers), server if with_server else None, 1_000, {}, room, fan_in)
        wanted = {worker: name for worker in workers if rng.random() < 0.8 for name in [rng.choice(list(room))]}
        exists = has_tree(problem, fan_in)
        found[exists] += 1
        places: dict[str, Callable[[], Placement]] = {
            "fitted": partial(fitted, problem, wanted),
            "widest": partial(strategy("widest").place, problem, rng),
        }
        for name, place in places.items():
            if not exists:
                if name == "widest":  # by hops away from the root there may be a tree all the same
                    continue
                with pytest.raises(NoTree):
                    place()
                continue
            placement = place()
            placement.check(problem)
            assert all(problem.may_send(*edge) for edge in placement.edges), f"seed {seed}"
    assert min(found.values()) >= len(seeds) / 12, found


def tree_or_reason(problem: Problem, wanted: Mapping[str, str], nodes: int) -> Placement | str:
    try:
        return fitted(problem, wanted, nodes)
    except PlacementError as error:
        return str(error)


@pytest.mark.long
def test_search_at_its_limit_yields_a_fitting_tree_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program ends without a result, with its best tree so far, and with one that has idle switches."""
    program = scipy.optimize.milp

    def nothing(*how: Any, **more: Any) -> Any:
        assert more["options"]["node_limit"] == 7
        return scipy.optimize.OptimizeResult(status=4, x=None, message="Solution limit reached")

    def unproven(cost: Any, **more: Any) -> Any:
        return scipy.optimize.OptimizeResult(
            {**program(cost, **more), "status": 4, "message": "Solution limit reached"}
        )

    def idle(cost: Any, **more: Any) -> Any:
        return unproven(-cost, **more)  # takes as many switches as it can

    found = dict.fromkeys((nothing, unproven, idle), 0)
    for seed in range(40):
        rng = random.Random(seed)
        topology = rng.choice((leaf_spine(9, 2, 10), leaf_spine(5, 3, 30), fat_tree(6), random_fabric(rng)))
        hosts = [host.name for host in topology.hosts]
        server, *workers = rng.sample(hosts, rng.randint(len(hosts) // 2, len(hosts)))
        room = {switch.name: int(rng.random() < 0.8) for switch in topology.switches}
        problem = Problem(Routes(topology), tuple(workers), rng.choice((server, None)), 1_000, room=room)
        wanted = {worker: rng.choice(list(room)) for worker in workers}
        monkeypatch.setattr(scipy.optimize, "milp", program)
        best = tree_or_reason(problem, wanted, 100_000)
        for ends in found:
            monkeypatch.setattr(scipy.optimize, "milp", ends)
            placement = tree_or_reason(problem, wanted, 7)
            if isinstance(placement, str):
                assert isinstance(best, str) or "was found in 7 branches, though there may be one" in placement, (
                    f"seed {seed}"
                )
                assert isinstance(best, str) or ends is nothing, f"seed {seed}"
                continue
            assert isinstance(best, Placement), f"seed {seed}"
            placement.check(problem)
            assert all(problem.may_send(*edge) for edge in placement.edges), f"seed {seed}"
            if placement != best or placement.note:
                found[ends] += 1
                how = "one by first fit" if ends is nothing else "the best one seen"
                assert re.match(f"its tree is ({how}|one of another root), for the search", placement.note), (
                    f"seed {seed}"
                )
    assert all(count >= 15 for count in found.values()), found


def test_a_gathered_tree_is_valid_and_the_nearest_if_proven() -> None:
    """Compared with the program: no worker moves there either, and the number of switches is the same."""
    proven = 0
    for seed in range(80):
        rng = random.Random(seed)
        fan_in = rng.choice((2, 3, 4))
        topology = rng.choice((leaf_spine(6, 2, 3), leaf_spine(5, 3, 3), fat_tree(4), random_fabric(rng)))
        hosts = [host.name for host in topology.hosts]
        server, *workers = rng.sample(hosts, rng.randint(4, len(hosts)))
        room = {switch.name: int(rng.random() < 0.9) for switch in topology.switches}
        problem = Problem(Routes(topology), tuple(workers), server, 1_000, {}, room, fan_in)
        wanted = rack_switches(problem) if rng.random() < 0.7 else {w: rng.choice(list(room)) for w in workers}
        placement, nearest = gathered(problem, server, wanted)
        if placement is None:
            continue
        placement.check(problem)
        assert all(problem.may_send(*edge) for edge in placement.edges), f"seed {seed}"
        if nearest:
            proven += 1
            best, is_best = _Program(problem, server, fan_in).solve(wanted, 100_000)
            assert is_best
            assert best is not None
            assert placement.aggregators == wanted | {w: server for w in workers if w not in wanted}, f"seed {seed}"
            assert len(placement.parents) == len(best.parents), f"seed {seed}"
    assert proven >= 15


def test_on_large_fabrics_no_program_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(*_: Any, **__: Any) -> None:
        raise AssertionError("a mixed-integer program is asked")

    monkeypatch.setattr(scipy.optimize, "milp", program)
    topology = fat_tree(8)
    server, *workers = random.Random(1).sample([host.name for host in topology.hosts], 120)
    for root in (server, None):
        problem = Problem(Routes(topology), tuple(workers), root, 1_000, fan_in=16)
        for name in ("rack", "nearest", "random", "root"):
            placement = strategy(name).place(problem, random.Random(1))
            placement.check(problem)
            assert name != "rack" or set(rack_sums(problem).items()) <= set(placement.aggregators.items())
