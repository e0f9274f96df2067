"""Tensors to lanes and back: processor cost of the data types.

A worker of 8 takes a tensor of 64 MiB (which copies it and finds the exponents of its chunks), encodes lanes, 64
packets at a time, and decodes the sums. Bytes are the tensor's own, time is the processor's. The peer is a copy by
NumPy, in blocks of as many numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weir.bench.measure import Aim, Figure, TimedWork, compare, cpu_seconds
from weir.hosts.numerics.datatypes import DataType, FloatType, data_types
from weir.hosts.numerics.native_types import FLOAT32
from weir.hosts.numerics.tensors import NonFinite, Tensor

BYTES: Final = 64 << 20
WORKERS: Final = 8
PACKETS: Final = 64
LEAD: Final = 64
FLOAT32_AIM: Final = 1e9
"""Bytes per second of one core: more than most hosts' links carry."""
POLICIES: Final[tuple[NonFinite, ...]] = ("error", "propagate")


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    rng = np.random.default_rng(1)
    for kind in data_types():
        numbers = rng.standard_normal(BYTES // kind.storage.itemsize)
        values = kind.narrow(numbers) if isinstance(kind, FloatType) else (numbers * 1000).astype(kind.storage)
        for policy in POLICIES if isinstance(kind, FloatType) else POLICIES[:1]:
            yield from _measured(kind, policy, values)


def _measured(kind: DataType, policy: NonFinite, values: NDArray[Any]) -> Iterator[Figure]:
    tensor = Tensor(values, workers=WORKERS, dtype=kind.name, nonfinite=policy)
    tensor.place(0, 0, LEAD)
    rounds = np.arange(tensor.end)
    # alone in the job, it may take all exponents before the first lanes
    exponents = tensor.exponents(rounds).astype(np.int64)
    weights = np.full(len(rounds), WORKERS)
    scale_rounds = tensor.scale_rounds
    tensor.add_results(rounds[:-scale_rounds], exponents[:-scale_rounds], weights[:-scale_rounds], None)
    packets = [rounds[start : start + PACKETS] for start in range(scale_rounds, len(rounds), PACKETS)]
    lanes = tensor.lanes(packets[0])
    numbers = len(values) // len(packets)
    copied = np.empty(numbers, values.dtype)

    def copy() -> None:
        for start in range(0, len(values) - numbers, numbers):
            copied[...] = values[start : start + numbers]

    def make() -> None:
        Tensor(values, workers=WORKERS, dtype=kind.name, nonfinite=policy)

    def encode() -> None:
        for local in packets:
            tensor.lanes(local)

    def decode() -> None:
        for local in packets:
            tensor.add_results(local, exponents[local], weights[local], lanes[: len(local)])

    aim = Aim(FLOAT32_AIM) if kind is FLOAT32 and policy == "error" else None
    name = kind.name if policy == "error" else f"{kind.name} with NaN and infinity"
    steps: list[tuple[str, Callable[[], None]]] = [("make", make), ("encode", encode), ("decode", decode)]
    for step, work in steps:
        mine = TimedWork(step, values.nbytes, work)
        yield compare(
            f"{name}: {step}", "B/s", mine, TimedWork("copy", values.nbytes, copy), aim=aim, clock=cpu_seconds
        )
