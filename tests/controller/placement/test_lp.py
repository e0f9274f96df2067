"""The linear program of streams to switches: against brute force, its vertices' integrality, and its networks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping

import pytest

from weir.controller.placement import Costs, Problem
from weir.controller.placement.lp import FlowProgram
from weir.controller.placement.network import SINK, Network, build
from weir.tests.controller.placement.fabrics import random_fabric, random_loads
from weir.topologies import Routes, fat_tree, leaf_spine
from weir.wire.aggregation import FAN_IN


def sorted_times(network: Network, times: list[list[list[float]]], flows: Mapping[object, int]) -> list[float]:
    """T_e of every directed link in use, slowest first; an idle one counts as 0."""
    reached = []
    for arc, links in zip(network.arcs, times, strict=True):
        reached += [by_unit[flows[arc] - 1] if flows[arc] else 0.0 for by_unit in links]
    return sorted((round(seconds, 12) for seconds in reached), reverse=True)


def all_flows(network: Network, supply: Mapping[str, int], capacity: Mapping[str, int]) -> Iterator[dict[object, int]]:
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


@pytest.mark.parametrize("seed", [*range(16), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(16, 150))])
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
    costs = Costs(problem)
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
        costs = Costs(problem)
        solved = program.lexicographic(supply, capacity, network.times(costs, costs.streams()))
        assert solved is not None, f"seed {seed}"
        instances += 1
        programs += program.effort.programs
        worst = max(worst, program.effort.largest_fraction)
    return instances, programs, worst


def test_every_vertex_is_integral() -> None:
    instances, programs, worst = integrality(range(24))
    assert instances == 24
    assert worst == pytest.approx(0.0, abs=1e-9)
    assert programs > instances


@pytest.mark.long
def test_every_vertex_is_integral_over_hundreds() -> None:
    instances, _, worst = integrality(range(1000, 1400))
    assert instances == 400
    assert worst == pytest.approx(0.0, abs=1e-9)


def test_networks_keep_to_routed_paths() -> None:
    """Where arcs of several pairs could be joined to a path that routing does not take, a pair is given up."""
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
            assert (source, "h1") in network.paths
