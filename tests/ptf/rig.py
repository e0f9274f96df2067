"""One switch of any kind under PTF, run by Weir's own controller: common parts of the tests in `fabric/`.

::

    h1 h2 h3 ── workers ──┐
                          ├── s1 (10.255.0.1)
    h4 ── a server ───────┘

Test parameters: `grpcaddr`, the P4Runtime address, `device` (0), `target`, the kind of switch (bmv2), and `ports` of h1
… h4 (1,2,3,4).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any, Final

import numpy as np
import ptf
import ptf.testutils as tu
from ptf.base_tests import BaseTest

from weir.controller.int_config.settings import IntConfig
from weir.controller.int_config.table_entries import watch_state
from weir.controller.p4runtime.entries import Item, SwitchState
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.reconcile import reconcile, verify
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.p4runtime.tables import DROP_REASONS, DROPS
from weir.controller.placement import Placement
from weir.controller.planning.admission import admitting_states
from weir.controller.planning.memory import Allotment
from weir.controller.planning.plan import JobPlan, JobSpec, base_state, fabric_state, job_plan
from weir.p4src import loaded_of, p4info_of
from weir.tests.p4src.small_fabric import SLOTS, message
from weir.topologies.model import Endpoint, Host, Link, Switch, Topology, mac_number
from weir.topologies.routing import Routes
from weir.topologies.targets import BMV2, target_named
from weir.wire import frames
from weir.wire.aggregation import MessageFlag, MessageType

WORKERS: Final = ("h1", "h2", "h3")
SERVER: Final = "h4"
SWITCH: Final = "s1"
PATIENCE_S: Final = 60.0

_RUNNER: Final = asyncio.Runner()
"""One event loop for all tests, as gRPC wants it."""


class FabricTest(BaseTest):
    """A switch with routes, classes, telemetry, and a test's additions."""

    def setUp(self) -> None:
        super().setUp()
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        named = target_named(tu.test_param_get("target", BMV2.name))
        self.target = replace(named, clone_classes=False)  # the P4Runtime server of simple_switch_grpc takes none
        self.ports = dict(
            zip((*WORKERS, SERVER), map(int, tu.test_param_get("ports", "1,2,3,4").split(",")), strict=True)
        )
        hosts = tuple(Host(name, IPv4Address(f"10.0.1.{name[1:]}")) for name in self.ports)
        links = tuple(Link(Endpoint(name, 0), Endpoint(SWITCH, port)) for name, port in self.ports.items())
        self.topology = Topology("under test", hosts, (Switch(SWITCH, 1, target=self.target),), links)
        self.routes = Routes(self.topology)

    # --- the control plane ---

    def job(self, number: int, *, server: str | None = None) -> JobPlan:
        """A job of all workers, summed here, whose root is the switch or a server."""
        placement = Placement(
            dict.fromkeys(WORKERS, SWITCH), {} if server is None else {SWITCH: server}, server or SWITCH
        )
        spec = JobSpec(number, WORKERS, server=server, slots=SLOTS, window=SLOTS // 2)
        held = {SWITCH: Allotment(slot_base=0, slots=SLOTS, group=number, first_rid=100)}
        return job_plan(self.topology, self.routes, spec, placement, generation=1, allotments=held)

    def state(self, *jobs: JobPlan, more: Iterable[Item] = ()) -> SwitchState:
        """All that the switch is to hold with these jobs."""
        parts = (
            base_state(self.topology, self.routes, SWITCH),
            watch_state(self.topology, self.routes, SWITCH, IntConfig()),
        )
        base = SwitchState.of(item for part in parts for item in part.items.values())
        state = admitting_states(self.topology, fabric_state({SWITCH: base}, jobs), jobs)[SWITCH]
        return SwitchState.of((*state.items.values(), *more))

    def hold(self, state: SwitchState, then: Callable[[SwitchSession], Awaitable[None]] | None = None) -> None:
        """Bring the switch to this state, and do something while the session with it stands."""

        async def held() -> None:
            async with self._session() as session:
                await reconcile(session, state)
                assert not await verify(session, state)
                if then is not None:
                    await then(session)

        _RUNNER.run(held())

    def drops(self) -> dict[str, int]:
        """Packets dropped by the switch, by reason."""

        async def read() -> tuple[int, ...]:
            async with self._session() as session:
                return await session.read_counter(DROPS)

        return dict(zip(DROP_REASONS, _RUNNER.run(read()), strict=True))

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[SwitchSession]:
        """Open a session as the primary; wait until the switch has noticed that the previous session left."""
        session = SwitchSession(
            SWITCH,
            tu.test_param_get("grpcaddr"),
            device_id=int(tu.test_param_get("device", 0)),
            pipeline=CompiledPipeline(
                p4info_of(self.target.program), loaded_of(self.target.program, self.target.loads)
            ),
            timeout_s=PATIENCE_S,
            standby=True,
        )
        async with session:
            await asyncio.wait_for(session.until_primary(), PATIENCE_S)
            yield session

    # --- frames ---

    def address(self, node: str) -> int:
        return int(self.topology.node(node).address)

    def mac(self, node: str) -> int:
        return mac_number(self.topology.node(node).mac)

    def frame(
        self, payload: bytes, source: str, destination: str | int, *, left: bool = False, **options: int
    ) -> bytes:
        """A UDP packet, to the aggregation port unless told otherwise, as it comes in from its source, or as it leaves
        to its destination.
        """
        to = destination if isinstance(destination, int) else self.address(destination)
        ends = (SWITCH, str(destination)) if left else (source, SWITCH)
        macs = dict(zip(("source_mac", "destination_mac"), map(self.mac, ends), strict=True))
        data = np.frombuffer(payload, np.uint8)[None]
        return frames.encapsulate(data, source=self.address(source), destination=to, **macs, **options).tobytes()

    def message(self, kind: MessageType, job: int, lanes: int, **fields: Any) -> bytes:
        """One of round 0, with the same number in each lane that the kind of switch sums."""
        return message(kind, round_number=0, lanes=lanes, width=self.target.lanes, job=job, generation=1, **fields)

    def contribution(self, worker: str, job: int, **fields: int) -> bytes:
        """The worker's frame, whose lanes and weight are its number."""
        number = 1 + WORKERS.index(worker)
        bit = 1 << WORKERS.index(worker)
        told = {"contributors": bit, "weight": number, **fields, "flags": fields.get("flags", 0) | MessageFlag.WANTED}
        return self.frame(self.message(MessageType.CONTRIBUTION, job, number, **told), worker, SWITCH)

    def result(self, child: str, job: int, *, ttl: int = 64, **fields: int) -> bytes:
        """Result of the round for a child when all have contributed: a copy, or a single frame, which is routed."""
        told = {**fields, "flags": fields.get("flags", 0) | MessageFlag.WANTED}
        payload = self.message(MessageType.RESULT, job, 1 + 2 + 3, weight=1 + 2 + 3, **told)
        return self.frame(payload, SWITCH, child, left=True, ttl=ttl)

    def send(self, host: str, frame: bytes) -> None:
        tu.send_packet(self, self.ports[host], frame)

    def expect(self, **by_host: bytes) -> None:
        """Expect these frames at these hosts, and none elsewhere."""
        for host, frame in by_host.items():
            tu.verify_packet(self, frame, self.ports[host])
        self.expect_nothing()

    def expect_nothing(self) -> None:
        tu.verify_no_other_packets(self, timeout=0.1)
