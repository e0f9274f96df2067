"""`weir telemetry`: questions to a history that `--history` has kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ..errors.texts import printable
from ..experiments.errors import ExperimentError
from .help import command_group, examples

app = command_group(
    no_args_is_help=True,
    help="Query a telemetry history that --history has kept.",
    epilog=examples(
        "weir demo --history seen.duckdb         # keeps one",
        "weir telemetry links seen.duckdb",
        "weir telemetry link seen.duckdb s1-p4",
    ),
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The history.")]
RunOption = Annotated[int | None, typer.Option("--run", help="Of this controller; default: the last one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print rows as JSON instead of a table.")]

_LINKS: Final = """
SELECT link, round(100 * avg(load), 2) AS "mean load %", round(100 * max(load), 2) AS "most load %",
       round(max(queue_packets), 1) AS "longest queue", round(avg(latency_us), 1) AS "mean latency µs",
       round(100 * max(loss), 1) AS "most loss %", round(max(age_ms), 1) AS "oldest ms",
       round(100 * avg(stale::INTEGER), 1) AS "stale % of looks", count(*) AS looks
FROM links WHERE run = ? GROUP BY link ORDER BY max(load) DESC, link
"""
_SERIES: Final = """
SELECT round(time_ns / 1e6, 2) AS "time ms", round(100 * load, 2) AS "load %",
       round(queue_packets, 1) AS "queue packets", round(latency_us, 1) AS "latency µs",
       round(100 * loss, 1) AS "loss %", age_ms AS "age ms", confidence, stale
FROM links WHERE run = ? AND link = ? ORDER BY time_ns
"""
_EVENTS: Final = """
SELECT round(time_ns / 1e6, 2) AS "time ms", kind, text FROM events WHERE run = ? ORDER BY number
"""

_console = Console(highlight=False, markup=False)


@app.command(epilog=examples("weir telemetry runs seen.duckdb"))
def runs(file: FileArgument, as_json: JsonOption = False) -> None:
    """List the controllers in the history."""
    _print(file, "SELECT run, title, fabric, began FROM runs ORDER BY run", [], as_json)


@app.command(epilog=examples("weir telemetry links seen.duckdb"))
def links(file: FileArgument, run: RunOption = None, as_json: JsonOption = False) -> None:
    """Print load, queue, latency, loss and age of every link. The fullest comes first."""
    _print(file, _LINKS, [_run_of(file, run)], as_json)


@app.command(epilog=examples("weir telemetry link seen.duckdb s1-p4"))
def link(
    file: FileArgument,
    name: Annotated[str, typer.Argument(metavar="LINK", help="The link, by its sending end, such as s1-p3.")],
    run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print one link over time."""
    from ..controller.live.history import run_query

    number = _run_of(file, run)
    if not run_query(file, "SELECT 1 FROM links WHERE run = ? AND link = ? LIMIT 1", [number, name])[1]:
        raise ExperimentError(
            f'nothing is known of link "{name}" in run {number}; weir telemetry links lists them',
            place=str(file),
            value=name,
        )
    _print(file, _SERIES, [number, name], as_json)


@app.command(epilog=examples("weir telemetry events seen.duckdb"))
def events(file: FileArgument, run: RunOption = None, as_json: JsonOption = False) -> None:
    """Print moves, leases, lost switches and links, drops: in order."""
    _print(file, _EVENTS, [_run_of(file, run)], as_json)


@app.command(epilog=examples('weir telemetry sql seen.duckdb "SELECT max(load) FROM links WHERE run = 1"'))
def sql(
    file: FileArgument,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SQL, of the tables runs, links and events.")],
    as_json: JsonOption = False,
) -> None:
    """Answer any query in SQL. Nothing is written to the file."""
    _print(file, query, [], as_json)


def _run_of(file: Path, run: int | None) -> int:
    from ..controller.live.history import run_query

    numbers = [number for (number,) in run_query(file, "SELECT run FROM runs ORDER BY run")[1]]
    if not numbers or (run is not None and run not in numbers):
        there = ", ".join(map(str, numbers)) or "none"
        raise ExperimentError(
            f"there is no run {run if run is not None else ''}; there are {there}", place=str(file), value=run
        )
    return numbers[-1] if run is None else run


def _print(file: Path, query: str, values: list[Any], as_json: bool) -> None:
    from ..controller.live.history import run_query

    columns, rows = run_query(file, query, values)
    if as_json:
        sys.stdout.write(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], default=str) + "\n")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(rows) and isinstance(rows[0][index], int | float)
        table.add_column(printable(column), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*("–" if value is None else printable(str(value)) for value in row))
    _console.print(table)
