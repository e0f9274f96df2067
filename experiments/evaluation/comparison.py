"""Comparison of the strategies under each condition, over all its seeds, and of `widest` with the others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...controller.placement.reference_schemes import BLIND_TOGETHER, REFERENCE_SCHEMES, STRIPED
from ...controller.placement.strategies import STRATEGIES
from ..records.report import label_of
from . import statistics
from .records import PointRecord
from .statistics import Interval

OURS: Final = "widest"
AIMED_AT: Final[tuple[str, ...]] = ("rack", "atp", "hierarchy", "grid")
"""Published strategies that the aim names."""
PUBLISHED: Final[tuple[str, ...]] = (*AIMED_AT, "hashed-hierarchy", "canary")
"""Strategies that others have published, or that are done by hand."""
BEST_SPINE: Final = "best-spine"
"""The strongest baseline: all that a fixed hierarchy with telemetry can do."""
NOT_OTHERS: Final = (STRIPED, BLIND_TOGETHER, "oracle", "scarce")
"""Variants of a method, and the judge of all: the mean of the others is without them and the reference."""
AGG: Final = "agg"
ONE_LEVEL: Final = ("rack", "atp", "grid")
"""Published, and of one level of switches below the server's, as the paper's model is."""
TREES: Final = ("hierarchy", "canary")
"""Published, or done by hand, and as deep as the fabric."""


def label(strategy: str) -> str:
    """Return the label of a strategy, or of a reference, in plots and sentences."""
    return REFERENCE_SCHEMES[strategy].label if strategy in REFERENCE_SCHEMES else label_of(strategy)


def name_of(strategy: str) -> str:
    """Name of a strategy in tables, as options take it; the label of a user's file."""
    return strategy if strategy in {*STRATEGIES, *REFERENCE_SCHEMES} else label(strategy)


@dataclass(frozen=True)
class Row:
    """One strategy under one condition, over all seeds."""

    strategy: str
    mean_ms: Interval
    p95_ms: Interval
    max_link_load: float
    decision_ms: float
    moves: float
    failed: int
    """Number of seeds at which the strategy did not run."""
    why: str
    """Reason at the first of these; empty if there is none."""
    saved: Interval | None
    """Share of its time that `widest` saves, where both ran."""
    gap: Interval | None
    """Relative extra time compared with the oracle, if that ran."""
    predicted_ms: float | None
    """Step time by the controller's model, if it was evaluated."""
    errors: tuple[float, ...]
    """Relative errors of the model in each of these steps, of all seeds, ascending."""


@dataclass(frozen=True)
class AggSavings:
    """Savings of AGG compared with others; below 0 if it takes longer."""

    others: Interval
    """Against the mean of all others but Weir's own, and `blind`."""
    one_level: tuple[str, Interval]
    """Against the best of `ONE_LEVEL`, which is named."""
    trees: tuple[str, Interval]
    """Against the best of `TREES`."""


@dataclass(frozen=True)
class GridCondition:
    """One set of conditions, over all seeds."""

    told: dict[str, Any]
    reference: str
    """Strategy whose savings these are."""
    seeds: int
    background: float
    rows: tuple[Row, ...]
    against_best_spine: Interval | None
    """Saving of the reference compared with the best spine."""
    against_others: Interval | None
    """Saving of the reference compared with the mean of the others."""
    published: tuple[str, ...]
    """The published strategies that placed the job at every seed."""
    against_published: tuple[str, Interval] | None
    """Best published strategy, and the saving of the reference compared with it."""
    against_blind: Interval | None
    depth: Interval | None
    """`statistics.depth_share`."""
    looks: Interval | None
    """Share of `widest`'s saving over the server alone that re-placement without others' traffic achieves."""
    telemetry: Interval | None
    """Additional share that telemetry achieves."""
    against_blind_together: Interval | None
    agg: AggSavings | None
    """Comparison of the paper's model with others, if it ran."""


def conditions_of(records: Sequence[PointRecord], reference: str = OURS) -> Iterator[GridCondition]:
    """Yield the conditions in the order of the suite, with the savings of the strategy `reference`."""
    groups: dict[str, list[PointRecord]] = {}
    for record in records:
        groups.setdefault(json.dumps(record.point.conditions), []).append(record)
    for mine in groups.values():
        yield _condition(mine, reference)


def _condition(records: Sequence[PointRecord], reference: str) -> GridCondition:
    names = records[0].point.strategies
    means = {name: [record.figures[index].mean_s for record in records] for index, name in enumerate(names)}
    whole = {name: [v for v in values if v is not None] for name, values in means.items()}
    ran = {name: values for name, values in whole.items() if len(values) == len(records)}
    rows = tuple(_row(name, index, records, ran, reference) for index, name in enumerate(names))
    others = [values for name, values in ran.items() if name not in (reference, *NOT_OTHERS)]
    ours = ran.get(reference)
    published = {name: ran[name] for name in PUBLISHED if name in ran and name != reference}
    several = len(published.keys() & {*AIMED_AT}) > 1  # the best of one would be called the best of all
    best = min(published, key=lambda name: sum(published[name])) if several else None
    saved = statistics.saved
    return GridCondition(
        told=records[0].point.conditions,
        reference=reference,
        seeds=len(records),
        background=sum(record.figures[0].background for record in records) / len(records),
        rows=rows,
        against_best_spine=None
        if ours is None or BEST_SPINE not in ran
        else statistics.paired(saved, ours, ran[BEST_SPINE]),
        against_others=None
        if ours is None or not others
        else statistics.paired(lambda own, *rest: saved(own, sum(rest) / len(rest)), ours, *others),
        published=tuple(published),
        against_published=None
        if ours is None or best is None
        else (best, statistics.paired(saved, ours, published[best])),
        against_blind=None if ours is None or "blind" not in ran else statistics.paired(saved, ours, ran["blind"]),
        depth=None
        if ours is None or not {"ps", "blind"} <= ran.keys()
        else statistics.paired(statistics.depth_share, ran["ps"], ran["blind"], ours),
        looks=_part(ran, "blind", BLIND_TOGETHER),
        telemetry=_part(ran, BLIND_TOGETHER, OURS),
        against_blind_together=None
        if ours is None or BLIND_TOGETHER not in ran
        else statistics.paired(saved, ours, ran[BLIND_TOGETHER]),
        agg=_agg(ran),
    )


def _part(ran: dict[str, list[float]], before: str, after: str) -> Interval | None:
    """`statistics.part_of_saving`, where all ran that it is of."""
    if not {"ps", BLIND_TOGETHER, before, after, OURS} <= ran.keys():
        return None
    return statistics.paired(statistics.part_of_saving, ran["ps"], ran[before], ran[after], ran[OURS])


def _agg(ran: dict[str, list[float]]) -> AggSavings | None:
    if not {AGG, *ONE_LEVEL, *TREES} <= ran.keys():
        return None
    mine, saved = ran[AGG], statistics.saved
    others = [values for name, values in ran.items() if name not in (AGG, "blind", OURS, *NOT_OTHERS)]

    def against(names: Sequence[str]) -> tuple[str, Interval]:
        best = min(names, key=lambda name: sum(ran[name]))
        return best, statistics.paired(saved, mine, ran[best])

    mean = statistics.paired(lambda own, *rest: saved(own, sum(rest) / len(rest)), mine, *others)
    return AggSavings(mean, against(ONE_LEVEL), against(TREES))


def _row(name: str, at: int, records: Sequence[PointRecord], ran: dict[str, list[float]], reference: str) -> Row:
    own = [record.figures[at] for record in records if record.figures[at].mean_s is not None]
    nothing = float("nan")

    def average(key: str, factor: float = 1.0) -> Interval:
        values = [factor * value for figures in own if (value := getattr(figures, key)) is not None]
        return statistics.mean(values) if values else Interval(nothing, nothing, nothing)

    errors = sorted(abs(error) for figures in own for error in figures.errors)
    longer = None
    if "oracle" in ran and name in ran:
        longer = statistics.paired(lambda mine, best: mine / best - 1, ran[name], ran["oracle"])
    return Row(
        strategy=name,
        mean_ms=average("mean_s", 1e3),
        p95_ms=average("p95_s", 1e3),
        max_link_load=average("max_link_load").value,
        decision_ms=average("decision_ms").value,
        moves=average("moves").value,
        failed=len(records) - len(own),
        why=next((record.figures[at].failed for record in records if record.figures[at].mean_s is None), ""),
        saved=statistics.paired(statistics.saved, ran[reference], ran[name])
        if {reference, name} <= ran.keys()
        else None,
        gap=longer,
        predicted_ms=average("predicted_s", 1e3).value if errors else None,
        errors=tuple(errors),
    )
