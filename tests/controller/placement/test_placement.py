"""The LP against brute force, its vertices' integrality, and the whole search against the best of all trees."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Address
from typing import Any

import networkx
import pytest
import scipy.optimize  # type: ignore[import-untyped]

from weir.controller.placement import (
    Costs,
    Placement,
    PlacementError,
    Problem,
    fitted,
    predicted_completion_time,
)
from weir.controller.placement.cost import Streams
from weir.controller.placement.lp import FlowProgram
from weir.controller.placement.network import SINK, Network, build
from weir.controller.placement.search import AggSearch
from weir.controller.telemetry.loads import LinkLoad
from weir.topologies import Endpoint, Host, Link, Routes, Switch, Topology, fat_tree, leaf_spine
from weir.wire.aggregation import FAN_IN

GBIT = 1_000_000_000


def random_loads(topology: Topology, rng: random.Random) -> dict[Endpoint, LinkLoad]:
    """Some links busy, at a few levels so that ties are common, some with queues."""
    return {
        link: LinkLoad(topology.link_at(link).rate_bps * rng.choice((0.0, 0.3, 0.6, 0.8)), rng.choice((0, 0, 20)))
        for link in topology.directed_links
        if rng.random() < 0.6
    }


def random_fabric(rng: random.Random) -> Topology:
    """A connected fabric of 4 to 7 switches with random extra links and rates, a host on each."""
    count = rng.randint(4, 7)
    pairs = {(rng.randrange(i), i) for i in range(1, count)}
    pairs |= {pair for pair in itertools.combinations(range(count), 2) if rng.random() < 0.3}
    ports = [1] * count
    links = []
    for i in range(count):
        links.append(Link(Endpoint(f"h{i + 1}", 0), Endpoint(f"s{i + 1}", ports[i]), GBIT))
        ports[i] += 1
    for a, b in sorted(pairs):
        ends = Endpoint(f"s{a + 1}", ports[a]), Endpoint(f"s{b + 1}", ports[b])
        links.append(Link(*ends, rng.choice((GBIT, 4 * GBIT))))
        ports[a], ports[b] = ports[a] + 1, ports[b] + 1
    hosts = tuple(Host(f"h{i + 1}", IPv4Address("10.0.0.1") + i) for i in range(count))
    return Topology("random", hosts, tuple(Switch(f"s{i + 1}", i + 1) for i in range(count)), tuple(links))


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
        # a flow at hand, even the worst, saves work and changes nothing
        worst = max(all_flows(network, supply, capacity), key=lambda flows: sorted_times(network, times, flows))
        again = program.lexicographic(supply, capacity, times, list(worst.values()))
        assert again is not None
        assert sorted_times(network, times, dict(zip(network.arcs, again, strict=True))) == best
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


def all_placements(problem: Problem) -> Iterator[Placement]:
    """Every tree whose streams between switches have one path and whose parents are nearer to the server."""
    routes, topology, server = problem.routes, problem.topology, problem.server
    assert server is not None
    switches = [switch.name for switch in topology.switches if problem.takes(switch.name)]
    to = {
        node: [server, *(s for s in switches if routes.unique_path(node, s) is not None and s != node)]
        for node in (*problem.workers, *switches)
    }
    for nodes in itertools.product(*(to[worker] for worker in problem.workers)):
        yield from _grown(problem, dict(zip(problem.workers, nodes, strict=True)), {}, to)


def _grown(
    problem: Problem, aggregators: dict[str, str], parents: dict[str, str], to: dict[str, list[str]]
) -> Iterator[Placement]:
    server = problem.server
    assert server is not None
    used = {*aggregators.values(), *parents.values()} - {server} - set(parents)
    if not used:
        yield Placement(aggregators, parents, server)
        return
    node = min(used)
    for parent in to[node]:
        if parent == server or problem.routes.hops(parent, server) < problem.routes.hops(node, server):
            yield from _grown(problem, aggregators, {**parents, node: parent}, to)


@pytest.mark.parametrize("seed", range(4))
def test_search_finds_the_best_of_all_trees_on_small_leaf_spines(seed: int) -> None:
    assert gap(seed) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.long
def test_gap_to_the_best_of_all_trees_over_many() -> None:
    gaps = {seed: gap(seed) for seed in range(100, 160)}
    assert sum(value < 1 + 1e-6 for value in gaps.values()) >= 0.95 * len(gaps), gaps
    assert max(gaps.values()) < 1.1, gaps


def gap(seed: int) -> float:
    """Completion time that the search reaches over that of the best placement there is."""
    rng = random.Random(seed)
    topology = leaf_spine(3, 2, 3)
    server, *workers = rng.sample([host.name for host in topology.hosts], 5)
    problem = Problem(Routes(topology), tuple(workers), server, 1_000_000, random_loads(topology, rng))
    costs = Costs(problem)
    best = min(costs.completion_seconds(placement) for placement in all_placements(problem))
    found = AggSearch().place(problem)
    found.check(problem)
    assert costs.completion_seconds(found) >= best - 1e-12, f"seed {seed}: found is not among all placements"
    return costs.completion_seconds(found) / best


def digest(seed: int) -> str:
    """Of the placement that the search finds for a problem."""
    rng = random.Random(seed)
    topology = rng.choice((leaf_spine(4, 2, 3), leaf_spine(4, 3, 4), leaf_spine(3, 1, 20), random_fabric(rng)))
    server, *workers = rng.sample([host.name for host in topology.hosts], rng.randint(4, len(topology.hosts)))
    root = server if rng.random() < 0.7 else None
    room = {switch.name: int(rng.random() < 0.8) for switch in topology.switches} if rng.random() < 0.3 else None
    problem = Problem(Routes(topology), tuple(workers), root, 1_000_000, random_loads(topology, rng), room)
    found = AggSearch().place(problem)
    return hashlib.sha256(repr((sorted(found.edges), found.root)).encode()).hexdigest()[:8]


def test_the_search_finds_what_it_has_always_found() -> None:
    """Placements are part of what can be replayed: who makes the search faster must not change them."""
    assert [digest(seed) for seed in range(12)] == [
        *("ad59d713", "c929457e", "ed1a6331", "c8a98b8f", "5e44ddf9", "afb41bec"),
        *("4521e0b4", "c268922c", "6418647a", "34079bd6", "d2cf561b", "6eb317d1"),
    ]


def has_tree(problem: Problem, fan_in: int) -> bool:
    """Whether any set of switches and any root makes a tree of parents nearer to the root, by a flow for each."""
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
            single = parent == problem.server or routes.unique_path(child, parent) is not None
            if child != parent and nearer and single:
                graph.add_edge(child, ("into", parent), capacity=1)
    flow: float = networkx.maximum_flow_value(graph, "start", "end")
    return flow == len(problem.workers) + len(chosen)


def test_a_tree_is_found_wherever_one_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nodes that take 2 or 3 children, so that small fabrics are narrow, against all sets of switches."""
    found = {True: 0, False: 0}
    for seed in range(60):
        rng = random.Random(seed)
        fan_in = rng.choice((2, 3))
        for module in ("fan_in", "problem", "search", "network"):
            monkeypatch.setattr(f"weir.controller.placement.{module}.FAN_IN", fan_in)
        topology = rng.choice((leaf_spine(3, 2, 3), leaf_spine(3, 1, 3), random_fabric(rng)))
        server, *workers = rng.sample([host.name for host in topology.hosts], rng.randint(4, len(topology.hosts)))
        room = {switch.name: int(rng.random() < 0.8) for switch in topology.switches}
        with_server = rng.random() < 0.6
        problem = Problem(Routes(topology), tuple(workers), server if with_server else None, 1_000, room=room)
        wanted = {worker: name for worker in workers if rng.random() < 0.8 for name in [rng.choice(list(room))]}
        exists = has_tree(problem, fan_in)
        found[exists] += 1
        places: list[Callable[[], Placement]] = [partial(fitted, problem, wanted), partial(AggSearch().place, problem)]
        for place in places:
            if not exists:
                with pytest.raises(PlacementError, match=r"no tree sums|no switch has room|no switch with room is one"):
                    place()
                continue
            placement = place()
            placement.check(problem)
            for child, parent in placement.edges:
                assert parent == problem.server or problem.routes.unique_path(child, parent) is not None, f"seed {seed}"
    assert min(found.values()) >= 5, found


def tree_or_reason(problem: Problem, wanted: Mapping[str, str], seconds: float) -> Placement | str:
    try:
        return fitted(problem, wanted, seconds)
    except PlacementError as error:
        return str(error)


def test_where_time_is_up_the_tree_is_any_that_fits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program that ends with nothing, with its best tree so far, and with one that has idle switches."""
    program = scipy.optimize.milp

    def nothing(*how: Any, **more: Any) -> Any:
        assert more["options"]["time_limit"] <= 0.5
        return scipy.optimize.OptimizeResult(status=1, x=None, message="time limit reached")

    def unproven(cost: Any, **more: Any) -> Any:
        return scipy.optimize.OptimizeResult({**program(cost, **more), "status": 1})

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
        best = tree_or_reason(problem, wanted, 600.0)
        for ends in found:
            monkeypatch.setattr(scipy.optimize, "milp", ends)
            placement = tree_or_reason(problem, wanted, 0.5)
            if isinstance(placement, str):
                assert isinstance(best, str) or "was found in 0.5 s, though there may be one" in placement, (
                    f"seed {seed}"
                )
                assert isinstance(best, str) or ends is nothing, f"seed {seed}"
                continue
            assert isinstance(best, Placement), f"seed {seed}"
            placement.check(problem)
            for child, parent in placement.edges:
                assert parent == problem.server or problem.routes.unique_path(child, parent) is not None, f"seed {seed}"
            if placement != best or placement.note:
                found[ends] += 1
                how = "one by first fit" if ends is nothing else "the best one seen"
                assert placement.note.startswith(f"its tree is {how}, for the search for the nearest"), f"seed {seed}"
    assert all(count >= 15 for count in found.values()), found


def test_fat_tree_has_a_tree_of_three_levels() -> None:
    topology = fat_tree(4)
    workers = tuple(f"h{i}" for i in range(1, 13))
    problem = Problem(Routes(topology), workers, "h16", 1_000_000)
    placement = AggSearch().place(problem)
    placement.check(problem)
    # nothing is loaded twice: the time of one stream on a free link, and wires
    assert predicted_completion_time(placement, problem) == pytest.approx(8e6 / GBIT, rel=0.01)


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


def test_hashed_streams_find_themselves_and_the_means_of_others() -> None:
    streams = Streams(2)
    for _ in range(6):
        streams.add([(1, 0.5)])
    assert streams.load(1) == 3.5
    assert streams.load(1, 1) == 4.5
    assert streams.load(0) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_an_offer_is_the_times_of_its_links_with_one_stream_more(seed: int) -> None:
    rng = random.Random(seed)
    topology = leaf_spine(3, 3, 2)
    costs = Costs(Problem(Routes(topology), ("h1",), "h6", 1_000_000, random_loads(topology, rng)))
    hosts = [host.name for host in topology.hosts]
    streams = costs.streams((a, b) for _ in range(rng.randint(0, 6)) for a, b in [rng.sample(hosts, 2)])
    steps = costs.steps(*rng.sample(hosts, 2))
    seconds = [costs.link_seconds(link, streams.load(link, 1, share)) for link, share in steps]
    assert costs.offer(streams, steps) == (max(seconds), sum(seconds))


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


def test_what_is_no_job_is_refused() -> None:
    routes = Routes(leaf_spine(2, 1, 2))
    with pytest.raises(PlacementError, match="without workers"):
        Problem(routes, (), "h1", 1)
    with pytest.raises(PlacementError, match="named twice"):
        Problem(routes, ("h1", "h2"), "h1", 1)
    with pytest.raises(PlacementError, match="gradient_bytes 0 must be positive"):
        Problem(routes, ("h1",), "h2", 0)
