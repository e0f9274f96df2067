"""The nodes of a searched job: the real cores and the model switch, as numbered states and numbered messages.

A node's state is a number that stands for a snapshot; a message is one bit of an integer. A node's step from a state
by an event is computed once, by the real core, and looked up from then on. So a search over millions of states of the
whole job calls the cores a few thousand times.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weir.hosts import Counters, ParameterServerCore, WorkerCore, WorkerOptions
from weir.hosts.numerics.datatypes import DataType
from weir.hosts.numerics.quantization import dequantize, quantize, scale_table
from weir.hosts.numerics.tensors import Reduced, Tensor
from weir.hosts.protocol.messages import ROW
from weir.tests.hosts.protocol.chunks import block_exponents, to_chunks
from weir.tests.hosts.protocol.network_model import JOB, SERVER, Tree, make_tree, worker_address
from weir.tests.hosts.protocol.node_model import JobEntry, SwitchModel
from weir.wire.aggregation import (
    HEADER,
    HEADER_BYTES,
    LANES,
    MessageFlag,
    MessageType,
    linear_check,
    set_checksum,
    split_tag,
)
from weir.wire.control import Child, Held, Resume, ServerPlan, WorkerPlan
from weir.wire.frames import Datagrams

Core = WorkerCore | ParameterServerCore | SwitchModel
Message = tuple[int, int, bytes]
"""Source, destination, payload."""
Event = Hashable
"""A message's bit, FIRE, or a controller's event: a tuple whose first element names it."""

FIRE = -1
"""A worker's timers expire."""
FAR_NS = 1 << 40
"""Beyond every time-out of `OPTIONS`."""
OPTIONS = WorkerOptions(initial_timeout_ns=1, min_timeout_ns=1, max_timeout_ns=1)

_NO_LANES: Final = np.zeros((1, 0), np.int32)

_WITHOUT_MEANING = frozenset(
    [
        *("counters", "drops", "_row_at", "_received_lanes", "_lanes", "_timeout", "_deadline"),
        *("attempts", "first_sent_ns", "_travelling", "_wanted", "_first_order", "_order", "_turn", "_sendings"),
        *("_newest_order", "_sifted", "_progress_ns", "_earliest_ns", "_earliest_is_stale", "_next_send_ns"),
        *("_yields", "_repairing", "_lapsed", "_resumed", "_filling", "_landed", "_landed_since_ns"),
        *("_give_up_ns", "_law", "_pacer", "_now_ns", "expirations"),
        "_check",  # the same in every state
    ]
)
"""Counters, scratch memory and timers: timers may fire at any time here, so their readings do not distinguish states.

The network's content and losses limit sending through the window. Here the window is the whole span, so the order of
sendings only affects the time of resends; the window in force is `InFlight`'s.
"""


def canonical(value: Any) -> Hashable:
    """All that may matter of a state machine, as a value to compare states by."""
    if value is None or isinstance(value, int | str | bytes | float | Enum | type):
        return value
    if isinstance(value, DataType):
        return value.name
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return tuple(sorted((canonical(key), canonical(item)) for key, item in value.items()))
    if isinstance(value, frozenset | set):
        return tuple(sorted(map(canonical, value)))  # type: ignore[type-var]
    if isinstance(value, tuple | list | deque):
        return tuple(map(canonical, value))
    names = [field.name for field in fields(value)] if is_dataclass(value) else sorted(vars(value))
    return (type(value), *(canonical(getattr(value, name)) for name in names if name not in _WITHOUT_MEANING))


@dataclass(frozen=True)
class Setup:
    """Searched setup: a job, its tree, and the number of each kind of fault.

    The network may lose, copy and reorder without bound in any case.
    """

    kind: str
    workers: int = 2
    slots: int = 2
    window: int = 1
    chunks: int = 1
    tensors: int = 1
    """Number of tensors of that many chunks each, all submitted at the beginning."""
    moves: int = 0
    """Changes of generation."""
    next_kind: str = ""
    """The tree after a move; the same by default."""
    lost: tuple[int, ...] = ()
    """Addresses of hosts that may die at any time, as many as there are moves."""
    ghosts: bool = False
    """They do not die: a move gives one of them up, which goes on by the old plan."""
    dies_in_moves: bool = False
    """Hosts may also die between their answer to Pause and their Resume, which may go unheard when they take it."""
    restarts: int = 0
    """Number of times that a switch loses its registers."""
    after: str = ""
    """End of an earlier job with the same number, at any moment: "ended" by the controller, or "forgotten" by a new
    controller without the journal.
    """
    first_generation: int = 1
    adds: tuple[int, ...] = ()
    """Ranks that add numbers, all if empty; the others send PRESENT."""
    wants: tuple[int, ...] = ()
    """Ranks that want the sum, all if empty."""
    scattered: bool = False
    """Each chunk is wanted by one rank alone, chunk c by rank c modulo the number of workers."""
    seed: int = 1
    """Seed of the gradients."""

    def __str__(self) -> str:
        parts = [f"{self.kind}, {self.workers} workers, S = {self.slots}, W = {self.window}, {self.chunks} chunks"]
        if self.tensors > 1:
            parts.append(f"{self.tensors} tensors")
        if self.moves:
            parts.append(f"{self.moves} moves" + (f" to {self.next_kind}" if self.next_kind else ""))
        if self.lost:
            gone = " or ".join("the server" if a == SERVER else f"worker {a - worker_address(0)}" for a in self.lost)
            parts.append(f"{gone} {'is cut off' if self.ghosts else 'dies'}")
        if self.dies_in_moves:
            parts.append("also in the move")
        if self.restarts:
            parts.append(f"{self.restarts} restarts of a switch")
        if self.adds:
            parts.append(f"numbers of {' and '.join(f'worker {rank}' for rank in self.adds)} alone")
        if self.wants:
            parts.append(f"sums for {' and '.join(f'worker {rank}' for rank in self.wants)} alone")
        if self.scattered:
            parts.append("scattered sums")
        if self.after:
            parts.append(f"after one that was {self.after}")
        return "; ".join(parts)

    def tree(self, generation: int, ranks: list[int]) -> Tree:
        return make_tree(self.next_kind if self.next_kind and generation > self.first_generation else self.kind, ranks)

    @property
    def deaths(self) -> int:
        return 0 if self.ghosts else min(self.moves, len(self.lost))

    @property
    def with_server(self) -> bool:
        everyone = list(range(self.workers))
        return any(SERVER in self.tree(generation, everyone).inner for generation in self._generations)

    @property
    def switches(self) -> list[int]:
        everyone = list(range(self.workers))
        inner = {node for generation in self._generations for node in self.tree(generation, everyone).inner}
        return sorted(inner - {SERVER})

    @property
    def _generations(self) -> tuple[int, int]:
        """The first, and those after it."""
        return self.first_generation, self.first_generation + 1

    def worker_plan(self, tree: Tree, generation: int, rank: int) -> WorkerPlan:
        address = worker_address(rank)
        parent, bit = tree.parents[address], tree.bit(address)
        return WorkerPlan(
            *(JOB, generation, rank, self.workers, parent, bit, self.slots, self.window),
            members=self.members(tree),
            presents=True,
            prunes=SERVER not in tree.inner,
        )

    def added(self, rank: int) -> NDArray[np.bool_]:
        """Chunks that a worker adds numbers to, (chunks,)."""
        return np.full(self.chunks, not self.adds or rank in self.adds)

    def wanted(self, rank: int) -> NDArray[np.bool_]:
        """Chunks whose sum a worker wants, (chunks,)."""
        if self.scattered:
            own: NDArray[np.bool_] = np.arange(self.chunks) % self.workers == rank
            return own
        return np.full(self.chunks, not self.wants or rank in self.wants)

    def wanted_runs(self, rank: int) -> list[tuple[int, int]] | None:
        """The same, as runs of elements; None: all."""
        wanted = self.wanted(rank)
        return None if wanted.all() else [(c * LANES, (c + 1) * LANES) for c in np.flatnonzero(wanted).tolist()]

    def server_plan(self, tree: Tree, generation: int) -> ServerPlan:
        children = tuple(Child(bit, address) for bit, address in tree.children(SERVER).items())
        return ServerPlan(JOB, generation, self.slots, children, self.workers, members=self.members(tree))

    def members(self, tree: Tree) -> tuple[int, ...]:
        return tuple(address for address in map(worker_address, range(self.workers)) if address in tree.parents)

    def job_entries(self, tree: Tree, generation: int, switch: int) -> dict[tuple[int, int], JobEntry]:
        if switch not in tree.inner:
            return {}
        parent = tree.parents.get(switch)
        bit = 0 if parent is None else tree.bit(switch)
        return {(JOB, generation): JobEntry(0, self.slots, tree.children(switch), parent, bit)}


class Gradients:
    """The tensors of every worker, and the only results that their rounds may have."""

    def __init__(self, setup: Setup) -> None:
        rng = np.random.default_rng(setup.seed)
        self.count = setup.chunks
        self.lead = min(setup.window, setup.chunks)
        self.each = self.lead + self.count
        """Rounds of a tensor."""
        self.rounds = setup.tensors * self.each
        self.scales = scale_table(setup.workers)
        size = (setup.workers, setup.chunks, LANES)
        self.arrays = []
        """Arrays by tensor and rank."""
        for _ in range(setup.tensors):
            scaled = rng.standard_normal(size, np.float32) * np.ldexp(1, rng.integers(0, 4, size[:2]))[:, :, None]
            added = np.stack([setup.added(rank) for rank in range(setup.workers)])
            self.arrays.append((scaled * added[:, :, None]).astype(np.float32).reshape(setup.workers, -1))
        self.weights = [16**rank for rank in range(setup.workers)]
        """The summed weight's digits say who is in a sum, and how often."""

    @cached_property
    def legal(self) -> dict[Hashable, tuple[int, ...]]:
        """Content that a round's result may have → the ranks that are in it.

        After a loss the remaining chunks have other rounds, so that the number of a round does not tell its chunk.
        """
        result: dict[Hashable, tuple[int, ...]] = {}
        groups = [
            group for size in range(len(self.weights)) for group in combinations(range(len(self.weights)), size + 1)
        ]
        for group in groups:
            weight = np.array([sum(self.weights[rank] for rank in group)], np.int64)
            exponents = [self._agreed(arrays, group) for arrays in self.arrays]
            carried = {0, *np.concatenate(exponents).tolist()}
            for exponent in carried:
                result[exponent, int(weight[0]), int(linear_check(_NO_LANES, weight[:1])[0]), None] = group
            for arrays, agreed in zip(self.arrays, exponents, strict=True):
                for total in self._lanes(arrays, group, agreed):
                    check = int(linear_check(total[None], weight)[0])
                    result.update({(each, int(weight[0]), check, total.tobytes()): group for each in carried})
        return result

    @cached_property
    def without_lanes(self) -> set[tuple[Hashable, ...]]:
        """Exponent, weight and check that a DONE may have."""
        return {content[:3] for content in self.legal if isinstance(content, tuple)}

    def _agreed(self, arrays: NDArray[np.float32], group: Sequence[int]) -> NDArray[np.uint8]:
        """Exponents of a tensor's chunks over these ranks, (chunks,): no others may scale their sum."""
        agreed: NDArray[np.uint8] = np.max([block_exponents(to_chunks(arrays[rank])) for rank in group], axis=0)
        return agreed

    def _lanes(self, arrays: NDArray[np.float32], group: Sequence[int], agreed: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Sums of a tensor's lanes over these ranks, (chunks, LANES)."""
        parts = [quantize(to_chunks(arrays[rank]), agreed, self.scales) for rank in group]
        total: NDArray[np.int32] = np.sum(parts, axis=0, dtype=np.int32)
        return total

    def sums(self, tensor: int, group: Sequence[int]) -> NDArray[np.float32]:
        """Expected float32 sum of a tensor over these ranks, (chunks, LANES)."""
        arrays = self.arrays[tensor]
        agreed = self._agreed(arrays, group)
        return dequantize(self._lanes(arrays, group, agreed), agreed, self.scales)


@dataclass(frozen=True)
class Facts:
    """Properties of a node's state for the search."""

    results: tuple[int, ...] = ()
    """Number of the result that this host held first, by round, 0 for none."""
    idle: bool = False
    weights: tuple[int, ...] = ()
    """Summed weights of all tensors' chunks, of a worker that is idle; 0 for those that it does not want."""
    wrong: str = ""
    """Error that this state shows by itself."""


@dataclass(frozen=True)
class Past:
    """Remains of an earlier job at the start."""

    messages: tuple[Message, ...] = ()
    """All that may still arrive, at any time."""
    slots: frozenset[tuple[bytes, ...]] = frozenset()
    """Possible contents of the switches' slots, pickled, by switch; none: they are empty."""


NO_PAST: Final = Past()


class Nodes:
    """All nodes of one job, each with its states so far."""

    def __init__(
        self,
        setup: Setup,
        make_switch: Callable[[int, int], SwitchModel] = SwitchModel,
        past: Past = NO_PAST,
    ) -> None:
        self.setup = setup
        self.gradients = Gradients(setup)
        everyone = list(range(setup.workers))
        generation = setup.first_generation
        tree = setup.tree(generation, everyone)
        self.messages: list[Message] = []
        self.contents: list[Any] = [None]
        """Result number → (exponent, weight, check, lanes)."""
        self._message_bits: dict[Message, int] = {}
        self._content_numbers: dict[tuple[int, Hashable], int] = {}
        self.core_calls = 0

        cores: list[Core] = []
        self.addresses: list[int] = []
        for rank in everyone:
            self.addresses.append(worker_address(rank))
            worker = WorkerCore(setup.worker_plan(tree, generation, rank), OPTIONS)
            for arrays in self.gradients.arrays:
                weight = self.gradients.weights[rank]
                wanted = setup.wanted_runs(rank)
                worker.submit(
                    Tensor(arrays[rank], workers=setup.workers, weight=weight, adds=setup.added(rank), wanted=wanted)
                )
            cores.append(worker)
        if setup.with_server:
            self.addresses.append(SERVER)
            cores.append(ParameterServerCore(setup.server_plan(tree, generation)))
        for address in setup.switches:
            self.addresses.append(address)
            switch = make_switch(address, setup.slots)
            switch.jobs = setup.job_entries(tree, generation, address)
            cores.append(switch)
        self.index = {address: index for index, address in enumerate(self.addresses)}
        self.destined = [0] * len(cores)
        """Bits of the messages to each node."""
        self.snapshots: list[list[bytes]] = [[] for _ in cores]
        self.facts: list[list[Facts]] = [[] for _ in cores]
        self._numbers: list[dict[Hashable, int]] = [{} for _ in cores]
        self._steps: list[dict[tuple[int, Event], tuple[int, int]]] = [{} for _ in cores]
        self._held: dict[tuple[int, int], Held] = {}
        self.start_sent = 0
        for message in past.messages:
            self.start_sent |= self._bit(*message)
        hosts = []
        for index, core in enumerate(cores):
            if isinstance(core, WorkerCore):
                self.start_sent |= self._sent(index, core.poll(0))
            if not isinstance(core, SwitchModel):
                hosts.append(self._intern(index, core, (0,) * self.gradients.rounds))
        empty = tuple(pickle.dumps(core.slots) for core in cores if isinstance(core, SwitchModel))
        self.starts = []
        for held in sorted(past.slots or {empty}):
            switches = []
            for index, slots in enumerate(held, len(hosts)):
                core = cores[index]
                assert isinstance(core, SwitchModel)
                core.slots = pickle.loads(slots)
                switches.append(self._intern(index, core, (0,) * self.gradients.rounds))
            self.starts.append((*hosts, *switches))

    # --- steps ---

    def step(self, index: int, state: int, event: Event) -> tuple[int, int]:
        """(the state after the event, the bits of the messages sent)."""
        key = (state, event)
        known = self._steps[index].get(key)
        if known is None:
            known = self._steps[index][key] = self._compute(index, state, event)
        return known

    def held(self, index: int, state: int) -> Held:
        """Host's answer to Pause in this state."""
        if (index, state) not in self._held:
            core = self.load(index, state)
            assert not isinstance(core, SwitchModel)
            self._held[index, state] = core.pause()
        return self._held[index, state]

    def load(self, index: int, state: int) -> Core:
        core: Core = pickle.loads(self.snapshots[index][state])
        return core

    def _compute(self, index: int, state: int, event: Event) -> tuple[int, int]:
        self.core_calls += 1
        core = self.load(index, state)
        sent = 0
        match event:
            case int() if event == FIRE:
                if isinstance(core, WorkerCore) and core.deadline_ns is not None:
                    sent = self._sent(index, core.poll(core.deadline_ns + FAR_NS))
            case int():
                source, _, payload = self.messages[event.bit_length() - 1]
                if isinstance(core, SwitchModel):
                    for address, data in core.receive(source, payload):
                        sent |= self._bit(core.address, address, data)
                else:
                    core.receive(0, Datagrams(np.array([source], np.uint32), np.frombuffer(payload, np.uint8)[None]))
                    sent = self._sent(index, core.poll(0))
            case ("batch", tuple(bits)):
                assert not isinstance(core, SwitchModel)
                taken = [self.messages[bit.bit_length() - 1] for bit in bits]
                sources = np.array([source for source, _, _ in taken], np.uint32)
                payloads = np.frombuffer(b"".join(payload for _, _, payload in taken), np.uint8)
                core.receive(0, Datagrams(sources, payloads.reshape(len(taken), -1)))
                sent = self._sent(index, core.poll(0))
            case ("pause",):
                assert not isinstance(core, SwitchModel)
                core.pause()
            case ("resume", Resume() as resume):
                assert not isinstance(core, SwitchModel)
                core.resume(resume)
                sent = self._sent(index, core.poll(0))
            case ("write", int(generation), tuple(ranks)):
                assert isinstance(core, SwitchModel)
                tree = self.setup.tree(generation, list(ranks))
                core.jobs = self.setup.job_entries(tree, generation, core.address)
            case ("restart",):
                assert isinstance(core, SwitchModel)
                core.forget()
        return self._intern(index, core, self.facts[index][state].results), sent

    def _intern(self, index: int, core: Core, before: tuple[int, ...]) -> int:
        if isinstance(core, SwitchModel):
            core.drops.clear()
            facts = Facts()
        else:
            core.counters = Counters()
            facts = self._look(core, before)
        key = (canonical(core), facts.results)
        numbers = self._numbers[index]
        if key not in numbers:
            numbers[key] = len(numbers)
            self.snapshots[index].append(pickle.dumps(core, pickle.HIGHEST_PROTOCOL))
            self.facts[index].append(facts)
        return numbers[key]

    # --- messages ---

    def _bit(self, source: int, destination: int, payload: bytes) -> int:
        """Only the flags LANES and WANTED have a meaning to the protocol, so a repeated message is the same message."""
        as_sent = (source, destination, payload)
        if as_sent in self._message_bits:
            return self._message_bits[as_sent]
        header = np.frombuffer(payload[:HEADER_BYTES], HEADER).copy()
        header["flags"] &= np.uint8(MessageFlag.LANES | MessageFlag.WANTED)
        set_checksum(header)
        key = (source, destination, header.tobytes() + payload[HEADER_BYTES:])
        if key not in self._message_bits:
            self._message_bits[key] = 1 << len(self.messages)
            self.destined[self.index[destination]] |= 1 << len(self.messages)
            self.messages.append(key)
        self._message_bits[as_sent] = self._message_bits[key]
        return self._message_bits[key]

    def _sent(self, index: int, out: list[Datagrams]) -> int:
        bits = 0
        for datagrams in out:
            for destination, row in zip(datagrams.addresses.tolist(), datagrams.payload, strict=True):
                bits |= self._bit(self.addresses[index], destination, row.tobytes())
        return bits

    # --- expected results ---

    def _look(self, core: WorkerCore | ParameterServerCore, before: tuple[int, ...]) -> Facts:
        results = list(before)
        wrong = ""
        store = core._store
        for place in np.flatnonzero(store.round >= 0).tolist():
            number = int(store.round[place])
            lanes = store.lanes[place].tobytes() if store.has_lanes[place] else None
            exponent, weight, check = (int(store.reduced[ROW[name], place]) for name in ("exponent", "weight", "check"))
            if not weight:  # passed over after a loss
                continue
            if store.done[place]:
                if (exponent, weight, check) not in self.gradients.without_lanes:
                    wrong = f"a wrong sum: round {number} ended with {self._who(weight)}"
                continue
            results += [0] * (number + 1 - len(results))
            content = (exponent, weight, check, lanes)
            result = self._content_numbers.setdefault((number, content), len(self.contents))
            if result == len(self.contents):
                self.contents.append(content)
            if content not in self.gradients.legal:
                wrong = f"a wrong sum: round {number} holds {self._who(content[1])}"
            elif results[number] not in (0, result):
                old, new = self._who(self.contents[results[number]][1]), self._who(content[1])
                wrong = f"a round that was held is summed again: round {number} held {old} and now holds {new}"
            results[number] = results[number] or result
        idle = isinstance(core, WorkerCore) and core.idle
        weights: list[int] = []
        if isinstance(core, WorkerCore) and idle:
            wanted = self.setup.wanted(core.plan.rank)
            finished: WorkerCore = pickle.loads(pickle.dumps(core))
            for tensor in range(self.setup.tensors):
                reduced = finished.pop_result(tensor)
                if reduced is None or not self._is_exact(tensor, reduced, wanted):
                    wrong = wrong or f"tensor {tensor} is not the exact sum of the workers that its weights show"
                else:
                    weights += np.where(wanted, reduced.weights, 0).tolist()
        return Facts(tuple(results), idle, tuple(weights), wrong)

    def _is_exact(self, tensor: int, reduced: Reduced, wanted: NDArray[np.bool_]) -> bool:
        rows = np.asarray(reduced.array).reshape(-1, LANES)
        for chunk, weight in enumerate(reduced.weights.tolist()):
            digits = _digits(weight)
            group = [rank for rank, count in enumerate(digits) if count]
            if (
                set(digits) - {0, 1}
                or not group
                or (wanted[chunk] and rows[chunk].tobytes() != self.gradients.sums(tensor, group)[chunk].tobytes())
            ):
                return False
        return True

    def _who(self, weight: int) -> str:
        parts = [f"{count}× worker {rank}" for rank, count in enumerate(_digits(weight)) if count]
        return " + ".join(parts) or "nothing"

    def who(self, result: int) -> tuple[int, ...]:
        """The ranks that are in a result."""
        return tuple(rank for rank, count in enumerate(_digits(self.contents[result][1])) if count)

    # --- for people ---

    def name(self, address: int) -> str:
        if address == SERVER:
            return "server"
        if self.index[address] < self.setup.workers:
            return f"worker {self.index[address]}"
        return f"switch {address & 0xFF}"

    def describe_message(self, bit: int, arrow: str = "to") -> str:
        source, destination, payload = self.messages[bit.bit_length() - 1]
        header = np.frombuffer(payload[:HEADER_BYTES], HEADER)
        generation, chunk = split_tag(int(header["tag"][0]))
        other = destination if arrow == "to" else source
        kind = MessageType(int(header["version_type"][0]) & 15).name
        inside = f" of {self._who(int(header['weight'][0]))}" if header["weight"][0] else ""
        return f"{kind} {generation}.{chunk}{inside} {arrow} {self.name(other)}"

    def describe_state(self, index: int, state: int) -> str:
        core = self.load(index, state)
        if isinstance(core, SwitchModel):
            slots = [f"{slot.generation}.{slot.chunk} {slot.bits:b}" if slot.job else "empty" for slot in core.slots]
            return f"slots: {', '.join(slots)}"
        paused = ", paused" if core.paused else ""
        held = core.pause()
        beyond = "".join(f" and {number}" for number in sorted(held.complete))
        return f"holds rounds below {held.first_incomplete}{beyond}{paused}"


def _digits(weight: int) -> list[int]:
    return [weight >> shift & 15 for shift in range(0, 32, 4)]


def bits_of(mask: int) -> list[int]:
    """The bits of a set of messages, lowest first."""
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low)
        mask ^= low
    return bits
