"""Tensors that one job sums on a rig, and the required sums: exact, and the same at every survivor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weir.controller.planning.plan import JobSpec
from weir.hosts import reference_sum
from weir.hosts.numerics.native_types import FLOAT32
from weir.hosts.numerics.tensors import Reduced, Tensor
from weir.tests.schedules.rig import ScheduleRig
from weir.wire.aggregation import LANES

Tensors = Sequence[Sequence[NDArray[np.float32]]]
"""Arrays by tensor and rank."""


def draw_tensors(seed: int, sizes: Sequence[int], workers: int) -> Tensors:
    """Magnitudes differ, so that exponents do."""
    rng = np.random.default_rng(seed)
    return [
        [(rng.standard_normal(size) * np.exp2(rng.integers(-8, 9))).astype(np.float32) for _ in range(workers)]
        for size in sizes
    ]


def telling_weights(workers: int, *, heavy: bool = False) -> tuple[int, ...]:
    """Weights by rank whose sum identifies the contributors, each at most once, for up to eight workers.

    They are powers of 16; or they add up to nearly 2³², the maximum: each is the largest allowed one minus 2^rank, so
    that the sum of c of them falls short of c times that by c different powers of two.
    """
    if heavy:
        return tuple(((1 << 32) - 1) // workers - (1 << rank) for rank in range(workers))
    return tuple(1 << 4 * rank for rank in range(workers))


def draw_wanted(seed: int, tensors: Tensors) -> list[NDArray[np.bool_]]:
    """Draw the chunks that each rank wants, (workers, C) by tensor: all chunks of half of the tensors."""
    rng = np.random.default_rng(seed)
    shapes = [(len(arrays), -(-arrays[0].size // LANES)) for arrays in tensors]
    return [rng.random(shape) < (1 if rng.random() < 0.5 else 0.4) for shape in shapes]


class Summing:
    """A running job's tensors: submitted to its workers, and taken from them when they are summed."""

    def __init__(
        self,
        rig: ScheduleRig,
        spec: JobSpec,
        tensors: Tensors,
        *,
        heavy: bool = False,
        wanted: Sequence[NDArray[np.bool_]] | None = None,
    ) -> None:
        """`heavy`: the weights add up to nearly 2³². `wanted`: as `draw_wanted` returns it; None: all."""
        self.job = spec.job
        self.weights = telling_weights(len(spec.workers), heavy=heavy) if len(spec.workers) <= 8 else None
        self.names = spec.workers
        self.sums: dict[str, dict[int, Reduced]] = {name: {} for name in spec.workers}
        self._rig = rig
        self._tensors = tensors
        self._wanted = wanted

    def submit_all(self) -> None:
        """All tensors to all workers, at once."""
        for name in self.names:
            self.submit(name, range(len(self._tensors)))

    def submit(self, name: str, numbers: range) -> None:
        """These tensors to a worker, unless it is dead."""
        if (self.job, name) in self._rig.dead:
            return
        rank = self.names.index(name)
        worker = self._rig.worker(self.job, name)
        for number in numbers:
            weight = 1 if self.weights is None else self.weights[rank]
            plan, runs = worker.plan, None
            if self._wanted is not None and not (chunks := self._wanted[number][rank]).all():
                size = self._tensors[number][rank].size
                places = np.flatnonzero(chunks) * LANES
                runs = [(first, min(first + LANES, size)) for first in places.tolist()]
            tensor = Tensor(
                self._tensors[number][rank],
                workers=plan.workers,
                lanes=plan.lanes,
                keyed=bool(plan.key),
                name=f"t{number}",
                weight=weight,
                wanted=runs,
            )
            assert worker.submit(tensor) == number
        self._rig.agents[self.job, name].flush()
        self.collect()

    def collect(self) -> None:
        for name in self._rig.workers(self.job):
            worker, sums = self._rig.worker(self.job, name), self.sums[name]
            while (reduced := worker.pop_result(len(sums))) is not None:
                sums[len(sums)] = reduced

    def has(self, number: int) -> bool:
        """Return whether every remaining worker has this tensor's sum."""
        return all(number in self.sums[name] for name in self._rig.workers(self.job))

    @property
    def finished(self) -> bool:
        """Return whether every remaining worker has every sum. AssertionError when the job was aborted."""
        aborted = self._rig.controller.jobs.aborted
        assert self.job not in aborted, aborted[self.job]
        return all(len(self.sums[name]) == len(self._tensors) for name in self._rig.workers(self.job))

    def check(self) -> None:
        """Raises AssertionError unless every sum is exact."""
        survivors = {name: self.sums[name] for name in self._rig.workers(self.job)}
        if self.weights is not None:
            check_sums(self._tensors, self.names, self.weights, survivors, self._wanted)
        else:
            for number, arrays in enumerate(self._tensors):
                exact = reference_sum(arrays)
                for name, mine in survivors.items():
                    assert mine[number].array.tobytes() == exact.tobytes(), f"tensor {number}: wrong sum at {name}"


def check_sums(
    tensors: Tensors,
    names: Sequence[str],
    weights: Sequence[int],
    sums: dict[str, dict[int, Reduced]],
    wanted: Sequence[NDArray[np.bool_]] | None = None,
) -> None:
    """All survivors hold the same bits of the chunks that they want, and these are the exact sum over the workers that
    the weights identify.

    `weights` are those of `telling_weights`, `sums` is by survivor and tensor, `wanted` as `draw_wanted` returns it.
    """
    everyone = range(len(names))
    groups = [group for size in everyone for group in itertools.combinations(everyone, size + 1)]
    summed = {sum(weights[rank] for rank in group): set(group) for group in groups}
    alive = {names.index(name) for name in sums}
    for number, arrays in enumerate(tensors):
        count = -(-arrays[0].size // LANES)
        mine = {name: (_chunks(held[number]), held[number].weights) for name, held in sums.items()}
        assert all(held[number].array.shape == arrays[0].shape for held in sums.values())
        assert all(len(each) == count for _, each in mine.values())
        whole = reference_sum(arrays)
        everyones = _chunks(Reduced("", FLOAT32, whole, np.zeros(count, np.uint32)))
        for chunk in range(count):
            wanting = [name for name in mine if wanted is None or wanted[number][names.index(name)][chunk]]
            if not wanting:
                continue
            lanes, told = mine[wanting[0]]
            for name in wanting[1:]:
                other, others = mine[name]
                assert other[chunk].tobytes() == lanes[chunk].tobytes(), f"tensor {number} differs at {name}"
                assert others[chunk] == told[chunk], f"weights of tensor {number} differ"
            weight = int(told[chunk])
            assert weight in summed, f"tensor {number}, chunk {chunk}: no workers, each once, weigh {weight}"
            adding = summed[weight]
            assert alive <= adding, f"tensor {number}, chunk {chunk}: of {alive}, only {adding} are in the sum"
            exact = everyones[chunk]
            if weight != sum(weights):
                exact = _chunk_sum(arrays, chunk, adding, len(names))
            assert lanes[chunk].tobytes() == exact.tobytes(), f"tensor {number}, chunk {chunk}: wrong sum over {adding}"


def _chunks(reduced: Reduced) -> NDArray[np.float32]:
    """The sums by chunk, (C, LANES), the last one filled with zeros."""
    chunks = np.zeros((len(reduced.weights), LANES), np.float32)
    chunks.reshape(-1)[: reduced.values.size] = reduced.values.reshape(-1)
    return chunks


def _chunk_sum(
    arrays: Sequence[NDArray[np.float32]], chunk: int, adding: set[int], workers: int
) -> NDArray[np.float32]:
    """The exact sum of a chunk over `adding`, whose exponents alone set its scale."""
    cut = {rank: arrays[rank].reshape(-1)[chunk * LANES : (chunk + 1) * LANES].astype(np.float64) for rank in adding}
    agreed = max(int(np.frexp(np.abs(one).max())[1]) for one in cut.values())  # the least e with |x| < 2^e
    scale = 2.0 ** (30 - (workers - 1).bit_length() - agreed)
    exact = np.zeros(LANES, np.float32)
    exact[: len(cut[min(adding)])] = sum(np.rint(cut[rank] * scale) for rank in sorted(adding)) / scale
    return exact
