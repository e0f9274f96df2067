"""The wall-clock driver: protocol cores behind a UDP socket, with a thread of its own.

A host is its IPv4 address, and every message goes to one port (docs/design.md §2.1), so on one machine each endpoint
binds its own address of 127/8. A host that takes part in several jobs, such as groups and shards, has one socket for
all of them, also where they are in several processes (`shared_port.py`), and datagrams go to their job's core. Sockets
are unreliable by contract: a datagram that cannot be sent now is lost, and the workers' timers repair the loss.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from types import TracebackType
from typing import Final, Protocol, Self

from numpy.typing import ArrayLike

from ...wire.aggregation import AGGREGATION_PORT, MESSAGE_BYTES
from ...wire.control import Held, Resume, TrafficClass
from ...wire.frames import Datagrams
from ..errors import AllreduceTimeout, CallMismatch, EndpointClosed, HostError
from ..numerics.tensors import Reduced, Tensor
from ..protocol.messages import by_job
from ..protocol.server import ParameterServerCore
from ..protocol.worker import WorkerCore
from .datagram_socket import DatagramSocket
from .fabric_link import FabricLink
from .shared_port import SharedPort

_LONGEST_BATCHING_DELAY_NS: Final = 20_000_000
"""Longest time that a received datagram waits for others, in ns."""
_EPOLL_NS: Final = 1_000_000
"""Unit of epoll's time-outs, to which it rounds up: shorter delays are slept, though no call of `wake` ends them."""
_SHORTEST_SLEEP_NS: Final = 50_000
"""Linux's default timer slack (prctl(2), PR_SET_TIMERSLACK), by which any sleep may last longer: shorter delays are
skipped. They occur with few rounds in flight of a large window, for which the wait would be several times the delay.
"""


class HasJob(Protocol):
    """Property that all plans share."""

    @property
    def job(self) -> int:
        """Number of the job."""


class Core(Protocol):
    """A state machine that a host's thread runs: of the aggregation protocol, or of the transport."""

    @property
    def plan(self) -> HasJob:
        """Plan that the core follows."""

    @property
    def dscp(self) -> int | None:
        """Code point of its datagrams; None: the socket's."""

    @property
    def settled(self) -> int:
        """Count of calls that are complete or have failed; a change wakes those that wait."""

    @property
    def batching_delay_ns(self) -> int:
        """Time in ns for which the driver may wait for further datagrams before it calls `poll`."""

    @property
    def deadline_ns(self) -> int | None:
        """Time in ns at which `poll` must be called without a datagram; None: no timer runs."""

    def receive(self, now_ns: int, datagrams: Datagrams, /) -> None:
        """Process received datagrams at a time in ns."""

    def poll(self, now_ns: int, /) -> list[Datagrams]:
        """Return datagrams to send at a time in ns."""


class Attached(Protocol):
    """A core that is attached to a host."""

    @property
    def core(self) -> Core:
        """The core that receives this endpoint's datagrams."""


class UdpHost:
    """One address's socket and thread, for any number of jobs' cores. Use it as a context manager."""

    def __init__(
        self, address: int, port: int = AGGREGATION_PORT, *, nic: str = "", longest_bytes: int = MESSAGE_BYTES
    ) -> None:
        """Bind the address, or share it with the process of this user that has it, and start the thread.

        Args:
            address: IPv4 address as an integer.
            port: UDP port.
            nic: Path at which an emulated fabric listens for the host with this address; "": this machine's network.
            longest_bytes: Length of the port's longest datagram in bytes.

        Raises:
            OSError: The address is not this machine's, another user has the port, or no fabric listens.
        """
        self.address = address
        self.port = port
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        """Guards the cores; notified whenever one of them may have moved on."""
        self.settled = threading.Condition(lock)
        """Condition on the same lock, notified only when a core has a sum or fails for good: threads that wait for a
        sum wake up rarely.
        """
        self._shared = None if nic else SharedPort(address, port, longest_bytes)
        self.socket = FabricLink.connect(nic) if self._shared is None else self._shared.socket
        self._endpoints: dict[int, Attached] = {}
        self._failure: BaseException | None = None
        self._closing = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"udp {IPv4Address(address)}", daemon=True)
        self._thread.start()

    # --- from other threads ---

    def wake(self) -> None:
        """Have the thread poll the cores at once."""
        with contextlib.suppress(BlockingIOError):  # it has been woken often enough
            self._wake_writer.send(b"!")

    def notify_all(self) -> None:
        """Wake all threads that wait for the cores. The cores' lock must be held."""
        self.changed.notify_all()
        self.settled.notify_all()

    def attach(self, endpoint: Attached) -> None:
        """Run a core as well. Raises HostError if its job has one at this host already, or if its law reads INT, which
        comes to another port.
        """
        job = endpoint.core.plan.job
        if isinstance(endpoint.core, WorkerCore) and endpoint.core.int_header:
            raise HostError(
                f"job {job}: its law reads INT in results, and hosts with sockets neither send "
                "nor take any; let it go by what the switches allow (ExplicitWindow)",
                place=self._thread.name,
                value=job,
            )
        with self.changed:
            self.check()
            if job in self._endpoints:
                raise HostError(
                    f"job {job} has a core here already; a host takes part in it once",
                    place=self._thread.name,
                    value=job,
                )
            if self._shared is not None:
                self._shared.claim_job(job)
            self._endpoints[job] = endpoint
        self.wake()

    def detach(self, endpoint: Attached) -> None:
        """Run a core no more. May be repeated, also when another core of its job runs here by then."""
        job = endpoint.core.plan.job
        with self.changed:
            if self._endpoints.get(job) is endpoint:
                del self._endpoints[job]
                if self._shared is not None and not self._closing:
                    self._shared.drop_job(job)
            self.notify_all()

    def check(self) -> None:
        """Raise `EndpointClosed` if the thread does not run any more."""
        if self._failure is not None:
            raise EndpointClosed(
                f"ended by an error: {self._failure}", place=self._thread.name, value=self._failure
            ) from self._failure
        if self._closing:
            raise EndpointClosed("is closed", place=self._thread.name)

    @property
    def ended(self) -> bool:
        """True if `check` raises."""
        return self._failure is not None or self._closing

    def close(self) -> None:
        """End the thread and close the socket. May be repeated."""
        with self.changed:
            if self._closing:
                return
            self._closing = True
            self.notify_all()
        self.wake()
        self._thread.join()
        for end in (self._shared or self.socket, self._wake_reader, self._wake_writer):
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- the thread ---

    def _run(self) -> None:
        try:
            with select.epoll() as arrivals, select.epoll() as delay:
                arrivals.register(self.socket, select.EPOLLIN)
                if self._shared is not None:
                    arrivals.register(self._shared, select.EPOLLIN)
                for task in (arrivals, delay):
                    task.register(self._wake_reader, select.EPOLLIN)
                while not self._closing:
                    batching_delay_ns = self._step(arrivals)
                    if batching_delay_ns >= _EPOLL_NS:
                        delay.poll(batching_delay_ns / 1e9)
                    elif batching_delay_ns >= _SHORTEST_SLEEP_NS:
                        time.sleep(batching_delay_ns / 1e9)
        except BaseException as failure:  # noqa: BLE001 (handed to whoever waits)
            with self.changed:
                self._failure = failure
                self.notify_all()

    def _step(self, arrivals: select.epoll) -> int:
        """Take what has arrived, send what there is to send; how long not to look again unless woken, in ns."""
        with self.changed:
            deadlines = [
                deadline for endpoint in self._endpoints.values() if (deadline := endpoint.core.deadline_ns) is not None
            ]
        timeout = max(0, min(deadlines) - time.monotonic_ns()) / 1e9 if deadlines else None
        ready = [descriptor for descriptor, _ in arrivals.poll(timeout)]
        if self._wake_reader.fileno() in ready:
            self._wake_reader.recv(4096)
        received = self.socket.receive() if self.socket.fileno() in ready else []
        now = time.monotonic_ns()
        out = []
        with self.changed:
            if self._shared is not None:
                here = [self._shared.pass_on(datagrams, self._endpoints) for datagrams in received]
                received = [datagrams for datagrams in here if len(datagrams)]
                if self._shared.fileno() in ready:
                    received += self._shared.receive()
            due: dict[int, Core] = {}
            before = sum(endpoint.core.settled for endpoint in self._endpoints.values())
            for datagrams in received:
                for job, part in by_job(datagrams, list(self._endpoints)):
                    core = due[job] = self._endpoints[job].core
                    core.receive(now, part)
            heard = set(due)
            for job, endpoint in self._endpoints.items():
                if job not in due and (deadline := endpoint.core.deadline_ns) is not None and deadline <= now:
                    due[job] = endpoint.core
            for core in due.values():
                dscp = core.dscp
                out += [(datagrams, dscp) for datagrams in core.poll(now)]
            delays = (
                {job: endpoint.core.batching_delay_ns for job, endpoint in self._endpoints.items()} if heard else {}
            )
            self.changed.notify_all()
            if sum(endpoint.core.settled for endpoint in self._endpoints.values()) > before:
                self.settled.notify_all()
        for datagrams, dscp in out:
            self.socket.send(datagrams, dscp)
        # cores with nothing in flight report 0, which says nothing about the others
        wanted = [delay for job, delay in delays.items() if delay or job in heard]
        return min(*wanted, _LONGEST_BATCHING_DELAY_NS) if wanted else 0


class UdpEndpoint:
    """Runs one core, of a worker or a parameter server, until it is closed. Use it as a context manager."""

    def __init__(
        self,
        core: WorkerCore | ParameterServerCore,
        where: int | UdpHost,
        port: int = AGGREGATION_PORT,
        *,
        nic: str = "",
    ) -> None:
        """Attach the core to a host.

        Args:
            core: The core.
            where: The host, or an IPv4 address as an integer: then the endpoint has a `UdpHost` of its own.
            port: UDP port, if `where` is an address.
            nic: Path of an emulated fabric, if `where` is an address; see `UdpHost`.

        Raises:
            OSError: `UdpHost` cannot have the address.
            HostError: The host has a core of this job, in this process or another, or the core's law reads INT.
        """
        self.core = core
        self._owns_host = not isinstance(where, UdpHost)
        self.host = where if isinstance(where, UdpHost) else UdpHost(where, port, nic=nic)
        self.changed = self.host.changed
        """Guards the core; notified whenever the core may have moved on."""
        self._ended_by: HostError | None = None
        self._closing = False
        try:
            self.host.attach(self)
        except BaseException:
            if self._owns_host:
                self.host.close()
            raise

    @property
    def port(self) -> int:
        """UDP port of the host."""
        return self.host.port

    @property
    def socket(self) -> DatagramSocket | FabricLink:
        """Socket of the host, or its link into an emulated fabric."""
        return self.host.socket

    def wake(self) -> None:
        """Have the thread poll the core now."""
        self.host.wake()

    def pause(self) -> Held:
        """Pause the core; see the core's `pause`."""
        with self.changed:
            return self.core.pause()

    def resume(self, resume: Resume) -> None:
        """Resume the core; see the core's `resume`."""
        with self.changed:
            self.core.resume(resume)
            self.wake()

    def classify(self, change: TrafficClass) -> None:
        """Send in another traffic class; see the core's `classify`."""
        with self.changed:
            self.core.classify(change)

    def fail(self, error: HostError) -> None:
        """End this endpoint: all waits for it, present or future, raise `error`."""
        with self.changed:
            self._ended_by = error
            self.host.notify_all()

    def check(self) -> None:
        """Raise `EndpointClosed` if this endpoint does not run any more, or the error that it was failed with."""
        if self._ended_by is not None:
            raise self._ended_by
        self.host.check()
        if self._closing:
            raise EndpointClosed(f"is closed at {IPv4Address(self.host.address)}", place=f"job {self.core.plan.job}")

    @property
    def ended(self) -> bool:
        """True if `check` raises."""
        return self._ended_by is not None or self._closing or self.host.ended

    def close(self) -> None:
        """End it, and the thread and the socket if they are its own. May be repeated."""
        self._closing = True
        self.host.detach(self)
        if self._owns_host:
            self.host.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class UdpWorker:
    """A worker on a UDP endpoint: the `Driver` of a `Communicator`. Use it as a context manager."""

    def __init__(self, core: WorkerCore, where: int | UdpHost, port: int = AGGREGATION_PORT, *, nic: str = "") -> None:
        """Start the endpoint; arguments and errors are those of `UdpEndpoint`."""
        self.core = core
        self.endpoint = UdpEndpoint(core, where, port, nic=nic)
        self.explain: Callable[[HostError], str] = lambda _: ""
        """Text that names missing ranks or different calls, from a source with all ranks' calls; "": unknown."""

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

    def submit(self, tensor: ArrayLike | Tensor, *, name: str = "tensor", weight: int = 1) -> int:
        """Submit a tensor; see `WorkerCore.submit`."""
        if not isinstance(tensor, Tensor):  # made here, for it takes its time: the thread goes on meanwhile
            tensor = Tensor(tensor, workers=self.workers, lanes=self.lanes, keyed=self.keyed, name=name, weight=weight)
        try:
            with self.endpoint.changed:
                self.endpoint.check()
                handle = self.core.submit(tensor)
                self.endpoint.wake()
        except CallMismatch as error:
            raise self._explained(error) from None
        return handle

    def done(self, handle: int) -> bool:
        """Return whether a sum can be taken (`WorkerCore.done`), or the endpoint has ended."""
        with self.endpoint.changed:
            return self.core.done(handle) or self.endpoint.ended

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        """Return the sum of a submitted tensor, handed out once.

        Raises `AllreduceTimeout` after `timeout_s`, and `EndpointClosed` if the endpoint ends before the sum comes.
        """
        try:
            return self._wait(handle, timeout_s)
        except (CallMismatch, AllreduceTimeout) as error:
            raise self._explained(error) from None

    def _wait(self, handle: int, timeout_s: float) -> Reduced:
        deadline = time.monotonic() + timeout_s
        with self.endpoint.changed:
            while (reduced := self.core.pop_result(handle)) is None:
                self.endpoint.check()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise AllreduceTimeout(self._complaint(), place=f"no sum after {timeout_s:g} s")
                self.endpoint.host.settled.wait(remaining)
        return reduced

    def _explained(self, error: HostError) -> HostError:
        """The error with what is known of the other workers as its text."""
        text = self.explain(error)
        return type(error)(text, place=error.place, value=error.value) if text else error

    def _complaint(self) -> str:
        complaint = self.core.waiting_for(time.monotonic_ns())
        counters = self.core.counters
        complaint += f"; received {counters.received} packets, dropped {counters.dropped}"
        sending = self.endpoint.socket
        if sending.last_send_failure is not None:
            complaint += f"; {sending.send_failures} sends failed, the last: {sending.last_send_failure}"
        return complaint

    def close(self) -> None:
        """Close the endpoint; see `UdpEndpoint.close`."""
        self.endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
