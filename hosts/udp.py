"""The wall-clock driver: a protocol core behind a UDP socket, with a thread of its own.

A host is its IPv4 address, and every message goes to one port (docs/design.md §2.1), so on one machine each endpoint
binds its own address of 127/8. Sockets are never relied on: what cannot be sent now is lost, and the workers' timers
repair it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from ipaddress import IPv4Address
from types import TracebackType
from typing import Self

from numpy.typing import ArrayLike

from hosts.datagram_socket import DatagramSocket
from hosts.errors import AllreduceTimeout, EndpointClosed, HostError
from hosts.server import ParameterServerCore
from hosts.tensors import Reduced
from hosts.worker import WorkerCore
from wire.aggregation import AGGREGATION_PORT
from wire.control import Held, Resume


class UdpEndpoint:
    """Runs one core, of a worker or a parameter server, until it is closed. Use it as a context manager."""

    def __init__(self, core: WorkerCore | ParameterServerCore, address: int, port: int = AGGREGATION_PORT) -> None:
        """Bind `address` (IPv4, as an integer) and start the thread. Raises OSError when it cannot be bound."""
        self.core = core
        self.port = port
        self.changed = threading.Condition()
        """Guards the core; notified whenever the core may have moved on."""
        self._failure: BaseException | None = None
        self._ended_by: HostError | None = None
        self._closing = False
        self.socket = DatagramSocket(address, port)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"udp {IPv4Address(address)}", daemon=True)
        self._thread.start()

    # --- from other threads ---

    def wake(self) -> None:
        """Have the thread poll its core now."""
        with contextlib.suppress(BlockingIOError):
            self._wake_writer.send(b"!")

    def pause(self) -> Held:
        """As the core's `pause`."""
        with self.changed:
            return self.core.pause()

    def resume(self, resume: Resume) -> None:
        """As the core's `resume`."""
        with self.changed:
            self.core.resume(resume)
        self.wake()

    def fail(self, error: HostError) -> None:
        """Nothing more will come of this endpoint: whoever waits, now or later, gets `error`."""
        with self.changed:
            self._ended_by = error
            self.changed.notify_all()

    def check(self) -> None:
        """Raise `EndpointClosed` if this endpoint does not run any more, or the error that it was failed with."""
        if self._ended_by is not None:
            raise self._ended_by
        if self._failure is not None:
            raise EndpointClosed(f"{self._thread.name} ended by an error: {self._failure}") from self._failure
        if self._closing:
            raise EndpointClosed(f"{self._thread.name} is closed")

    def close(self) -> None:
        """End the thread and close the socket. May be repeated."""
        with self.changed:
            if self._closing:
                return
            self._closing = True
            self.changed.notify_all()
        self.wake()
        self._thread.join()
        for end in (self.socket, self._wake_reader, self._wake_writer):
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
            with selectors.DefaultSelector() as selector:
                selector.register(self.socket, selectors.EVENT_READ)
                selector.register(self._wake_reader, selectors.EVENT_READ)
                while not self._closing:
                    self._step(selector)
        except BaseException as failure:  # noqa: BLE001 (handed to whoever waits)
            with self.changed:
                self._failure = failure
                self.changed.notify_all()

    def _step(self, selector: selectors.BaseSelector) -> None:
        with self.changed:
            deadline = self.core.deadline_ns
        timeout = None if deadline is None else max(0, deadline - time.monotonic_ns()) / 1e9
        ready = [key.fileobj for key, _ in selector.select(timeout)]
        if self._wake_reader in ready:
            self._wake_reader.recv(4096)
        received = self.socket.receive() if self.socket in ready else []
        now = time.monotonic_ns()
        with self.changed:
            for datagrams in received:
                self.core.receive(now, datagrams)
            out = self.core.poll(now)
            self.changed.notify_all()
        for datagrams in out:
            self.socket.send(datagrams)


class UdpWorker:
    """A worker on a UDP endpoint: the `Driver` of a `Communicator`. Use it as a context manager."""

    def __init__(self, core: WorkerCore, address: int, port: int = AGGREGATION_PORT) -> None:
        """As `UdpEndpoint`."""
        self.core = core
        self.endpoint = UdpEndpoint(core, address, port)

    def submit(self, array: ArrayLike, *, name: str = "tensor", weight: int = 1) -> int:
        """As `WorkerCore.submit`."""
        with self.endpoint.changed:
            self.endpoint.check()
            handle = self.core.submit(array, name=name, weight=weight)
        self.endpoint.wake()
        return handle

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        """The sum of a submitted tensor, handed out once.

        Raises `AllreduceTimeout` after `timeout_s`, and `EndpointClosed` if the endpoint ends before the sum comes.
        """
        deadline = time.monotonic() + timeout_s
        with self.endpoint.changed:
            while (reduced := self.core.take(handle)) is None:
                self.endpoint.check()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise AllreduceTimeout(self._complaint(timeout_s))
                self.endpoint.changed.wait(remaining)
        return reduced

    def _complaint(self, timeout_s: float) -> str:
        complaint = f"no sum after {timeout_s:g} s: {self.core.waiting_for(time.monotonic_ns())}"
        counters = self.core.counters
        complaint += f"; received {counters.received} packets, dropped {counters.dropped}"
        sending = self.endpoint.socket
        if sending.last_send_failure is not None:
            complaint += f"; {sending.send_failures} sends failed, the last: {sending.last_send_failure}"
        return complaint

    def close(self) -> None:
        """As `UdpEndpoint.close`."""
        self.endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
