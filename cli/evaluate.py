"""`weir evaluate`: every strategy under each condition of a grid, with the results."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..experiments.errors import ExperimentError, Interrupted
from .console import NOTES

OutOption = Annotated[
    Path | None, typer.Option(help="Folder of the points' records; default: evaluations/ and the suite's name.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Local processes; default: one for each processor.")]
ClusterOption = Annotated[
    str | None, typer.Option(help="Run on this Dask cluster instead: its scheduler, such as tcp://host:8786.")
]
WriteOption = Annotated[
    Path | None,
    typer.Option(metavar="PAGE.md", help="Write the page, and its plots and data into a folder beside it."),
]


def evaluate(
    file: Annotated[Path, typer.Argument(metavar="SUITE", help="Grids, seeds and strategies (YAML).")],
    out: OutOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    write: WriteOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every condition's figures as JSON.")] = False,
) -> None:
    """Compare strategies over a grid of conditions and seeds.

    Every point of SUITE that has no record yet is run. An interrupted evaluation thus continues: each point's record is
    a file in the folder.

    A suite has grids. A grid crosses lists of conditions: fabrics, workers (of each job), spread (packed, spread,
    random), rates (equal, mixed) and load (of the links between switches, 0 to 0.8). Further lists are background
    (static, shifting, websearch, datamining), jobs, memory (ample, scarce), telemetry (fresh, old, lossy, absent) and
    importance of jobs (equal, weights, priorities). Each condition is drawn for the seeds 1 to `seeds`: hosts, others'
    traffic, hashing. `engine: packets` runs the compiled P4 in the packet fabric, `engine: flows` the flow-level
    simulator, which is much faster and takes far larger fabrics. Strategies are those of `weir place`. Five more exist
    only here: ring (no switch sums), two-level-ring (in and between racks), halving-doubling (in pairs), striped (all
    jobs together) and blind-together (widest without telemetry, with running jobs placed together).
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from ..experiments.evaluation.grid import evaluate as run_grid
    from ..experiments.evaluation.page import printed, written
    from ..experiments.evaluation.suite import Suite

    if workers is not None and cluster is not None:
        raise ExperimentError(
            f"--workers {workers} is for local processes, and --cluster {cluster} has its own; keep one"
        )
    if write is not None:
        _make_room_for(write)
    suite = Suite.load(file)
    folder = out if out is not None else Path("evaluations") / suite.name
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=NOTES) as progress:
        task = progress.add_task(f"{suite.name}: points")
        try:
            records = run_grid(
                suite,
                folder,
                workers or os.cpu_count() or 1,
                cluster,
                lambda done, total: progress.update(task, completed=done, total=total),
            )
        except (KeyboardInterrupt, SystemExit):
            raise Interrupted(f"interrupted; the points that are done are kept in {folder}") from None
    if write is not None:
        try:
            written(suite, records, file, write)
        except OSError as error:
            raise ExperimentError(f"--write {write}: {error}; the points that were run are kept in {folder}") from None
        NOTES.print(f"page: {write}")
    for record in records:
        for own in record.figures:
            for line in own.broken:
                NOTES.print(f"✗ {record.point.key}, {own.strategy}: {line}", soft_wrap=True)
    sys.stdout.write(printed(suite, records, as_json))


def _make_room_for(page: Path) -> None:
    """Before all points are run for it. Raises ExperimentError where the page cannot be written there."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"--write {page}: {error}") from None
    if not page.suffix or page.is_dir():
        raise ExperimentError(
            f"--write {page}: it is to be a file with an ending, as docs/page.md: what it shows goes into a folder "
            "beside it, which is called as it is without the ending"
        )
