"""Packed sums through the real cores and the compiled switch program: equal to the reference, bit for bit."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from weir.hosts import Communicator, Compression, reference_sum, wait_all
from weir.hosts.numerics.draws import Draws
from weir.hosts.numerics.packed import FIELD_BITS
from weir.hosts.numerics.tensors import Tensor, sum_locally
from weir.tests.hosts.collectives.fabric_driver import FabricJob
from weir.tests.hosts.protocol.network_model import KINDS, US, Fabric, Faults
from weir.tests.support.seeds import few_of

BYTES_PER_NUMBER = {6: 0.8, 7: 1.0, 8: 1.0, 10: 4 / 3, 15: 2.0}


def gradients(seed: int, workers: int, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    scale = np.ldexp(np.float32(1), rng.integers(-9, 9))
    return [(rng.standard_normal(size) * scale).astype(np.float32) for _ in range(workers)]


def run_random(seed: int) -> None:
    choice = random.Random(seed)
    workers, slots = choice.choice([2, 3, 5, 8]), choice.choice([2, 4, 16])
    faults = Faults(loss=choice.choice([0, 0.05, 0.2]), duplication=choice.choice([0, 0.3]))
    fabric = Fabric(seed, workers, choice.choice(KINDS), slots=slots, window=slots // 2, faults=faults)
    calls = []
    for index, bits in enumerate(choice.sample(FIELD_BITS, 2)):
        arrays = gradients(seed + index, workers, choice.choice([1, 1300, 9000]))
        options: dict[str, Any] = {"dtype": f"packed{bits}", "mean": choice.random() < 0.5}
        calls.append((arrays, options))
        for rank, array in enumerate(arrays):
            tensor = Tensor(array, workers=workers, signature=5, draws=Draws(seed, rank), **options)
            fabric.worker(rank).submit(tensor)
    for _ in range(choice.randint(0, 2)):
        fabric.at(choice.randint(0, 3_000 * US), partial(fabric.move, choice.choice(KINDS), slots=8, window=4))
    fabric.run()
    for index, (arrays, options) in enumerate(calls):
        right = reference_sum(arrays, seed=seed, **options)
        for rank in fabric.ranks:
            assert fabric.sums[rank][index].array.tobytes() == right.tobytes(), f"seed {seed}, {options}"


@pytest.mark.parametrize("seed", range(12))
def test_packed_sums_are_exact_whatever_the_network_does(seed: int) -> None:
    run_random(seed)


def sum_of(arrays: list[np.ndarray], group: tuple[int, ...], seed: int, options: dict[str, Any]) -> np.ndarray:
    """The sum of these ranks' numbers, each with the random numbers of its rank."""
    tensors = [Tensor(arrays[rank], workers=len(arrays), draws=Draws(seed, rank), **options) for rank in group]
    sum_locally(tensors, tensors[:1])
    return tensors[0].reduced().values


def run_losing_workers(seed: int, workers: int, bits: int) -> set[int]:
    """Workers are lost in the middle: each chunk is exact over its contributors, and its scale is theirs alone.

    Returns:
        Numbers of contributors that chunks have.
    """
    choice = random.Random(seed)
    slots = choice.choice([2, 4, 16])
    faults = Faults(loss=choice.choice([0, 0.05, 0.2]), duplication=choice.choice([0, 0.3]))
    kinds = KINDS if workers <= 32 else ("tree", "tree-root")  # a node has 32 children at most
    fabric = Fabric(seed, workers, choice.choice(kinds), slots=slots, window=slots // 2, faults=faults)
    options: dict[str, Any] = {"dtype": f"packed{bits}", "mean": choice.random() < 0.5}
    arrays = gradients(seed, workers, choice.choice([6_000, 17_000]))
    leaving = choice.sample(range(workers), choice.randint(1, min(2, workers - 1)))
    arrays[leaving[0]] *= np.float32(100)  # the largest scale goes with it
    for rank, array in enumerate(arrays):
        tensor = Tensor(array, workers=workers, signature=5, draws=Draws(seed, rank), **options)
        fabric.worker(rank).submit(tensor)

    def move(lost: int) -> None:
        if fabric._moving:
            fabric.at(fabric.now + 100 * US, partial(move, lost))
        else:
            fabric.move(choice.choice(kinds), slots=8, window=4, without=lost)

    groups, time_ns = [tuple(range(workers))], 0
    for lost in leaving:
        groups.append(tuple(rank for rank in groups[-1] if rank != lost))
        time_ns += choice.randint(100 * US, 1_500 * US)
        fabric.at(time_ns, partial(move, lost))
    fabric.run()
    right = {len(group): sum_of(arrays, group, seed, options) for group in groups}
    first = fabric.sums[fabric.ranks[0]][0]
    for rank in fabric.ranks:
        assert fabric.sums[rank][0].array.tobytes() == first.array.tobytes()
        assert fabric.sums[rank][0].weights.tobytes() == first.weights.tobytes()
    assert isinstance(first.chunk_values, int)
    for chunk, weight in enumerate(first.weights.tolist()):
        part = slice(chunk * first.chunk_values, (chunk + 1) * first.chunk_values)
        assert first.array[part].tobytes() == right[weight][part].tobytes(), f"chunk {chunk} of {weight} workers"
    return set(first.weights.tolist())


@pytest.mark.parametrize("bits", FIELD_BITS)
def test_chunks_are_exact_over_their_contributors_after_losses(bits: int) -> None:
    counts: set[int] = set()
    for seed in range(4):
        counts |= run_losing_workers(seed, (2, 3, 5, 8)[seed], bits)
    assert counts & {1, 4, 6, 7}  # of survivors alone


@pytest.mark.parametrize(("workers", "bits"), few_of([(16, 6), (64, 10), (32, 7), (64, 8), (64, 15)], 2))
def test_large_jobs_are_exact_with_losses(workers: int, bits: int) -> None:
    run_losing_workers(workers + bits, workers, bits)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1400, 100))
def test_packed_sums_are_exact_at_length(first: int) -> None:
    for seed in range(first, first + 100):
        print(f"seed {seed}")  # noqa: T201
        run_random(seed)
        run_losing_workers(seed, 2 + seed % 9, FIELD_BITS[seed % 5])


@pytest.mark.parametrize("loss", [0.03, 0.0])
def test_switches_carry_the_bytes_that_packing_says(loss: float) -> None:
    """Counters of the ports of one host's switch, in a fabric of the compiled program."""
    size = 15_360  # whole chunks for all fields
    values = gradients(4, 4, size)
    job = FabricJob(loss=loss, seed=4)
    members = [Communicator(driver) for driver in job.drivers]
    sent = {}
    for bits in (7, 10) if loss else FIELD_BITS:
        compressions = [Compression.packed(bits) for _ in members]
        before = job.bytes_on("h1", "s1")
        handles = [
            member.allreduce_async(value, compression=compression)
            for member, value, compression in zip(members, values, compressions, strict=True)
        ]
        results = wait_all(handles)
        sent[bits] = [after - first for after, first in zip(job.bytes_on("h1", "s1"), before, strict=True)]
        right = reference_sum(values, dtype=f"packed{bits}", seed=Compression.packed(bits).next_seed("tensor"))
        assert {result.tobytes() for result in results} == {right.tobytes()}
    if not loss:
        for bits, counts in sent.items():
            messages = size // (256 * (32 // bits))
            headers = 70 * (messages + min(messages, 8))  # of rounds with lanes and of scale rounds
            assert counts == [round(BYTES_PER_NUMBER[bits] * size) + headers] * 2
