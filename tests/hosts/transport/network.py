"""Transport cores on a network of links with faults, in virtual time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np

from weir.hosts.transport.core import TransportCore
from weir.hosts.transport.options import TransportOptions, TransportPlan
from weir.hosts.transport.pending import Pending
from weir.wire.frames import Datagrams
from weir.wire.transport import FrameCheck

US: Final = 1_000
MS: Final = 1_000_000
FIRST_ADDRESS: Final = 0x0A00_0001
KEY: Final = "5a" * 32
FORGER: Final = "6b" * 32


@dataclass(frozen=True)
class Faults:
    """Shares of packets, 0…1, and the largest extra delay."""

    loss: float = 0.0
    duplication: float = 0.0
    corruption: float = 0.0
    forged: float = 0.0
    """Packets that an off-path forger, who lacks the key, makes of each one that it sees."""
    replayed: float = 0.0
    """Rate of replayed packets of any age, per packet."""
    jitter_ns: int = 0


@dataclass(order=True)
class _Event:
    time_ns: int
    number: int
    action: Callable[[], None] = field(compare=False)


class Network:
    """Hosts that run a core each."""

    def __init__(
        self,
        seed: int,
        hosts: int,
        *,
        faults: Faults = Faults(),
        key: str = KEY,
        options: TransportOptions | None = None,
        delay_ns: int = 20 * US,
    ) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.now_ns = 0
        self.in_network: dict[tuple[int, int], int] = {}
        self.most_in_network = 0
        """Packets with data from one host to one other, and nothing else, at any time."""
        self.cores: list[TransportCore] = []
        self._addresses = tuple(range(FIRST_ADDRESS, FIRST_ADDRESS + hosts))
        self._key, self._options, self._delay_ns = key, options or TransportOptions(), delay_ns
        self._events: list[_Event] = []
        self._numbers = count()
        self._epochs = count(self.random.randrange(1, 1 << 31))
        self._due: dict[int, int | None] = {}
        self._recorded: list[tuple[int, int, np.ndarray]] = []
        for rank in range(hosts):
            self.cores.append(self._new(rank))

    def _new(self, rank: int) -> TransportCore:
        plan = TransportPlan(7, self._addresses[rank], self._addresses, next(self._epochs), self._key)
        return TransportCore(plan, self._options)

    def restart(self, rank: int) -> None:
        """The host's process ends without a word, and another one begins."""
        self.cores[rank] = self._new(rank)
        self._due.pop(rank, None)

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, _Event(time_ns, next(self._numbers), action))

    def run(self, done: Callable[[], bool], limit_ns: int = 600_000 * MS) -> None:
        """Let time pass until `done`. Raises TimeoutError where nothing happens any more, or at the limit."""
        self._poll_all()
        while not done():
            if not self._events or self.now_ns > limit_ns:
                raise TimeoutError(f"{self.now_ns / MS:.1f} ms: {len(self._events)} events")
            event = heapq.heappop(self._events)
            self.now_ns = max(self.now_ns, event.time_ns)
            event.action()
            self._poll_all()

    def settle(self, pendings: Sequence[Pending[Any]]) -> None:
        self.run(lambda: all(pending.done for pending in pendings))

    def _poll_all(self) -> None:
        for rank, core in enumerate(self.cores):
            due_ns = core.deadline_ns
            while due_ns is not None and due_ns <= self.now_ns:
                for datagrams in core.poll(self.now_ns):
                    self._send(rank, datagrams)
                due_ns = core.deadline_ns
            if due_ns is not None and due_ns != self._due.get(rank):
                self.at(due_ns, lambda: None)
            self._due[rank] = due_ns

    def _send(self, rank: int, datagrams: Datagrams) -> None:
        faults, rng = self.faults, self.random
        for address, row in zip(datagrams.addresses.tolist(), datagrams.payload, strict=True):
            to = address - FIRST_ADDRESS
            if faults.replayed:
                self._recorded.append((rank, to, row.copy()))
            if rng.random() < faults.replayed:
                self._carry(*rng.choice(self._recorded))
            if rng.random() < faults.forged:
                self._carry(rank, to, self._forged(row))
            if rng.random() >= faults.loss:
                self._carry(rank, to, row.copy(), damaged=rng.random() < faults.corruption, counted=True)
            if rng.random() < faults.duplication:
                self._carry(rank, to, row.copy())

    def _carry(self, source: int, to: int, row: np.ndarray, *, damaged: bool = False, counted: bool = False) -> None:
        if damaged:
            row[self.random.randrange(len(row))] ^= 1 << self.random.randrange(8)
        has_data = counted and row[0] & 0xF == 1
        pair = (source, to)
        if has_data:
            self.in_network[pair] = self.in_network.get(pair, 0) + 1
            self.most_in_network = max(self.most_in_network, self.in_network[pair])
        delay_ns = self._delay_ns + self.random.randint(0, self.faults.jitter_ns)
        arrival = Datagrams(np.array([FIRST_ADDRESS + source], np.uint32), row[None])

        def arrive() -> None:
            if has_data:
                self.in_network[pair] -= 1
            self.cores[to].receive(self.now_ns, arrival)

        self.at(self.now_ns + delay_ns, arrive)

    def _forged(self, row: np.ndarray) -> np.ndarray:
        """Packet of an attacker who knows the whole protocol except the key: other contents, or another check."""
        forged = row.copy()
        for _ in range(self.random.randint(1, 4)):
            forged[self.random.randrange(len(forged))] = self.random.randrange(256)
        if self.random.random() < 0.5:
            addresses = [self.random.choice(self._addresses) for _ in range(2)]
            ends = dict(zip(("source", "destination"), addresses, strict=True))
            FrameCheck(FORGER).seal(forged[None], **ends, sequences=np.zeros(1, np.int64))
        return forged
