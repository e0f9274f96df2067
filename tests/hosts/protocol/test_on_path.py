"""An attacker who reads and changes packets on a link can do what docs/threat-model.md (§4) lists, and no more."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.hosts import ParameterServerCore, WorkerCore, WorkerOptions, reference_sum
from weir.hosts.numerics.encodings import encoding_of
from weir.hosts.numerics.native_types import INT32
from weir.hosts.numerics.tensors import Tensor
from weir.tests.hosts.protocol.network_model import US, Fabric, worker_address
from weir.wire.aggregation import (
    CHUNKS,
    HEADER,
    HEADER_BYTES,
    LANES,
    MessageFlag,
    MessageType,
    make_tag,
    message_bytes,
    set_checksum,
    split_tag,
    version_type,
)
from weir.wire.control import Child, ServerPlan, WorkerPlan
from weir.wire.frames import Datagrams

KEY = "3b" * 32
SERVER, ADDRESSES = 100, (1, 2)
WINDOW = 8
WORD = 1 << 32

WRAPPING = "float32 with poisoned chunks"
"""Numbers whose lanes' sums may wrap, so that their checks are modulo 2³² in a job with a key, too."""

Change = Callable[[int, NDArray[np.void]], None]
"""Change on the way to a batch of messages with lanes, or without, from or to one rank."""


def nothing(rank: int, messages: NDArray[np.void]) -> None: ...


class Job:
    """Two workers and their server; every message passes the attacker."""

    def __init__(self, lanes: int = 8, first_round: int = 0) -> None:
        self.lanes = lanes
        both = {"members": ADDRESSES, "key": KEY, "lanes": lanes}
        children = tuple(Child(1 << rank, address) for rank, address in enumerate(ADDRESSES))
        self.server = ParameterServerCore(ServerPlan(5, 1, 16, children, 2, first_round, **both))  # type: ignore[arg-type]
        self.workers = [
            WorkerCore(
                WorkerPlan(5, 1, rank, 2, SERVER, 1 << rank, 16, WINDOW, **both),  # type: ignore[arg-type]
                WorkerOptions(first_round=first_round),
            )
            for rank in range(2)
        ]

    def sums(
        self, arrays: list[NDArray[Any]], up: Change = nothing, down: Change = nothing, kind: str = ""
    ) -> list[NDArray[Any]]:
        """Final sums of each worker; messages are sent once only, so each of them counts."""
        handles = self.run(arrays, up, down, kind)
        taken = [worker.pop_result(handle) for worker, handle in zip(self.workers, handles, strict=True)]
        assert None not in taken, self.drops
        return [each.array for each in taken if each is not None]

    def run(
        self, arrays: list[NDArray[Any]], up: Change = nothing, down: Change = nothing, kind: str = ""
    ) -> list[int]:
        """The arrays' handles, when all are summed or nothing is left to be sent."""
        handles = [self.submit(rank, array, kind) for rank, array in enumerate(arrays)]
        while any(waiting := [worker.poll(0) for worker in self.workers]):
            for rank, outs in enumerate(waiting):
                for out in outs:
                    self.server.receive(0, self._passed(out, ADDRESSES[rank], rank, up))
            for out in self.server.poll(0):
                for rank, worker in enumerate(self.workers):
                    mine = Datagrams(out.addresses, out.payload[out.addresses == ADDRESSES[rank]])
                    worker.receive(0, self._passed(mine, SERVER, rank, down))
        return handles

    def submit(self, rank: int, array: NDArray[Any], kind: str = "") -> int:
        """Handle of one worker's array."""
        if kind != WRAPPING:
            return self.workers[rank].submit(array)
        tensor = Tensor(array, workers=2, lanes=self.lanes, keyed=True, nonfinite="poison")
        assert tensor.may_wrap
        return self.workers[rank].submit(tensor)

    def _passed(self, datagrams: Datagrams, source: int, rank: int, change: Change) -> Datagrams:
        payload = datagrams.payload.copy()
        messages = payload.view(record(payload.shape[1]))[:, 0]
        change(rank, messages)
        set_checksum(messages["header"])
        return Datagrams(np.full(len(payload), source, np.uint32), payload)

    @property
    def drops(self) -> int:
        return self.server.counters.dropped + sum(worker.counters.dropped for worker in self.workers)


def record(size: int) -> np.dtype[np.void]:
    return np.dtype([("header", HEADER), ("lanes", ">i4", ((size - HEADER_BYTES) // 4,))])


def chunk_of(message: np.void) -> int:
    return split_tag(int(message["header"]["tag"]))[1]


def numbers(seed: int, kind: str, size: int) -> list[NDArray[Any]]:
    """Both workers'."""
    rng = np.random.default_rng(seed)
    if kind == "int32":
        return list(rng.integers(-(1 << 31), 1 << 31, (2, size)).astype(np.int32))
    if kind == WRAPPING:
        own, other = rng.integers(-(1 << 23), 1 << 23, (2, size)).astype(np.float32)
        other[::4] = 1 << 28  # so the unit is 1, and the lanes of rank 0 are odd as often as even
        return [own, other]
    return list(rng.standard_normal((2, size)).astype(np.float32))


# --- a reader can make messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "each"), [("int32", 7), ("float32", 8), (WRAPPING, 8)])
def test_two_messages_of_a_worker_make_a_third(kind: str, each: int) -> None:
    """2m₂ − m₁, of the rounds before: all that a check is of, is linear. Modulo p only if that check is not negative:
    its remainder modulo 2³² is refused.
    """
    rng, chunks, lanes = np.random.default_rng(3), 64, 8
    own, other = rng.integers(-999, 999, (2, chunks, each)).astype("int32" if kind == "int32" else "float32")
    other[:, 0] = 4096  # all chunks have the same exponent
    read: dict[int, tuple[NDArray[np.int64], int]] = {}
    expected = own.copy()
    negative: list[int] = []

    def up(rank: int, messages: NDArray[np.void]) -> None:
        for message in messages:
            at = chunk_of(message)
            if rank or not len(message["lanes"]):
                continue
            read[at] = message["lanes"].astype(np.int64), int(message["header"]["check"])
            if at % 3 or not {at - 2, at - 1} <= {*read}:
                continue
            (first, first_check), (second, second_check) = read[at - 2], read[at - 1]
            check = 2 * second_check - first_check
            if kind != WRAPPING and check < 0:
                negative.append(at)
                if not sends_negative:
                    continue
            message["lanes"] = 2 * second - first
            message["header"]["check"] = check % WORD
            chunk = at - WINDOW
            expected[chunk] = 2 * own[chunk - 1] - own[chunk - 2]

    job, sends_negative = Job(lanes), False
    for got in job.sums([own.ravel(), other.ravel()], up=up, kind=kind):
        assert got.tolist() == (expected + other).ravel().tolist()
    assert job.drops == 0
    assert np.count_nonzero((expected != own).any(axis=1)) > chunks // 6
    if kind == WRAPPING:
        assert np.count_nonzero((expected != own).any(axis=1)) >= chunks // 3 - 1
        return
    read.clear()
    negative.clear()
    job, sends_negative = Job(lanes), True
    handles = job.run([own.ravel(), other.ravel()], up=up, kind=kind)
    assert job.server.counters.bad_check == len(negative) > 0
    assert [worker.pop_result(handle) for worker, handle in zip(job.workers, handles, strict=True)] == [None, None]


@dataclass(frozen=True)
class Solution:
    """Result of a reader's analysis of a check: Σ coefficients · (lanes, round, 1), of one worker's message."""

    coefficients: list[int]
    modulus: int

    def check(self, lanes: NDArray[np.int32], number: int, workers: int) -> int:
        terms = [*lanes.tolist(), workers * number, workers]
        return int(sum(c * term for c, term in zip(self.coefficients, terms, strict=True)) % self.modulus)


def solved(rows: NDArray[np.int64], modulus: int) -> list[int] | None:
    """x where rows[:, :-1] · x = rows[:, -1], by Gauss; None where that is not one x."""
    table = (rows % modulus).astype(np.uint64)
    word = np.uint64(modulus)
    for column in range(rows.shape[1] - 1):
        units = [row for row in range(column, len(table)) if math.gcd(int(table[row, column]), modulus) == 1]
        if not units:
            return None
        table[[column, units[0]]] = table[[units[0], column]]
        table[column] = table[column] * np.uint64(pow(int(table[column, column]), -1, modulus)) % word
        others = np.arange(len(table)) != column
        table[others] = (table[others] + (word - table[others, column])[:, None] * table[column]) % word
    return [int(each) for each in table[: rows.shape[1] - 1, -1]]


def determinant(rows: NDArray[np.int64]) -> int:
    """Exactly, by Bareiss."""
    table: list[list[int]] = rows.tolist()
    before = 1
    while len(table) > 1:
        at = next((row for row, each in enumerate(table) if each[0]), None)
        if at is None:
            return 0
        first = table.pop(at)
        top = first[0]
        table = [[(top * x - row[0] * y) // before for x, y in zip(row[1:], first[1:], strict=True)] for row in table]
        before = top
    return abs(table[0][0])


def secret_prime(rows: NDArray[np.int64]) -> int:
    """p divides the determinant of lanes, round, 1 and check of any lanes + 3 messages, and few numbers divide all."""
    found = math.gcd(*(determinant(np.delete(rows, row, 0)) for row in range(3)))
    for small in range(2, 1000):
        while found % small == 0:
            found //= small
    return found


def listened(job: Job, kind: str) -> NDArray[np.int64]:
    """Return lanes, round, 1 and check of worker 0's messages, as many as `solved` needs, and a few more."""
    read: list[list[int]] = []

    def listen(rank: int, messages: NDArray[np.void]) -> None:
        for message in messages:
            if rank == 0 and len(message["lanes"]):
                read.append([*message["lanes"].tolist(), chunk_of(message), 1, int(message["header"]["check"])])

    job.sums(numbers(4, kind, job.lanes * (job.lanes + 12)), up=listen, kind=kind)
    return np.array(read)


def solved_modulo_word(rows: NDArray[np.int64], lanes: int) -> Solution:
    """Solution modulo 2³² by the fewest of these messages that have just one."""
    for count in range(lanes + 2, len(rows)):
        if (coefficients := solved(rows[:count], WORD)) is not None:
            return Solution(coefficients, WORD)
    raise AssertionError("no solution")


def negated(lanes: NDArray[np.int32], kind: str) -> NDArray[np.int32]:
    """Lanes of the numbers' negatives."""
    if kind != "int32":
        return -lanes
    encoding = encoding_of(INT32, 2, len(lanes), keyed=True)
    exponents = np.zeros(1, np.uint8)
    numbers = -encoding.decode(lanes[None], exponents, np.ones(1, np.int64))
    made: NDArray[np.int32] = encoding.encode(numbers, exponents, 1)[0]
    return made


def forge(messages: NDArray[np.void], workers: int, kind: str, solution: Solution) -> None:
    for message in messages:
        made = negated(message["lanes"].astype(np.int32), kind)
        message["lanes"] = made
        message["header"]["check"] = solution.check(made, chunk_of(message), workers)


@pytest.mark.parametrize(
    ("kind", "lanes"),
    [
        ("int32", 4),
        ("int32", 16),
        ("int32", 64),
        ("float32", 4),
        ("float32", 64),
        (WRAPPING, 4),
        (WRAPPING, 16),
        (WRAPPING, LANES),
    ],
)
def test_as_many_messages_as_secrets_allow_forgery(kind: str, lanes: int) -> None:
    """Modulo 2³² lanes + 2 (all have the same weight) and a few more by chance; modulo the secret prime lanes + 4."""
    job = Job(lanes)
    rows = listened(job, kind)
    if kind == WRAPPING:
        solution = solved_modulo_word(rows, lanes)
    else:
        enough = lanes + 4
        modulus = secret_prime(rows[:enough])
        assert modulus == job.server._check.prime
        coefficients = solved(rows[:enough], modulus)
        assert coefficients is not None
        solution = Solution(coefficients, modulus)

    def up(rank: int, messages: NDArray[np.void]) -> None:
        if rank == 0 and messages["lanes"].shape[1]:
            forge(messages, 1, kind, solution)

    def down(rank: int, messages: NDArray[np.void]) -> None:
        if rank == 1 and messages["lanes"].shape[1]:
            forge(messages, 2, kind, solution)

    own, other = numbers(5, kind, lanes * 5)
    for got in job.sums([own, other], up=up, kind=kind):
        assert got.tobytes() == reference_sum([-own, other]).tobytes()
    got, turned = job.sums([own, other], down=down, kind=kind)
    assert got.tobytes() == reference_sum([own, other]).tobytes()
    assert turned.tobytes() == reference_sum([-own, -other]).tobytes()
    assert job.drops == 0


@pytest.mark.parametrize("lanes", [4, 16, LANES])
def test_a_solution_modulo_a_word_makes_no_check_of_int32(lanes: int) -> None:
    """Keyed checks of int32 are modulo the secret prime: as many messages as modulo 2³² give no forgery."""
    job = Job(lanes)
    solution = solved_modulo_word(listened(job, "int32"), lanes)
    forged: list[int] = []

    def up(rank: int, messages: NDArray[np.void]) -> None:
        if rank == 0 and messages["lanes"].shape[1]:
            forge(messages, 1, "int32", solution)
            forged.extend(chunk_of(message) for message in messages)

    arrays = numbers(5, "int32", lanes * 5)
    handles = job.run(arrays, up=up)
    assert job.server.counters.bad_check == job.drops == len(forged) > 0
    assert [worker.pop_result(handle) for worker, handle in zip(job.workers, handles, strict=True)] == [None, None]


# --- exponents --------------------------------------------------------------------------------------------------------


def test_an_exponent_changed_for_one_worker_parts_the_workers() -> None:
    """Both a round without lanes and one with are changed: with twice the exponent's unit, own numbers count half at
    other workers, and theirs twice here. The change stays undetected.
    """
    rng, chunks, lanes = np.random.default_rng(3), 2 * WINDOW, 8
    own, other = rng.integers(-999, 999, (2, chunks, lanes)).astype(np.float32)
    changed = [1, WINDOW + 1]  # the chunks whose exponents the results of these rounds carry

    def down(rank: int, messages: NDArray[np.void]) -> None:
        for message in messages:
            if rank == 0 and chunk_of(message) in changed:
                message["header"]["exponent"] += 1

    job = Job(lanes)
    here, there = (got.reshape(chunks, lanes) for got in job.sums([own.ravel(), other.ravel()], down=down))
    first, second = own + other, own + other
    first[changed], second[changed] = (own + 2 * other)[changed], (own / 2 + other)[changed]
    assert here.tolist() == first.tolist()
    assert there.tolist() == second.tolist()
    assert job.drops == 0


def test_an_exponent_raised_in_a_contribution_coarsens_all_sums() -> None:
    rng, lanes = np.random.default_rng(3), 8
    own, other = rng.integers(-999, 999, (2, lanes)).astype(np.float32)
    own[0], raised = 1023, 24  # below 2¹⁰: rounded to 2^(10 + 24 − 29)

    def up(rank: int, messages: NDArray[np.void]) -> None:
        if rank == 1 and not messages["lanes"].shape[1]:
            messages["header"]["exponent"] = 127 + 10 + raised

    job = Job(lanes)
    for got in job.sums([own, other], up=up):
        assert got.tolist() == (32 * (np.rint(own / 32) + np.rint(other / 32))).tolist()
    assert job.drops == 0


def test_an_exponent_lowered_until_lanes_wrap_yields_no_sum() -> None:
    """A change of one unit leaves room for two workers; two units leave none for numbers of one sign."""
    array = np.full(8, 1000, np.float32)
    for lowered, taken in ((1, True), (2, False)):

        def down(rank: int, messages: NDArray[np.void], less: int = lowered) -> None:
            if not messages["lanes"].shape[1]:
                messages["header"]["exponent"] -= less

        job = Job()
        handles = job.run([array, array], down=down)
        for worker, handle in zip(job.workers, handles, strict=True):
            reduced = worker.pop_result(handle)
            assert (reduced is not None) == taken
            assert reduced is None or reduced.array.tolist() == [2000] * 8
            assert worker.counters.bad_check == (not taken)


# --- messages changed, kept, repeated or moved without solving -----------------------------------------------------


class OnPath(Fabric):
    """A fabric where somebody has the links of one worker, and does what `does` says with some of the packets there."""

    def __init__(self, does: str, seed: int, kind: str) -> None:
        super().__init__(seed, 3, kind, key=KEY)
        self.does = does
        self.dice = random.Random(seed)
        self.left = 12
        self.changed_upwards = 0
        self.before: dict[tuple[int, int], bytes] = {}

    def send(self, source: int, destination: int, payload: bytes) -> None:
        if worker_address(0) not in (source, destination) or not self.left or self.dice.random() < 0.5:
            super().send(source, destination, payload)
            return
        way = (len(payload), source)
        last, self.before[way] = self.before.get(way, payload), payload
        again = partial(super().send, source, destination)
        match self.does:
            case "drops":
                self.left -= 1
            case "delays":
                self.left -= 1
                self.at(self.now + self.dice.randint(1, 9_000) * US, partial(again, payload))
            case "repeats":
                again(payload)
                for _ in range(3):  # most of them in a later generation
                    self.at(self.now + self.dice.randint(1, 2_000) * US, partial(again, payload))
            case "renews":
                again(payload)
                for _ in range(3):
                    later = self.now + self.dice.randint(1, 2_000) * US
                    self.at(later, lambda: again(rewritten(payload, lambda m: self._renew(m))))
            case does:
                changed = rewritten(payload, lambda message: CHANGES[does](message, last, self.dice))
                if changed != payload:
                    self.left -= 1
                    self.changed_upwards += source == worker_address(0)
                again(changed)

    def _renew(self, message: np.void) -> None:
        message["header"]["tag"] = make_tag(self.generation, chunk_of(message))


def rewritten(payload: bytes, change: Callable[[np.void], None]) -> bytes:
    message = np.frombuffer(payload, record(len(payload))).copy()
    change(message[0])
    set_checksum(message["header"])
    return message.tobytes()


def turn_a_lane(message: np.void, last: bytes, dice: random.Random) -> None:
    if len(message["lanes"]):
        message["lanes"][dice.randrange(LANES)] ^= 1 << dice.randrange(31)


def turn(field: str, bits: int) -> Callable[[np.void, bytes, random.Random], None]:
    def change(message: np.void, last: bytes, dice: random.Random) -> None:
        message["header"][field] ^= 1 << dice.randrange(bits)

    return change


def take_from_another_round(*fields: str) -> Callable[[np.void, bytes, random.Random], None]:
    def change(message: np.void, last: bytes, dice: random.Random) -> None:
        other = np.frombuffer(last, record(len(last)))[0]
        if chunk_of(other) == chunk_of(message) or not len(message["lanes"]):
            return
        message["lanes"] = other["lanes"]
        for field in fields:
            message["header"][field] = other["header"][field]

    return change


def congest(message: np.void, last: bytes, dice: random.Random) -> None:
    message["header"]["window"] = dice.randrange(3)
    message["header"]["flags"] |= int(MessageFlag.CONGESTION)


CHANGES = {
    "turns a bit of a lane": turn_a_lane,
    "turns a bit of the weight": turn("weight", 31),
    "turns a bit of the check": turn("check", 31),
    "puts lanes into another round": take_from_another_round(),
    "puts lanes and check into another round": take_from_another_round("check"),
    "lies about queues": congest,
}
HARMLESS = ("drops", "delays", "repeats", "renews", "lies about queues")


ATTACKS = [
    pytest.param(does, kind, seed, marks=() if (place + seed) % 2 else pytest.mark.long)
    for place, (does, kind) in enumerate(
        itertools.product([*(name for name in CHANGES if name not in HARMLESS), *HARMLESS], ["server", "inner", "root"])
    )
    for seed in range(2)
]
"""Each change at each place, in turn of int32 and of float32; the other of the two is long."""


@pytest.mark.parametrize(("does", "kind", "seed"), ATTACKS)
def test_without_solving_nothing_passes_that_makes_a_sum_wrong(does: str, kind: str, seed: int) -> None:
    """Towards a server it is refused alone; in a switch's sum every host refuses it, which costs a generation."""
    fabric = OnPath(does, seed, kind)
    arrays = numbers(seed, "float32" if seed else "int32", 3 * 12 * LANES)[0].reshape(3, -1)
    for rank in range(3):
        fabric.worker(rank).submit(arrays[rank], weight=rank + 1)
    if does in ("repeats", "renews"):
        fabric.at(200 * US, partial(fabric.move, kind, slots=16, window=8))
        fabric.at(700 * US, partial(fabric.move, kind, slots=8, window=4))
    fabric.run()
    expected = reference_sum(list(arrays))
    for rank in range(3):
        assert fabric.sums[rank][0].array.tobytes() == expected.tobytes()
        assert set(fabric.sums[rank][0].weights.tolist()) == {6}
    counters = [host.core.counters for host in fabric.hosts.values()]
    refused = sum(counter.bad_check for counter in counters)
    if does not in HARMLESS:
        assert fabric.changed_upwards > 0
        assert refused > 0
        assert (fabric.moves > 0) == (kind != "server")
        return
    assert refused == 0
    if does == "repeats":
        switches = sum(switch.drops["unknown_job"] for switch in fabric.switches.values())
        assert fabric.moves > 0
        assert switches + sum(counter.stale_generation for counter in counters) > 0
    elif does != "renews":
        assert fabric.moves == 0


class Hoarder(Fabric):
    """A fabric where somebody keeps one round's message to or from worker 0, and later sends it in another's place.

    The tensors have 1, 1, 1, 1 and 2 chunks, and as many scale rounds. Before the loss rounds 5, 10 and 11 are
    withheld, which have lanes of the third and the fifth. After it the third has rounds 10 and 11.
    """

    NUMBER = 11
    WITHHELD = (5, 10, NUMBER)

    def __init__(self, kind: str, *, upwards: bool) -> None:
        super().__init__(1, 3, kind, slots=16, window=8, key=KEY)
        self.kind = MessageType.CONTRIBUTION if upwards else MessageType.RESULT
        self.kept = b""
        self.replaced = 0

    def send(self, source: int, destination: int, payload: bytes) -> None:
        message = np.frombuffer(payload, record(len(payload)))[0]
        mine = worker_address(0) in (source, destination)
        if message["header"]["version_type"] == version_type(self.kind):
            if self.generation == 1 and chunk_of(message) in self.WITHHELD:
                if mine and chunk_of(message) == self.NUMBER:
                    self.kept = payload
                return
            if mine and self.kept and chunk_of(message) == self.NUMBER and self.replaced < 3:
                tag = message["header"]["tag"]
                payload = rewritten(self.kept, lambda old: old["header"].__setitem__("tag", tag))
                self.replaced += 1
        super().send(source, destination, payload)


@pytest.mark.parametrize(("kind", "upwards"), [("root", False), ("root", True), ("server", True)])
def test_a_message_of_before_a_worker_was_lost_is_refused_after(kind: str, upwards: bool) -> None:
    """A result has one worker too many; a contribution has the numbers that the round had before."""
    fabric = Hoarder(kind, upwards=upwards)
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-999, 999, (3, chunks * LANES)).astype(np.float32) for chunks in (1, 1, 1, 1, 2)]
    for array in arrays:
        for rank in range(3):
            fabric.worker(rank).submit(array[rank])
    fabric.at(2_000 * US, partial(fabric.move, kind, slots=16, window=8, without=2))
    fabric.run(200_000)
    assert fabric.replaced
    assert sum(host.core.counters.bad_check for host in fabric.hosts.values()) > 0
    for number, array in enumerate(arrays):
        for rank in range(2):
            reduced = fabric.sums[rank][number]
            assert reduced.array.tolist() == array[: int(reduced.weights[0])].sum(axis=0).tolist()


@pytest.mark.parametrize("kind", ["int32", "float32", WRAPPING])
def test_a_message_does_not_match_the_round_with_its_next_number(kind: str) -> None:
    """2²⁴ rounds later, in the same generation, with the same header."""
    lanes = 8
    kept: dict[tuple[int, int], NDArray[np.void]] = {}

    def keep(rank: int, messages: NDArray[np.void]) -> None:
        kept[rank, messages["lanes"].shape[1]] = messages.copy()

    size = encoding_of(INT32, 2, lanes, keyed=True).values if kind == "int32" else lanes  # of one chunk
    Job(lanes).sums(numbers(1, kind, size), up=keep, kind=kind)
    later = Job(lanes, first_round=CHUNKS)
    for rank, worker in enumerate(later.workers):
        later.submit(rank, numbers(2, kind, size)[rank], kind)
        worker.poll(0)
        for size in (HEADER_BYTES, message_bytes(lanes)):
            old = kept[rank, (size - HEADER_BYTES) // 4].view(np.uint8).reshape(1, size)
            later.server.receive(0, Datagrams(np.array([ADDRESSES[rank]], np.uint32), old))
    assert later.server.counters.bad_check == later.server.counters.received == 4
