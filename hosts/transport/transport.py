"""The transport's programming interface: messages to and from other hosts of the job, over any driver of the core."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from ...errors.values import Checks, shown
from ..errors import EndpointClosed, InvalidMessage, TransportTimeout
from .core import Published, Request, TransportCore
from .pending import Pending

Result = TypeVar("Result")
Returned = TypeVar("Returned")


class TransportDriver(Protocol):
    """Driver of a core: `udp_transport.UdpTransport`, or the emulated fabric."""

    @property
    def core(self) -> TransportCore:
        """The core, with the transport's plan."""

    def call(self, function: Callable[[], Returned]) -> Returned:
        """Return the result of a function that runs while nothing else uses the core; then poll the core.

        Raises:
            EndpointClosed: The endpoint is closed.
        """
        ...

    def wait(self, pending: Pending[Any], timeout_s: float) -> None:
        """Return when a call is done, or after `timeout_s` seconds.

        Raises:
            EndpointClosed: The endpoint is closed.
        """
        ...

    def close(self) -> None:
        """Notify the peers, and end. May be repeated."""
        ...


class TransportCall(Generic[Result]):
    """Result of one call that may still be in progress."""

    def __init__(self, endpoint: TransportDriver, pending: Pending[Result], description: str, timeout_s: float) -> None:
        self.pending = pending
        self._endpoint = endpoint
        self._description = description
        self._timeout_s = timeout_s

    def done(self) -> bool:
        """True if `wait` would return, or raise, at once."""
        return self.pending.done

    def wait(self, timeout_s: float | None = None) -> Result:
        """Wait for the call's result and return it.

        Args:
            timeout_s: Time limit in seconds; None: that of the transport.

        Raises:
            TransportTimeout: The call is not done in time. It goes on, and `wait` may be called again.
            HostError: The call failed; the subclass says how.
        """
        limit_s = self._timeout_s if timeout_s is None else _checked(timeout_s)
        if not self.pending.done:
            self._endpoint.wait(self.pending, limit_s)
        if not self.pending.done:
            raise TransportTimeout(f"{self._description}: nothing after {limit_s:g} s", place="transport")
        return self.pending.result()

    def wait_or_cancel(self) -> Result:
        """Wait as `wait` does; after a time-out the call is cancelled."""
        try:
            return self.wait()
        except TransportTimeout:
            self._endpoint.call(lambda: self._endpoint.core.cancel(self.pending))
            raise


class Transport:
    """Messages, requests and published values between the hosts of a job. A context manager, which closes it.

    Values are bytes, or NumPy arrays of numbers, dates or fixed-length strings, of any shape; they arrive with the same
    type and shape. Peers are named by rank. Messages to one peer arrive in the order of the calls. Calls that end in
    `_async` return a `TransportCall` at once.

    Raises:
        InvalidMessage: A value that no message can have; every call.
        PeerLost: The peer does not answer, or has closed its end.
        PeerRestarted: The peer has restarted since the call began.
        TransportTimeout: The call is not done after `timeout_s`.
    """

    def __init__(self, endpoint: TransportDriver, *, timeout_s: float = 60.0) -> None:
        """`timeout_s`: how long one call may take before it raises TransportTimeout."""
        self.endpoint = endpoint
        self.timeout_s = _checked(timeout_s)
        self._before_close: list[Callable[[], object]] = []

    @property
    def rank(self) -> int:
        """This host's rank, 0…`size` − 1."""
        plan = self.endpoint.core.plan
        return plan.peers.index(plan.address)

    @property
    def size(self) -> int:
        """Number of hosts of the job."""
        return len(self.endpoint.core.plan.peers)

    def send(self, peer: int, value: object) -> None:
        """Send a value; return when the peer's transport has all of it.

        Args:
            peer: Rank of the receiver.
            value: Bytes or an array. After a TransportTimeout it may still arrive.
        """
        self.send_async(peer, value).wait()

    def send_async(self, peer: int, value: object) -> TransportCall[None]:
        """Start a `send` without waiting. The value is copied."""
        return self._start(f"send to {shown(peer)}", lambda core: core.send(peer, value))

    def recv(self, peer: int) -> Any:
        """Wait for the next value from a peer, by its rank, and return it. Each value is returned once."""
        return self.recv_async(peer).wait_or_cancel()

    def recv_async(self, peer: int) -> TransportCall[Any]:
        """Start a `recv` without waiting. Several calls on one peer get its values in the order of the calls."""
        return self._start(f"receive from {shown(peer)}", lambda core: core.receive_message(peer))

    def request(self, peer: int, name: str, value: object = b"") -> Any:
        """Send a request to the peer's program, and wait for its reply.

        Args:
            peer: Rank of the peer, whose program calls `receive_request`.
            name: Name by which the peer tells requests apart.
            value: Bytes or an array.

        Returns:
            The value of the peer's `reply`.
        """
        return self.request_async(peer, name, value).wait_or_cancel()

    def request_async(self, peer: int, name: str, value: object = b"") -> TransportCall[Any]:
        """Start a `request` without waiting. The value is copied."""
        return self._start(f"request {shown(name)} to {shown(peer)}", lambda core: core.request(peer, name, value))

    def receive_request(self, timeout_s: float | None = None) -> Request:
        """Wait for the next request of any peer. Answer it by `reply`.

        Args:
            timeout_s: Time limit in seconds; None: that of the transport.

        Raises:
            TransportTimeout: No request arrives in time.
        """
        limit_s = self.timeout_s if timeout_s is None else _checked(timeout_s)
        pending = self.endpoint.call(self.endpoint.core.receive_request)
        return TransportCall(self.endpoint, pending, "next request", limit_s).wait_or_cancel()

    def reply(self, request: Request, value: object) -> None:
        """Answer a request; the answer is dropped if the sender of the request is lost or has restarted.

        Args:
            request: A request of `receive_request`.
            value: Bytes or an array.
        """
        self.endpoint.call(lambda: self.endpoint.core.reply(request, value))

    def publish(self, name: str, value: object) -> int:
        """Publish a copy of a value, which peers can `pull` without this program's part.

        Args:
            name: Name of the value; a later one of this name replaces it.
            value: Bytes or an array.

        Returns:
            The version of the value: 1 for the first of its name, and 1 more for each later one.
        """
        return self.endpoint.call(lambda: self.endpoint.core.publish(name, value))

    @property
    def publishes(self) -> bool:
        """True if a published value is not withdrawn."""
        return self.endpoint.core.publishes

    @property
    def is_delivered(self) -> bool:
        """True if peers' transports have all that was sent to them, or were lost."""
        return self.endpoint.core.is_delivered

    def withdraw(self, name: str) -> None:
        """Withdraw the published value of a name, so that pulls of it raise Withdrawn at once.

        A later `publish` replaces it again.
        """
        self.endpoint.call(lambda: self.endpoint.core.withdraw(name))

    def pull(self, peer: int, name: str) -> Published:
        """Read the latest value that a peer has published, all of it from one version.

        Args:
            peer: Rank of the peer, whose program takes no part.
            name: Name under which the value was published.

        Raises:
            NotPublished: The peer has published nothing under this name.
            Withdrawn: The peer has withdrawn the value, for example because it has ended.
        """
        return self.pull_async(peer, name).wait_or_cancel()

    def pull_async(self, peer: int, name: str) -> TransportCall[Published]:
        """Start a `pull` without waiting."""
        return self._start(f"pull {shown(name)} from {shown(peer)}", lambda core: core.pull(peer, name))

    def connection(self, peer: int) -> int:
        """Return the number of the open connection to a peer, which grows with each new one; 0: none is open."""
        return self.endpoint.call(lambda: self.endpoint.core.connection_number(peer))

    def before_close(self, function: Callable[[], object]) -> None:
        """Have a function called once when this rank begins to end: as `close`, or `close` of its communicator, begins.

        Args:
            function: Uses this transport, which is still open, to tell peers what they are to know.
        """
        self._before_close.append(function)

    def begin_close(self) -> None:
        """Call the functions of `before_close`; `close` does so, too. May be repeated."""
        functions, self._before_close = self._before_close, []
        for function in functions:
            with suppress(EndpointClosed):  # its socket has ended before
                function()

    def close(self) -> None:
        """Notify the peers, and end. May be repeated."""
        self.begin_close()
        self.endpoint.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, description: str, begin: Callable[[TransportCore], Pending[Result]]) -> TransportCall[Result]:
        pending = self.endpoint.call(lambda: begin(self.endpoint.core))
        return TransportCall(self.endpoint, pending, description, self.timeout_s)


def _checked(timeout_s: float) -> float:
    return Checks(InvalidMessage, "transport").seconds("timeout_s", timeout_s)
