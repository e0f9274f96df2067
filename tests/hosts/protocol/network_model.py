"""Hosts and model switches on a network in virtual time, with seeded loss, duplication, reordering and corruption.

One `Fabric` is one job. Its controller moves the job by the steps of docs/design.md §3.5, at given moments or when
nothing moves on, to any topology; it takes its time, so that packets of both generations cross.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from weir.hosts.congestion import ExplicitWindow, WindowLaw
from weir.hosts.errors import CallMismatch
from weir.hosts.numerics.tensors import Reduced
from weir.hosts.protocol.server import ParameterServerCore
from weir.hosts.protocol.worker import WorkerCore, WorkerOptions
from weir.tests.hosts.protocol.node_model import JobEntry, SwitchModel
from weir.wire.aggregation import HEADER_BYTES, MESSAGE_BYTES, next_generation
from weir.wire.control import Child, FinalRound, Held, Resume, ServerPlan, WorkerPlan
from weir.wire.frames import Datagrams

JOB = 7
SERVER = 0x0A00FF01
US = 1000


def worker_address(rank: int) -> int:
    return 0x0A000001 + rank


def switch_address(index: int) -> int:
    return 0x0AFF0001 + index


@dataclass(frozen=True)
class Faults:
    loss: float = 0.0
    duplication: float = 0.0
    corruption: float = 0.0
    """Probability that one bit of a packet flips."""
    corrupt_lanes: bool = True
    """True if lanes may be damaged too, towards a switch; only a new generation undoes that."""
    delay_ns: tuple[int, int] = (5 * US, 50 * US)
    """Uniform, each packet by itself: a wide range reorders."""


@dataclass(frozen=True)
class Tree:
    """Tree of contributions. `parents`: node address → its parent; the root has none. Bits follow the order."""

    parents: dict[int, int]

    def children(self, node: int) -> dict[int, int]:
        """Bit → address."""
        return {1 << i: child for i, child in enumerate(c for c, p in self.parents.items() if p == node)}

    def bit(self, child: int) -> int:
        return next(bit for bit, address in self.children(self.parents[child]).items() if address == child)

    def workers_of(self, node: int) -> int:
        """Number of workers whose data a node's contribution includes."""
        return sum(map(self.workers_of, self.children(node).values())) or 1

    @property
    def inner(self) -> set[int]:
        return set(self.parents.values())


def make_tree(kind: str, ranks: list[int]) -> Tree:
    """Make a tree of one kind.

    `server`: all to the parameter server · `inner`: one switch below it · `tree`: two levels of switches below it ·
    `mixed`: some workers behind a switch, some at the server · `root`: one switch, no server · `tree-root`: two levels.
    """
    workers = [worker_address(rank) for rank in ranks]
    left, right, top = switch_address(0), switch_address(1), switch_address(2)
    half = (len(workers) + 1) // 2
    halves = {w: left if i < half else right for i, w in enumerate(workers)}
    used = dict.fromkeys(halves.values())
    match kind:
        case "server":
            return Tree(dict.fromkeys(workers, SERVER))
        case "inner":
            return Tree({**dict.fromkeys(workers, left), left: SERVER})
        case "tree":
            return Tree({**halves, **dict.fromkeys(used, top), top: SERVER})
        case "mixed":
            return Tree({**{w: left if i < half else SERVER for i, w in enumerate(workers)}, left: SERVER})
        case "root":
            return Tree(dict.fromkeys(workers, right))
        case "tree-root":
            return Tree({**halves, **dict.fromkeys(used, top)})
    raise ValueError(kind)


KINDS = ("server", "inner", "tree", "mixed", "root", "tree-root")


@dataclass
class Host:
    core: WorkerCore | ParameterServerCore
    inbox: list[tuple[int, bytes]] = field(default_factory=list)
    waking: bool = False
    alarm_ns: int | None = None


class Fabric:
    """One job of `workers` workers. `run` ends when every live worker is idle."""

    def __init__(
        self,
        seed: int,
        workers: int,
        kind: str,
        *,
        slots: int = 8,
        window: int = 4,
        faults: Faults = Faults(),
        first_round: int = 0,
        generation: int = 1,
        coalesce_ns: int = 20 * US,
        stall_ns: int = 20_000 * US,
        key: str = "",
        law: Callable[[], WindowLaw] = ExplicitWindow,
    ) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.now = 0
        self.generation = generation
        self.moves = 0
        self.first_round = first_round
        self.key = key
        self.workers = workers
        self.ranks = list(range(workers))
        self.coalesce_ns = coalesce_ns
        self.stall_ns = stall_ns
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self.switches = {switch_address(i): SwitchModel(switch_address(i)) for i in range(3)}
        self.packets = 0
        self.sums: dict[int, dict[int, Reduced]] = {rank: {} for rank in self.ranks}
        self.final_rounds: list[set[int]] = []
        """Final rounds at each move."""
        options = WorkerOptions(
            initial_timeout_ns=400 * US,
            min_timeout_ns=200 * US,
            max_timeout_ns=3_000 * US,
            first_round=first_round,
            law=law,
        )
        tree = make_tree(kind, self.ranks)
        self._write_switches(tree, slots)
        self.hosts: dict[int, Host] = {}
        for rank in self.ranks:
            core = WorkerCore(self._worker_plan(tree, rank, slots, window), options)
            self.hosts[worker_address(rank)] = Host(core)
        self.hosts[SERVER] = Host(ParameterServerCore(replace(self._server_plan(tree, slots), first_round=first_round)))
        self._lanes_hit: set[bytes] = set()
        self._moving = False
        self._last_check = -1
        self.at(self.stall_ns, self._watch)

    # --- plans ---

    def _worker_plan(self, tree: Tree, rank: int, slots: int, window: int) -> WorkerPlan:
        address = worker_address(rank)
        return WorkerPlan(
            JOB,
            self.generation,
            rank,
            self.workers,
            tree.parents[address],
            tree.bit(address),
            slots,
            window,
            members=self._members,
            key=self.key,
        )

    def _server_plan(self, tree: Tree, slots: int) -> ServerPlan:
        children = tuple(
            Child(bit, address, tree.workers_of(address)) for bit, address in tree.children(SERVER).items()
        )
        members = self._members
        return ServerPlan(JOB, self.generation, slots, children, self.workers, members=members, key=self.key)

    @property
    def _members(self) -> tuple[int, ...]:
        return tuple(map(worker_address, self.ranks))

    def _write_switches(self, tree: Tree, slots: int) -> None:
        for address, switch in self.switches.items():
            switch.jobs.clear()
            if address in tree.inner:
                parent = tree.parents.get(address)
                bit = 0 if parent is None else tree.bit(address)
                base = self.random.randrange(0, 64)  # slots move between generations
                switch.jobs[JOB, self.generation] = JobEntry(base, slots, tree.children(address), parent, bit)

    # --- time ---

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_ns, next(self._sequence), action))

    def worker(self, rank: int) -> WorkerCore:
        core = self.hosts[worker_address(rank)].core
        assert isinstance(core, WorkerCore)
        return core

    @property
    def server(self) -> ParameterServerCore:
        core = self.hosts[SERVER].core
        assert isinstance(core, ParameterServerCore)
        return core

    @property
    def finished(self) -> bool:
        return not self._moving and all(self.worker(rank).idle for rank in self.ranks)

    def run(self, max_events: int = 2_000_000) -> None:
        for address in self.hosts:
            self._wake_at(address, self.now)
        for _ in range(max_events):
            if self.finished:
                break
            self.now, _, action = heapq.heappop(self._events)
            action()
        else:
            raise AssertionError(
                f"not finished after {max_events} events: {[self.worker(r).waiting_for(self.now) for r in self.ranks]}"
            )

        for rank, sums in self.sums.items():
            worker = self.worker(rank)
            with contextlib.suppress(CallMismatch):  # which some tensor and all after it end in
                while (reduced := worker.pop_result(len(sums))) is not None:
                    sums[len(sums)] = reduced

    # --- packets ---

    def send(self, source: int, destination: int, payload: bytes) -> None:
        faults, rng = self.faults, self.random
        self.packets += 1
        for _ in range(1 + (rng.random() < faults.duplication)):
            if rng.random() < faults.loss:
                continue
            data = payload
            if rng.random() < faults.corruption:
                damaged = bytearray(payload)
                damaged[rng.randrange(self._damageable(payload))] ^= 1 << rng.randrange(8)
                data = bytes(damaged)
            self.at(self.now + rng.randint(*faults.delay_ns), partial(self._arrive, source, destination, data))

    def _damageable(self, payload: bytes) -> int:
        """Number of leading bytes of a packet that may be damaged. A round's lanes are damaged at most once.

        The linear check finds any damage to one lane; damage to the same high bit of two lanes can cancel in it.
        """
        chunk = payload[5:8]
        if not self.faults.corrupt_lanes or chunk in self._lanes_hit:
            return HEADER_BYTES
        self._lanes_hit.add(chunk)
        return len(payload)

    def _arrive(self, source: int, destination: int, payload: bytes) -> None:
        switch = self.switches.get(destination)
        if switch is not None:
            for address, data in switch.receive(source, payload):
                self.send(switch.address, address, data)
            return
        host = self.hosts[destination]
        host.inbox.append((source, payload))
        if not host.waking:
            self._wake_at(destination, self.now + self.random.randint(0, self.coalesce_ns))

    def _wake_at(self, address: int, time_ns: int) -> None:
        self.hosts[address].waking = True
        self.at(time_ns, lambda: self._wake(address))

    def _wake(self, address: int) -> None:
        host = self.hosts[address]
        host.waking = False
        inbox, host.inbox = host.inbox, []
        for size in (HEADER_BYTES, MESSAGE_BYTES):
            rows = [(source, data) for source, data in inbox if len(data) == size]
            if rows:
                payload: NDArray[np.uint8] = np.frombuffer(b"".join(d for _, d in rows), np.uint8)
                addresses = np.array([source for source, _ in rows], np.uint32)
                host.core.receive(self.now, Datagrams(addresses, payload.reshape(len(rows), size)))
        self._poll(address)

    def _poll(self, address: int) -> None:
        host = self.hosts[address]
        for datagrams in host.core.poll(self.now):
            for destination, row in zip(datagrams.addresses.tolist(), datagrams.payload, strict=True):
                self.send(address, destination, row.tobytes())
        deadline = host.core.deadline_ns
        if deadline is not None and (host.alarm_ns is None or deadline < host.alarm_ns or host.alarm_ns <= self.now):
            host.alarm_ns = deadline
            self.at(deadline, lambda: self._alarm(address, deadline))

    def _alarm(self, address: int, time_ns: int) -> None:
        if self.hosts[address].alarm_ns == time_ns:
            self.hosts[address].alarm_ns = None
            self._poll(address)

    # --- the controller ---

    def _watch(self) -> None:
        """A job that does not move on for `stall_ns` gets a new generation."""
        progress = sum(self.worker(rank).rounds_complete for rank in self.ranks)
        if progress == self._last_check and not self._moving:
            self.move("server", slots=8, window=4)
        self._last_check = progress
        self.at(self.now + self.stall_ns, self._watch)

    def move(self, kind: str, *, slots: int, window: int, without: int | None = None) -> None:
        """Start to move the job; `without`: a worker that is lost, to be gone for good."""
        if self._moving:
            return
        self._moving = True
        self.moves += 1
        if without is not None:
            self.ranks.remove(without)
            self.hosts[worker_address(without)].core.pause()
        held: dict[int, Held] = {}
        addresses = [worker_address(rank) for rank in self.ranks] + [SERVER]

        def pause(address: int) -> None:
            held[address] = self.hosts[address].core.pause()
            if len(held) == len(addresses):
                self._settle(held, kind, slots, window)

        for address in addresses:
            self.at(self.now + self.random.randint(0, 300 * US), partial(pause, address))

    def _settle(self, held: dict[int, Held], kind: str, slots: int, window: int) -> None:
        workers = [address for address in held if address != SERVER]
        lowest = min(held[address].first_incomplete for address in workers)
        final = {r for h in held.values() for r in h.complete} | set(
            range(lowest, max(h.first_incomplete for h in held.values()))
        )
        self.final_rounds.append(final | set(range(self.first_round, lowest)))

        def holds(address: int, number: int) -> bool:
            return number < held[address].first_incomplete or number in held[address].complete

        fetched = []
        for number in sorted(final):
            holders = [address for address in held if holds(address, number)]
            if not all(holds(address, number) for address in workers):
                fetched.append(FinalRound(number, self.random.choice(holders)))
        self.generation = next_generation(self.generation)
        tree = make_tree(kind, self.ranks)
        self._write_switches(tree, slots)

        resumed: set[int] = set()

        def resume(address: int) -> None:
            core = self.hosts[address].core
            plan: WorkerPlan | ServerPlan
            if isinstance(core, WorkerCore):
                plan = self._worker_plan(tree, core.plan.rank, slots, window)
            else:
                plan = self._server_plan(tree, slots)
            core.resume(Resume(plan, tuple(fetched)))
            self._poll(address)
            resumed.add(address)
            self._moving = len(resumed) < len(held)

        for address in held:
            self.at(self.now + self.random.randint(0, 300 * US), partial(resume, address))


def reordering(faults: Faults) -> Faults:
    """The same with delays so different that packets overtake each other by many round trips."""
    return replace(faults, delay_ns=(US, 2_000 * US))
