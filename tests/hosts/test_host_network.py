"""Workers, servers and model switches together: whatever the network does, every worker gets the same bits."""

from __future__ import annotations

import random

import numpy as np
import pytest
from network_model import KINDS, US, Fabric, Faults, reordering

from hosts.quantization import chunk_count, reference_sum
from wire.aggregation import CHUNKS, LANES


def tensors(seed: int, workers: int, sizes: list[int]) -> list[list[np.ndarray]]:
    """[tensor][worker]: values of very different magnitude by chunk and worker, some chunks all zero."""
    rng = np.random.default_rng(seed)
    result = []
    for size in sizes:
        magnitudes = np.ldexp(1.0, rng.integers(-40, 40, (workers, chunk_count(size)))) * rng.integers(
            0, 2, (workers, chunk_count(size))
        )
        values = rng.standard_normal((workers, chunk_count(size), LANES)) * magnitudes[:, :, None]
        result.append(list(values.reshape(workers, -1)[:, :size].astype(np.float32)))
    return result


def submit_all(fabric: Fabric, arrays: list[list[np.ndarray]]) -> None:
    for index, per_worker in enumerate(arrays):
        for rank, array in enumerate(per_worker):
            fabric.worker(rank).submit(array, name=f"t{index}", weight=rank + 1)


def check_all(fabric: Fabric, arrays: list[list[np.ndarray]]) -> None:
    total = sum(range(1, fabric.workers + 1))
    for index, per_worker in enumerate(arrays):
        expected = reference_sum(per_worker)
        for rank in fabric.ranks:
            reduced = fabric.sums[rank][index]
            assert reduced.name == f"t{index}"
            assert reduced.array.tobytes() == expected.tobytes(), f"worker {rank}, tensor {index}"
            assert reduced.weights.tolist() == [total] * chunk_count(per_worker[0].size)


def random_fabric(seed: int, **changes: object) -> tuple[Fabric, list[list[np.ndarray]]]:
    rng = random.Random(seed)
    workers = rng.choice([1, 2, 2, 3, 5])
    slots = rng.choice([2, 4, 8, 16])
    faults = Faults(
        loss=rng.choice([0, 0.02, 0.2]), duplication=rng.choice([0, 0.1, 0.5]), corruption=rng.choice([0, 0.05])
    )
    if rng.random() < 0.5:
        faults = reordering(faults)
    kind = rng.choice(KINDS)
    options: dict[str, object] = {
        "slots": slots,
        "window": rng.choice([1, slots // 2, slots // 2]),
        "faults": faults,
        "first_round": rng.choice([0, 0, CHUNKS - 5, 3 * CHUNKS - 1]),
        "generation": rng.choice([1, 254]),
    }
    options.update(changes)
    fabric = Fabric(seed, workers, kind, **options)  # type: ignore[arg-type]
    arrays = tensors(seed, workers, [rng.choice([0, 1, 255, 256, 257, 1000, 3000]) for _ in range(rng.randint(1, 4))])
    return fabric, arrays


def run_random(seed: int) -> None:
    fabric, arrays = random_fabric(seed)
    submit_all(fabric, arrays)
    fabric.run()
    check_all(fabric, arrays)


def run_moving(seed: int) -> None:
    """Like run_random, and the job moves to other trees, slots and windows at random moments."""
    fabric, arrays = random_fabric(seed)
    rng = fabric.random
    submit_all(fabric, arrays)
    time = 0
    for _ in range(rng.randint(1, 6)):
        time += rng.randint(0, 2_000 * US)
        slots = rng.choice([2, 4, 8, 32])
        kind, window = rng.choice(KINDS), rng.randint(1, slots // 2)
        fabric.at(time, lambda kind=kind, slots=slots, window=window: fabric.move(kind, slots=slots, window=window))
    fabric.run()
    check_all(fabric, arrays)


@pytest.mark.parametrize("seed", range(120))
def test_sums_are_exact_whatever_the_network_does(seed: int) -> None:
    run_random(seed)


@pytest.mark.parametrize("seed", range(120))
def test_sums_are_exact_while_the_job_moves(seed: int) -> None:
    run_moving(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_sums_are_exact_at_length(seed: int) -> None:
    run_random(seed)
    run_moving(seed)
