"""An evaluation for readers: tables in a terminal, and a page with tables, plots and the data."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from ...controller.placement.reference_schemes import REFERENCE_SCHEMES
from .comparison import AGG, AIMED_AT, OURS, GridCondition, Row, conditions_of, label, name_of
from .plots import dots
from .records import PointRecord, processor, write_csv
from .statistics import Interval
from .suite import Grid, Suite

DATA: Final = "results.csv.gz"
_NEAR: Final = 0.1
"""Relative error of a step's time up to which the model counts as accurate."""


def printed(suite: Suite, records: Sequence[PointRecord], as_json: bool) -> str:
    """Return the output of the command."""
    conditions = list(conditions_of(records, suite.reference))
    if as_json:
        told = _finite({"suite": suite.name, "conditions": [asdict(condition) for condition in conditions]})
        return json.dumps(told, indent=1, allow_nan=False) + "\n"
    return "\n".join(_text(condition) for condition in conditions)


def _finite(value: Any) -> Any:
    """Return the same value with None for numbers that are not finite."""
    match value:
        case dict():
            return {key: _finite(part) for key, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
        case float() if not math.isfinite(value):
            return None
    return value


def _text(condition: GridCondition) -> str:
    told = ", ".join(f"{key} {value}" for key, value in condition.told.items())
    lines = [f"{told} ({condition.seeds} seeds)"]
    for row in condition.rows:
        if row.failed < condition.seeds:
            lines.append(f"  {name_of(row.strategy):<18} {_ms(row.mean_ms):>24} ms, p95 {_ms(row.p95_ms):>16} ms")
        if row.failed:
            lines.append(
                f"  {name_of(row.strategy):<18} did not run at {row.failed} of {condition.seeds} seeds: {row.why}"
            )
    return "\n".join([*lines, ""])


def written(suite: Suite, records: Sequence[PointRecord], source: Path, page: Path) -> None:
    """Write the page of an evaluation, and plots and data into the folder of the same name.

    Args:
        suite: The suite.
        records: Record of each point.
        source: File of the suite, which the page names.
        page: Path of the page.

    Raises:
        OSError: A file cannot be written.
    """
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(records, folder / DATA)
    conditions = list(conditions_of(records, suite.reference))
    parts = [_head(suite, records, conditions, source, page)]
    for grid in suite.grids:
        mine = [condition for condition in conditions if condition.told["grid"] == grid.name]
        plot = folder / f"{grid.name.replace(' ', '-')}.svg"
        dots(grid.name, [(_named(condition, mine), condition) for condition in mine], plot)
        parts.append(_section(grid, mine, f"{folder.name}/{plot.name}"))
    page.write_text("\n".join(parts))


def _head(
    suite: Suite, records: Sequence[PointRecord], conditions: Sequence[GridCondition], source: Path, page: Path
) -> str:
    minutes = sum(record.seconds for record in records) / 60
    packets = sum(record.point.engine == "packets" for record in records)
    runs = sum(len(record.figures) for record in records)
    return "\n".join(
        [
            f"# {suite.name.replace('-', ' ').capitalize()}\n",
            f"This page compares placement strategies under equal conditions, drawn for {suite.seeds} seeds each:",
            "hosts of the jobs, background traffic, hashing. To write the page, its plots and its data:\n",
            f"```\nweir evaluate {source} --write {page}\n```\n",
            f"Every figure is in [{DATA}]({page.stem}/{DATA}), a row for each point and",
            f"strategy. There are {len(records):,} points ({runs:,} runs of a strategy),",
            f"{len(records) - packets:,} of them in the flow-level simulator and {packets:,} in the packet fabric with"
            if packets
            else "all in the flow-level simulator.",
            "the compiled P4. They took" if packets else "They took",
            f"some {round(minutes, -1):.0f} minutes of processor time ({processor()}, Python",
            f"{platform.python_version()}).\n",
            _reading(suite.reference),
            *_beside(records),
            f"A step of a job has {_sizes(suite)}.\n",
            "## Summary\n",
            _summary_table(conditions),
            "",
            *(_DEPTH if any(condition.depth is not None for condition in conditions) else ()),
            *_several_jobs(conditions),
            *_agg(conditions),
            *((_verdict(_loaded(conditions)), "") if suite.aims else ()),
            suite.findings,
        ]
    )


def _reading(reference: str) -> str:
    """Explain the terms of a page with the savings of this strategy."""
    return _READING.replace(f"`{OURS}`", f"`{name_of(reference)}`")


_READING: Final = """\
**Terms.**

| term | meaning |
|---|---|
| completion time | time of a step's aggregation phase, over all steps of the counting jobs of a run |
| counting jobs | all; with priorities those of the highest; with weights a job's steps count as often as its weight |
| mean | over seeds, with the 95 % interval by Student's t |
| p95 | mean over seeds of each run's 95th percentile, with the same interval |
| saved | share of a strategy's time that `widest` saves, with the 95 % interval by paired bootstrap over seeds |
| depth | share of the savings of `widest` against the server alone that `blind` saves, too; interval as above |
| load | mean load of the links between switches by background traffic |
| fullest link | maximum share of its rate that a link carried over a run, all traffic included |
| decision | processor time of a placement decision |
| predicted | the controller's model, averaged over the steps without a move, with the background of each |
| off by | the model's error as a share of a step's time: median step, and worst step of all seeds |
| others | all strategies of a table except `widest`, `striped`, `blind-together`, `scarce` and `oracle` |
| best spine | of all fixed hierarchies the fastest by telemetry, chosen again at each reading: the best baseline |
| published | rack-only, two-level ATP, fixed and hashed hierarchy, GRID-like rounding, congestion-aware trees |

In the simulator, traffic at fixed rates (`static`, `shifting`) does not yield, and leaves at least a tenth of every
link. Flows of published sizes share links fairly with the job's streams. `ps` with more than 32 workers represents a
server that takes all their streams directly, which Weir's server cannot.
"""


_DEPTH: Final = (
    "The rest beside depth is the effect of telemetry. †: not with several jobs. There `blind` also lacks the",
    "joint placement of running jobs, which needs no telemetry, as the controller knows their streams. So",
    "neither figure is the effect of telemetry there.\n",
)


def _beside(records: Sequence[PointRecord]) -> list[str]:
    """Describe the rows of the tables that are not strategies, in a paragraph."""
    named = {own.strategy for record in records for own in record.figures}
    told = [f"- *{name}*: {scheme.summary}." for name, scheme in REFERENCE_SCHEMES.items() if name in named]
    return ["Reference schemes that are not strategies:\n", *told, ""] if told else []


def _sizes(suite: Suite) -> str:
    flows = {grid.gradient_bytes for grid in suite.grids if grid.engine == "flows"}
    packets = {grid.gradient_bytes for grid in suite.grids if grid.engine == "packets"}
    told = [f"{' or '.join(f'{size / 1e6:g} MB' for size in sorted(flows))} in the simulator"] if flows else []
    told += [f"{' or '.join(f'{size / 1e6:g} MB' for size in sorted(packets))} in the packet fabric"] if packets else []
    return " and ".join(told)


def _summary_table(conditions: Sequence[GridCondition]) -> str:
    """Savings under each condition; comparisons that no condition has are left out."""
    heads = {
        "conditions": "---",
        "load": "---:",
        f"{_of_all(conditions)}, ms": "---:",
        "saved against the best spine": "---:",
        "against the best published": "---",
        "against blind": "---:",
        "depth": "---:",
        "against the others' mean": "---:",
    }
    rows = [
        _summary_row(condition, conditions)
        for condition in conditions
        if any(row.strategy == condition.reference for row in condition.rows)
    ]
    shown = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    lines = [[*heads], [*heads.values()], *rows]
    ruled = ["|".join(["", *(line[at] for at in shown), ""]) for line in lines[1:2]]
    cells = [f"| {' | '.join(line[at] for at in shown)} |" for line in (lines[0], *lines[2:])]
    return "\n".join([cells[0], *ruled, *cells[1:]])


def _of_all(conditions: Sequence[GridCondition]) -> str:
    return next((name_of(condition.reference) for condition in conditions), OURS)


def _summary_row(one: GridCondition, among: Sequence[GridCondition]) -> list[str]:
    own = next(row for row in one.rows if row.strategy == one.reference)
    best = (
        ""
        if one.against_published is None
        else f"{_share(one.against_published[1])} ({name_of(one.against_published[0])})"
    )
    several = " †" if one.told["jobs"] > 1 else ""
    blind, depth = (f"{told}{several}" if (told := _share(figure)) else "" for figure in (one.against_blind, one.depth))
    spine, others = _share(one.against_best_spine), _share(one.against_others)
    return [_named(one, among), f"{one.background:.2f}", _ms(own.mean_ms), spine, best, blind, depth, others]


def _several_jobs(conditions: Sequence[GridCondition]) -> list[str]:
    """Describe the savings of depth, re-placement and telemetry in a paragraph and a table; empty without data."""
    told = [condition for condition in conditions if condition.looks is not None and condition.told["jobs"] > 1]
    if not told:
        return []
    lines = [
        "With several jobs the savings of `widest` against the server alone have three parts: depth, as above; joint",
        "placement of running jobs without background traffic (`blind-together` against `blind`); and telemetry",
        "(`widest` against `blind-together`).\n",
        "| conditions | depth | joint placement | telemetry | saved against `blind-together` |",
        "|---|---:|---:|---:|---:|",
    ]
    for condition in told:
        parts = (condition.depth, condition.looks, condition.telemetry, condition.against_blind_together)
        lines.append(f"| {_named(condition, conditions)} | {' | '.join(map(_share, parts))} |")
    return [*lines, ""]


def _agg(conditions: Sequence[GridCondition]) -> list[str]:
    """Describe the paper's comparison, as far as it is known, and its outcome here; empty if AGG did not run."""
    told = [(condition, condition.agg) for condition in conditions if condition.agg is not None]
    if not told:
        return []
    lines = [
        _PAPER,
        "| conditions | AGG, ms | saved by AGG against the others' mean | against the best of one level "
        "| against the best tree | saved by `widest` against AGG |",
        "|---|---:|---:|---|---|---:|",
    ]
    for condition, agg in told:
        own = next(row for row in condition.rows if row.strategy == AGG)
        best = (f"{_share(saved)} ({name_of(name)})" for name, saved in (agg.one_level, agg.trees))
        cells = (_ms(own.mean_ms), _share(agg.others), *best, _share(own.saved))
        lines.append(f"| {_named(condition, conditions)} | {' | '.join(cells)} |")
    return [*lines, ""]


_PAPER: Final = """\
**The paper's comparison.** Of the AGG paper (Journal of Computer Science and Technology 40(1), 2025, pages 196 to
214) this project knows the abstract. Coflows complete in 40 % less time on average than with other strategies, and in
30 % less and more than with the best known one. The strategies, fabrics, numbers of workers, traffic and single
results are not known here. So the evaluation repeats the possible part: the paper's model
([placement-models.md](placement-models.md) §5) compared with earlier and obvious strategies, under conditions of this
project. *One level* means rack-only, two-level ATP and GRID-like rounding. *Trees* means the fixed hierarchy and
congestion-aware trees, which sum at more levels than AGG may.
"""


def _loaded(conditions: Sequence[GridCondition]) -> list[GridCondition]:
    """Those that the aims are for."""
    return [
        condition for condition in conditions if condition.told["load"] > 0 and condition.told["telemetry"] == "fresh"
    ]


def _verdict(loaded: Sequence[GridCondition]) -> str:
    """List the aims that the figures reach."""
    spines = [
        (condition, condition.against_best_spine.value)
        for condition in loaded
        if condition.against_best_spine is not None
    ]
    others = [
        (condition, condition.against_others.value) for condition in loaded if condition.against_others is not None
    ]
    published = [
        (condition, condition.against_published[1].value)
        for condition in loaded
        if condition.against_published is not None
    ]
    apart = [(condition, saved) for condition, saved in published if set(AIMED_AT) - set(condition.published)]
    whole = [condition for condition in published if condition not in apart]
    named = ", ".join(label(name) for name in AIMED_AT[:-1]) + f" and {label(AIMED_AT[-1])}"
    lines = ["**Aims.** With background traffic and fresh telemetry:\n"]
    if spines:
        lines.append(f"- `widest` takes no longer than the best spine in {_reached(spines, 0.0)} conditions.")
    if whole:
        lines += [
            "- It should take at least 30 % less than the best published strategy",
            f"  ({named}):",
            f"  it does in {_reached(whole, 0.30)} conditions in which all of these ran. The hashed hierarchy and",
            "  congestion-aware trees count, too.",
        ]
    if whole and apart:
        lines += [
            f"- In {len(apart)} more some of them did not run, so the best one may be missing. Compared with",
            f"  the best one that ran it saves 30 % or more in {_reached(apart, 0.30)}.",
        ]
    lines += [
        "- It should take at least 40 % less time than the others' mean: it does in",
        f"  {_reached(others, 0.40)} conditions.",
    ]
    without: dict[str, list[str]] = {}
    for condition, _ in apart if whole else ():
        lacking = ", ".join(label(name) for name in AIMED_AT if name not in condition.published)
        without.setdefault(lacking, []).append(_named(condition, loaded))
    lines += [_listed(f"Without {lacking}", names) for lacking, names in without.items()]
    if slower := [_named(condition, loaded) for condition, saved in spines if saved < 0]:
        lines.append(_listed("Slower than the best spine", slower))
    if fewer := [_named(condition, loaded) for condition, saved in others if saved < 0.40]:
        lines.append(_listed("Below 40 %", fewer))
    if whole and (short := [_named(condition, loaded) for condition, saved in published if saved < 0.30]):
        lines.append(_listed("Below 30 %", short))
    return "\n".join(lines)


def _listed(head: str, names: Sequence[str]) -> str:
    """Format a list of conditions below a line."""
    return "\n".join([f"\n{head}:\n", *(f"- {name}." for name in names)])


def _reached(saved: Sequence[tuple[GridCondition, float]], aim: float) -> str:
    return f"{sum(share >= aim for _, share in saved)} of {len(saved)}"


def _section(grid: Grid, conditions: Sequence[GridCondition], plot: str) -> str:
    parts = [f"## {grid.name[0].upper()}{grid.name[1:]}\n", f"{grid.about}\n", f"![{grid.name}]({plot})\n"]
    for condition in conditions:
        parts += [f"**{_named(condition, conditions)}** ({condition.seeds} seeds)\n", _table(condition), ""]
    if told := _within(conditions):
        parts.append(told)
    return "\n".join(parts)


def _within(conditions: Sequence[GridCondition]) -> str:
    """Share of steps in which the controller's model predicts the time well, by background; empty if it was not
    used.
    """
    errors: dict[str, list[float]] = {}
    for condition in conditions:
        traffic = condition.told["background"] if condition.told["load"] else "idle"
        errors.setdefault(traffic, []).extend(error for row in condition.rows for error in row.errors)
    told = []
    for traffic, mine in errors.items():
        near = sum(error <= _NEAR for error in mine)
        told += [f"{traffic} {100 * near / len(mine):.0f} % ({near:,} of {len(mine):,})"] if mine else []
    if not told:
        return ""
    return (
        f"Share of steps without a move whose time the controller's model predicts within {100 * _NEAR:g} %, over all "
        f"strategies and seeds: {', '.join(told)}.\n"
    )


def _table(condition: GridCondition) -> str:
    judged = any(row.gap is not None for row in condition.rows)
    predicted = any(row.errors for row in condition.rows)
    reference = name_of(condition.reference)
    lines = [
        f"| strategy | mean, ms | p95, ms | saved by {reference} | fullest link | decision, ms | moves |"
        + (" longer than the oracle |" if judged else "")
        + (" predicted, ms | off by, median (most) |" if predicted else ""),
        "|---|---:|---:|---:|---:|---:|---:|" + ("---:|" if judged else "") + ("---:|---:|" if predicted else ""),
    ]
    for row in condition.rows:
        if row.mean_ms.value != row.mean_ms.value:
            cells = ["–"] * 6
        else:
            cells = [
                _ms(row.mean_ms),
                _ms(row.p95_ms),
                "" if row.strategy == condition.reference else _share(row.saved),
                f"{row.max_link_load:.2f}",
                "–" if row.decision_ms != row.decision_ms else _rounded(row.decision_ms, 2),
                f"{row.moves:.1f}",
            ]
        name = name_of(row.strategy) + (f" (failed at {row.failed} seeds)" if row.failed else "")
        lines.append(
            f"| {name} | {' | '.join(cells)} |"
            + (f" {_share(row.gap)} |" if judged else "")
            + (f" {_prediction(row)} |" if predicted else "")
        )
    return "\n".join(lines)


def _prediction(row: Row) -> str:
    """Format two cells: the model's prediction, and its error."""
    if row.predicted_ms is None:
        return "– | –"
    return f"{_rounded(row.predicted_ms, 3)} | {100 * median(row.errors):.0f} % ({100 * row.errors[-1]:.0f} %)"


_UNTOLD: Final[dict[str, tuple[object, str]]] = {
    "spread": ("random", "places"),
    "rates": ("equal", "rates"),
    "memory": ("ample", "memory"),
    "telemetry": ("fresh", "telemetry"),
    "jobs": (1, "jobs"),
    "importance": ("equal", ""),
}
"""Default values, which are left unnamed, and the names of the others."""


def _named(condition: GridCondition, among: Sequence[GridCondition]) -> str:
    """Name a condition by the values that set it apart."""
    told = condition.told
    grids = len({one.told["grid"] for one in among}) > 1
    words = [f"{told['grid']}:"] if grids else []
    if grids or len({one.told["fabric"] for one in among}) > 1:
        words.append(f"{told['fabric']},")
    words.append(f"{told['workers']} workers,")
    words.append("idle" if not told["load"] else f"load {told['load']:g} {told['background']}")
    words += [f", {value} {word}".rstrip() for key, (usual, word) in _UNTOLD.items() if (value := told[key]) != usual]
    return " ".join(words).replace(" ,", ",")


def _ms(value: Interval) -> str:
    half = (value.high - value.low) / 2
    return _rounded(value.value, 3) + (f" ± {_rounded(half, 2)}" if half else "")


def _rounded(value: float, digits: int) -> str:
    """Round to this many digits, without an exponent."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def _share(value: Interval | None) -> str:
    if value is None or value.value != value.value:
        return ""
    return f"{100 * value.value:z.0f} % ({100 * value.low:z.0f} to {100 * value.high:z.0f})"
