"""Chips whose pipes have registers each of its own: no placement asks one to sum what comes in by several."""

from __future__ import annotations

import random
from functools import partial
from ipaddress import IPv4Address

import pytest

from weir.controller.errors import PlanError
from weir.controller.placement import Placement, PlacementError, Problem
from weir.controller.placement.model.pipes import place_by_pipes
from weir.controller.placement.strategies import STRATEGIES, strategy
from weir.controller.planning.plan import JobSpec
from weir.controller.planning.planner import LinkConditions, Planner
from weir.tests.controller.planning.test_plan import chip
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Host, Link, Routes, Switch, Topology
from weir.topologies.targets import BMV2_32, LIKE_TOFINO
from weir.wire.aggregation import FAN_IN

NOWHERE = LinkConditions({}, {})
SEVERAL = "by ports of several pipes, each of which sums for itself"


def drawn(rng: random.Random) -> Topology:
    """Two or three leaves under two spines, most of them chips, each with its links at ports of any pipe."""
    leaves = rng.randint(2, 3)
    switches, links, hosts = list[Switch](), list[Link](), list[Host]()
    free: dict[str, list[int]] = {}
    for number in range(1, leaves + 3):
        name = f"s{number}"
        target = LIKE_TOFINO if rng.random() < 0.8 else BMV2_32
        switches.append(Switch(name, number, target=target))
        ports = [128 * pipe + port for pipe in range(rng.randint(1, 4)) for port in range(8, 24)]
        free[name] = rng.sample(ports, 12) if target is LIKE_TOFINO else list(range(1, 13))
    for leaf in range(1, leaves + 1):
        for spine in (leaves + 1, leaves + 2):
            down, up = (Endpoint(f"s{each}", free[f"s{each}"].pop()) for each in (leaf, spine))
            links.append(Link(down, up))
        for turn in range(rng.randint(2, 3)):
            hosts.append(Host(f"h{len(hosts) + 1}", IPv4Address(f"10.0.{leaf}.{turn + 1}")))
            links.append(Link(Endpoint(hosts[-1].name, 0), Endpoint(f"s{leaf}", free[f"s{leaf}"].pop())))
    return Topology("drawn", tuple(hosts), tuple(switches), tuple(links))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_placement_can_be_laid(name: str) -> None:
    """The fabrics are drawn; for a skipped switch the job receives the reason."""
    told = 0
    for seed in range(10):
        rng = random.Random(seed)
        topology = drawn(rng)
        hosts = [host.name for host in topology.hosts]
        rng.shuffle(hosts)
        server = hosts.pop() if rng.random() < 0.8 else None
        spec = JobSpec(1, tuple(hosts[: rng.randint(2, len(hosts))]), server=server, slots=16, window=8)
        planner = Planner(topology, Routes(topology), strategy(name), seed)
        try:
            grant = planner.grant(spec, NOWHERE)
        except PlacementError:
            assert server is None, "a server can sum all by itself"
            continue
        planner.plan(grant.spec, grant.placement, 1)
        told += SEVERAL in grant.note
    assert told or name == "ps"


def test_a_chip_is_passed_over_only_where_several_pipes_meet() -> None:
    one, two = chip(129, 191, 130), chip(1, 129, 130)
    for topology, root, note in ((one, "s1", ""), (two, "h3", f"its children would come to s1 {SEVERAL}")):
        planner = Planner(topology, Routes(topology), strategy("widest"), 1)
        grant = planner.grant(JobSpec(1, ("h1", "h2"), server="h3", slots=16, window=8), NOWHERE)
        assert {*grant.placement.aggregators.values()} == {root}
        assert grant.note == note


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_server_with_too_many_workers_gathers_them_elsewhere(name: str) -> None:
    """If the strategy finds nothing, the fallback skips such a chip, too, or reports that all are full."""
    rng = random.Random(5)
    for other in (BMV2_32, LIKE_TOFINO):
        leaf, spine = Switch("s1", 1, target=LIKE_TOFINO), Switch("s2", 2, target=other)
        hosts = [Host(f"h{index}", IPv4Address(f"10.0.1.{index}")) for index in range(1, FAN_IN + 4)]
        ports = rng.sample([128 * pipe + port for pipe in (1, 2) for port in range(8, 56)], len(hosts) + 1)
        links = [
            Link(Endpoint(host.name, 0), Endpoint("s1", port)) for host, port in zip(hosts, ports[1:], strict=True)
        ]
        links.append(Link(Endpoint("s1", ports[0]), Endpoint("s2", 1 if other is BMV2_32 else 130)))
        topology = Topology("crowd", tuple(hosts), (leaf, spine), tuple(links))
        spec = JobSpec(1, tuple(host.name for host in hosts[1:]), server="h1", slots=16, window=8)
        planner = Planner(topology, Routes(topology), strategy(name), 1)
        grant = planner.grant(spec, NOWHERE)
        assert planner.plan(grant.spec, grant.placement, 1).switches.keys() == {"s2"}


def test_placing_on_a_switch_without_slots_is_refused() -> None:
    class Stubborn:
        def place(self, problem: Problem, rng: random.Random) -> Placement:
            return Placement({"h1": "s1", "h2": "s1"}, {}, "s1")

    problem = Problem(Routes(chip(1, 129)), ("h1", "h2"), None, 1_000)
    with raises(PlacementError, place="s1", value=("s1",)):
        place_by_pipes(partial(Stubborn().place, rng=random.Random(1)), problem)
    planner = Planner(chip(1, 129), Routes(chip(1, 129)), Stubborn(), 1)
    with pytest.raises((PlacementError, PlanError), match="s1"):
        planner.grant(JobSpec(1, ("h1", "h2"), slots=16, window=8), NOWHERE)
