"""A run record for the eye: one HTML page that shows its plots, and pictures of the fabric, with the tables."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final, Protocol

import yaml

from ...controller.live.seen import SeenFabric
from .plots import Picture, plots_of
from .record import PlacementPhase, RunRecord, StrategyResult
from .report import (
    COLUMNS,
    MININET_COLUMNS,
    MODE_COLUMNS,
    claims,
    condition_lines,
    mininet_notes,
    mininet_rows,
    mode_rows,
    mode_title,
    name_of,
    rows,
    telemetry_lines,
)

NAME: Final = "index.html"
"""Name of the page in a record's folder."""
_SHOWN_PHASES: Final = 4
_SECTIONS: Final = {
    "throughput": (
        "Throughput",
        "At which rate each step's gradients are summed, from when all workers hand them over; dotted: what is "
        "achievable, where the job does not move meanwhile.",
    ),
    "jobs": (
        "Jobs beside each other",
        "What each job's slowest worker has the sums of, per second, over windows of 1 ms; dashed: jobs come.",
    ),
    "flows": (
        "Background flows that yield",
        "What of each flow's packets came to its destination, per second, over windows of 1 ms.",
    ),
    "fairness": (
        "Fairness",
        "Jain's index, 1 where all have the same, of the rounds of jobs or the packets of flows that are there in all "
        "of a window of ten round trips; dashed: one begins to send, dotted: one goes, and windows begin anew.",
    ),
    "heartbeats": (
        "Heartbeats",
        "What part of all heartbeats had not come so long after they were sent, the lost ones among them; dotted: what "
        "is promised to those of the control class.",
    ),
}
"""Titles and captions of plots that a run may have, by their names in `plots_of` and in page.html."""


class DrawFabric(Protocol):
    """Function that draws a fabric for the page of a record."""

    def __call__(self, result: StrategyResult, phase: PlacementPhase, *, upright: bool) -> str:
        """SVG of the fabric in a phase of a strategy; upright for narrow pages."""


def write(record: RunRecord, folder: Path, draw_fabric: DrawFabric, seen: Sequence[SeenFabric] = ()) -> Path:
    """Write plots and index.html of a record.

    Args:
        record: The record.
        folder: Existing folder for the files.
        draw_fabric: Draws the fabric in a phase of a strategy.
        seen: History of the run's controllers, for the plots of it.
    """
    plots = plots_of(record, seen)
    fabrics = [
        (
            result,
            index,
            phase,
            Picture(draw_fabric(result, phase, upright=False), draw_fabric(result, phase, upright=True)),
        )
        for result in record.results
        for index, phase in enumerate(_shown_phases(result))
    ]
    drawn = {
        f"fabric-{Path(result.strategy).stem}{f'-{index + 1}' if index else ''}": picture
        for result, index, _, picture in fabrics
    }
    for name, picture in {**plots, **drawn}.items():
        _write(folder / f"{name}.svg", picture.broad)
    page = Template((resources.files(__package__) / "page.html").read_text()).substitute(
        name=html.escape(record.config.name),
        started=record.started,
        seed=record.config.seed,
        commit=record.commit,
        table=_html_table(record),
        claims=_html_list([f"{'✓' if holds else '✗'} {html.escape(text)}" for holds, text in claims(record)]),
        iterations=plots["iterations"].html(
            "plot",
            "One point per training step. Lower is better; a jump is a change of background traffic or of the "
            "placement.",
        ),
        queues=plots["queues"].html(
            "plot",
            "The egress queue that grew longest under each strategy; dotted: its bound.",
        ),
        **{
            name: f"<h2>{title}</h2>{plots[name].html('plot', caption)}" if name in plots else ""
            for name, (title, caption) in _SECTIONS.items()
        },
        modes=_html_modes(record, plots["modes"]) if "modes" in plots else "",
        fabrics="".join(picture.html("fabric", _phase_caption(result, phase)) for result, _, phase, picture in fabrics),
        moves=_html_moves(record),
        seen=_html_seen(plots["seen-loads"], plots["seen-queues"]) if "seen-loads" in plots else "",
        telemetry=_html_list([html.escape(line) for line in telemetry_lines(record) + condition_lines(record)]),
        configuration=html.escape(_yaml(record.config.model_dump(mode="json"))),
        versions=html.escape(_yaml(record.versions)),
    )
    path = folder / NAME
    _write(path, page)
    return path


def _write(path: Path, text: str) -> None:
    """Write a whole file, or none: a full disk leaves no half file behind. Raises OSError."""
    try:
        path.write_text(text)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _yaml(data: Any) -> str:
    """YAML text in the order of the data; by libyaml where PyYAML has it, since a file may have many thousand flows."""
    return str(yaml.dump(data, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False))


def _shown_phases(result: StrategyResult) -> list[PlacementPhase]:
    """The run before its first move and after each of them, so that one sees why; of many moves the first and last."""
    phases = result.phases or [
        PlacementPhase(start_ns=0, end_ns=sum(result.iteration_ns), trees=result.trees, link_load=result.link_load)
    ]
    return phases if len(phases) <= _SHOWN_PHASES else [*phases[: _SHOWN_PHASES - 1], phases[-1]]


def _phase_caption(result: StrategyResult, phase: PlacementPhase) -> str:
    label = name_of(result.strategy)
    if not result.moves:
        return label
    return f"{label}, {phase.start_ns / 1e6:.0f} to {phase.end_ns / 1e6:.0f} ms"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_table(record: RunRecord) -> str:
    best = min(record.results, key=lambda result: result.mean_ms).strategy if record.results else ""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in (*COLUMNS, "busiest link", "largest queue at"))
    body = ""
    for result, row in zip(record.results, rows(record.results), strict=True):
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in (*row, result.busiest_link, result.largest_queue))
        body += f"<tr{' class=best' if result.strategy == best else ''}>{cells}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{_html_mininet(record)}"


def _html_mininet(record: RunRecord) -> str:
    if not record.mininet:
        return ""
    notes = _html_list([html.escape(note) for note in mininet_notes(record)])
    caption = f"In Mininet, {html.escape(record.mininet[0].switch)} switches; wall-clock times"
    return f"<h3>{caption}</h3>{_table(MININET_COLUMNS, mininet_rows(record.mininet))}{notes}"


def _html_modes(record: RunRecord, plot: Picture) -> str:
    """Section of the synchronisation modes."""
    caption = html.escape(mode_title(record))
    table = f"<h2>{caption[0].upper()}{caption[1:]}</h2>{_table(MODE_COLUMNS, mode_rows(record))}"
    return table + plot.html("plot", "The held-out loss over virtual time, in each mode.")


def _html_seen(loads: Picture, queues: Picture) -> str:
    caption = "From the history: the links with the most load, and with the longest queues; dotted: a job moves."
    return f"<h2>Links and queues by telemetry</h2>{loads.html('plot')}{queues.html('plot', caption)}"


def _part(roots: Sequence[str | None], shard: int) -> str:
    """Name the part of a job that moved."""
    if len(roots) == 1:
        return ""
    return f"stripe {shard + 1} " if roots[shard] is None else f"part of {roots[shard]} "


def _html_moves(record: RunRecord) -> str:
    lines = [
        html.escape(
            f"{name_of(result.strategy)}: step {move.step}, {move.time_ns / 1e6:.1f} ms: "
            + _part(record.config.job.roots, move.shard)
            + f"now summed at {', '.join(move.switches) or 'the parameter server'}"
        )
        for result in record.results
        for move in result.moves
    ]
    return _html_list(lines) if lines else "<p>None.</p>"


def _html_list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"
