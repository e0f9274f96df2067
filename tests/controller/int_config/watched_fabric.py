"""A fabric in virtual time whose controller has been told what to watch, and reports on their way to a UDP socket.

::

    hosts' frames ─▶ EmulatedFabric ─▶ the collector's host ─▶ a datagram on loopback ─▶ ReportSocket ─▶ LinkState
                       │  Tap: what the runtime itself saw
                     P4RuntimeServer ◀─▶ Controller
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from weir.controller.controller import Controller, ControllerOptions
from weir.controller.int_config.settings import IntConfig
from weir.controller.placement.strategies import strategy
from weir.controller.telemetry.collector import ReportCollector
from weir.controller.telemetry.report_socket import ReportSocket
from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.program import Program
from weir.experiments.backends.emulated import EmulatedFabric
from weir.p4src import FABRIC_JSON
from weir.tests.p4src.int_fabric import NORMAL, Departure, Tap
from weir.topologies.model import Topology
from weir.topologies.routing import Routes

MS = 1_000_000
PERIOD = 5 * MS
PROBE = 5000
"""The UDP port of probes."""


@dataclass
class WatchedFabric:
    """Everything of it; `watched_fabric` makes one."""

    topology: Topology
    watching: IntConfig
    emulated: EmulatedFabric
    server: P4RuntimeServer
    controller: Controller
    reports: ReportSocket
    collector: ReportCollector
    received: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Frames by host, except reports to the collector."""
    payloads: list[bytes] = field(default_factory=list)
    """Reports' UDP payloads, in the order in which they were sent to the socket."""
    log: list[Departure] = field(default_factory=list)
    """Departures at the switches' ports, from the emulator's runtime."""
    taps: list[Tap] = field(default_factory=list)

    @property
    def now_ns(self) -> int:
        return self.emulated.fabric.now_ns

    def tap(self) -> None:
        """Keep the log from now on. Switches have their program."""
        self.taps = [Tap(name, switch, self.log) for name, switch in self.emulated.switches.items()]

    @property
    def data(self) -> list[Departure]:
        """Packets of hosts, at each switch that they left: no probes, no reports, no clones."""
        return [
            departure for departure in self.log if departure.instance_type == NORMAL and self._is_data(departure.frame)
        ]

    def _is_data(self, frame: bytes) -> bool:
        """A probe has no identification, which the tests' own packets have, nor have flows of the fabric's own."""
        port = int.from_bytes(frame[36:38], "big")
        return len(frame) >= 42 and (frame[18:20] != b"\0\0" or port not in (PROBE, self.watching.port))

    async def run(self, until_ns: int) -> None:
        """Let time pass; the controller acts when it is due, and its clock stands still meanwhile."""
        fabric, controller = self.emulated.fabric, self.controller
        while fabric.now_ns < until_ns:
            await controller.tick(fabric.now_ns)
            for name, sent in controller.switches.packet_outs_sent.items():
                while self.server.packet_outs(self.emulated.switches[name].device_id) < sent:
                    await asyncio.sleep(0.0005)
            self._deliver(min(controller.deadline_ns, until_ns))
            switches = self.emulated.switches.items()
            await controller.switches.drain({name: self.server.packet_ins(each.device_id) for name, each in switches})

    def _deliver(self, until_ns: int) -> None:
        port = self.watching.port.to_bytes(2, "big")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while wakes := self.emulated.fabric.run(until_ns):
                for wake in wakes:
                    for frame in (row.tobytes() for rows in wake.frames for row in rows):
                        if wake.host == self.watching.collector and frame[36:38] == port:
                            self.payloads.append(frame[42:])
                            sender.sendto(frame[42:], ("127.0.0.1", self.reports.port))
                        else:
                            self.received[wake.host].append(frame)
                self.reports.poll(self.now_ns)


@asynccontextmanager
async def watched_fabric(
    topology: Topology, watching: IntConfig, seed: int = 3, period_ns: int = PERIOD
) -> AsyncIterator[WatchedFabric]:
    """One whose switches hold what the controller has written to them, and nothing else. Probes every `period_ns`."""
    Program.load(FABRIC_JSON.read_bytes())  # compiled, or taken from the cache, before anyone waits for an answer
    emulated = EmulatedFabric(topology, seed=seed, start=None)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(emulated.serve())
        sessions = await stack.enter_async_context(emulated.sessions(server))
        options = ControllerOptions(probe_period_ns=period_ns, solve_period_ns=0, watching=watching)
        controller = Controller(topology, Routes(topology), sessions, strategy("widest"), options)
        emulated.count_int(watching.presence)
        controller.int_load = emulated.int_load
        await controller.start()
        assert controller.reports is not None
        reports = stack.enter_context(ReportSocket(controller.reports, 0))
        yield WatchedFabric(topology, watching, emulated, server, controller, reports, controller.reports)
