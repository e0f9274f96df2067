"""Host agents in virtual time: protocol cores on the hosts of the emulated fabric.

fabric ──frames──▶ decapsulate ──Datagrams, by job──▶ core ──Datagrams──▶ FrameWriter ──frames──▶ fabric
        └─with INT─▶ extract ──┘                          └─with INT─▶ embed ──┘
                                                       └── deadline ──▶ the host's timer
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...emulator.fabric import Wake
from ...hosts.errors import AllreduceTimeout, HostError
from ...hosts.numerics.tensors import Reduced, Tensor
from ...hosts.protocol.messages import by_job
from ...hosts.protocol.worker import WorkerCore
from ...topologies import mac_number
from ...wire.aggregation import AGGREGATION_PORT, generation_distance
from ...wire.control import Held, Pause, Resume, ServerPlan, TrafficClass, WorkerPlan
from ...wire.frames import BULK_PRIORITY, JOB_DSCPS, Datagrams, FrameWriter, Rejects, decapsulate
from ...wire.int_md import INT_PORT
from ...wire.int_messages import carry_int, embed, extract
from .emulated import EmulatedFabric


class ProtocolCore(Protocol):
    """Interface that the worker's and the parameter server's protocol cores share."""

    @property
    def plan(self) -> WorkerPlan | ServerPlan:
        """Plan that the core follows."""

    def receive(self, now_ns: int, datagrams: Datagrams) -> None:
        """Process datagrams that arrived at `now_ns`."""

    def poll(self, now_ns: int) -> list[Datagrams]:
        """Return the datagrams to send at `now_ns`."""
        ...

    @property
    def deadline_ns(self) -> int | None:
        """Time of the next `poll`; None: not before something arrives."""

    def classify(self, change: TrafficClass) -> None:
        """Send in another traffic class from now on."""

    def pause(self) -> Held:
        """Stop sending, and return the rounds held for a migration."""
        ...

    def resume(self, resume: Resume) -> None:
        """Continue with the plan of a new generation."""


AnyCore = TypeVar("AnyCore", bound=ProtocolCore)


class VirtualHost:
    """One host's NIC and timer, for any number of jobs' cores."""

    def __init__(self, emulated: EmulatedFabric, name: str) -> None:
        """`name` is the host's, in the topology."""
        topology, host = emulated.topology, emulated.topology.host(name)
        self.name = name
        self.rejects = Rejects()
        """Frames that no core was given."""
        self._fabric = emulated.fabric
        self._address = int(host.address)
        self._ends = {
            "source": self._address,
            "source_mac": mac_number(host.mac),
            "destination_mac": mac_number(topology.attached_switch(name).mac),
        }
        self._writer = FrameWriter(**self._ends)
        self._writers: dict[tuple[int, bool], FrameWriter] = {}
        """Further writers by traffic class, and for messages that carry INT or not."""
        self._cores: dict[int, ProtocolCore] = {}
        self._timer_ns: int | None = None

    @property
    def now_ns(self) -> int:
        """Virtual time in ns."""
        return self._fabric.now_ns

    def attach(self, core: ProtocolCore) -> None:
        """Run a core as well. Raises HostError if its job has one here already."""
        job = core.plan.job
        if job in self._cores:
            raise HostError(f"{self.name}: job {job} has a core here already; a host takes part in it once")
        self._cores[job] = core

    def detach(self, job: int) -> None:
        """Stop a job's core; further datagrams for it are dropped."""
        del self._cores[job]

    def handle(self, wake: Wake) -> None:
        """Process frames that have arrived, or a timer that has fired."""
        now_ns = self.now_ns
        if wake.timer:
            self._timer_ns = None
        for frames in wake.frames:
            for datagrams in self._open(frames):
                for job, part in by_job(datagrams, list(self._cores)):
                    self._cores[job].receive(now_ns, part)
        self.flush()

    def _writer_in(self, priority: int, *, with_int: bool) -> FrameWriter:
        """Writer of messages in a class, which carry INT or not."""
        if priority == BULK_PRIORITY and not with_int:
            return self._writer
        if (writer := self._writers.get((priority, with_int))) is None:
            port = INT_PORT if with_int else AGGREGATION_PORT
            writer = FrameWriter(destination_port=port, dscp=JOB_DSCPS[priority], **self._ends)
            self._writers[priority, with_int] = writer
        return writer

    def _open(self, frames: NDArray[np.uint8]) -> list[Datagrams]:
        """Parse frames of one length into datagrams; each element has one size and is not empty."""
        datagrams, rejects = decapsulate(frames, self._address, AGGREGATION_PORT)
        batches = [datagrams]
        if rejects.other_port:
            marked = carry_int(frames)
            datagrams, rejects = decapsulate(frames[~marked], self._address, AGGREGATION_PORT)
            with_int, others = extract(frames[marked], self._address, AGGREGATION_PORT)
            batches, rejects = [datagrams, *with_int], rejects + others
        if rejects.total:
            self.rejects += rejects
        return [batch for batch in batches if len(batch)]

    def flush(self) -> None:
        """Send what the cores have to send, and set the timer to the first of their deadlines."""
        now_ns = self.now_ns
        for core in self._cores.values():
            for datagrams in core.poll(now_ns):
                writer = self._writer_in(core.plan.traffic_class, with_int=datagrams.int_headers is not None)
                self._fabric.send(self.name, writer.encapsulate(embed(datagrams)), core.plan.traffic_class)
        deadlines = [deadline for core in self._cores.values() if (deadline := core.deadline_ns) is not None]
        if deadlines and min(deadlines) != self._timer_ns:
            self._timer_ns = max(min(deadlines), now_ns)
            self._fabric.wake(self.name, self._timer_ns)


class HostAgent(Generic[AnyCore]):
    """Passes received datagrams to a core, and sends the core's datagrams."""

    def __init__(self, host: VirtualHost, core: AnyCore) -> None:
        """Raises HostError where the host has a core of this job already."""
        self.host = host
        self.name = host.name
        self.core = core
        host.attach(core)

    @property
    def rejects(self) -> Rejects:
        """Frames of the host that no core received, by reason."""
        return self.host.rejects

    def handle(self, wake: Wake) -> None:
        """Handle a wake; see `VirtualHost.handle`."""
        self.host.handle(wake)

    def flush(self) -> None:
        """Send pending datagrams; see `VirtualHost.flush`."""
        self.host.flush()

    def classify(self, change: TrafficClass) -> None:
        """Let the core send in another traffic class."""
        self.core.classify(change)

    def pause(self, pause: Pause) -> Held | None:
        """Stop the core and return the results it holds; None, without effect, for a late copy from another
        generation.
        """
        return self.core.pause() if pause.generation == self.core.plan.generation else None

    def resume(self, resume: Resume) -> None:
        """Let the core go on. A late copy, of a generation that it runs or has run already, changes nothing."""
        if generation_distance(resume.plan.generation, self.core.plan.generation) > 0:
            self.core.resume(resume)
            self.flush()


class VirtualWorker(HostAgent[WorkerCore]):
    """A worker in virtual time as a `Driver`. Callers let time pass before they wait."""

    @property
    def rank(self) -> int:
        """Rank of this worker, 0…n − 1."""
        return self.core.plan.rank

    @property
    def workers(self) -> int:
        """The job's size at its start."""
        return self.core.plan.workers

    @property
    def lanes(self) -> int:
        """Number of lanes in the job's messages."""
        return self.core.plan.lanes

    @property
    def keyed(self) -> bool:
        """True if the job has a key."""
        return bool(self.core.plan.key)

    def submit(self, tensor: Tensor, /) -> int:
        """Submit a tensor; see `WorkerCore.submit`."""
        handle = self.core.submit(tensor)
        self.flush()
        return handle

    def done(self, handle: int) -> bool:
        """Return whether a sum can be taken; see `WorkerCore.done`."""
        return self.core.done(handle)

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        """Return the sum, handed out once. Raises `AllreduceTimeout` where it is not there: no time passes here."""
        reduced = self.core.pop_result(handle)
        if reduced is None:
            raise AllreduceTimeout(self.core.waiting_for(self.host.now_ns))
        return reduced
