"""Detection by a job's check: all true sums pass, and altered ones no more often than the analysis states."""

from __future__ import annotations

import hashlib
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from weir.hosts import WorkerCore, reference_sum
from weir.hosts.numerics.tensors import Tensor
from weir.hosts.protocol import authentication
from weir.hosts.protocol.authentication import SumCheck
from weir.hosts.protocol.server import ParameterServerCore
from weir.wire.aggregation import LANES, MESSAGE, MESSAGE_BYTES, linear_check, set_checksum
from weir.wire.control import Child, FinalRound, Resume, ServerPlan, WorkerPlan
from weir.wire.frames import Datagrams

KEY = "3b" * 32
OTHER_KEY = "3c" * 32
NEVER, ALWAYS = np.zeros(1, np.bool_), np.ones(1, np.bool_)
ONE, SIZES = np.ones(1, np.int64), np.arange(1, 9)


def contributions(seed: int, workers: int, lanes: int, *, wraps: bool) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Lanes (workers, lanes) and weights (workers,) at the ends of their ranges."""
    rng = np.random.default_rng(seed)
    most = 1 << 31 if wraps else (1 << 30) // workers
    values = rng.integers(-most, most, (workers, lanes)).astype(np.int32)
    values[:, ::5] = most - 1 if seed % 2 else -most
    return values, rng.integers(0, ((1 << 32) - 1) // workers, workers, endpoint=True)


def rounds(count: int, number: int = 5) -> NDArray[np.int64]:
    return np.full(count, number, np.int64)


@pytest.mark.parametrize("wraps", [False, True])
@given(
    seed=st.integers(0, 1 << 30),
    workers=st.integers(1, 300),
    lanes=st.sampled_from([4, 64, LANES]),
    number=st.integers(0, 1 << 40),
)
def test_the_sum_of_checks_is_the_check_of_the_sum(
    wraps: bool, seed: int, workers: int, lanes: int, number: int
) -> None:
    values, weights = contributions(seed, workers, lanes, wraps=wraps)
    mode, same = np.full(workers, wraps), rounds(workers, number)
    check = SumCheck(KEY, workers)
    checks = check.of(same, values, weights, mode)
    assert check.passes(same, values, weights, checks, mode, ONE).all()
    assert check.may_pass(same, values, weights, checks, np.ones((workers, 1), np.int64)).all()
    total = values.sum(axis=0, dtype=np.int32)[None]
    added = checks.sum(dtype=np.uint32)[None]
    weight = weights.sum()[None]
    assert check.passes(same[:1], total, weight, added, mode[:1], np.array([workers])).tolist() == [True]
    assert not check.passes(same[:1], total, weight, added, mode[:1], np.array([workers + 1])).any()
    for stranger in (SumCheck(OTHER_KEY, workers), SumCheck("", workers)):
        assert not stranger.passes(same[:1], total, weight, added, mode[:1], np.array([workers])).any()
    scale = check.of(same, None, weights, True)
    assert check.passes(
        same[:1], None, weight, scale.sum(dtype=np.uint32)[None], ALWAYS, np.array([7, workers])
    ).tolist() == [True]


def test_by_definition() -> None:
    """Compared with sums of Python integers, with the prime and coefficients that checks of single lanes reveal."""
    check = SumCheck(KEY, 8)
    p = check.prime
    assert 1 << 28 < p < 1 << 29
    assert all(p % factor for factor in range(2, math.isqrt(p) + 1))
    zeros = np.zeros((1, LANES), np.int32)
    (pad,) = check.of(rounds(1), zeros, np.zeros(1), NEVER).tolist()
    units = np.eye(LANES, dtype=np.int32)
    coefficients = check.of(rounds(LANES), units, np.zeros(LANES), np.zeros(LANES, np.bool_)).tolist()
    (of_weight,) = check.of(rounds(1), zeros, np.ones(1), NEVER).tolist()
    values, weights = contributions(3, 1, LANES, wraps=False)
    expected = sum((r - pad) * v for r, v in zip(coefficients, values[0].tolist(), strict=True))
    expected += (of_weight - pad) * int(weights[0]) + pad
    assert check.of(rounds(1), values, weights, NEVER).tolist() == [expected % p]
    assert len({*coefficients, pad}) == LANES + 1
    assert {SumCheck(OTHER_KEY, 8).prime, SumCheck(KEY, 9).prime}.isdisjoint({p})


class Definition:
    """The check in Python's whole numbers, from a job's key."""

    def __init__(self, key: str, workers: int) -> None:
        self.key, self.draws = bytes.fromhex(key), 0
        self.of_words = 1 << 32, [drawn | 1 for drawn in self.draw(1 << 32, LANES + 1)], self.draw(1 << 32, 2)
        bits, prime = 32 - math.ceil(math.log2(workers)), 1
        while prime == 1 or not all(prime % factor for factor in range(2, math.isqrt(prime) + 1)):
            prime = (1 << bits - 1) + 2 * self.draw(1 << bits - 2, 1)[0] + 1
        pad = self.draw(prime, 2)
        self.of_primes = prime, self.draw(prime, LANES + 1), pad

    def draw(self, below: int, count: int) -> list[int]:
        self.draws += 1
        told = hashlib.shake_256(b"weir sum check" + self.draws.to_bytes(4, "big") + self.key).digest(8 * count)
        return [int.from_bytes(told[index : index + 8], "big") % below for index in range(0, len(told), 8)]

    def of(self, number: int, lanes: list[int], weight: int, wraps: bool) -> int:
        modulus, coefficients, (factor, constant) = self.of_words if wraps else self.of_primes
        total = sum(r * v for r, v in zip(coefficients, lanes, strict=False)) + coefficients[LANES] * weight
        return (total + factor * number + constant) % modulus


@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
@pytest.mark.parametrize(("workers", "lanes"), [(1, LANES), (2, 4), (3, LANES), (300, 64)])
def test_all_hosts_make_the_same_of_a_key(key: str, workers: int, lanes: int) -> None:
    """Hosts of all versions derive the same checks, so that theirs add up: the derivation in the module's
    description.
    """
    check, definition = SumCheck(key, workers), Definition(key, workers)
    assert check.prime == definition.of_primes[0]
    numbers = np.array([0, 1, 3, (1 << 32) - 1, (1 << 40) + 7, 12])
    values, weights = contributions(workers, len(numbers), lanes, wraps=False)
    weights[:] = [(1 << 32) - 1, 0, 1, 5, 1 << 31, 77]
    wraps = np.array([True, False, False, True, False, True])
    rows = list(zip(numbers.tolist(), values.tolist(), weights.tolist(), wraps.tolist(), strict=True))
    for same in (check, pickle.loads(pickle.dumps(check))):
        assert same.of(numbers, values, weights, wraps).tolist() == [definition.of(*row) for row in rows]
    for mode in (False, True):
        expected = [definition.of(number, row, weight, mode) for number, row, weight, _ in rows]
        assert check.of(numbers, values, weights, mode).tolist() == expected
        assert check.passes(numbers, values, weights, np.array(expected), mode, ONE).all()
    without_lanes = [definition.of(number, [], weight, mode) for number, _, weight, mode in rows]
    assert check.of(numbers, None, weights, wraps).tolist() == without_lanes


def test_each_message_passes_for_its_expected_worker_counts() -> None:
    """One worker's, and sums of three that send the same."""
    check, numbers = SumCheck(KEY, 3), np.arange(6)
    wraps, added = np.array([True, True, False, False, True, False]), np.array([1, 3, 1, 3, 3, 1])
    values, weights = contributions(4, 6, LANES, wraps=False)
    checks = check.of(numbers, values, weights, wraps) * added
    values, weights = values * added[:, None].astype(np.int32), weights * added
    for counts, right in (
        (ONE, added == 1),
        (np.array([1, 3]), added > 0),
        (np.array([2]), added < 0),
        (added[:, None], added > 0),
        (4 - added[:, None], added < 0),
    ):
        assert check.passes(numbers, values, weights, checks, wraps, counts).tolist() == right.tolist()
        if counts.ndim == 2:
            assert check.may_pass(numbers, values, weights, checks, counts).tolist() == right.tolist()
            assert not check.may_pass(numbers, None, weights, checks, counts).any()


def test_without_a_key_it_is_the_check_that_everybody_can_make() -> None:
    values, weights = contributions(1, 5, LANES, wraps=True)
    for mode in (np.zeros(5, np.bool_), np.ones(5, np.bool_)):
        assert SumCheck("", 5).of(rounds(5), values, weights, mode).tolist() == linear_check(values, weights).tolist()


@pytest.mark.parametrize("wraps", [False, True])
def test_neither_zeros_nor_another_rounds_numbers_pass(wraps: bool) -> None:
    """Zeros are in every linear relation: an exponent could be forged with them, or a worker's part taken away."""
    check, mode = SumCheck(KEY, 8), np.full(1000, wraps)
    numbers = np.arange(1000)
    zeros = np.zeros((1000, LANES), np.int32)
    assert not check.passes(numbers, zeros, np.zeros(1000), np.zeros(1000), mode, SIZES).any()
    assert not check.passes(numbers, None, np.zeros(1000), np.zeros(1000), mode, SIZES).any()
    values, weights = contributions(6, 1000, LANES, wraps=wraps)
    checks = check.of(numbers, values, weights, mode)
    assert check.passes(numbers, values, weights, checks, mode, ONE).all()
    assert not check.passes(numbers + 1, values, weights, checks, mode, ONE).any()


@given(st.integers(0, 31), st.lists(st.integers(0, LANES - 1), min_size=1, max_size=LANES, unique=True))
def test_no_bit_is_blind_where_sums_cannot_wrap(bit: int, lanes: list[int]) -> None:
    """One bit turned in any set of lanes: with the public coefficients two lanes' highest bits hide each other."""
    check = SumCheck(KEY, 8)
    values, weights = contributions(2, 1, LANES, wraps=False)
    checks = check.of(rounds(1), values, weights, NEVER)
    damaged = values.copy()
    damaged.view(np.uint32)[0, lanes] ^= np.uint32(1 << bit)
    assert not check.passes(rounds(1), damaged, weights, checks, NEVER, ONE).any()


@pytest.mark.parametrize("key", [KEY, ""])
def test_damage_to_one_lane_is_always_found_where_sums_may_wrap(key: str) -> None:
    check, mode = SumCheck(key, 8), np.ones(32 * LANES, np.bool_)
    numbers = np.arange(32 * LANES)
    values, weights = contributions(2, 1, LANES, wraps=True)
    values, weights = values.repeat(len(mode), axis=0), weights.repeat(len(mode))
    checks = check.of(numbers, values, weights, mode)
    values.view(np.uint32)[numbers, numbers // 32] ^= np.uint32(1) << (numbers % 32).astype(np.uint32)
    assert not check.passes(numbers, values, weights, checks, mode, ONE).any()


def test_forgeries_pass_as_rarely_as_the_analysis_says() -> None:
    """10⁵ guesses each. Where sums may wrap, and two lanes differ in bit b alone: with probability 2^(b − 32)."""
    rng = np.random.default_rng(5)
    count = 100_000
    values = rng.integers(-(1 << 31), 1 << 31, (count, 4)).astype(np.int32)
    weights = np.zeros(count, np.int64)
    keys = [SumCheck(rng.bytes(32).hex(), 1) for _ in range(count // 100)]
    for bit in (31, 29, 26):
        passed = 0
        for rows, check in zip(np.split(np.arange(count), len(keys)), keys, strict=True):
            mode = np.ones(len(rows), np.bool_)
            checks = check.of(rows, values[rows], weights[rows], mode)
            forged = values[rows].view(np.uint32).copy()
            forged[:, :2] ^= np.uint32(1 << bit)
            guess = checks + (rng.integers(0, 1 << (32 - bit), len(rows)) << bit)
            passed += int(np.count_nonzero(check.passes(rows, forged.view(np.int32), weights[rows], guess, mode, ONE)))
        assert abs(passed * 2 ** (32 - bit) / count - 1) < 0.2
    guesses = rng.integers(0, keys[0].prime, count)
    assert (
        not keys[0].passes(np.arange(count), values, weights, guesses, np.zeros(count, np.bool_), ONE).any()
    )  # p > 2³¹


@pytest.mark.parametrize(
    ("dtype", "nonfinite", "wraps"),
    [
        ("float32", "error", False),
        ("float64", "error", False),
        ("float32", "poison", True),
        ("int64", "error", False),
        ("int32", "error", True),
    ],
)
def test_wrapping_is_known_per_tensor(dtype: str, nonfinite: str, wraps: bool) -> None:
    tensor = Tensor(np.zeros(3, dtype), workers=3, nonfinite=nonfinite)  # type: ignore[arg-type]
    assert tensor.may_wrap is wraps


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_forged_sum_is_refused_by_server_and_worker(dtype: str) -> None:
    """The forger has everything except the key: job, generation, bit, round, and the lanes' values."""
    server_address, addresses = 100, (1, 2)
    plans = [
        WorkerPlan(5, 1, rank, 2, server_address, 1 << rank, 16, 8, members=addresses, key=KEY) for rank in range(2)
    ]
    children = tuple(Child(1 << rank, address) for rank, address in enumerate(addresses))
    server = ParameterServerCore(ServerPlan(5, 1, 16, children, 2, members=addresses, key=KEY))
    workers = [WorkerCore(plan) for plan in plans]
    arrays = [np.arange(40).astype(dtype) * (rank + 1) for rank in range(2)]
    for worker, array in zip(workers, arrays, strict=True):
        worker.submit(array)
    for _ in range(4):
        for worker, address in zip(workers, addresses, strict=True):
            for out in worker.poll(0):
                for each in (forged(out), out):
                    server.receive(0, Datagrams(np.full(len(each), address, np.uint32), each.payload))
        for out in server.poll(0):
            for worker, address in zip(workers, addresses, strict=True):
                mine = Datagrams(
                    np.full(int((out.addresses == address).sum()), server_address, np.uint32),
                    out.payload[out.addresses == address],
                )
                for each in (forged(mine), mine):
                    worker.receive(0, each)
    total = reference_sum(arrays)
    for worker in workers:
        reduced = worker.pop_result(0)
        assert reduced is not None
        assert reduced.array.tobytes() == total.tobytes()
        assert worker.counters.bad_check > 0
    assert server.counters.bad_check > 0


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_two_highest_bits_changed_in_a_sum_of_integers_are_found(dtype: str) -> None:
    """A switch whose registers a stranger has written: public coefficients hide such a pair."""
    plan = WorkerPlan(5, 1, 0, 2, 100, 1, 16, 8, members=(1, 2), key=KEY)
    server = ParameterServerCore(ServerPlan(5, 1, 16, (Child(1, 1), Child(2, 2)), 2, members=(1, 2), key=KEY))
    workers = [WorkerCore(plan), WorkerCore(replace(plan, rank=1, child_bit=2))]
    for worker in workers:
        worker.submit(np.arange(40).astype(dtype))
    for _ in range(4):
        for worker, address in zip(workers, (1, 2), strict=True):
            for out in worker.poll(0):
                server.receive(0, Datagrams(np.full(len(out), address, np.uint32), out.payload))
        for out in server.poll(0):
            mine = out.payload[out.addresses == 1]
            changed = mine.copy()
            if changed.shape[1] == MESSAGE_BYTES:
                records = changed.view(MESSAGE)[:, 0]
                records["lanes"][:, :2] ^= np.uint32(1 << 31).astype(records["lanes"].dtype)
            for payload in (changed, mine):
                workers[0].receive(0, Datagrams(np.full(len(mine), 100, np.uint32), payload))
            hers = out.payload[out.addresses == 2]
            workers[1].receive(0, Datagrams(np.full(len(hers), 100, np.uint32), hers))
    reduced = workers[0].pop_result(0)
    assert reduced is not None
    assert reduced.array.tobytes() == (2 * np.arange(40)).astype(dtype).tobytes()
    assert workers[0].counters.bad_check > 0


def forged(datagrams: Datagrams) -> Datagrams:
    """Those with lanes, with others in them and the check that everybody can make; the rest as it is."""
    if datagrams.payload.shape[1] != MESSAGE_BYTES or not len(datagrams):
        return Datagrams(datagrams.addresses[:0], datagrams.payload[:0])
    payload = datagrams.payload.copy()
    records = payload.view(MESSAGE)[:, 0]
    lanes = records["lanes"].astype(np.int32) + 7
    records["lanes"] = lanes
    records["header"]["check"] = linear_check(lanes, records["header"]["weight"])
    set_checksum(records["header"])
    return Datagrams(datagrams.addresses, payload)


def test_a_fetched_round_with_a_lost_workers_sum_passes() -> None:
    addresses, server_address = (1, 2, 3), 100
    plans = [
        WorkerPlan(5, 1, rank, 3, server_address, 1 << rank, 16, 8, members=addresses, key=KEY) for rank in range(3)
    ]
    children = tuple(Child(1 << rank, address) for rank, address in enumerate(addresses))
    server = ParameterServerCore(ServerPlan(5, 1, 16, children, 3, members=addresses, key=KEY))
    workers = [WorkerCore(plan) for plan in plans]
    arrays = [np.arange(40, dtype=np.float32) * (rank + 1) for rank in range(3)]
    for worker, array in zip(workers, arrays, strict=True):
        worker.submit(array)
    for hears in ((0, 1, 2), (1,)):  # of the round with lanes, one alone has the result
        for worker, address in zip(workers, addresses, strict=True):
            for out in worker.poll(0):
                server.receive(0, Datagrams(np.full(len(out), address, np.uint32), out.payload))
        for out in server.poll(0):
            for rank in hears:
                mine = out.payload[out.addresses == addresses[rank]]
                workers[rank].receive(0, Datagrams(np.full(len(mine), server_address, np.uint32), mine))
    fetching, holder = workers[:2]
    final = (FinalRound(1, addresses[1]),)
    for rank, worker in enumerate((fetching, holder)):
        worker.pause()
        worker.resume(Resume(replace(plans[rank], generation=2, members=addresses[:2]), final))
    (asked,) = fetching.poll(0)
    holder.receive(0, Datagrams(np.full(len(asked), addresses[0], np.uint32), asked.payload))
    (answer,) = holder.poll(0)
    fetching.receive(0, Datagrams(np.full(len(answer), addresses[1], np.uint32), answer.payload))
    reduced = fetching.pop_result(0)
    assert reduced is not None
    assert reduced.array.tobytes() == reference_sum(arrays).tobytes()


def test_primes_are_told_from_all_other_odd_numbers() -> None:
    """The odd numbers include Fermat pseudoprimes to every base (Carmichael's, such as 294,409 = 37 · 73 · 109), and
    strong pseudoprimes to one or two of the three bases.
    """
    sieve = np.ones(300_000, np.bool_)
    sieve[:2] = False
    for number in range(2, math.isqrt(len(sieve)) + 1):
        sieve[number * number :: number] &= not sieve[number]
    for number in range(101, len(sieve), 2):
        assert authentication._is_prime(number) == sieve[number], number
    for number in (19 * 199 * 271, 653 * 9781, 13_903 * 55_609, 2221 * 4441):
        assert not authentication._is_prime(number), number
