"""`weir baselines`: runs under several ways to control congestion, side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .console import NOTES

if TYPE_CHECKING:
    from ..experiments.baselines import SchemeFigures


def baselines(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Runs (YAML), such as those in experiments/queues.")
    ],
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this one: explicit, dctcp, dctcp-sojourn, dctcp-virtual, hpcc, delay, loss or fixed; may be "
            "repeated."
        ),
    ] = None,
    write: Annotated[
        Path | None, typer.Option(metavar="PAGE.md", help="Put the table into this page, where it marks the place.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")] = False,
) -> None:
    """Compare ways to control congestion on the same runs.

    Each FILE is run with its first strategy under each scheme. The table shows the longest queue of the data class
    over all enqueues and the largest queue bound, the gradients that all jobs summed, and Jain's index if jobs joined
    others. It also has the goodput of yielding background flows, retransmissions, and drops of full queues. The exit
    status is 1 if a queue exceeded its bound.
    """
    from ..experiments.baselines import SCHEMES, compare, markdown_table
    from ..experiments.baselines import as_json as plain
    from ..experiments.config import RunConfig
    from ..experiments.page_tables import check_places, write_table

    def say(done: SchemeFigures) -> None:
        NOTES.print(f"{done.run}, {done.scheme}: longest queue {done.longest_queue}")

    if write is not None:
        check_places(write, ["schemes"])
    figures = compare([RunConfig.load(file) for file in files], scheme or list(SCHEMES), say)
    if write is not None:
        write_table(write, "schemes", markdown_table(figures))
    if as_json:
        sys.stdout.write(json.dumps(plain(figures)) + "\n")
    else:
        _show(figures)
    if broken := [figure for figure in figures if figure.broken]:
        for figure in broken:
            NOTES.print(f"✗ {figure.run}, {figure.scheme}: {figure.broken} queues held more than was promised of them")
        raise typer.Exit(1)


def _show(figures: Sequence[SchemeFigures]) -> None:
    from ..experiments.baselines import COLUMNS

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    for figure in figures:
        table.add_row(*figure.row)
    Console(highlight=False, markup=False).print(table)
