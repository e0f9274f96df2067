"""Workers' ways to each other without a network: values arrive as a carrier says, and lost workers time out.

It has the calls of `hosts.transport.transport.Transport` that training uses, with the same order and errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...hosts.errors import PeerLost
from ..processes import InProgress


class RunClock(Protocol):
    """Time of a run, such as `ideal.Clock`."""

    @property
    def now_ns(self) -> int:
        """Time in ns since the run began."""


class Carrier(Protocol):
    """Carrier of bytes between workers, which takes time."""

    @property
    def deadline_ns(self) -> int | None:
        """When something changes next by the clock alone; None: nothing is under way."""

    def start(self, source: int, destination: int, size: int, /) -> Callable[[], bool]:
        """Start to carry `size` bytes; return a function that tells whether they have arrived."""


class DelayCarrier:
    """Each value takes a time that is known when it is sent; values between two workers keep their order."""

    def __init__(self, clock: RunClock, delay_ns: Callable[[int, int, int], int]) -> None:
        """Take the clock, and the delay by source, destination and bytes, in ns."""
        self._clock = clock
        self._delay_ns = delay_ns
        self._last_ns: dict[tuple[int, int], int] = {}
        self._dues: list[int] = []

    @property
    def deadline_ns(self) -> int | None:
        """Earliest arrival that is still to come; None: nothing is on the way."""
        self._dues = [due for due in self._dues if due > self._clock.now_ns]
        return min(self._dues, default=None)

    def start(self, source: int, destination: int, size: int, /) -> Callable[[], bool]:
        """Start to send a value of `size` bytes.

        Returns:
            A function that is True once the value has arrived.
        """
        pair = source, destination
        due = max(self._clock.now_ns + self._delay_ns(source, destination, size), self._last_ns.get(pair, 0))
        self._last_ns[pair] = due
        self._dues.append(due)
        return lambda: due <= self._clock.now_ns


@dataclass(frozen=True, slots=True)
class Pulled:
    """A value that a peer has published."""

    version: int
    value: Any


class IdealNetwork:
    """All workers' ends of one job."""

    def __init__(self, clock: RunClock, carrier: Carrier, workers: int, patience_ns: int = 1_000_000_000) -> None:
        """Connect the workers.

        Args:
            clock: Time of the run.
            carrier: How long values are on their way.
            workers: Number of workers.
            patience_ns: How long a call to a lost worker takes until it fails, in ns.
        """
        self._clock = clock
        self.carrier = carrier
        self.patience_ns = patience_ns
        self.lost: dict[int, int] = {}
        """When each lost worker was lost, in ns."""
        self.timeouts: list[tuple[int, int]] = []
        """Worker and lost peer of each call that has failed."""
        self._waiting: list[PeerCall] = []
        self.ends = [IdealPeers(self, rank) for rank in range(workers)]

    def mark_lost(self, rank: int) -> None:
        """Cut a worker off from now on."""
        self.lost.setdefault(rank, self._clock.now_ns)

    @property
    def deadline_ns(self) -> int | None:
        """When a call next ends by the clock alone."""
        now_ns = self._clock.now_ns
        self._waiting = [call for call in self._waiting if not call.ended]
        fails = [due for call in self._waiting if (due := call.fails_ns) is not None and due > now_ns]
        carried = self.carrier.deadline_ns
        return min([*fails, *([] if carried is None else [carried])], default=None)

    def call(self, call: PeerCall) -> PeerCall:
        """Watch a call that may fail."""
        self._waiting.append(call)
        return call

    @property
    def now_ns(self) -> int:
        """Time of the run."""
        return self._clock.now_ns


class PeerCall:
    """A call to a peer: done with its value, or failed a patience after the peer, or the worker itself, was lost."""

    def __init__(self, network: IdealNetwork, rank: int, peer: int, value: Callable[[], tuple[bool, Any]]) -> None:
        """`value` says whether the answer is there, and what it is."""
        self._network = network
        self._rank = rank
        self._peer = peer
        self._value = value
        self._began_ns = network.now_ns
        self._answer: tuple[Any] | None = None
        self.ended = False
        """True once the answer, or the error, was taken."""

    @property
    def fails_ns(self) -> int | None:
        """When the call fails; None while the peer answers."""
        lost = [self._network.lost[rank] for rank in (self._rank, self._peer) if rank in self._network.lost]
        return max(min(lost), self._began_ns) + self._network.patience_ns if lost else None

    def done(self) -> bool:
        """True once the value is there or the call has failed."""
        if self._answer is None and not self._cut_off:
            there, value = self._value()
            if there:
                self._answer = (value,)
        fails = self.fails_ns
        return self._answer is not None or (fails is not None and fails <= self._network.now_ns)

    @property
    def _cut_off(self) -> bool:
        return self._rank in self._network.lost or self._peer in self._network.lost

    def wait(self, timeout_s: float, /) -> Any:
        """Return the value of a call that is done. Raises PeerLost if it failed."""
        self.ended = True
        if self._answer is None:
            self._network.timeouts.append((self._rank, self._peer))
            raise PeerLost(f"worker {self._peer} does not answer worker {self._rank}", self._peer)
        return self._answer[0]


class IdealPeers:
    """One worker's end, with the contract of `mode.Peers`."""

    def __init__(self, network: IdealNetwork, rank: int) -> None:
        self.rank = rank
        self._network = network
        self._published: dict[str, Pulled] = {}
        self._inbox: dict[int, deque[tuple[Callable[[], bool], Any]]] = {}

    @property
    def size(self) -> int:
        """Number of workers of the job."""
        return len(self._network.ends)

    def publish(self, name: str, value: object, /) -> int:
        version = self._published[name].version + 1 if name in self._published else 1
        self._published[name] = Pulled(version, np.array(value))
        return version

    def pull_async(self, peer: int, name: str, /) -> InProgress:
        published = self._network.ends[peer]._published[name]
        arrived = self._network.carrier.start(peer, self.rank, published.value.nbytes)
        return self._network.call(PeerCall(self._network, self.rank, peer, lambda: (arrived(), published)))

    def send_async(self, peer: int, value: object, /) -> InProgress:
        copied = np.array(value)
        if self.rank in self._network.lost or peer in self._network.lost:
            return self._network.call(PeerCall(self._network, self.rank, peer, lambda: (False, None)))
        arrived = self._network.carrier.start(self.rank, peer, copied.nbytes)
        self._network.ends[peer]._inbox.setdefault(self.rank, deque()).append((arrived, copied))
        return PeerCall(self._network, self.rank, peer, lambda: (arrived(), None))

    def recv_async(self, peer: int, /) -> InProgress:
        queue = self._inbox.setdefault(peer, deque())

        def value() -> tuple[bool, Any]:
            if queue and queue[0][0]():
                return True, queue.popleft()[1]
            return False, None

        return self._network.call(PeerCall(self._network, self.rank, peer, value))
