"""Plans: the entries of every switch, line by line, and refused placements."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest

from weir.controller.errors import OutOfMemory, PlanError
from weir.controller.p4runtime.entries import CloneSession, SwitchState
from weir.controller.placement import Placement
from weir.controller.planning.admission import OF_SERVERS, OF_WORKERS, admitting_states, edge_switches
from weir.controller.planning.limits import check_items
from weir.controller.planning.memory import Allotment, FabricMemory
from weir.controller.planning.plan import (
    LARGEST_ROUND_BYTES,
    SCALE_ROUND_BYTES,
    JobPlan,
    JobSpec,
    base_state,
    fabric_state,
    job_plan,
    mean_round_bytes,
    round_bytes,
    round_trip,
    rounds_of_step,
    with_window,
)
from weir.tests.support.errors import raises
from weir.topologies.generators import fat_tree, leaf_spine
from weir.topologies.model import Endpoint, Host, Link, Switch, Topology
from weir.topologies.routing import Routes
from weir.topologies.targets import BMV2_32, LIKE_TOFINO, TARGETS, Target
from weir.wire.aggregation import HEADER_BYTES, MESSAGE_BYTES, message_bytes
from weir.wire.control import Child, Pacing, ServerPlan, WorkerPlan
from weir.wire.frames import FRAME_HEADER_BYTES

# h1, h2 at s1 (ports 1, 2), h3, h4 at s2; spines s3, s4 at ports 3, 4
FABRIC = leaf_spine(2, 2, 2, slots=256)
ROUTES = Routes(FABRIC)
MAC = "02:00:0a:ff:00:0"


H3, H4, S1 = "0a000201", "0a000202", "0aff0001"
MIDDLE = [end for end in FABRIC.directed_links if {end.node, FABRIC.peer(end).node} <= {"s1", "s2", "s3", "s4"}]
"""Between leaves and spines."""


def spine_of(source: str, destination: str) -> int:
    """The number of the spine that a job's messages take from one of these addresses to another, over two leaves."""
    return 3 + zlib.crc32(bytes.fromhex(f"{source}{destination}1157455745")) % 2


def plan(spec: JobSpec, placement: Placement, topology: Topology = FABRIC, generation: int = 1) -> JobPlan:
    switches = [s.name for s in topology.switches if s.name in {*placement.aggregators.values(), placement.root}]
    switches += [name for name in placement.parents if name not in switches and topology.is_switch(name)]
    allotments = FabricMemory(topology).allot(spec.job, switches, spec.slots)
    return job_plan(topology, Routes(topology), spec, placement, generation, allotments)


def test_a_switch_without_jobs_routes_and_sinks_probes() -> None:
    via = {p: f"forward(dst_mac={MAC}{p}, port={p}, src_mac={MAC}1)" for p in (3, 4)}
    either = f"{via[3]} | {via[4]}"
    assert base_state(FABRIC, ROUTES, "s1").lines() == {
        "node_address dst_addr=10.255.0.1 -> to_node()",
        "traffic_class dscp=8 -> set_class(priority=0)",
        "traffic_class dscp=16 -> set_class(priority=2)",
        "traffic_class dscp=24 -> set_class(priority=3)",
        "traffic_class dscp=32 -> set_class(priority=4)",
        "traffic_class dscp=40 -> set_class(priority=5)",
        "traffic_class dscp=48 -> set_class(priority=7)",
        "traffic_class dscp=56 -> set_class(priority=7)",
        "widths reserved=1 -> expand()",
        "widths reserved=8 -> expand_wide()",
        "node default -> identify(node_id=1)",
        "clone session 1 -> 510#0",
        "probe_sinks egress_port=1 -> report(session=1)",
        "probe_sinks egress_port=2 -> report(session=1)",
        f"routes dst_addr=10.0.1.1/32 -> forward(dst_mac=02:00:0a:00:01:01, port=1, src_mac={MAC}1)",
        f"routes dst_addr=10.0.1.2/32 -> forward(dst_mac=02:00:0a:00:01:02, port=2, src_mac={MAC}1)",
        f"routes dst_addr=10.0.2.1/32 -> {either}",
        f"routes dst_addr=10.0.2.2/32 -> {either}",
        f"routes dst_addr=10.255.0.2/32 -> {either}",
        f"routes dst_addr=10.255.0.3/32 -> {via[3]}",
        f"routes dst_addr=10.255.0.4/32 -> {via[4]}",
    }


def test_a_root_server_admits_every_child_at_every_possible_port() -> None:
    spec = JobSpec(7, ("h1", "h3"), server="h4", slots=64, window=16)
    made = plan(spec, Placement(aggregators={"h1": "s1", "h3": "s1"}, parents={"s1": "h4"}, root="h4"))
    assert {name: state.lines() for name, state in made.switches.items()} == {
        "s1": {
            "jobs generation=1 job=7 -> "
            "inner_node(children=0x3, parent=10.0.2.2, parent_bit=0x1, slot_base=0, slots=64)",
            "members contributors=0x1 generation=1 ingress_port=1 job=7 src_addr=10.0.1.1 -> accept()",
            "members contributors=0x2 generation=1 ingress_port=3 job=7 src_addr=10.0.2.1 -> accept()",
            "members contributors=0x2 generation=1 ingress_port=4 job=7 src_addr=10.0.2.1 -> accept()",
            "parents generation=1 ingress_port=3 job=7 src_addr=10.0.2.2 -> replicate(group=7)",
            "parents generation=1 ingress_port=4 job=7 src_addr=10.0.2.2 -> replicate(group=7)",
            "multicast group 7 -> 1#1 4#2",
            "replicas egress_rid=1 -> "
            f"deliver(child_bit=0x1, dst_addr=10.0.1.1, dst_mac=02:00:0a:00:01:01, src_mac={MAC}1)",
            f"replicas egress_rid=2 -> deliver(child_bit=0x2, dst_addr=10.0.2.1, dst_mac={MAC}4, src_mac={MAC}1)",
        }
    }
    s1 = 0x0AFF0001
    members = (0x0A000101, 0x0A000201)
    assert made.workers == {
        "h1": WorkerPlan(7, 1, 0, 2, s1, 1, 64, 16, members=members, presents=True),
        "h3": WorkerPlan(7, 1, 1, 2, s1, 2, 64, 16, members=members, presents=True),
    }
    assert made.server == ServerPlan(7, 1, 64, (Child(1, s1, workers=2),), 2, members=members)
    # up: h1→s1 and h3→s1 and s1→h4; down: the same back
    assert made.streams[Endpoint("h1", 0)] == 1
    assert made.streams[Endpoint("s1", 1)] == 1
    # h3's and the server's messages to s1, and s1's to the server, take the spine that their hash names (s3 or s4, at
    # ports 3 and 4); h3 is the second child, whose results take the second one
    up, down, sums = (spine_of(*ends) for ends in ((H3, S1), (H4, S1), (S1, H4)))
    between = [(2, up), (up, 1), (2, down), (down, 1), (1, sums), (sums, 2), (1, 4), (4, 2)]
    taken = Counter(Endpoint(f"s{a}", b) for a, b in between)
    assert {link: made.streams.get(link, 0) for link in MIDDLE} == {link: taken[link] for link in MIDDLE}
    assert made.max_streams[Endpoint("s2", 3)] == 2
    assert made.streams[Endpoint("s2", 2)] == 1
    # the farthest worker is 3 links from s1, which is 3 links from the server: 12 links there and back
    frame_ns = (FRAME_HEADER_BYTES + MESSAGE_BYTES) * 8
    assert (made.round_trip_ns, made.hops) == (12 * (2_000 + frame_ns), 12)
    # a round that nobody adds lanes to is faster, on the way to the server
    quick_ns = 2_000 + SCALE_ROUND_BYTES * 8 + 2_000 + frame_ns
    trips = {link: ns / quick_ns for link, ns in made.round_trips_ns.items()}
    assert made.quickest_round_trip_ns == 6 * quick_ns
    assert trips == {link: 4 if FABRIC.peer(link).node == "h1" or link.node == "h1" else 6 for link in trips}
    assert trips.keys() == made.max_streams.keys()
    assert made.host_plans() == {"h4": made.server, **made.workers}
    paced = replace(made, pacing=Pacing(gap_ns=500))
    assert paced == made
    assert {name: plan.pacing.gap_ns for name, plan in paced.workers.items()} == {"h1": 0, "h3": 0}
    told = paced.host_plans(first_round=9)
    assert told["h4"] == replace(made.server, first_round=9)
    assert {name: told[name].pacing for name in made.workers} == dict.fromkeys(made.workers, paced.pacing)  # type: ignore[union-attr]


def test_a_link_is_as_fast_as_the_nearest_stream_that_takes_it() -> None:
    """h3 is on the server's leaf, and h1 behind a spine."""
    spec = JobSpec(1, ("h3", "h1"), server="".join(("h", "4")))
    made = plan(spec, Placement({"h3": "h4", "h1": "h4"}, {}, "h4"))
    assert made.server is not None
    assert [child.bit for child in made.server.children] == [1, 2]
    link_ns, small_ns = (2_000 + 8 * size for size in (FRAME_HEADER_BYTES + MESSAGE_BYTES, SCALE_ROUND_BYTES))
    trips = {link: 2 * ns / (link_ns + small_ns) for link, ns in made.round_trips_ns.items()}
    both, near = {Endpoint("s2", 2), Endpoint("h4", 0)}, {Endpoint("h3", 0), Endpoint("s2", 1)}
    assert trips == {link: 4 if link in both | near else 8 for link in trips}
    assert [made.max_streams[link] for link in (*both, *near)] == [2, 2, 1, 1]
    assert made.round_trip_ns == 8 * link_ns


WITH_PORT_1 = [target for target in TARGETS.values() if target.refusal_of_port(1) is None]


@pytest.mark.parametrize("target", WITH_PORT_1, ids=lambda target: target.name)
def test_the_quickest_trip_is_small_in_each_direction_that_may_be(target: Target) -> None:
    """And the plan tells workers which; one switch that does not know a kind of message keeps it from all."""
    rate: dict[str, Any] = {} if target.is_emulated else {"rate_bps": 25_000_000_000}
    fabric = leaf_spine(1, 1, 2, target=target, **rate)
    spec = JobSpec(1, ("h1", "h2"), slots=32, window=16)
    made = plan(spec, Placement({"h1": "s1", "h2": "s1"}, {}, "s1"), fabric)
    lanes = target.lanes
    presents, prunes = target.present_lanes >= lanes, target.prunes
    assert {(worker.presents, worker.prunes) for worker in made.workers.values()} == {(presents, prunes)}
    sizes = [SCALE_ROUND_BYTES if small else FRAME_HEADER_BYTES + message_bytes(lanes) for small in (presents, prunes)]
    cable = fabric.link_at(Endpoint("h1", 0))
    expected = sum(cable.delay_ns + 8 * size * 1_000_000_000 // cable.rate_bps for size in sizes)
    assert made.quickest_round_trip_ns == expected <= made.round_trip_ns
    assert set(made.round_trips_ns.values()) == {expected}
    below = plan(replace(spec, server="h2", workers=("h1",)), Placement({"h1": "s1"}, {"s1": "h2"}, "h2"), fabric)
    assert (below.workers["h1"].presents, below.workers["h1"].prunes) == (presents, False), "a server sends no DONE"


def test_a_round_trip_goes_by_the_first_of_equals() -> None:
    far = [
        replace(link, delay_ns=link.delay_ns + 9_000) if "s4" in (link.a.node, link.b.node) else link
        for link in FABRIC.links
    ]
    topology = replace(FABRIC, links=tuple(far))
    trip = round_trip(topology, Routes(topology), {"h1": "h4"}, "h1", 1_000)
    assert trip == (8 * (2_000 + 8_000), 8)


def test_a_job_with_another_window_has_as_many_chunks() -> None:
    scale, lanes = SCALE_ROUND_BYTES, round_bytes(FABRIC)
    spec = JobSpec(1, ("h1",), slots=128, window=32, gradient_bytes=40 * lanes + 32 * scale)
    assert with_window(spec, 32, FABRIC) is spec
    for window in (8, 40, 64):
        other = with_window(spec, window, FABRIC)
        assert (other.window, other.gradient_bytes) == (window, 40 * lanes + min(window, 40) * scale)
        assert rounds_of_step(other, FABRIC) == (min(window, 40), 40)
    assert mean_round_bytes(spec, FABRIC) == (40 * lanes + 32 * scale) / 72
    assert rounds_of_step(replace(spec, gradient_bytes=1), FABRIC) == (1, 1), "no step is without a round"


def test_a_server_that_is_no_root_has_the_workers_entries() -> None:
    spec = JobSpec(2, ("h1", "h2"), server="h4", slots=32, window=16, key="9f" * 32)
    placement = Placement(aggregators={"h1": "s1", "h2": "s1"}, parents={}, root="s1")
    made = plan(spec, placement, leaf_spine(2, 2, 2, target=BMV2_32))
    worker, holder = made.workers["h1"], made.host_plans()["h4"]
    assert worker.lanes == 32
    assert (holder.lanes, holder.members, holder.key) == (worker.lanes, worker.members, spec.key)
    assert spec.key not in repr(made)


def test_a_tree_of_switches_replicates_at_the_root() -> None:
    spec = JobSpec(2, ("h1", "h2", "h3", "h4"), slots=32, window=16)
    up = {"h1": "s1", "h2": "s1", "h3": "s2", "h4": "s2"}
    made = plan(spec, Placement(aggregators=up, parents={"s1": "s3", "s2": "s3"}, root="s3"), generation=9)
    assert made.server is None
    assert made.switches["s3"].lines() == {
        "jobs generation=9 job=2 -> switch_root(children=0x3, group=2, slot_base=0, slots=32)",
        "members contributors=0x1 generation=9 ingress_port=1 job=2 src_addr=10.255.0.1 -> accept()",
        "members contributors=0x2 generation=9 ingress_port=2 job=2 src_addr=10.255.0.2 -> accept()",
        "multicast group 2 -> 1#1 2#2",
        f"replicas egress_rid=1 -> deliver(child_bit=0x1, dst_addr=10.255.0.1, dst_mac={MAC}1, src_mac={MAC}3)",
        f"replicas egress_rid=2 -> deliver(child_bit=0x2, dst_addr=10.255.0.2, dst_mac={MAC}2, src_mac={MAC}3)",
    }
    inner = made.switches["s2"].lines()
    assert "parents generation=9 ingress_port=3 job=2 src_addr=10.255.0.3 -> replicate(group=2)" in inner
    assert (
        "jobs generation=9 job=2 -> "
        "inner_node(children=0x3, parent=10.255.0.3, parent_bit=0x2, slot_base=0, slots=32)" in inner
    )
    assert {name: worker.child_bit for name, worker in made.workers.items()} == {"h1": 1, "h2": 2, "h3": 1, "h4": 2}


def test_a_host_port_admits_its_address_and_its_messages() -> None:
    """h4 serves one job and works in another, h2 is a spare, and h3 works alone."""
    first = plan(JobSpec(1, ("h1", "h3"), server="h4", spares=("h2",)), Placement({"h1": "h4", "h3": "h4"}, {}, "h4"))
    second = plan(JobSpec(2, ("h4", "h1")), Placement({"h4": "s1", "h1": "s1"}, {}, "s1"))
    assert (OF_WORKERS, OF_SERVERS) == (0b1110_1010, 0b1111_0100)
    states = admitting_states(FABRIC, {s.name: SwitchState() for s in FABRIC.switches}, [first, second])
    assert {name: state.lines() for name, state in states.items()} == {
        "s1": {
            "hosts ingress_port=1 -> admit(address=10.0.1.1, messages=234)",
            "hosts ingress_port=2 -> admit(address=10.0.1.2, messages=244)",
        },
        "s2": {
            "hosts ingress_port=1 -> admit(address=10.0.2.1, messages=234)",
            "hosts ingress_port=2 -> admit(address=10.0.2.2, messages=254)",
        },
        "s3": set(),
        "s4": set(),
    }
    idle = admitting_states(FABRIC, states, [])
    assert "hosts ingress_port=2 -> admit(address=10.0.2.2, messages=0)" in idle["s2"].lines()
    assert edge_switches(FABRIC, first.spec) == {"s1", "s2"}
    assert edge_switches(FABRIC, replace(second.spec, workers=("h3", "h4"))) == {"s2"}


def test_two_jobs_in_one_switch_share_no_slot_group_or_rid() -> None:
    memory = FabricMemory(FABRIC)
    plans = []
    for job, workers in ((1, ("h1", "h2")), (2, ("h1", "h3"))):
        spec = JobSpec(job, workers, slots=64, window=32)
        allotments = memory.allot(job, ["s1"], 64)
        placement = Placement(aggregators=dict.fromkeys(workers, "s1"), parents={}, root="s1")
        plans.append(job_plan(FABRIC, ROUTES, spec, placement, 1, allotments))
    bases = {s.name: base_state(FABRIC, ROUTES, s.name) for s in FABRIC.switches}
    states = fabric_state(bases, plans)
    lines = states["s1"].lines()
    assert "jobs generation=1 job=1 -> switch_root(children=0x3, group=1, slot_base=0, slots=64)" in lines
    assert "jobs generation=1 job=2 -> switch_root(children=0x3, group=2, slot_base=64, slots=64)" in lines
    assert {line for line in lines if line.startswith("multicast")} == {
        "multicast group 1 -> 1#1 2#2",
        "multicast group 2 -> 1#33 4#34",
    }
    assert all(plan.switches["s1"].lines() <= lines for plan in plans)
    assert set(states) == {s.name for s in FABRIC.switches}


@pytest.mark.parametrize(
    ("placement", "place", "value"),
    [
        (Placement({"h1": "s1", "h3": "s2"}, {"s1": "s2", "s2": "s1"}, "s3"), "root", "s3"),
        (Placement({"h1": "s1", "h3": "s2"}, {"s1": "s3"}, "s3"), "parents.s2", None),
        (Placement({"h1": "s1", "h3": "s1"}, {"s1": "s3", "s2": "s3"}, "s3"), "parents.s2", ()),
        (Placement({"h1": "h3", "h3": "s1"}, {}, "s1"), "aggregators", "h3"),
        (Placement({"h9": "s1"}, {}, "s1"), "aggregators", ("h9",)),
        (Placement({}, {}, "s1"), "aggregators", ()),
        (
            Placement({"h1": "s1", "h3": "s4"}, {"s1": "s2", "s2": "s1", "s4": "s3"}, "s3"),
            "parents",
            ("s1", "s2", "s1"),
        ),
    ],
)
def test_a_placement_that_is_no_tree_is_refused_with_the_fault(placement: Placement, place: str, value: object) -> None:
    with raises(PlanError, place=f"job 1: placement.{place}", value=value):
        plan(JobSpec(1, ("h1", "h3"), server="h4"), placement)


def test_a_node_takes_32_children_and_no_more() -> None:
    wide = leaf_spine(1, 0, 33)
    names = tuple(h.name for h in wide.hosts)
    made = plan(JobSpec(1, names[:32]), Placement(dict.fromkeys(names[:32], "s1"), {}, "s1"), wide)
    assert max(w.child_bit for w in made.workers.values()) == 1 << 31
    with raises(PlanError, place="job 1: placement.children.s1", value=33):
        plan(JobSpec(1, names), Placement(dict.fromkeys(names, "s1"), {}, "s1"), wide)


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"job": 0}, 0),
        ({"slots": 48}, 48),
        ({"slots": 1}, 1),
        ({"slots": 65_536}, 65_536),
        ({"slots": 64, "window": 33}, 33),
        ({"workers": ()}, ()),
        ({"workers": ("h1", "h1")}, ("h1", "h1")),
        ({"server": "h1"}, ("h1", "h2", "h1")),
        ({"job": 65_536}, 65_536),
        ({"window": 0}, 0),
        ({"min_workers": 0}, 0),
        ({"min_workers": 3}, 3),
        ({"weight": 0.0009}, 0.0009),
        ({"weight": 1001.0}, 1001.0),
        ({"priority": -1}, -1),
        ({"priority": 8}, 8),
        ({"spares": ("h3",)}, ("h3",)),
    ],
)
def test_a_job_that_cannot_be_is_refused(fields: dict[str, object], value: object) -> None:
    with raises(PlanError, place=f"job {fields.get('job', 1)}", value=value):
        JobSpec(**{"job": 1, "workers": ("h1", "h2"), **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"job": 65_535},
        {"window": 1},
        {"min_workers": 2},
        {"gradient_bytes": 1},
        {"weight": 0.001},
        {"weight": 1000.0},
        {"priority": 7},
        {"workers": tuple(f"h{index}" for index in range(300))},
    ],
)
def test_a_job_may_be_as_it_likes_within_its_bounds(fields: dict[str, object]) -> None:
    spec = JobSpec(**{"job": 1, "workers": ("h1", "h2"), **fields})  # type: ignore[arg-type]
    assert fields.items() <= {name: getattr(spec, name) for name in spec.__dataclass_fields__}.items()


def test_omitted_job_values_are_those_of_the_guide() -> None:
    said = JobSpec(1, ("h1",))
    assert (said.slots, said.window, said.gradient_bytes, said.min_workers) == (64, 32, 1 << 20, 1)
    assert (said.weight, said.priority, said.hosts) == (1.0, 0, ("h1",))


def test_a_job_has_a_valid_generation_and_slots_in_every_switch() -> None:
    spec, placement = JobSpec(1, ("h1", "h2")), Placement({"h1": "s1", "h2": "s1"}, {}, "s1")
    for generation in (1, 255):
        assert plan(spec, placement, generation=generation).generation == generation
    for generation in (0, 256):
        with raises(PlanError, place="job 1", value=generation):
            plan(spec, placement, generation=generation)
    memory = FabricMemory(FABRIC)
    for held in (memory.allot(1, ["s2"], 64), memory.allot(2, ["s1"], 32), memory.allot(3, ["s1"], 128)):
        with raises(PlanError, place="job 1", value="s1"):
            job_plan(FABRIC, ROUTES, spec, placement, 1, held)


def test_bytes_of_rounds_are_those_of_their_frames() -> None:
    """Ethernet, IPv4 and UDP before a message's header, and 256 lanes of 32 bits behind it."""
    assert FRAME_HEADER_BYTES == 14 + 20 + 8
    assert SCALE_ROUND_BYTES == 14 + 20 + 8 + HEADER_BYTES
    assert LARGEST_ROUND_BYTES == SCALE_ROUND_BYTES + 4 * 256 == round_bytes(FABRIC)
    assert round_bytes(leaf_spine(2, 2, 2, target=BMV2_32)) == SCALE_ROUND_BYTES + 4 * 32


@pytest.mark.parametrize("slots", [2, 32_768])
def test_the_fewest_and_the_most_slots_are_taken(slots: int) -> None:
    assert JobSpec(1, ("h1", "h2"), slots=slots, window=slots // 2).slots == slots


def test_memory_is_given_to_all_switches_of_a_job_or_to_none() -> None:
    memory = FabricMemory(FABRIC)
    memory.allot(1, ["s2"], 256)
    with raises(OutOfMemory, place="s2: aggregation slots", value=64):
        memory.allot(2, ["s1", "s2"], 64)
    assert memory.jobs_that_fit(64) == {"s1": 4, "s2": 0, "s3": 4, "s4": 4}
    assert memory.jobs_that_fit(64, job=1)["s2"] == 1
    memory.retain(1)
    allotments = memory.allot(2, ["s1", "s2"], 64)
    assert allotments == {switch: Allotment(0, 64, 2, 1) for switch in ("s1", "s2")} == memory.held(2)
    anew = FabricMemory(FABRIC)
    anew.reoccupy(2, allotments)
    assert anew.held(2) == allotments
    assert anew.free_slots == {"s1": 192, "s2": 192, "s3": 256, "s4": 256}
    with raises(OutOfMemory, place="s1: aggregation slots", value=(0, 64)):
        anew.reoccupy(2, allotments)
    with raises(OutOfMemory, place="job 3", value="s9"):
        anew.reoccupy(3, {"s9": Allotment(0, 64, 3, 1)})
    anew.retain(2, ["s1"])
    assert anew.held(2).keys() == {"s1"}


def test_every_stream_on_a_fat_tree_is_carried() -> None:
    topology = fat_tree(4)
    names = tuple(h.name for h in topology.hosts[::3])
    made = plan(JobSpec(5, names), Placement(dict.fromkeys(names, "s20"), {}, "s20"), topology)
    into = sum(share for link, share in made.streams.items() if topology.peer(link).node == "s20")
    out_of = sum(share for link, share in made.streams.items() if link.node == "s20")
    assert into == pytest.approx(len(names))
    assert out_of == pytest.approx(len(names))


def chip(*ports: int) -> Topology:
    """One switch like a Tofino with h1, h2 … at these ports."""
    switch = Switch("s1", 1, target=LIKE_TOFINO)
    hosts = tuple(Host(f"h{i}", IPv4Address(f"10.0.1.{i}")) for i in range(1, len(ports) + 1))
    links = (Link(Endpoint(host.name, 0), Endpoint("s1", port)) for host, port in zip(hosts, ports, strict=True))
    return Topology("chip", hosts, (switch,), tuple(links))


def test_a_chip_sums_the_children_of_one_pipe() -> None:
    spec = JobSpec(7, ("h1", "h2"))
    placement = Placement(aggregators={"h1": "s1", "h2": "s1"}, parents={}, root="s1")
    assert plan(spec, placement, chip(129, 191)).switches["s1"].lines() >= {
        "members contributors=0x2 generation=1 ingress_port=191 job=7 src_addr=10.0.1.2 -> accept()"
    }
    with pytest.raises(PlanError) as error:
        plan(spec, placement, chip(1, 129))
    assert str(error.value) == (
        "job 7: s1: children come in by ports 1 (pipe 0) and 129 (pipe 1), but each pipe of like-tofino has slots of "
        "its own; let another node sum them, or link them to ports of one pipe"
    )


@pytest.mark.parametrize(
    ("session", "says"),
    [
        (CloneSession(1015, ((510, 0),)), None),
        (CloneSession(1016, ((510, 0),)), "a clone session of like-tofino is 1…1015"),
        (CloneSession(1, ((510, 0), (3, 0))), "a clone session of like-tofino has at most 1 copies"),
    ],
)
def test_a_chip_has_few_clone_sessions_of_one_copy(session: CloneSession, says: str | None) -> None:
    if says is None:
        check_items(chip(1).switch("s1"), [session])
        return
    with pytest.raises(PlanError) as error:
        check_items(chip(1).switch("s1"), [session])
    assert str(error.value).endswith(says)


def test_one_key_cannot_mean_two_things() -> None:
    one = plan(JobSpec(1, ("h1",)), Placement({"h1": "s1"}, {}, "s1")).switches["s1"]
    other = plan(JobSpec(1, ("h1", "h2")), Placement({"h1": "s1", "h2": "s1"}, {}, "s1")).switches["s1"]
    with pytest.raises(ValueError, match="two different items for one key"):
        SwitchState.of((*one.items.values(), *other.items.values()))
    assert SwitchState().lines() == frozenset()


@pytest.mark.parametrize("gradient_bytes", [0, 2**50 + 1])
def test_a_gradient_has_a_pebibyte_at_most(gradient_bytes: int) -> None:
    JobSpec(2, ("h1", "h2"), gradient_bytes=2**50)
    with raises(PlanError, place="job 2", value=gradient_bytes):
        JobSpec(2, ("h1", "h2"), gradient_bytes=gradient_bytes)
