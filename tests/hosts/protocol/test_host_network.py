"""Workers, servers and model switches together: over any network behaviour, every worker gets the same bits."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

from weir.hosts.congestion import ExplicitWindow
from weir.hosts.numerics.quantization import chunk_count, dequantize, quantize, scale_table
from weir.hosts.numerics.tensors import reference_sum
from weir.tests.hosts.protocol.chunks import block_exponents, to_chunks
from weir.tests.hosts.protocol.network_model import KINDS, US, Fabric, Faults, reordering, switch_address
from weir.tests.hosts.protocol.node_model import Packet
from weir.tests.support.seeds import few_of
from weir.wire.aggregation import CHUNKS, LANES, MESSAGE_BYTES


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
        fabric.at(time, partial(fabric.move, kind, slots=slots, window=window))
    fabric.run()
    check_all(fabric, arrays)


class Jumping(ExplicitWindow):
    """A window that is large for a moment and one round in the next, at each worker at times of its own."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._until_ns = -1
        self._now_window = 1

    def window(self, now_ns: int) -> int:
        if now_ns >= self._until_ns:
            self._now_window = self._rng.choice([1, 1, 2, 64])
            self._until_ns = now_ns + self._rng.randint(1, 3_000 * US)
        return self._now_window


def run_jumping(seed: int) -> None:
    """Several tensors, with growing and shrinking windows: no worker spends all its room on rounds that others have not
    begun.
    """
    rng = random.Random(seed)
    workers = rng.choice([2, 3, 5])
    faults = Faults(loss=rng.choice([0, 0, 0.05]))
    fabric = Fabric(
        seed,
        workers,
        rng.choice(KINDS),
        slots=64,
        window=32,
        faults=faults,
        stall_ns=1 << 60,
        law=lambda: Jumping(rng),
    )
    arrays = tensors(seed, workers, [rng.choice([1000, 2000, 5000]) for _ in range(6)])
    submit_all(fabric, arrays)
    fabric.run(300_000)
    check_all(fabric, arrays)


def run_losing_a_worker(seed: int) -> None:
    """A worker is lost in the middle: the survivors agree bit for bit, and final rounds stay what they were."""
    rng = random.Random(seed)
    workers = rng.choice([2, 3, 5])
    faults = reordering(Faults(loss=0.1, duplication=0.2)) if rng.random() < 0.5 else Faults()
    fabric = Fabric(seed, workers, rng.choice(KINDS), faults=faults)
    arrays = tensors(seed, workers, [300, 5000])
    submit_all(fabric, arrays)
    lost, kind = rng.randrange(workers), rng.choice(KINDS)
    fabric.at(rng.randint(0, 4_000 * US), lambda: fabric.move(kind, slots=8, window=4, without=lost))
    fabric.run()
    survivors = fabric.ranks
    everyone = list(range(workers))
    for index, per_worker in enumerate(arrays):
        padded = [to_chunks(array) for array in per_worker]
        scales = scale_table(workers)
        for chunk in range(chunk_count(per_worker[0].size)):
            summed = {int(fabric.sums[rank][index].weights[chunk]) for rank in survivors}
            members = next(group for group in (everyone, survivors) if summed == {sum(rank + 1 for rank in group)})
            rows = {rank: padded[rank][chunk : chunk + 1] for rank in members}
            agreed = np.max([block_exponents(row) for row in rows.values()], axis=0)
            total = sum(quantize(row, agreed, scales) for row in rows.values())
            expected = dequantize(np.asarray(total), agreed, scales)[0]
            for rank in survivors:
                got = fabric.sums[rank][index].array[chunk * LANES : (chunk + 1) * LANES]
                assert got.tobytes() == expected[: len(got)].tobytes(), f"tensor {index}, chunk {chunk}, worker {rank}"


@pytest.mark.parametrize("seed", few_of(range(80), 12))
def test_sums_are_exact_whatever_the_network_does(seed: int) -> None:
    run_random(seed)


@pytest.mark.parametrize("seed", few_of(range(80), 12))
def test_sums_are_exact_while_the_job_moves(seed: int) -> None:
    run_moving(seed)


@pytest.mark.parametrize("seed", few_of(range(40), 8))
def test_a_lost_worker_leaves_the_survivors_in_agreement(seed: int) -> None:
    run_losing_a_worker(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_round_number_wraps(kind: str) -> None:
    """Chunks pass 2²⁴ and generations 255, with W = S/2, in every kind of tree."""
    fabric = Fabric(
        1,
        3,
        kind,
        slots=4,
        window=2,
        first_round=CHUNKS - 9,
        generation=254,
        faults=reordering(Faults(loss=0.1, duplication=0.3)),
    )
    arrays = tensors(1, 3, [20 * LANES])
    submit_all(fabric, arrays)
    for time_us in (1_000, 9_000, 18_000):
        fabric.at(time_us * US, lambda: fabric.move(kind, slots=4, window=2))
    fabric.run()
    assert fabric.generation == 2
    check_all(fabric, arrays)


def test_a_damaged_sum_in_a_switch_is_undone_by_a_new_generation() -> None:
    """No resend can repair a damaged sum in a switch; every host refuses it until the controller starts a new
    generation.
    """
    fabric = Fabric(3, 2, "root")
    arrays = tensors(3, 2, [3 * LANES])
    submit_all(fabric, arrays)
    switch = fabric.switches[switch_address(1)]
    untouched = switch.receive

    def damage(source: int, payload: bytes) -> list[Packet]:
        if len(payload) == MESSAGE_BYTES and not fabric.moves:
            payload = payload[:-1] + bytes([payload[-1] ^ 1])
        return untouched(source, payload)

    switch.receive = damage  # type: ignore[method-assign]
    fabric.run()
    assert fabric.moves == 1
    assert sum(fabric.worker(rank).counters.bad_check for rank in range(2)) > 2
    check_all(fabric, arrays)


@pytest.mark.parametrize("seed", range(12))
def test_windows_that_jump_wedge_nobody(seed: int) -> None:
    run_jumping(seed)


@pytest.mark.long(minutes=1)
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_sums_are_exact_at_length(first: int) -> None:
    for seed in range(first, first + 100):
        print(f"seed {seed}")  # noqa: T201
        run_random(seed)
        run_jumping(seed)
        run_moving(seed)
        run_losing_a_worker(seed)
