"""Time to an accuracy with compressed gradients: steps by arithmetic, times of their parts as each can be had.

::

    step = computing + encoding + exchange + decoding
            processor time of one core   packets in virtual time (switches), bytes at line rate (rings)

A step's time does not depend on its numbers, so a course takes steps × time of a step. Rings are without headers and
gaps, all-gathers with one code to decode, and PowerSGD without its first two steps, which it does not compress: all in
favour of the baselines. Nothing overlaps: the models have one bucket of gradients.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import numpy as np

from ...hosts.compression.codecs import make_codec
from ...hosts.compression.trial import measure
from ...topologies.units import parse_rate
from ...training.workload import Floats, Workload
from ...training.workloads import make_workload
from ..config import RunConfig
from .compressed_steps import (
    MOMENTUM,
    POWER_RANK,
    SAMPLES,
    WORKERS,
    Averaging,
    CodecMean,
    PowerMean,
    bfloat16_ring,
    processor_seconds,
    shapes_of,
    steps_to_accuracy,
)
from .exchange_times import ring_gather_s, ring_sum_s, switch_sum_s
from .paper import Paper, Quantity, Sample

TIME: Final = Quantity("time to the accuracy", "ms")
STEPS: Final = Quantity("steps to the accuracy", "steps")

RATES: Final = ("40Mbit", "1Gbit")
"""Rates of all links."""
_NEIGHBOUR_S: Final = 8e-6
"""Delay between neighbours of a ring: at most four links."""
_LEARNING: Final = (0.05, 0.1, 0.2, 0.4)
"""Learning rates, of which each contender has its best one for each seed."""
LIMIT: Final = 150
"""Maximum number of steps of a course."""
RATIO: Final = 0.01


@dataclass(frozen=True, slots=True)
class CourseModel:
    """One problem."""

    workload: str
    hidden: int
    accuracy: float

    def made(self, seed: int) -> Workload:
        """Return the problem with this seed's data and initial weights."""
        return make_workload(self.workload, seed, self.hidden)


MODELS: Final = (CourseModel("digits", 128, 0.95), CourseModel("mnist", 32, 0.9))


@dataclass(frozen=True, slots=True)
class Way:
    """One contender's arithmetic and exchange."""

    averaging: str
    """Name in `_averaging`: ways that compute the same share their steps."""
    exchange: str
    """switch, ring or gather."""
    codec: str = ""
    options: Mapping[str, Any] | None = None
    momentum: float = MOMENTUM
    """Momentum of the optimiser: a codec that keeps numbers back for long needs none beside it."""
    faster: float = 1.0
    """Factor of the learning rates."""


def _packed(bits: int) -> Way:
    return Way(f"packed{bits}", "switch", "packed", {"bits": bits})


WAYS: Final[Mapping[str, Way]] = {
    "packed8": _packed(8),
    "packed10": _packed(10),
    "packed15": _packed(15),
    "float32": Way("exact", "switch"),
    "powersgd-weir": Way("powersgd", "switch"),
    "ring": Way("exact", "ring"),
    "bf16": Way("bf16", "ring"),
    "powersgd": Way("powersgd", "ring"),
    "topk": Way("topk", "gather", "topk", {"ratio": RATIO}, 0.0, 4.0),
    "dgc": Way("dgc", "gather", "dgc", {"ratio": RATIO, "momentum": MOMENTUM}, 0.0, 0.5),
}
"""Ways by the names of the contenders."""


def _exact(gradients: Any) -> Floats:
    mean: Floats = np.mean(gradients, axis=0, dtype=np.float32)
    return mean


def _averaging(way: Way, workload: Workload) -> Averaging:
    """Return the way's arithmetic at its start."""
    if way.codec:
        return CodecMean(way.codec, **(way.options or {}))
    if way.averaging == "powersgd":
        return PowerMean(shapes_of(workload.layers))
    return bfloat16_ring if way.averaging == "bf16" else _exact


def _power_sizes(workload: Workload) -> list[int]:
    """Return the numbers of PowerSGD's three sums: uncompressed parameters, P and Q."""
    shapes = shapes_of(workload.layers)
    matrices = [shape for shape in shapes if len(shape) == 2]
    return [
        sum(shape[0] for shape in shapes if len(shape) == 1),
        *(POWER_RANK * sum(shape[axis] for shape in matrices) for axis in (0, 1)),
    ]


@cache
def best_course(model: CourseModel, name: str, seed: int) -> tuple[int | None, float]:
    """Return the steps to the accuracy at the best learning rate of a way, by its name in `WAYS`, and that rate.

    No steps, but None, if no rate reaches the accuracy within the limit.
    """
    way = WAYS[name]
    best, best_rate = None, way.faster * _LEARNING[0]
    for rate in (way.faster * each for each in _LEARNING):
        limit = LIMIT if best is None else best - 1
        workload = model.made(seed)
        args = (workload, model.accuracy, _averaging(way, workload), rate, way.momentum, seed, limit)
        if (steps := steps_to_accuracy(*args)) is not None:
            best, best_rate = steps, rate
    return best, best_rate


def gradient_s(workload: Workload) -> float:
    """Return one worker's processor time of a gradient."""
    weights, batch = workload.initial(), workload.fetch(np.arange(SAMPLES))
    return processor_seconds(lambda: workload.gradient(weights, batch))


def codec_s(workload: Workload, way: Way) -> float:
    """Return one worker's processor time of encoding and decoding."""
    if way.codec:
        codec = make_codec(way.codec, **(way.options or {}))
        measure(codec, 1 << 12, time.process_time)  # compiles
        return sum(measure(codec, workload.parameters, time.process_time))
    if way.averaging == "powersgd":
        mean = PowerMean(shapes_of(workload.layers))
        gradients = [workload.gradient(workload.initial(), workload.fetch(np.arange(SAMPLES)))]
        for _ in range(3):  # the first ones are not compressed
            mean(gradients)
        return processor_seconds(lambda: mean(gradients))
    return 0.0


def exchange_s(config: RunConfig, rate: str, workload: Workload, way: Way) -> float:
    """Return the time of a step's exchange, in s.

    Args:
        config: The run, with the fabric and the workers.
        rate: Rate of all links, such as "1Gbit".
        workload: Workload whose gradients are exchanged.
        way: Codec and kind of exchange.
    """
    size, rate_bps = workload.parameters, parse_rate(rate)
    ring = partial(ring_sum_s, WORKERS, rate_bps=rate_bps, delay_s=_NEIGHBOUR_S)
    fabric = {**config.fabric, "generate": {**config.fabric["generate"], "rate": rate}}
    run = config.replaced("rate", fabric=fabric)
    if way.exchange == "gather":
        code = make_codec(way.codec, **(way.options or {})).bytes_on_wire(size, 1)
        return ring_gather_s(WORKERS, code, rate_bps, _NEIGHBOUR_S)
    sizes = _power_sizes(workload) if way.averaging == "powersgd" else [size]
    if way.exchange == "switch":
        return sum(switch_sum_s(run, each, way.codec, way.options) for each in sizes)
    return sum(ring(size=(2 if way.averaging == "bf16" else 4) * each) for each in sizes)


def courses(paper: Paper) -> Iterator[Sample]:
    """Measure all contenders, at each one's best learning rate.

    Raises:
        ExperimentError: PyTorch or a data set is not installed.
    """
    config = RunConfig.load(paper.files[0])
    workloads = [model.made(1) for model in MODELS]
    PowerMean(shapes_of(workloads[0].layers))  # raises before minutes of measurement
    for model, workload in zip(MODELS, workloads, strict=True):
        computing = gradient_s(workload)
        codecs = {name: codec_s(workload, way) for name, way in WAYS.items()}
        found = {
            averaging: [best_course(model, name, seed)[0] for seed in range(1, 1 + paper.seeds)]
            for averaging, name in {way.averaging: name for name, way in WAYS.items()}.items()
        }
        for rate in RATES:
            condition = f"{model.workload}, accuracy {model.accuracy:g}, links of {rate}/s"
            for name, way in WAYS.items():
                step_s = computing + codecs[name] + exchange_s(config, rate, workload, way)
                for seed, steps in enumerate(found[way.averaging], 1):
                    yield from samples(condition, name, seed, steps, (steps or LIMIT) * step_s)


def samples(condition: str, contender: str, seed: int, steps: int | None, seconds: float) -> Iterator[Sample]:
    """Yield the values of a course, of `LIMIT` steps if `steps` is None, that took `seconds`."""
    limited = steps is None
    yield Sample(TIME.name, condition, contender, seed, 1e3 * seconds, limited)
    yield Sample(STEPS.name, condition, contender, seed, steps or LIMIT, limited)
