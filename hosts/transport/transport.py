"""The transport's programming interface: messages to and from other hosts of the job, over any driver of the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ...errors.values import Checks, shown
from ..errors import InvalidMessage, TransportTimeout
from .core import Published, Request, TransportCore
from .pending import Pending

Result = TypeVar("Result")
Returned = TypeVar("Returned")


class TransportDriver(Protocol):
    """Driver of a core: `udp_transport.UdpTransport`, or the emulated fabric."""

    @property
    def core(self) -> TransportCore: ...

    def call(self, function: Callable[[], Returned]) -> Returned:
        """The function's result, while nothing else uses the core; then the core is polled. Raises EndpointClosed."""
        ...

    def wait(self, pending: Pending[Any], timeout_s: float) -> None:
        """Return when the call is done, or after `timeout_s`. Raises EndpointClosed."""
        ...

    def close(self) -> None:
        """Notify the peers, and end. May be repeated."""
        ...


class TransportCall(Generic[Result]):
    """One call on its way."""

    def __init__(self, endpoint: TransportDriver, pending: Pending[Result], what: str, timeout_s: float) -> None:
        self.pending = pending
        self._endpoint = endpoint
        self._what = what
        self._timeout_s = timeout_s

    def done(self) -> bool:
        """True if `wait` would return, or raise, at once."""
        return self.pending.done

    def wait(self, timeout_s: float | None = None) -> Result:
        """The call's result. Raises what the call raises, and TransportTimeout, after which it may be asked again."""
        limit_s = self._timeout_s if timeout_s is None else _checked(timeout_s)
        if not self.pending.done:
            self._endpoint.wait(self.pending, limit_s)
        if not self.pending.done:
            raise TransportTimeout(f"{self._what}: nothing after {limit_s:g} s", place="transport")
        return self.pending.result()

    def wait_or_cancel(self) -> Result:
        """Wait as `wait` does; after a time-out the call is cancelled."""
        try:
            return self.wait()
        except TransportTimeout:
            self._endpoint.call(lambda: self._endpoint.core.cancel(self.pending))
            raise


class Transport:
    """One host's way to send values to the others of its job. A context manager, which closes it.

    Values are bytes, or NumPy arrays of numbers, dates or fixed-length strings, of any shape; they arrive with the same
    type and shape. Peers are named by rank. Messages to one peer arrive in the order of the calls. The calls in
    `…_async` return a `TransportCall` at once.

    All calls raise InvalidMessage for values that no message can have, PeerLost if the peer does not answer or has
    closed its end, PeerRestarted if it has restarted, and TransportTimeout.
    """

    def __init__(self, endpoint: TransportDriver, *, timeout_s: float = 60.0) -> None:
        """`timeout_s`: how long one call may take before it raises TransportTimeout."""
        self.endpoint = endpoint
        self.timeout_s = _checked(timeout_s)

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
        """Send a value; returns when the peer's transport has all of it. After a TransportTimeout it may still come."""
        self.send_async(peer, value).wait()

    def send_async(self, peer: int, value: object) -> TransportCall[None]:
        """Start to send a value, which is copied."""
        return self._start(f"send to {shown(peer)}", lambda core: core.send(peer, value))

    def recv(self, peer: int) -> Any:
        """The next value that the peer has sent."""
        return self.recv_async(peer).wait_or_cancel()

    def recv_async(self, peer: int) -> TransportCall[Any]:
        """Calls on one peer get its values in the order of the calls."""
        return self._start(f"receive from {shown(peer)}", lambda core: core.receive_message(peer))

    def request(self, peer: int, name: str, value: object = b"") -> Any:
        """Send a request to the peer's program; return its reply."""
        return self.request_async(peer, name, value).wait_or_cancel()

    def request_async(self, peer: int, name: str, value: object = b"") -> TransportCall[Any]:
        """Start to ask the peer's program."""
        return self._start(f"request {shown(name)} to {shown(peer)}", lambda core: core.request(peer, name, value))

    def receive_request(self, timeout_s: float | None = None) -> Request:
        """The next request of any peer, which `reply` answers."""
        limit_s = self.timeout_s if timeout_s is None else _checked(timeout_s)
        pending = self.endpoint.call(self.endpoint.core.receive_request)
        return TransportCall(self.endpoint, pending, "next request", limit_s).wait_or_cancel()

    def reply(self, request: Request, value: object) -> None:
        """Answer a request; the answer is dropped if the asker is lost or has restarted."""
        self.endpoint.call(lambda: self.endpoint.core.reply(request, value))

    def publish(self, name: str, value: object) -> int:
        """Let peers pull a copy of the value as it is now, until the next one under this name; its version, from 1."""
        return self.endpoint.call(lambda: self.endpoint.core.publish(name, value))

    def pull(self, peer: int, name: str) -> Published:
        """Read the value that the peer has published last under a name, all of one version, without its program's part.

        Raises:
            NotPublished: The peer has published nothing under this name.
        """
        return self.pull_async(peer, name).wait_or_cancel()

    def pull_async(self, peer: int, name: str) -> TransportCall[Published]:
        """Start to pull the peer's published value of this name."""
        return self._start(f"pull {shown(name)} from {shown(peer)}", lambda core: core.pull(peer, name))

    def close(self) -> None:
        """Notify the peers, and end. May be repeated."""
        self.endpoint.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, what: str, begin: Callable[[TransportCore], Pending[Result]]) -> TransportCall[Result]:
        pending = self.endpoint.call(lambda: begin(self.endpoint.core))
        return TransportCall(self.endpoint, pending, what, self.timeout_s)


def _checked(timeout_s: float) -> float:
    return Checks(InvalidMessage, "transport").seconds("timeout_s", timeout_s)
