"""`weir strategies`: the placement strategies, with what each needs and when to choose it."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

_console = Console(highlight=False, markup=False)


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the placement strategies.

    The table says what each does, what it needs, and when to choose it.
    """
    from ..controller.placement.strategies import STRATEGIES, Need

    rows = [
        {
            "name": name,
            "label": strategy.label,
            "does": strategy.summary,
            "needs": [need.value for need in Need if need in strategy.needs],
            "choose_for": strategy.advice,
        }
        for name, strategy in STRATEGIES.items()
    ]
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for column in ("name", "does", "needs", "choose it for"):
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(str(row["name"]), str(row["does"]), ", ".join(row["needs"]) or "–", str(row["choose_for"]))
    _console.print(table)
    _console.print(
        "A strategy of your own is named by the path of its Python file (docs/placement.md).", soft_wrap=True
    )
