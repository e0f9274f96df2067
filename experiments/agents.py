"""Host agents in virtual time: one protocol core on one host of the emulated fabric.

fabric ──frames──▶ decapsulate ──Datagrams──▶ core ──Datagrams──▶ FrameWriter ──frames──▶ fabric
                                               └── deadline ──▶ the host's timer
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from emulator.fabric import Fabric, Wake
from topologies import Host, Topology
from wire.aggregation import AGGREGATION_PORT, generation_distance
from wire.control import Held, Pause, Resume, ServerPlan, WorkerPlan
from wire.frames import Datagrams, FrameWriter, Rejects, decapsulate


class Core(Protocol):
    """What the worker's and the parameter server's protocol cores have in common."""

    @property
    def plan(self) -> WorkerPlan | ServerPlan: ...
    def receive(self, now_ns: int, datagrams: Datagrams) -> None: ...
    def poll(self, now_ns: int) -> list[Datagrams]: ...
    @property
    def deadline_ns(self) -> int | None: ...
    def pause(self) -> Held: ...
    def resume(self, resume: Resume) -> None: ...


AnyCore = TypeVar("AnyCore", bound=Core)


class HostAgent(Generic[AnyCore]):
    """Feeds a core with what arrives at its host, and sends what it wants to send."""

    def __init__(self, fabric: Fabric, topology: Topology, host: Host, core: AnyCore) -> None:
        self.name = host.name
        self.core = core
        self.rejects = Rejects()
        self._fabric = fabric
        self._address = int(host.address)
        self._writer = FrameWriter(
            source=self._address,
            source_mac=int(host.mac.replace(":", ""), 16),
            destination_mac=int(topology.attached_switch(host.name).mac.replace(":", ""), 16),
        )
        self._timer_ns: int | None = None

    def handle(self, wake: Wake) -> None:
        """Frames have arrived, or the timer has fired."""
        now_ns = self._fabric.now_ns
        if wake.timer:
            self._timer_ns = None
        for frames in wake.frames:
            datagrams, rejects = decapsulate(frames, self._address, AGGREGATION_PORT)
            if rejects.total:
                self.rejects += rejects
            if len(datagrams):
                self.core.receive(now_ns, datagrams)
        self.flush()

    def pause(self, pause: Pause) -> Held | None:
        """Stop the core; what it holds. None, and nothing happens, for a late copy from another generation."""
        return self.core.pause() if pause.generation == self.core.plan.generation else None

    def resume(self, resume: Resume) -> None:
        """Let the core go on. A late copy, of a generation that it runs or has run already, changes nothing."""
        if generation_distance(resume.plan.generation, self.core.plan.generation) > 0:
            self.core.resume(resume)
            self.flush()

    def flush(self) -> None:
        """Send what the core has to send, and set the timer to its deadline."""
        now_ns = self._fabric.now_ns
        for datagrams in self.core.poll(now_ns):
            self._fabric.send(self.name, self._writer.encapsulate(datagrams))
        deadline_ns = self.core.deadline_ns
        if deadline_ns is not None and deadline_ns != self._timer_ns:
            self._timer_ns = max(deadline_ns, now_ns)
            self._fabric.wake(self.name, self._timer_ns)
