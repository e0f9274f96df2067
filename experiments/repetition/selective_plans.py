"""Plans of compression beside rules and the best of all combinations, predicted and measured with all packets.

::

    costs of sums (packets) ─┐
    costs of packed(8) ──────┴▶ choices ─▶ task graph ─▶ predicted time
                                              └───────▶ packets in virtual time ─▶ measured time
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from ...hosts.compression.codecs import make_codec
from ...hosts.compression.measured_costs import coding_costs
from ...hosts.compression.selective import CommunicationCosts, Line, SummationChoice, choices, plan
from ...hosts.compression.task_graph import graph, makespan_ms, plan_schedule, virtual_spans
from ...topologies.mininet.processes import run_until_ended
from ..backends.virtual_time import Cluster
from ..config import RunConfig
from .paper import Paper, Sample
from .planned_schedules import BITS, PREDICTION_ERROR, SUM_TIME, packet_sum_costs, packet_time_ms

GRADIENTS: Final = 4
"""Few enough that all combinations of choices can be tried."""
SIZE_BOUNDS: Final = (500, 30_000)
"""Numbers of a gradient, drawn log-uniformly."""
THRESHOLD: Final = 8_192
"""Numbers from which the rule compresses: HiPress' 262,144, for gradients that are 32 times smaller."""
SLOW_CODING: Final = 16
"""Time of coding without native code, as a multiple of that with it."""
_CODING_SIZES: Final = (1 << 14, 1 << 20)


@dataclass(frozen=True, slots=True)
class PlanCondition:
    """Fabric and processor of one comparison."""

    rate: str
    coding_factor: int

    @property
    def name(self) -> str:
        """Name in tables."""
        speed = "as measured" if self.coding_factor == 1 else f"{self.coding_factor} times as slow"
        return f"links of {self.rate}/s, coding {speed}"


CONDITIONS: Final = tuple(PlanCondition(rate, factor) for rate in ("200Mbit", "1Gbit") for factor in (1, SLOW_CODING))


def drawn_sizes(seed: int) -> list[int]:
    """Return the sizes of a model's gradients."""
    rng = np.random.default_rng((seed, 46))
    return [int(size) for size in np.exp(rng.uniform(math.log(SIZE_BOUNDS[0]), math.log(SIZE_BOUNDS[1]), GRADIENTS))]


def predicted_ms(
    taken: Sequence[SummationChoice], costs: CommunicationCosts, workers: int, sizes: Sequence[int]
) -> float:
    """Return the predicted time of the schedule of all gradients, in ms.

    Args:
        taken: Choice for each gradient.
        costs: Costs of the codec and of sums by the switches.
        workers: Number of workers.
        sizes: Numbers of each gradient.
    """
    return makespan_ms(virtual_spans(graph(taken, costs, workers, sizes)))


def contenders_choices(
    costs: CommunicationCosts, workers: int, sizes: Sequence[int]
) -> dict[str, Sequence[SummationChoice]]:
    """Return each contender's choice of every gradient.

    Args:
        costs: Costs of the codec and of sums by the switches.
        workers: Number of workers.
        sizes: Numbers of each gradient.
    """

    def by_rule(least: float) -> list[SummationChoice]:
        """Compress gradients of so many numbers or more, each in its best number of parts."""
        return [
            min(
                (choice for choice in choices(costs, workers, size) if choice.compressed == (size >= least)),
                key=lambda choice: choice.time_ms,
            )
            for size in sizes
        ]

    every = product(*(choices(costs, workers, size) for size in sizes))
    return {
        "plan": plan_schedule(costs, workers, sizes),
        "secopa": plan(costs, workers, sizes),
        "all": by_rule(0),
        "none": by_rule(float("inf")),
        "threshold": by_rule(THRESHOLD),
        "exhaustive": min(every, key=lambda taken: predicted_ms(taken, costs, workers, sizes)),
    }


def slower_coding(costs: CommunicationCosts, factor: float) -> CommunicationCosts:
    """Return costs whose encoding and decoding take so many times as long."""

    def slower(line: Line) -> Line:
        return Line(factor * line.slope, factor * line.base, factor * line.floor)

    return replace(costs, encode=slower(costs.encode), decode=slower(costs.decode))


def plan_times(paper: Paper) -> Iterator[Sample]:
    """Measure `SUM_TIME` and `PREDICTION_ERROR` of all contenders, with all gradients at once."""
    config = RunConfig.load(paper.files[0])
    workers = len(config.job.workers)
    coding = coding_costs(make_codec("packed", bits=BITS), workers, _CODING_SIZES, time.process_time)
    for condition in CONDITIONS:
        fabric = {**config.fabric, "generate": {**config.fabric["generate"], "rate": condition.rate}}
        run, costs = config.replaced("rate", fabric=fabric), slower_coding(coding, condition.coding_factor)
        for seed, name, predicted, measured in run_until_ended(_measured(run, costs, paper.seeds)):
            yield Sample(SUM_TIME.name, condition.name, name, seed, measured)
            yield Sample(PREDICTION_ERROR.name, condition.name, name, seed, 100 * abs(predicted / measured - 1))


async def _measured(config: RunConfig, coding: CommunicationCosts, seeds: int) -> list[tuple[int, str, float, float]]:
    """Return seed, contender, and predicted and measured time in ms."""
    found = []
    async with Cluster(config, config.strategies[-1], values=SIZE_BOUNDS[1]) as cluster:
        costs = replace(coding, hop=await packet_sum_costs(cluster))
        workers = len(config.job.workers)
        for seed in range(1, 1 + seeds):
            sizes = drawn_sizes(seed)
            for name, taken in contenders_choices(costs, workers, sizes).items():
                predicted = predicted_ms(taken, costs, workers, sizes)
                found.append((seed, name, predicted, await packet_time_ms(cluster, taken, costs, sizes)))
    return found
