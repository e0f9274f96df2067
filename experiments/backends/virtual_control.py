"""The controller next to a fabric in virtual time, which stands still while the controller acts.

::

    Controller ──packet-outs──▶ switches: time continues after their delivery
        │ ▲
        ▼ │ messages, each way after the control latency
    AgentRegistry (the hosts' cores)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from ...controller.controller import Controller, Message
from ...emulator.p4runtime import P4RuntimeServer
from ...wire.control import JobReport, Pause, Resume, TrafficClass
from ..errors import ExperimentError
from .agent_registry import AgentRegistry
from .emulated import EmulatedFabric
from .event_queue import EventList

_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 2e-4
"""Time between two looks at whether packet-outs have arrived: the switches' threads need the interpreter meanwhile."""


class VirtualControl:
    """Messages between the controller, the switches and the hosts."""

    def __init__(
        self,
        controller: Controller,
        emulated: EmulatedFabric,
        rpc: P4RuntimeServer,
        agents: AgentRegistry,
        events: EventList,
        latency_ns: int,
    ) -> None:
        """Connect the controller, the switches and the hosts.

        Args:
            controller: The controller.
            emulated: The fabric.
            rpc: P4Runtime server of the fabric's switches.
            agents: Agents of the hosts.
            events: Events of the run, which hold messages in transit.
            latency_ns: Latency of a message between controller and hosts, in ns.
        """
        self._controller = controller
        self._fabric = emulated.fabric
        self._device_ids = {name: switch.device_id for name, switch in emulated.switches.items()}
        self._rpc = rpc
        self._agents = agents
        self._events = events
        self._latency_ns = latency_ns

    @property
    def now_ns(self) -> int:
        """Virtual time, in ns."""
        return self._fabric.now_ns

    def after_latency(self, action: Callable[[], None]) -> None:
        """Call `action` after the latency between controller and hosts."""
        self._events.schedule(self._fabric.now_ns + self._latency_ns, action)

    def report(self, job: int, report: JobReport) -> None:
        """Send a report of a job's program, which the controller receives if the job still runs then."""
        jobs = self._controller.jobs
        self._answer(job, lambda: jobs[job].reports.add(report, self.now_ns))

    async def drain(self) -> None:
        """Deliver to the controller what the switches have sent it so far."""
        packet_ins = {name: self._rpc.packet_ins(device_id) for name, device_id in self._device_ids.items()}
        await self._controller.switches.drain(packet_ins)

    async def tick(self) -> None:
        """Run the controller once, and send its messages to hosts."""
        messages = await self._controller.tick(self._fabric.now_ns)
        await self._packet_outs_arrived()
        for message in messages:
            self.after_latency(partial(self._deliver, message))

    async def _packet_outs_arrived(self) -> None:
        """Packet-outs are not acknowledged: wait until the switches have them all, or time would go on without them."""
        async with asyncio.timeout(_TIMEOUT_S):
            for name, sent in self._controller.switches.packet_outs_sent.items():
                while self._rpc.packet_outs(self._device_ids[name]) < sent:
                    await asyncio.sleep(_LOOK_S)

    def _deliver(self, message: Message) -> None:
        """A message of the controller reaches its host; the answer sets out."""
        host, moves = message.host, self._controller.moves
        match message.content:
            case Pause(job) as pause:
                if (held := self._agents.pause(host, pause)) is not None:
                    self._answer(job, lambda: moves.held(job, host, held))
            case Resume(plan) as resume:
                self._agents.resume(host, resume)
                self._answer(plan.job, lambda: moves.resumed(plan.job, host, plan.generation, self._fabric.now_ns))
            case TrafficClass() as change:
                self._agents.classify(host, change)
            case other:
                raise ExperimentError(f"{host}: a running job is not told {type(other).__name__}")

    def _answer(self, job: int, hear: Callable[[], None]) -> None:
        """A host's answer sets out, to be heard if its job is still there then."""
        self.after_latency(lambda: hear() if job in self._controller.jobs else None)
