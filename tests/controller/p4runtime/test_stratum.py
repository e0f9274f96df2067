"""P4Runtime requests of plans for a fabric of Tofinos, checked against Stratum for Tofino."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

import weir.experiments
from weir.controller.congestion import CongestionOptions, Marks, WindowController
from weir.controller.congestion.marking import METER_GRAIN_BYTES, TICKS_PER_US, marked_states
from weir.controller.errors import PlanError
from weir.controller.int_config.settings import EventThresholds, IntConfig, WatchedFlows, WatchMode
from weir.controller.int_config.table_entries import check_int_config, telling_slots, watch_state
from weir.controller.p4runtime.entries import (
    ActionGroup,
    CloneSession,
    Entry,
    FieldValue,
    Group,
    Item,
    MeterRate,
    ProfileMember,
    SwitchState,
    call,
    entry,
)
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.reconcile import reconcile, verify
from weir.controller.p4runtime.refusals import WriteRefused
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.p4runtime.tables import (
    BUCKET_RATES,
    MARKING,
    NEXT_HOPS,
    NODE_ADDRESS,
    POLICERS,
    ROUTES,
    VIRTUAL_QUEUE_RATES,
)
from weir.controller.placement.strategies import strategy
from weir.controller.planning.admission import admitting_states
from weir.controller.planning.plan import JobPlan, JobSpec, base_state, fabric_state, round_bytes
from weir.controller.planning.planner import LinkConditions, Planner
from weir.experiments.config import RunConfig
from weir.p4src import p4info_of
from weir.tests.controller.p4runtime.stratum_switch import StratumSwitch
from weir.topologies.routing import Routes
from weir.topologies.targets import BMV2_32, TOFINO
from weir.wire.frames import CONTROL_PRIORITY, JOB_CLASSES
from weir.wire.int_md import Instruction
from weir.wire.int_shim import Presence

DEMO = RunConfig.load(Path(weir.experiments.__file__).parent / "demo.yaml")
FABRIC = replace(DEMO.topology, switches=tuple(replace(switch, target=TOFINO) for switch in DEMO.topology.switches))
P4INFO = p4info_of(TOFINO.program)
PARSED = text_format.Parse(P4INFO.read_text(), p4i.P4Info())


@pytest.fixture
async def stratum() -> AsyncIterator[StratumSwitch]:
    switch = StratumSwitch(PARSED)
    await switch.start()
    yield switch
    await switch.stop()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-in for the output of the chip's compiler, which the recording server takes unread."""
    path = tmp_path_factory.mktemp("tofino") / "fabric.pb.bin"
    path.write_bytes(b"packed")
    return path


def session_with(switch: StratumSwitch, packed: Path) -> SwitchSession:
    pipeline = CompiledPipeline(P4INFO, packed)
    return SwitchSession("s1", switch.address, device_id=1, pipeline=pipeline, timeout_s=60.0)


def demo_plan(name: str) -> JobPlan:
    """The demo's job, placed without a word of telemetry."""
    planner = Planner(FABRIC, Routes(FABRIC), strategy(name), seed=DEMO.seed)
    job = DEMO.job
    spec = JobSpec(1, tuple(job.workers), server=job.server, slots=job.slots, window=job.window)
    grant = planner.grant(spec, LinkConditions({}, {}))
    return planner.plan(grant.spec, grant.placement, 1)


def held(plan: JobPlan, options: CongestionOptions, routes: Routes, watching: IntConfig) -> Mapping[str, SwitchState]:
    """All that the switches hold with this job."""
    windows = WindowController(FABRIC, options)
    windows.update(routes, [plan], (), 0)
    bases = {
        name: SwitchState.of(
            item
            for part in (base_state(FABRIC, routes, name), watch_state(FABRIC, routes, name, watching))
            for item in part.items.values()
        )
        for name in (switch.name for switch in FABRIC.switches)
    }
    bases = dict(telling_slots(FABRIC, bases, [plan]))
    states = admitting_states(FABRIC, fabric_state(bases, [plan]), [plan])
    return marked_states(FABRIC, states, windows.budgets, [plan], options)


MARKED = [replace(DEMO.congestion_options, marks=marks) for marks in Marks]


@pytest.mark.parametrize("name", DEMO.strategies)
async def test_all_of_the_demos_plans_is_taken(stratum: StratumSwitch, packed: Path, name: str) -> None:
    plan = demo_plan(name)
    assert name == "ps" or plan.switches
    states = held(plan, DEMO.congestion_options, Routes(FABRIC), IntConfig())
    async with session_with(stratum, packed) as session:
        for state in states.values():
            assert await reconcile(session, state)
            assert not await verify(session, state)


async def test_plans_are_read_back_and_replaced(stratum: StratumSwitch, packed: Path) -> None:
    """Plans with other marks, and after the loss of a link: nothing is refused on the way, and unchanged entries are
    not written a second time.
    """
    plan = demo_plan("widest")
    between = [directed_link for directed_link in FABRIC.directed_links if FABRIC.is_switch(directed_link.node)]
    uplink = next(each for each in between if FABRIC.is_switch(FABRIC.peer(each).node))
    fewer = Routes(FABRIC, {uplink, FABRIC.peer(uplink)})
    plans = [held(plan, options, Routes(FABRIC), IntConfig())[uplink.node] for options in MARKED]
    plans.append(held(plan, MARKED[0], fewer, IntConfig(presence=Presence.DSCP))[uplink.node])
    async with session_with(stratum, packed) as session:
        for state in (*plans, plans[0]):
            assert await reconcile(session, state)
            writes = len(stratum.writes)
            assert not await reconcile(session, state)
            assert len(stratum.writes) == writes


def test_equal_ways_are_one_choice_of_next_hops() -> None:
    """A choice's number says what is in it, so it never comes to mean something else."""
    lines = base_state(FABRIC, Routes(FABRIC), "s1").lines()
    choices = {line for line in lines if line.startswith("choice ")}
    members = {line.split(" -> ")[0] for line in lines if line.startswith("member ")}
    routes = [line.split(" -> ")[1] for line in lines if line.startswith("routes ")]
    ports = set(FABRIC.neighbours("s1"))
    assert members == {f"member {port}" for port in ports}
    assert len(routes) == len(FABRIC.nodes) - 1
    named = {line.split()[1] for line in choices}
    assert {route for route in routes if "choice" in route} == {f"choice(id={number})" for number in named}
    for line in choices:
        chosen = {int(port) for port in line.split(" -> ")[1].split(" | ")}
        assert len(chosen) > 1
        assert chosen <= ports


def rates(state: SwitchState, meter: str) -> dict[int, tuple[int, int]]:
    found = (item for item in state.items.values() if isinstance(item, MeterRate) and item.meter == meter)
    return {rate.index: (rate.bytes_per_s, rate.burst_bytes) for rate in found}


@pytest.mark.parametrize("options", MARKED, ids=[each.marks.value for each in MARKED])
def test_bounds_are_those_of_bmv2_in_a_chips_units(options: CongestionOptions) -> None:
    """Cells for packets, nanoseconds for microseconds, and meters for costs of bytes."""
    plan = demo_plan("widest")
    bmv2 = replace(FABRIC, switches=tuple(replace(switch, target=BMV2_32) for switch in FABRIC.switches))
    windows = WindowController(FABRIC, options)
    windows.update(Routes(FABRIC), [plan], (), 0)
    bare = {switch.name: SwitchState() for switch in FABRIC.switches}
    chip, model = (marked_states(each, bare, windows.budgets, [plan], options) for each in (FABRIC, bmv2))
    cells = -(-round_bytes(FABRIC) // 80)
    for switch in bare:
        bounds, theirs = (arguments(states[switch], MARKING) for states in (chip, model))
        assert bounds.keys() == theirs.keys()
        virtual, buckets = (rates(chip[switch], meter) for meter in (VIRTUAL_QUEUE_RATES, BUCKET_RATES))
        for key, args in theirs.items():
            never = args["threshold"] == (1 << 19) - 1
            assert bounds[key] == {
                "threshold": args["threshold"] * (1 if never else cells),
                "sojourn": args["sojourn"] * 1000,
                "window": args["window"],
                "congested_window": args["congested_window"],
            }
            if args["byte_cost"]:
                [(_, port)] = key
                assert isinstance(port, int)
                rate, burst = virtual.pop(port)
                assert is_rate_of(rate, args["byte_cost"])
                assert (
                    args["backlog"] // args["byte_cost"] - METER_GRAIN_BYTES
                    < burst
                    <= args["backlog"] // args["byte_cost"]
                )
        assert not virtual
        policed = arguments(chip[switch], POLICERS)
        expected = {}
        for key, args in arguments(model[switch], POLICERS).items():
            where = dict(key)
            if where["priority"] in JOB_CLASSES[1:]:  # of which a chip has none
                continue
            dscps = ((48, 0x3F), (56, 0x3F)) if where.pop("priority") == CONTROL_PRIORITY else (None,)
            for dscp in dscps:
                match = where if dscp is None else {**where, "dscp": dscp}
                bucket = policed[tuple(sorted(match.items()))]["bucket_index"]
                expected[tuple(sorted(match.items()))] = {"bucket_index": bucket}
                rate, burst = buckets[bucket]
                allowed = args["burst"] // args["byte_cost"]
                assert allowed <= burst < allowed + METER_GRAIN_BYTES
                if allowed:
                    assert bucket == args["bucket_index"]
                    assert is_rate_of(rate, args["byte_cost"])
                else:
                    assert (rate, burst) == (0, 0)
        assert policed == expected


def is_rate_of(bytes_per_s: int, byte_cost: int) -> bool:
    """A cost is a whole number, cut off; a rate goes by 125 bytes."""
    least, most = (1e6 * TICKS_PER_US / cost for cost in (byte_cost + 1, byte_cost))
    return least - METER_GRAIN_BYTES < bytes_per_s < most + METER_GRAIN_BYTES


def arguments(state: SwitchState, table: str) -> dict[tuple[tuple[str, FieldValue], ...], dict[str, int]]:
    """Parameters of a table's entries, by match."""
    entries = [item for item in state.items.values() if isinstance(item, Entry) and item.table == table]
    return {each.match: dict(each.calls[0].args) for each in entries}


def test_packets_that_mark_by_dscp_are_policed_with_their_mark() -> None:
    """Policers see packets before the mark is removed, so at ports of hosts it does not count. At other ports it does
    not change the class of packets outside the control class.
    """
    plan = demo_plan("widest")
    by_port, by_dscp = (
        held(plan, MARKED[0], Routes(FABRIC), IntConfig(presence=presence))["s1"]
        for presence in (Presence.UDP_PORT, Presence.DSCP)
    )
    masks = [
        {dict(match)["dscp"] for match in arguments(state, POLICERS) if "dscp" in dict(match)}
        for state in (by_port, by_dscp)
    ]
    assert masks == [{(48, 0x3F), (56, 0x3F)}, {(48, 0x3E), (56, 0x3E)}]


MIXED = replace(FABRIC, switches=(replace(FABRIC.switches[0], target=BMV2_32), *FABRIC.switches[1:]))
WATCHED = IntConfig(
    (WatchedFlows(WatchMode.XD, protocol=17, every=1 << 16), WatchedFlows(WatchMode.XD)), collector=FABRIC.hosts[0].name
)
MARKED_BY_MX = IntConfig((WatchedFlows(WatchMode.MX),), presence=Presence.DSCP)
MARKED_BY_MD = IntConfig((WatchedFlows(WatchMode.MD, hops=2),))


@pytest.mark.parametrize(
    ("watching", "why"),
    [
        (IntConfig(drops=frozenset({"late"})), "the program of tofino sums no messages with INT, and tells neither of"),
        (IntConfig(queue_steps=EventThresholds(depth_threshold=3)), "tells neither of drops nor of what changes in"),
        (
            IntConfig(flows=(WatchedFlows(WatchMode.XD),), flow_steps=EventThresholds(depth_step=3)),
            "tells neither of drops nor of what",
        ),
        (
            IntConfig(flows=(WatchedFlows(WatchMode.XD, every=65_537),)),
            "the program of tofino counts to 65536, not 65537",
        ),
        (
            IntConfig(flows=(WatchedFlows(WatchMode.MD),)),
            "8 words of each of 8 hops are 64 in a stack, of which .* 16 where .* udp-port",
        ),
        (
            IntConfig(flows=(WatchedFlows(WatchMode.MD, protocol=17, hops=2),), presence=Presence.PROBE_MARKER),
            "takes out 11 where INT is marked by probe-marker",
        ),
        (
            IntConfig(flows=(WatchedFlows(WatchMode.MD, hops=2),), presence=Presence.DSCP),
            "takes out 11 where INT is marked by dscp",
        ),
        (
            IntConfig(
                flows=(WatchedFlows(WatchMode.MD, instructions=Instruction.NODE_ID | Instruction.BUFFER, hops=2),)
            ),
            "puts nothing into packets where buffer is asked for",
        ),
    ],
)
def test_data_that_a_chip_does_not_report_cannot_be_watched(watching: IntConfig, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        check_int_config(FABRIC, watching)


def test_data_that_a_chip_reports_can_be_watched() -> None:
    check_int_config(FABRIC, IntConfig(presence=Presence.DSCP))
    check_int_config(FABRIC, WATCHED)
    check_int_config(FABRIC, MARKED_BY_MX)
    check_int_config(FABRIC, MARKED_BY_MD)
    check_int_config(FABRIC, IntConfig((WatchedFlows(WatchMode.MD, protocol=17, hops=2),), presence=Presence.DSCP))
    check_int_config(FABRIC, IntConfig((WatchedFlows(WatchMode.MD, hops=1),), presence=Presence.PROBE_MARKER))
    check_int_config(MIXED, WATCHED)
    for marked in (MARKED_BY_MX, MARKED_BY_MD):
        with pytest.raises(PlanError, match=r"no messages with INT.* md and mx .*such chips"):
            check_int_config(MIXED, marked)


@pytest.mark.parametrize(
    "watching",
    [WATCHED, replace(WATCHED, collector=None), MARKED_BY_MX, MARKED_BY_MD],
    ids=["reported to a host", "reported to the controller", "marked by INT-MX", "marked by INT-MD"],
)
async def test_watch_entries_are_accepted(stratum: StratumSwitch, packed: Path, watching: IntConfig) -> None:
    """A watchlist, the session and the destination of reports; a chip cuts what it mirrors, for its egress cannot."""
    states = held(demo_plan("widest"), DEMO.congestion_options, Routes(FABRIC), watching)
    async with session_with(stratum, packed) as session:
        for state in states.values():
            assert await reconcile(session, state)
            assert not await verify(session, state)
    lines = states["s1"].lines()
    ends = [state.lines() for state in states.values()] if watching.puts_headers else []
    sinks = [line for of_switch in ends for line in of_switch if line.startswith("sinks ")]
    assert len(sinks) == len(FABRIC.hosts) * bool(ends), "where each host hangs"
    local = sum(line.startswith("sinks ") for line in lines) + bool(ends)  # the switch is a source, too
    assert sum(line.startswith("watchlist ") for line in lines) == (local or len(watching.flows)) + (
        watching.collector is not None
    )
    assert sum(line.startswith("destination default -> address(") for line in lines) == 1
    assert sum(line.startswith("clone session 250(78 bytes) -> ") for line in lines) == 1
    assert sum(line.startswith("clone session 249(154 bytes) -> ") for line in lines) == 1
    assert not any(line.startswith(("flow_steps ", "queue_watch ", "drop_watch ")) for line in lines)


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (entry(NODE_ADDRESS, {"dst_addr": 1}, call("to_node")), None),
        (Group(65_535, ((1, 65_535),)), None),
        (Group(65_536, ((1, 1),)), "INTERNAL"),
        (Group(1, ((1, 65_536),)), "INTERNAL"),
        (CloneSession(1015, ((320, 0),)), None),
        (CloneSession(1016, ((320, 0),)), "INTERNAL"),
        (CloneSession(1, ((320, 0), (1, 0))), "INTERNAL"),
        (CloneSession(1, ((320, 1),)), "INTERNAL"),
        (ProfileMember(NEXT_HOPS, 5, call("forward", port=5, src_mac=1, dst_mac=2)), None),
        (ActionGroup(NEXT_HOPS, 1, (5,)), "INTERNAL"),
        (entry(ROUTES, {"dst_addr": (1, 32)}, call("forward", port=5, src_mac=1, dst_mac=2)), "UNIMPLEMENTED"),
        (entry(ROUTES, {"dst_addr": (1, 32)}, call("member", id=5)), "INTERNAL"),
        (MeterRate(BUCKET_RATES, 1024, 125, 125), "INVALID_ARGUMENT"),
        (MeterRate(BUCKET_RATES, 1023, -1, 125), "INTERNAL"),
        (entry(POLICERS, {"ingress_port": 1, "is_message": 1}, call("police", bucket_index=1)), "INVALID_ARGUMENT"),
        (entry(POLICERS, {"ingress_port": 1, "is_message": 1}, call("police", bucket_index=1), priority=1), None),
    ],
)
async def test_limits(stratum: StratumSwitch, packed: Path, item: Item, code: str | None) -> None:
    async with session_with(stratum, packed) as session:
        if code is None:
            await session.write_updates(inserts=[item])
            assert len(stratum.entities) == 1
            return
        with pytest.raises(WriteRefused) as error:
            await session.write_updates(inserts=[item])
    assert [update.code for update in error.value.refused] == [code]
    assert not stratum.entities
