"""The linear program of streams to switches: against brute force, its vertices' integrality, and its networks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping

import networkx
import numpy as np
import pytest
import scipy.optimize  # type: ignore[import-untyped]

from weir.controller.placement import PlacementCosts, PlacementError, Problem
from weir.controller.placement.exact.lp import FlowProgram
from weir.controller.placement.model.network import SINK, StreamNetwork, build
from weir.tests.controller.placement.fabrics import jellyfish, random_fabric, random_loads
from weir.tests.support.errors import raises
from weir.topologies import Routes, fat_tree, leaf_spine
from weir.wire.aggregation import FAN_IN


def sorted_times(network: StreamNetwork, times: list[list[list[float]]], flows: Mapping[object, int]) -> list[float]:
    """T_e of every directed link in use, slowest first; an idle one counts as 0."""
    reached = []
    for arc, links in zip(network.arcs, times, strict=True):
        reached += [by_unit[flows[arc] - 1] if flows[arc] else 0.0 for by_unit in links]
    return sorted((round(seconds, 12) for seconds in reached), reverse=True)


def all_flows(
    network: StreamNetwork, supply: Mapping[str, int], capacity: Mapping[str, int]
) -> Iterator[dict[object, int]]:
    """The flow of every assignment of streams to sinks within the capacities."""
    choices = [
        itertools.combinations_with_replacement([s for s in network.sinks(source) if capacity.get(s)], count)
        for source, count in supply.items()
    ]
    for chosen in itertools.product(*choices):
        flows: dict[object, int] = dict.fromkeys(network.arcs, 0)
        taken: dict[str, int] = {}
        for source, sinks in zip(supply, chosen, strict=True):
            for sink in sinks:
                taken[sink] = taken.get(sink, 0) + 1
                for arc in network.paths[source, sink]:
                    flows[arc] += 1
        if all(count <= capacity[sink] for sink, count in taken.items()):
            yield flows


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 150))])
def test_lp_is_the_lexicographic_min_max_of_all_assignments(seed: int) -> None:
    rng = random.Random(seed)
    topology = rng.choice((leaf_spine(3, 2, 3), leaf_spine(3, 1, 3), fat_tree(4), random_fabric(rng)))
    routes = Routes(topology)
    hosts = [host.name for host in topology.hosts]
    server, *workers = rng.sample(hosts, min(len(hosts), 6))
    problem = Problem(routes, tuple(workers), server, 1_000_000, random_loads(topology, rng))
    supply = {rack: len(names) for rack, names in problem.racks.items()}
    switches = [switch.name for switch in topology.switches]
    network = build(routes, supply, switches, server)
    costs = PlacementCosts(problem)
    base = costs.streams()
    for link in rng.sample(range(len(topology.directed_links)), 5):
        base.add([(link, rng.choice((0.5, 1.0)))])
    times = network.times(costs, base)
    program = FlowProgram(network)
    for _ in range(3):
        capacity = {name: rng.randint(0, 3) for name in rng.sample(switches, min(3, len(switches)))}
        capacity[server] = rng.randint(2, 4)
        best = min(
            (sorted_times(network, times, flows) for flows in all_flows(network, supply, capacity)), default=None
        )
        solved = program.lexicographic(supply, capacity, times)
        if best is None:
            assert solved is None
            continue
        assert solved is not None
        assert sorted_times(network, times, dict(zip(network.arcs, solved, strict=True))) == best
        assigned = network.decompose(supply, solved)
        assert {rack: sum(n for (r, _), n in assigned.items() if r == rack) for rack in supply} == supply
        assert all(
            sum(n for (_, s), n in assigned.items() if s == sink) <= capacity.get(sink, 0) for _, sink in assigned
        )
    assert program.effort.largest_fraction < 1e-6


def integrality(seeds: range) -> tuple[int, int, float]:
    """Instances, programs and the largest fraction over random fabrics, loads, supplies and capacities."""
    instances = programs = 0
    worst = 0.0
    for seed in seeds:
        rng = random.Random(seed)
        topology = rng.choice((leaf_spine(rng.randint(2, 6), rng.randint(1, 4), 4), random_fabric(rng)))
        routes = Routes(topology)
        server = rng.choice(topology.hosts).name
        problem = Problem(
            routes, ("h1",) if server != "h1" else ("h2",), server, 1_000_000, random_loads(topology, rng)
        )
        racks = sorted({topology.attached_switch(host.name).name for host in topology.hosts})
        supply = {rack: rng.randint(1, 6) for rack in rng.sample(racks, rng.randint(1, len(racks)))}
        switches = [switch.name for switch in topology.switches]
        network = build(routes, supply, switches, server)
        program = FlowProgram(network)
        capacity = {name: rng.randint(0, 4) for name in switches} | {server: FAN_IN}
        costs = PlacementCosts(problem)
        solved = program.lexicographic(supply, capacity, network.times(costs, costs.streams()))
        instances += solved is not None  # hashing keeps racks from the server, and switches may take too few
        programs += program.effort.programs
        worst = max(worst, program.effort.largest_fraction)
    return instances, programs, worst


def test_every_vertex_is_integral() -> None:
    instances, programs, worst = integrality(range(24))
    assert instances > 8
    assert worst == pytest.approx(0.0, abs=1e-9)
    assert programs > instances


@pytest.mark.long
def test_every_vertex_is_integral_over_hundreds() -> None:
    instances, _, worst = integrality(range(1000, 1400))
    assert instances > 150
    assert worst == pytest.approx(0.0, abs=1e-9)


def combinatorial(
    network: StreamNetwork, times: list[list[list[float]]], supply: Mapping[str, int], capacity: Mapping[str, int]
) -> dict[object, int] | None:
    """The flow whose sorted times are lexicographically least, by the network simplex method on whole numbers: the i-th
    unit on an arc is an arc of its own and costs what it adds to Σ M^rank, which Python's integers hold.
    """
    reached = [seconds for links in times for by_unit in links for seconds in by_unit]
    part = max(reached, default=1.0) * 1e-12  # relative to the longest; smaller differences are rounding
    rank = {each: index for index, each in enumerate(sorted({round(seconds / part) for seconds in reached}))}
    base = sum(len(links) for links in times) + 1
    graph = networkx.MultiDiGraph()
    graph.add_node(SINK, demand=sum(supply.values()))
    for source, count in supply.items():
        graph.add_node(source, demand=-count)
    for arc, units, links in zip(network.arcs, network.units, times, strict=True):
        most = min(capacity.get(arc.tail, 0), units) if arc.head == SINK else units
        before = 0
        for unit in range(most):
            cost = sum(base ** rank[round(by_unit[unit] / part)] for by_unit in links)
            graph.add_edge(arc.tail, arc.head, key=(arc, unit), capacity=1, weight=cost - before)
            before = cost
    try:
        _, flow = networkx.network_simplex(graph)
    except networkx.NetworkXUnfeasible:
        return None
    flows: dict[object, int] = dict.fromkeys(network.arcs, 0)
    for heads in flow.values():
        for keys in heads.values():
            for (arc, _), taken in keys.items():
                flows[arc] += taken
    return flows


def slowest_by_integer_program(
    network: StreamNetwork, times: list[list[list[float]]], supply: Mapping[str, int], capacity: Mapping[str, int]
) -> float:
    """The least time of the slowest link in use, with whole flows asked for and no matrix relied on."""
    arcs, longest = network.arcs, max((link[-1] for links in times for link in links), default=1.0)
    first = [*itertools.accumulate(network.units, initial=0)]
    row = {node: index for index, node in enumerate(dict.fromkeys(arc.tail for arc in arcs))}
    conserved, slow = np.zeros((len(row), first[-1] + 1)), []
    upper = np.ones(first[-1] + 1)
    for index, (arc, units, links) in enumerate(zip(arcs, network.units, times, strict=True)):
        conserved[row[arc.tail], first[index] : first[index + 1]] += 1
        if arc.head == SINK:
            upper[first[index] + min(capacity.get(arc.tail, 0), units) : first[index + 1]] = 0
        else:
            conserved[row.get(arc.head, 0), first[index] : first[index + 1]] -= float(arc.head in row)
        for by_unit in links:
            for unit in range(units):
                slow.append(np.zeros(first[-1] + 1))
                slow[-1][[first[index] + unit, first[-1]]] = by_unit[unit] / longest, -1.0
        for unit in range(1, units):  # the second unit comes after the first
            slow.append(np.zeros(first[-1] + 1))
            slow[-1][[first[index] + unit, first[index] + unit - 1]] = 1.0, -1.0
    right = np.zeros(len(row))
    for source, count in supply.items():
        right[row[source]] = count
    whole = np.ones(first[-1] + 1)
    whole[-1] = 0
    solved = scipy.optimize.milp(
        np.eye(1, first[-1] + 1, first[-1])[0],
        integrality=whole,
        bounds=scipy.optimize.Bounds(0, upper),
        constraints=[
            scipy.optimize.LinearConstraint(conserved, right, right),
            scipy.optimize.LinearConstraint(np.array(slow), -np.inf, 0.0),
        ],
        options={"mip_rel_gap": 0.0},
    )
    assert solved.success, solved.message
    return float(solved.fun) * longest


def three_solvers(seed: int) -> int:
    """Number of instances of a seed that the linear program, the network simplex and an integer program solved alike.

    Infeasible ones, which only the former two get, do not count.
    """
    instances = 0
    rng = random.Random(seed)
    topology = rng.choice((leaf_spine(rng.randint(2, 4), rng.randint(1, 3), 3), random_fabric(rng), jellyfish(rng)))
    routes = Routes(topology)
    server, *workers = rng.sample([host.name for host in topology.hosts], min(len(topology.hosts), 6))
    problem = Problem(routes, tuple(workers), server, 1_000_000, random_loads(topology, rng))
    supply = {rack: len(names) for rack, names in problem.racks.items()}
    switches = [switch.name for switch in topology.switches]
    network = build(routes, supply, switches, server)
    costs = PlacementCosts(problem)
    times, program = network.times(costs, costs.streams()), FlowProgram(network)
    for _ in range(4):
        capacity = {name: rng.randint(0, 3) for name in switches} | {server: rng.randint(0, 4)}
        solved, flows = (
            program.lexicographic(supply, capacity, times),
            combinatorial(network, times, supply, capacity),
        )
        if flows is None:
            assert solved is None, f"seed {seed}"
            continue
        instances += 1
        assert solved is not None, f"seed {seed}"
        mine = sorted_times(network, times, dict(zip(network.arcs, solved, strict=True)))
        assert mine == sorted_times(network, times, flows), f"seed {seed}"
        least = slowest_by_integer_program(network, times, supply, capacity)
        assert max(mine, default=0.0) == pytest.approx(least, rel=1e-6, abs=1e-12), f"seed {seed}"
    assert program.effort.largest_fraction < 1e-6
    return instances


def agree(first_seed: int, instances: int) -> None:
    """Run this many instances, with as many seeds as needed."""
    seeds = itertools.count(first_seed)
    while instances > 0:
        instances -= three_solvers(next(seeds))


def test_linear_combinatorial_and_integer_solvers_agree() -> None:
    agree(0, 60)


@pytest.mark.long
@pytest.mark.parametrize("first_seed", [0, *range(10_000, 20_000, 1_000)])
def test_the_three_agree_on_thousands(first_seed: int) -> None:
    agree(first_seed, 500)


def test_a_matrix_that_is_no_graphs_is_refused() -> None:
    """The columns reveal it before anything is solved; with any columns, the vertex does."""
    routes = Routes(leaf_spine(2, 1, 2))
    network = build(routes, {"s1": 1}, ["s1"], None)
    program = FlowProgram(network)
    assert "totally unimodular" in program.proof()
    assert program.lexicographic({"s1": 1}, {"s1": 1}, [[[1.0]] for _ in network.arcs]) == [1]
    program = FlowProgram(network)
    program._incidence = 2 * program._incidence
    with raises(PlacementError, place="column 0 of the placement LP", value=[2.0]):
        program.proof()
    with raises(PlacementError, place="vertex of the placement LP", value=pytest.approx(0.5)):
        program.lexicographic({"s1": 1}, {"s1": 1}, [[[1.0]] for _ in network.arcs])


def ways_back(network: StreamNetwork) -> set[tuple[str, str]]:
    """Ends of arcs whose reverse comes before them; flows on both cancel each other, so the fastest has only one."""
    before: set[tuple[str, str]] = set()
    back: set[tuple[str, str]] = set()
    for arc in network.arcs:
        if (arc.head, arc.tail) in before:
            back.add((arc.head, arc.tail))
        before.add((arc.tail, arc.head))
    return back


def test_networks_keep_to_routed_paths() -> None:
    """If arcs of several pairs could be joined to a path that routing does not take, a pair is given up."""
    for seed in range(60):
        rng = random.Random(seed)
        topology = random_fabric(rng)
        routes = Routes(topology)
        supply = {switch.name: 1 for switch in topology.switches}
        network = build(routes, supply, [switch.name for switch in topology.switches], "h1")
        leaving: dict[str, list[str]] = {}
        for arc in network.arcs:
            leaving.setdefault(arc.tail, []).append(arc.head)
        for source in supply:
            ways = [[source]]
            reached: list[list[str]] = []
            while ways:
                way = ways.pop()
                for head in leaving.get(way[-1], []):
                    if head == SINK:
                        reached.append(way)
                    elif head not in way:
                        ways.append([*way, head])
            given = {
                sink: [arc.tail for arc in path] for (start, sink), path in network.paths.items() if start == source
            }
            assert sorted(reached) == sorted(given.values()), f"seed {seed}"
            entry = topology.attached_switch("h1").name
            assert ((source, "h1") in network.paths) == (routes.unique_path(source, entry) is not None)
        links = [link for arc in network.arcs if (arc.head, arc.tail) not in ways_back(network) for link in arc.links]
        assert len(set(links)) == len(links), "a link's streams are those of one arc"
