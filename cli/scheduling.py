"""`weir run` of a file with a section `scheduling`: figures of each order, or of each way to share devices."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from ..experiments.errors import Interrupted
from .console import counted

if TYPE_CHECKING:
    from ..experiments.scheduling.scheduled_run import Figures
    from ..experiments.scheduling.scheduling_file import SchedulingFile

_console = Console(highlight=False, markup=False)


def run_scheduling_file(file: Path, out: Path, *, seed: int | None, as_json: bool, check: bool) -> None:
    """Run or check a file, print its figures, and keep a record."""
    from ..experiments.records.plain_record import keep_figures
    from ..experiments.scheduling.scheduled_run import run_scheduling, trials
    from ..experiments.scheduling.scheduling_file import SchedulingFile

    if check:
        SchedulingFile.load(file, execute=False)
        _console.print(f"{file}: valid", soft_wrap=True)
        return
    config = SchedulingFile.load(file)
    if seed is not None:
        config = config.replaced("--seed", seed=seed)
    with counted(config.name, trials(config)) as progressed:
        try:
            figures = run_scheduling(config, progressed)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; nothing is kept") from None
    record = {"seed": config.seed, **figures.as_json()}
    kept = keep_figures(record, file, out, config.name, kind="scheduling", copy="run.yaml")
    if as_json:
        sys.stdout.write(json.dumps({"folder": str(kept), **figures.as_json()}) + "\n")
        return
    _print(figures, config)
    _console.print(f"run record: {kept}", soft_wrap=True)


def _print(figures: Figures, config: SchedulingFile) -> None:
    first = next(iter(figures.rows))
    title = "way" if config.scheduling.turns is not None else "order"
    table = Table(title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in figures.columns:
        table.add_column(column, justify="right")
        table.add_column(f"of {first}", justify="right")
    base = figures.mean(first)
    for name in figures.rows:
        cells = [
            (f"{value:.4g}", f"{value / whole:.2f}") for value, whole in zip(figures.mean(name), base, strict=True)
        ]
        table.add_row(name, *(cell for pair in cells for cell in pair))
    draws = len(figures.rows[first])
    _console.print(f"{config.name}: virtual time, mean of {draws} draw{'s' if draws > 1 else ''}")
    _console.print(table)
    if figures.bound:
        _console.print(f"No order has a mean below {sum(figures.bound) / len(figures.bound):.4g} s in these draws.")
    if figures.formula is not None:
        _console.print(f"The formula's period in turns is {figures.formula:.4g} s.")
