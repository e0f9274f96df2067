"""Tensors of every type, operation and policy through the real cores, whatever the network does."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from weir.hosts.errors import CallMismatch
from weir.hosts.numerics.datatypes import FloatType, data_types
from weir.hosts.numerics.tensors import Tensor, reference_sum
from weir.tests.hosts.protocol.network_model import KINDS, US, Fabric, Faults, reordering
from weir.tests.support.errors import raises

Options = dict[str, Any]


def random_call(rng: np.random.Generator, index: int, workers: int) -> tuple[list[np.ndarray], Options, list[int]]:
    """One call: each worker's array, what they agree on, and their weights."""
    kind = data_types()[index % len(data_types())]
    size = int(rng.choice([0, 1, 84, 85, 86, 256, 700, 2000]))
    options: Options = {"name": f"t{index}", "dtype": kind.name, "mean": bool(rng.integers(2))}
    options["nonfinite"] = str(rng.choice(["error", "propagate", "poison"]))
    if size > 2 and rng.integers(2):
        options["cuts"] = sorted({int(cut) for cut in rng.integers(1, size, 4)})
    wide = np.ldexp(rng.standard_normal((workers, size)), rng.integers(-12, 12, (workers, 1)))
    if options["nonfinite"] != "error" and isinstance(kind, FloatType):
        wide[rng.random(wide.shape) < 0.01] = rng.choice([np.nan, np.inf, -np.inf])
    values = kind.narrow(wide) if isinstance(kind, FloatType) else (np.nan_to_num(wide) * 1000).astype(kind.storage)
    return list(values), options, [int(w) for w in rng.integers(1, 50, workers)]


def run_random(seed: int) -> None:
    choice = random.Random(seed)
    workers = choice.choice([1, 2, 3, 5])
    slots = choice.choice([2, 4, 16])
    faults = Faults(loss=choice.choice([0, 0.02, 0.2]), duplication=choice.choice([0, 0.3]), corruption=0.02)
    if choice.random() < 0.5:
        faults = reordering(faults)
    fabric = Fabric(seed, workers, choice.choice(KINDS), slots=slots, window=slots // 2, faults=faults)
    rng = np.random.default_rng(seed)
    calls = [random_call(rng, seed + index, workers) for index in range(choice.randint(2, 6))]
    for index, (arrays, options, weights) in enumerate(calls):
        for rank, array in enumerate(arrays):
            fabric.worker(rank).submit(
                Tensor(array, workers=workers, weight=weights[rank], signature=2 * index + 1, **options)
            )
    for _ in range(choice.randint(0, 2)):
        kind = choice.choice(KINDS)
        fabric.at(choice.randint(0, 5_000 * US), partial(fabric.move, kind, slots=8, window=4))
    fabric.run()
    for index, (arrays, options, weights) in enumerate(calls):
        expected = reference_sum(arrays, weights=weights, **options)
        for rank in fabric.ranks:
            reduced = fabric.sums[rank][index]
            assert reduced.array.tobytes() == expected.tobytes(), f"seed {seed}, worker {rank}, {options}"
            assert set(reduced.weights.tolist()) <= {sum(weights)}


def run_losing_workers(seed: int) -> None:
    """Workers are lost one after the other, with other moves in between: each chunk is exact over who is in it."""
    choice = random.Random(seed)
    workers = choice.choice([2, 3, 4, 5])
    slots = choice.choice([2, 4, 16])
    faults = Faults(loss=choice.choice([0, 0.02, 0.2]), duplication=choice.choice([0, 0.3]))
    if choice.random() < 0.5:
        faults = reordering(faults)
    key = choice.choice(["", "3b" * 32])
    fabric = Fabric(seed, workers, choice.choice(KINDS), slots=slots, window=slots // 2, faults=faults, key=key)
    rng = np.random.default_rng(seed)
    calls = [random_call(rng, seed + index, workers)[:2] for index in range(choice.randint(2, 6))]
    for index, (arrays, options) in enumerate(calls):
        for rank, array in enumerate(arrays):
            fabric.worker(rank).submit(
                Tensor(array, workers=workers, weight=16**rank, signature=2 * index + 1, **options)
            )
    leaving = choice.sample(range(workers), choice.randint(1, workers - 1))
    groups = [tuple(range(workers))]
    for lost in leaving:
        groups.append(tuple(rank for rank in groups[-1] if rank != lost))

    def move(lost: int | None) -> None:
        """Lose a worker, as soon as no other move is under way."""
        if fabric._moving:
            fabric.at(fabric.now + 100 * US, partial(move, lost))
        else:
            slots = choice.choice([2, 8, 16])
            fabric.move(choice.choice(KINDS), slots=slots, window=slots // 2, without=lost)

    time_ns = 0
    for lost in leaving:
        time_ns += choice.randint(0, 2_500 * US)
        fabric.at(time_ns, partial(move, lost))
        if choice.random() < 0.3:
            fabric.at(time_ns + choice.randint(0, 1_000 * US), partial(move, None))
    fabric.run()
    for index, (arrays, options) in enumerate(calls):
        by_weight = {
            sum(16**rank for rank in group): reference_sum(
                [arrays[rank] for rank in group], workers=workers, weights=[16**rank for rank in group], **options
            ).ravel()
            for group in groups
        }
        results = [fabric.sums[rank][index] for rank in fabric.ranks]
        first = results[0]
        for result in results:
            assert result.array.tobytes() == first.array.tobytes(), f"seed {seed}: {options}"
            assert result.weights.tobytes() == first.weights.tobytes(), f"seed {seed}: {options}"
        sizes = np.broadcast_to(first.chunk_values, len(first.weights))
        ends = np.minimum(np.cumsum(sizes), first.values.size).tolist()
        for start, end, weight in zip([0, *ends], ends, first.weights.tolist(), strict=False):
            assert first.values.ravel()[start:end].tobytes() == by_weight[weight][start:end].tobytes(), (
                f"seed {seed}: tensor {index}, elements {start} to {end}, {options}"
            )


@pytest.mark.parametrize("seed", range(12))
def test_lost_workers_scale_no_sum_that_they_are_not_in(seed: int) -> None:
    run_losing_workers(seed)


@pytest.mark.parametrize("seed", range(40))
def test_all_types_are_exact_whatever_the_network_does(seed: int) -> None:
    run_random(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_all_types_are_exact_at_length(first: int) -> None:
    for seed in range(first, first + 100):
        print(f"seed {seed}")  # noqa: T201
        run_random(seed)
        run_losing_workers(seed)


class Failing(Fabric):
    @property
    def finished(self) -> bool:
        return super().finished and all(self.worker(rank).failure is not None for rank in self.ranks)


@pytest.mark.parametrize("seed", range(12))
def test_calls_that_differ_end_every_worker_and_nothing_before(seed: int) -> None:
    """Under losses and copies, too: sums before the call stay, the call and all after it fail everywhere."""
    rng = random.Random(seed)
    fabric = Failing(seed, 3, rng.choice(KINDS), faults=Faults(loss=0.1, duplication=0.2))
    before = [np.full(700, rank, np.float32) for rank in range(3)]
    sizes = rng.choice([(300, 300, 301), (0, 300, 300), (1, 9000, 9000), (300, 300, 300)])
    signatures = [2 * size + 1 for size in sizes] if len(set(sizes)) > 1 else [5, 5, 7]
    for rank in range(3):
        worker = fabric.worker(rank)
        worker.submit(Tensor(before[rank], workers=3, signature=3))
        worker.submit(Tensor(np.ones(sizes[rank], np.float32), workers=3, signature=signatures[rank], name="odd"))
        worker.submit(Tensor(before[rank], workers=3, signature=9))
    fabric.run()
    for rank in range(3):
        worker = fabric.worker(rank)
        assert {handle: sums.array.tolist() for handle, sums in fabric.sums[rank].items()} == {0: [3] * 700}
        for handle in (1, 2):
            assert worker.done(handle)
            with raises(CallMismatch, place="tensor 'odd'"):
                worker.pop_result(handle)
        with pytest.raises(CallMismatch):
            worker.submit(before[rank])
        assert worker.idle
        assert worker.poll(fabric.now) == []
        assert worker.deadline_ns is None


def run_losing_one_of_differing(seed: int) -> None:
    """A worker is lost while the others find that their calls differ: sums before them are complete, and they fail."""
    rng = random.Random(seed)
    slots = rng.choice([2, 8, 16])
    faults = reordering(Faults(loss=0.1, duplication=0.2)) if rng.random() < 0.5 else Faults()
    fabric = Failing(seed, 3, rng.choice(KINDS), slots=slots, window=slots // 2, faults=faults)
    sizes = [rng.choice([300, 700, 3000]) for _ in range(rng.randint(1, 4))]
    odd = rng.choice([(301, 300, 300), (0, 300, 300), (1, 9000, 9000), (9000, 1, 1), (300, 0, 0)])
    for rank in range(3):
        for index, size in enumerate(sizes):
            array = np.full(size, rank + 1, np.float32)
            fabric.worker(rank).submit(Tensor(array, workers=3, signature=2 * index + 1))
        array = np.ones(odd[rank], np.float32)
        fabric.worker(rank).submit(Tensor(array, workers=3, signature=2 * odd[rank] + 99, name="odd"))
        fabric.worker(rank).submit(Tensor(np.ones(300, np.float32), workers=3, signature=9))
    kind = rng.choice(KINDS)
    fabric.at(rng.randint(0, 3_000 * US), partial(fabric.move, kind, slots=slots, window=slots // 2, without=2))
    fabric.run()
    for rank in fabric.ranks:
        worker = fabric.worker(rank)
        assert sorted(fabric.sums[rank]) == list(range(len(sizes)))
        for index in range(len(sizes)):
            assert set(fabric.sums[rank][index].array.tolist()) <= {3, 6}
        with pytest.raises(CallMismatch):
            worker.pop_result(len(sizes))
        assert worker.idle
        assert worker.deadline_ns is None


@pytest.mark.parametrize("seed", range(20))
def test_calls_that_differ_are_found_while_a_worker_is_lost(seed: int) -> None:
    run_losing_one_of_differing(seed)
