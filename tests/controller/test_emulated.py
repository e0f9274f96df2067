"""The controller against emulated switches that run the real program, over P4Runtime, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import numpy as np
import pytest

from weir.controller.controller import Controller, ControllerOptions, Message
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.p4runtime.tables import DROP_REASONS, DROPS
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import JobSpec
from weir.controller.telemetry.snapshot import DOUBTED, listed
from weir.emulator.program import Program
from weir.experiments.backends.emulated import EmulatedFabric
from weir.p4src import FABRIC_JSON
from weir.tests.controller.job_rig import Fixed
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint, mac_number
from weir.topologies.routing import Routes
from weir.wire.aggregation import MESSAGE, MessageFlag, MessageType, make_tag, set_checksum, version_type
from weir.wire.control import Held, Pause, Resume, WorkerPlan
from weir.wire.frames import decapsulate, encapsulate

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=100_000_000)
MS = 1_000_000
PERIOD = 10 * MS


AT_S1 = Placement(dict.fromkeys(("h1", "h2", "h3"), "s1"), {}, "s1")


class Emulation:
    """A fabric in virtual time, its P4Runtime server, and a controller that is given its clock."""

    def __init__(self) -> None:
        Program.load(FABRIC_JSON.read_bytes())  # compiled, or taken from the cache, before anyone waits for an answer
        self.emulated = EmulatedFabric(TOPOLOGY, seed=3, start=None)
        self.fabric = self.emulated.fabric
        self.switches = self.emulated.switches
        self.received: dict[str, list[bytes]] = {host.name: [] for host in TOPOLOGY.hosts}
        self.server = self.emulated.serve()
        self.server.start()

    def deliver(self, until_ns: int) -> None:
        """Advance virtual time without the controller; messages to hosts are kept."""
        while wakes := self.fabric.run(until_ns):
            for wake in wakes:
                self.received[wake.host] += [frame.tobytes() for frames in wake.frames for frame in frames]

    def contribute(self, host: str, plan: WorkerPlan, values: int) -> None:
        """Round 0 of a worker, all lanes alike."""
        message = np.zeros(1, MESSAGE)
        message["header"]["version_type"] = version_type(MessageType.CONTRIBUTION)
        message["header"]["flags"] = MessageFlag.WANTED
        message["header"]["job"] = plan.job
        message["header"]["tag"] = make_tag(plan.generation, 0)
        message["header"]["contributors"] = plan.child_bit
        message["header"]["window"] = 0xFFFF
        message["lanes"] = values
        set_checksum(message["header"])
        node = TOPOLOGY.host(host)
        frame = encapsulate(
            message.view(np.uint8).reshape(1, -1),
            source=int(node.address),
            destination=plan.aggregator,
            source_mac=mac_number(node.mac),
            destination_mac=mac_number(TOPOLOGY.attached_switch(host).mac),
        )
        self.fabric.send(host, frame)

    def background(self, source: str, destination: str, rate_bps: float) -> None:
        """Frames of 1000 bytes from a host to any node, from now on."""
        self.emulated.add_flow(source, destination, payload_bytes=958, rate_bps=rate_bps)

    def messages(self, host: str) -> list[tuple[int, int, int, int]]:
        """Messages received by a host: (type, generation, first lane, source address)."""
        out = []
        for frame in self.received[host]:
            datagrams, _ = decapsulate(np.frombuffer(frame, np.uint8)[None], int(TOPOLOGY.host(host).address))
            (message,) = np.ascontiguousarray(datagrams.payload).view(MESSAGE)[:, 0]
            header = message["header"]
            kind = int(header["version_type"]) & 0xF
            out.append((kind, int(header["tag"]) >> 24, int(message["lanes"][0]), int(datagrams.addresses[0])))
        return out

    async def run(self, controller: Controller, until_ns: int) -> list[Message]:
        """Advance virtual time, with the clock stopped while the controller ticks; return its messages to the hosts."""
        said: list[Message] = []
        while self.fabric.now_ns < until_ns:
            said += await controller.tick(self.fabric.now_ns)
            for name, sent in controller.switches.packet_outs_sent.items():
                while self.server.packet_outs(self.switches[name].device_id) < sent:
                    await asyncio.sleep(0.0005)
            self.deliver(min(controller.deadline_ns, until_ns))
            due = {n: self.server.packet_ins(s.device_id) for n, s in self.switches.items()}
            await controller.switches.drain(due)
        return said


@pytest.fixture
def emulation() -> Iterator[Emulation]:
    emulated = Emulation()
    yield emulated
    emulated.server.stop()


@pytest.fixture
async def controller(emulation: Emulation, pipeline: CompiledPipeline) -> AsyncIterator[Controller]:
    async with AsyncExitStack() as stack:
        sessions = {
            node.name: await stack.enter_async_context(
                SwitchSession(
                    node.name, emulation.server.address, device_id=node.device_id, pipeline=pipeline, timeout_s=60
                )
            )
            for node in TOPOLOGY.switches
        }
        options = ControllerOptions(probe_period_ns=PERIOD, solve_period_ns=0)
        controller = Controller(TOPOLOGY, Routes(TOPOLOGY), sessions, Fixed(AT_S1), options)
        await controller.start()
        yield controller


async def test_switches_hold_exactly_the_plan_and_tampering_is_found(
    emulation: Emulation, controller: Controller
) -> None:
    assert await controller.verify() == {}
    await controller.admit(JobSpec(9, ("h1", "h2", "h3")), 0)
    assert await controller.verify() == {}
    switch = emulation.switches["s1"]
    switch.replication.delete_group(9)
    diffs = await controller.verify()
    assert {name: str(diff) for name, diff in diffs.items()} == {"s1": "+ multicast group 9 -> 1#1 2#2 3#3"}
    await controller.start()
    assert await controller.verify() == {}
    await controller.finish(9)
    assert await controller.verify() == {}
    state = await controller.switches.sessions["s1"].read()
    assert {line.split()[0] for line in state.lines()} == {
        *("node_address", "widths", "routes", "traffic_class", "policers", "hosts", "marking", "probe_sinks", "clone")
    }


TREES = {
    "one switch": Placement(dict.fromkeys(("h1", "h2", "h3"), "s2"), {}, "s2"),
    "a switch over two": Placement({"h1": "s1", "h2": "s1", "h3": "s2"}, {"s1": "s4", "s2": "s4"}, "s4"),
    "a switch that hosts hang on": Placement({"h1": "s1", "h2": "s1", "h3": "s2"}, {"s1": "s2"}, "s2"),
    "a switch behind another": Placement({"h1": "s1", "h2": "s1", "h3": "s1"}, {"s1": "s2"}, "s2"),
}


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param(name, marks=() if name in ("a switch over two", "a switch behind another") else pytest.mark.long)
        for name in TREES
    ],
)
async def test_the_plan_makes_switches_sum_and_every_worker_hear(
    emulation: Emulation, controller: Controller, tree: str
) -> None:
    controller.planner.strategy = Fixed(TREES[tree])
    plans = {m.host: m.content for m in await controller.admit(JobSpec(9, ("h1", "h2", "h3")), 0)}
    for turn in range(2):  # the second time each of them is a repetition: the root answers the asker again
        for value, (host, plan) in enumerate(plans.items(), 1):
            assert isinstance(plan, WorkerPlan)
            emulation.contribute(host, plan, 10**value)
        emulation.deliver((turn + 1) * 10 * MS)
    for host, plan in plans.items():
        assert isinstance(plan, WorkerPlan)
        heard = emulation.messages(host)
        assert set(heard) == {(MessageType.RESULT, 1, 1110, plan.aggregator)}
        assert len(heard) >= 2
    assert emulation.received["h4"] == []
    for name, session in controller.switches.sessions.items():
        drops = dict(zip(DROP_REASONS, await session.read_counter(DROPS), strict=True))
        assert {reason for reason, count in drops.items() if count} <= {"duplicate"}, name


async def test_a_root_server_gets_the_sum_and_generations_are_fenced(
    emulation: Emulation, controller: Controller
) -> None:
    controller.planner.strategy = Fixed(Placement({"h1": "s1", "h2": "s1", "h3": "h4"}, {"s1": "h4"}, "h4"))
    messages = await controller.admit(JobSpec(9, ("h1", "h2", "h3"), server="h4"), 0)
    old = {m.host: m.content for m in messages}
    for host in ("h1", "h2", "h3"):
        plan = old[host]
        assert isinstance(plan, WorkerPlan)
        emulation.contribute(host, plan, 5)
    emulation.deliver(5 * MS)
    assert sorted(emulation.messages("h4")) == [
        (MessageType.CONTRIBUTION, 1, 5, 0x0A000201),
        (MessageType.CONTRIBUTION, 1, 10, 0x0AFF0001),
    ]

    controller.moves.begin(9, 5 * MS, Placement(dict.fromkeys(("h1", "h2", "h3"), "s1"), {"s1": "h4"}, "h4"))
    await controller.tick(5 * MS)
    for host in ("h1", "h2", "h3", "h4"):
        controller.moves.held(9, host, Held(1, 0))
    resumes = {m.host: m.content for m in await controller.tick(6 * MS)}
    assert await controller.verify() == {}
    emulation.received["h4"].clear()
    for host in ("h1", "h2", "h3"):
        resume, stale = resumes[host], old[host]
        assert isinstance(resume, Resume)
        assert isinstance(resume.plan, WorkerPlan)
        assert isinstance(stale, WorkerPlan)
        emulation.contribute(host, resume.plan, 7)
        if host != "h3":
            emulation.contribute(host, stale, 5)
    emulation.deliver(15 * MS)
    assert emulation.messages("h4") == [(MessageType.CONTRIBUTION, 2, 21, 0x0AFF0001)]
    drops = await controller.switches.sessions["s1"].read_counter(DROPS)
    assert drops[DROP_REASONS.index("unknown_job")] == 2


async def test_probes_measure_every_link_and_the_load_that_is_there(
    emulation: Emulation, controller: Controller
) -> None:
    emulation.background("h1", "h3", 40e6)
    await emulation.run(controller, 8 * PERIOD)
    seen = controller.links.snapshot(emulation.fabric.now_ns)
    assert seen.is_fresh, str(seen)
    assert (controller.prober.reports.rejected, controller.prober.reports.unknown_hops) == (0, 0)
    assert {view.loss for view in seen.links.values()} == {0.0}
    busy = {link for link, view in seen.links.items() if view.background_bps > 10e6}
    to_h3 = Endpoint("s2", 1)
    assert to_h3 in busy
    assert len(busy) == 3  # up to one spine, down from it, out to the host
    for link in busy:
        assert seen.links[link].background_bps == pytest.approx(40e6, rel=0.05)


async def test_a_broken_link_is_stale_and_no_other_link_is(
    emulation: Emulation, controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    await emulation.run(controller, 4 * PERIOD)
    assert controller.links.snapshot(emulation.fabric.now_ns).is_fresh
    emulation.fabric.set_link(("s1", 3), loss=1.0)
    await emulation.run(controller, 12 * PERIOD)
    seen = controller.links.snapshot(emulation.fabric.now_ns)
    # the ends still count what they send, but no probe brings that home
    assert seen.stale == {Endpoint("s1", 3), Endpoint("s3", 1)}
    assert {link for link, view in seen.links.items() if view.loss} == seen.stale
    said = [
        f"telemetry of s1-p1, {listed(seen.stale)} is {DOUBTED}",
        "telemetry of s1-p1 is fresh again",
        f"telemetry of {listed(seen.stale)} is fresh again",
    ]
    assert caplog.messages == said[:2], "the link behind the broken one has readings again"
    emulation.fabric.set_link(("s1", 3), loss=0.0)
    await emulation.run(controller, 20 * PERIOD)
    assert controller.links.snapshot(emulation.fabric.now_ns).is_fresh
    assert caplog.messages == said
    assert controller.prober.reports.rejected == 0


async def test_cost_of_probes_is_what_the_links_carried(emulation: Emulation, controller: Controller) -> None:
    """A link doubles three packets of ten, another one loses as many; nothing else is sent."""
    emulation.fabric.set_link(("s1", 3), duplicate=0.3)
    emulation.fabric.set_link(("s2", 4), loss=0.3)
    await emulation.run(controller, 120 * PERIOD)
    cost, carried = controller.prober.reports.cost, list[tuple[int, int]]()
    between = [at for at, end in enumerate(controller.links.links) if TOPOLOGY.is_switch(TOPOLOGY.peer(end).node)]
    for end in map(controller.links.links.__getitem__, between):
        counters = emulation.switches[end.node].port_counters(end.port)
        carried.append((counters.tx_packets, counters.tx_bytes))
    assert controller.prober.reports.rejected > 20, "copies come back"
    totals = np.array(carried).sum(axis=0)
    assert cost[between].sum(axis=0) == pytest.approx(totals, rel=0.02)
    assert (np.abs(cost[between] - carried) <= 0.12 * totals / len(between)).all()


@pytest.mark.long
async def test_each_link_that_dies_is_stale_alone(emulation: Emulation, controller: Controller) -> None:
    """A host's link may die unseen: the switch before it reads its own port."""
    until_ns = 4 * PERIOD
    for link in TOPOLOGY.links:
        ends = {
            end for end in link.ends if TOPOLOGY.is_switch(end.node) and TOPOLOGY.is_switch(TOPOLOGY.peer(end).node)
        }
        one = link.ends[0] if TOPOLOGY.is_switch(link.ends[0].node) else link.ends[1]
        for up, periods in ((False, 12), (True, 9)):
            emulation.fabric.set_link((one.node, one.port), up=up)
            until_ns += periods * PERIOD
            await emulation.run(controller, until_ns)
            seen = controller.links.snapshot(emulation.fabric.now_ns)
            assert seen.stale == (frozenset() if up else ends), link


async def test_undeclared_traffic_is_detected_on_its_own_route_only(
    emulation: Emulation, controller: Controller
) -> None:
    emulation.background("h1", "h3", 40e6)
    await emulation.run(controller, 50 * PERIOD)
    assert 0.3 < controller.windows.undeclared[Endpoint("s2", 1)] <= 0.5
    await controller.reroute(Routes(TOPOLOGY, down=[Endpoint("s1", 3)]), emulation.fabric.now_ns)
    await controller.tick(emulation.fabric.now_ns)
    assert controller.windows.undeclared == {}


async def test_other_traffic_moves_a_job_of_the_exact_strategy(emulation: Emulation, controller: Controller) -> None:
    controller.moves.options = ControllerOptions(probe_period_ns=PERIOD, solve_period_ns=4 * PERIOD, dwell_ns=0)
    controller.planner.strategy = strategy("widest")
    await emulation.run(controller, 3 * PERIOD)
    await controller.admit(JobSpec(9, ("h1", "h3")), emulation.fabric.now_ns)
    before = controller.jobs[9].plan.placement
    assert before.root in ("s3", "s4")
    assert await emulation.run(controller, 9 * PERIOD) == []  # idle: no reason to go
    emulation.background("h2", before.root, 80e6)
    heard = await emulation.run(controller, 17 * PERIOD)
    assert {(m.host, m.content) for m in heard} == {("h1", Pause(9, 1)), ("h3", Pause(9, 1))}
    for host in ("h1", "h3"):
        controller.moves.held(9, host, Held(1, 0))
    await emulation.run(controller, 18 * PERIOD)
    assert controller.jobs[9].plan.placement.root == ({"s3", "s4"} - {before.root}).pop()
    assert controller.jobs[9].plan.generation == 2
    assert await controller.verify() == {}


async def test_after_a_link_has_died_jobs_and_probes_go_round_it(emulation: Emulation, controller: Controller) -> None:
    await emulation.run(controller, 4 * PERIOD)
    controller.planner.strategy = Fixed(AT_S1)
    plans = {m.host: m.content for m in await controller.admit(JobSpec(9, ("h1", "h2", "h3")), 4 * PERIOD)}
    emulation.fabric.set_link(("s1", 3), up=False)
    await controller.reroute(Routes(TOPOLOGY, down=[Endpoint("s1", 3)]))
    assert await controller.verify() == {}
    for host, plan in plans.items():
        assert isinstance(plan, WorkerPlan)
        emulation.contribute(host, plan, 2)
    await emulation.run(controller, 10 * PERIOD)
    for host in plans:
        assert [m[:3] for m in emulation.messages(host)] == [(MessageType.RESULT, 1, 6)]
    seen = controller.links.snapshot(emulation.fabric.now_ns)
    assert seen.is_fresh, str(seen)
    assert set(controller.links.links) - seen.links.keys() == {Endpoint("s1", 3), Endpoint("s3", 1)}
    assert {view.loss for view in seen.links.values()} == {0.0}
