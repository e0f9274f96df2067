"""CaSync's schedules of compressed gradients beside sums without overlap, rings and servers, in virtual time.

Codecs are measured in processor time of one core, links are a latency and a rate. All gradients are there at the start,
and one worker's two queues stand for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...hosts.compression.codecs import make_codec
from ...hosts.compression.measured_costs import coding_costs, with_links
from ...hosts.compression.selective import MODELS, CommunicationCosts, SummationChoice, choices
from ...hosts.compression.task_graph import Task, graph, makespan_ms, plan_schedule, sequential_ms, virtual_spans
from .paper import Paper, Quantity, Sample

SYNCHRONISATION: Final = Quantity("synchronisation of a step's gradients", "ms")
WORKERS: Final = 16
LATENCY_MS: Final = 0.02
BALANCED: Final = "at which sending takes as long as coding"
RATES_BPS: Final[Mapping[str, float]] = {"of 1 Gbit/s": 1e9, BALANCED: 0.0, "of 10 Gbit/s": 1e10}
"""Rates of the links by their name; 0: from the codec's costs."""
LABELS: Final = {"vgg19": "VGG19, 38 gradients", "bert-base": "BERT-base, 199 gradients"}
_CODING_SIZES: Final = (1 << 10, 1 << 16, 1 << 22)
_CODECS: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    "packed8": ("packed", {"bits": 8}),
    "packed15": ("packed", {"bits": 15}),
    "onebit": (str(Path(__file__).parents[2] / "examples" / "codecs" / "onebit.compll"), {}),
}


def balanced_rate_bps(costs: CommunicationCosts) -> float:
    """Return the rate at which sums of codes by the switches take as long as encoding and decoding, per number."""
    one_bps = with_links(costs, WORKERS, 1.0, 0.0).hop
    assert one_bps is not None
    coding_ms = costs.encode.slope + costs.switch_ratio * costs.decode.slope
    return costs.switch_ratio * one_bps.slope / coding_ms


def cheapest(
    costs: CommunicationCosts, sizes: Sequence[int], allowed: Callable[[SummationChoice], bool]
) -> list[SummationChoice]:
    """Return the cheapest allowed choice of each gradient."""
    return [min(filter(allowed, choices(costs, WORKERS, size)), key=lambda choice: choice.time_ms) for size in sizes]


@dataclass(frozen=True, slots=True)
class ScheduledWay:
    """One contender: its codec, its choices, and whether tasks overlap."""

    codec: str
    allowed: Callable[[SummationChoice], bool]
    overlapped: bool = True
    planned: bool = False
    """Choices are those of the whole schedule, by the switches; else each gradient's cheapest."""

    def time_ms(self, costs: CommunicationCosts, sizes: Sequence[int]) -> float:
        """Return the synchronisation time of all gradients."""
        tasks = self.tasks(costs, sizes)
        return makespan_ms(virtual_spans(tasks)) if self.overlapped else sequential_ms(tasks)

    def tasks(self, costs: CommunicationCosts, sizes: Sequence[int]) -> list[Task]:
        """Return the task graph of all gradients."""
        if self.planned:
            costs = replace(costs, gather=None, send=None)
            return graph(plan_schedule(costs, WORKERS, sizes), costs, WORKERS, sizes)
        return graph(cheapest(costs, sizes, self.allowed), costs, WORKERS, sizes)


def _through(way: str, *, one_part: bool = False) -> Callable[[SummationChoice], bool]:
    return lambda choice: choice.way == way and choice.compressed and (choice.parts == 1 or not one_part)


WAYS: Final[Mapping[str, ScheduledWay]] = {
    "schedule": ScheduledWay("packed8", _through("switch")),
    "encode-all": ScheduledWay("packed8", _through("switch", one_part=True), overlapped=False),
    "planned": ScheduledWay("packed8", lambda choice: choice.way == "switch", planned=True),
    "packed15": ScheduledWay("packed15", _through("switch")),
    "float32": ScheduledWay("packed8", lambda choice: choice.way == "switch" and not choice.compressed),
    "onebit-server": ScheduledWay("onebit", _through("server")),
    "onebit-ring": ScheduledWay("onebit", _through("ring")),
}
"""Ways by the names of the contenders."""


def measured_codecs() -> dict[str, CommunicationCosts]:
    """Return the costs of the codecs, measured now in processor time."""
    return {
        name: coding_costs(make_codec(codec, **options), WORKERS, _CODING_SIZES, time.process_time)
        for name, (codec, options) in _CODECS.items()
    }


def synchronisation_times(paper: Paper) -> Iterator[Sample]:
    """Measure `SYNCHRONISATION` of all contenders; codecs are measured again in each turn."""
    turns = [measured_codecs() for _ in range(paper.seeds)]
    for model, label in LABELS.items():
        sizes = MODELS[model]()
        for rate, rate_bps in RATES_BPS.items():
            for name, way in WAYS.items():
                for turn, codecs in enumerate(turns, 1):
                    taken_bps = rate_bps or balanced_rate_bps(codecs["packed8"])
                    costs = with_links(codecs[way.codec], WORKERS, taken_bps, LATENCY_MS)
                    yield Sample(SYNCHRONISATION.name, f"{label}, links {rate}", name, turn, way.time_ms(costs, sizes))
