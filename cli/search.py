"""`weir search`: hyper-parameter searches that share a fabric, and the order of their traffic."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ..experiments.errors import Interrupted
from ..topologies.mininet.processes import run_until_ended
from .console import NOTES, counted
from .fabric_options import log_what_matters

if TYPE_CHECKING:
    from ..experiments.search.course import Course
    from ..experiments.search.processes import ProcessOutcome, RunSearch
    from ..experiments.search.search_file import SearchFile
    from ..experiments.search.virtual import Outcome

_console = Console(highlight=False, markup=False)
_SHOWN = 5
"""Configurations of a search in its table."""


def search(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Fabric, orders, and searches with their spaces (YAML).")
    ],
    order: Annotated[
        list[str] | None,
        typer.Option(help="Play this order in place of the file's; may be repeated. docs/scheduling.md has all."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Replace the file's seed.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder that records are made in.")] = Path("runs"),
    processes: Annotated[
        bool, typer.Option("--processes", help="Train by a process per worker, over an emulated fabric by the clock.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of tables.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only check FILE: nothing is trained, and no Python file of it is executed.")
    ] = False,
) -> None:
    """Search hyper-parameters by stages, on a shared fabric.

    Each search of FILE trains its configurations for a fixed number of steps, a stage. Then the worst stop, and the
    others go on, with new ones if the file says so. The models and the data are real (the workloads of weir run), and
    accuracies do not depend on traffic. Times are virtual: the jobs of all searches share the fabric of the file, and
    each order of jobs is played once. A stage ends when its slowest job does, so orders that know stages (grouper,
    stage-srpt) end them earlier on average than fair shares.

    With --processes each configuration is a job of its own, whose workers are processes that sum through emulated
    switches. Times of stages are then this machine's, and orders are not applied. Take few workers and configurations.

    The record in --out has every configuration with its accuracies, and the times under each order.
    """
    from ..experiments.records.plain_record import keep_figures
    from ..experiments.search.processes import run_as_processes
    from ..experiments.search.search_file import SearchFile
    from ..experiments.search.virtual import run_searches

    loaded = SearchFile.load(file, execute=not check)
    if order:
        loaded = loaded.replaced("--order", execute=not check, orders=order)
    if seed is not None:
        loaded = loaded.replaced("--seed", execute=not check, seed=seed)
    if check:
        trainings = sum(search.schedule.trainings for search in loaded.searches)
        NOTES.print(f"{file} is right: {len(loaded.searches)} searches, {trainings} trainings", soft_wrap=True)
        return
    if processes:
        log_what_matters()
    total = sum(search.schedule.trainings for search in loaded.searches) + (0 if processes else len(loaded.orders))
    outcome: Outcome | ProcessOutcome
    with counted(loaded.name, total) as progressed:
        try:
            outcome = (
                run_until_ended(run_as_processes(loaded, progressed)) if processes else run_searches(loaded, progressed)
            )
        except KeyboardInterrupt:
            raise Interrupted("interrupted; nothing is kept") from None
    kept = keep_figures(outcome.as_json(), file, out, loaded.name, kind="search", copy="search.yaml")
    if as_json:
        sys.stdout.write(json.dumps({**outcome.as_json(), "record": str(kept)}) + "\n")
    else:
        _print(outcome, loaded)
        NOTES.print(f"record: {kept}", soft_wrap=True)


def _print(outcome: Outcome | ProcessOutcome, file: SearchFile) -> None:
    from ..experiments.search.virtual import Outcome

    if isinstance(outcome, Outcome):
        for course in outcome.courses:
            _print_search(course)
        _print_orders(outcome, file)
        return
    for each in outcome.searches:
        _print_search(each)
        times = ", ".join(f"{seconds:.1f} s" for seconds in each.stage_seconds)
        _console.print(f"stages took {times} by the clock", soft_wrap=True)


def _print_search(outcome: Course | RunSearch) -> None:
    config, search = outcome.config, outcome.search
    names = list(config.space)
    table = Table(
        "no.", *names, "steps", "accuracy", "stopped after", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for trial in search.ranking[:_SHOWN]:
        values = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in trial.parameters.values()]
        ended = f"stage {trial.begun_stage + len(trial.values)}" if trial.stopped else ""
        table.add_row(str(trial.number), *values, str(trial.steps), f"{trial.values[-1]:.3f}", ended)
    count = len(search.trials)
    _console.print(f"\n{config.name}: the best {min(_SHOWN, count)} of {count} configurations")
    _console.print(table)


def _print_orders(outcome: Outcome, file: SearchFile) -> None:
    first = outcome.orders[0]
    table = Table(
        "order",
        "mean stage, s",
        f"of {first.order}",
        *(f"{each.name}, s" for each in file.searches),
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for order in outcome.orders:
        ends = [f"{order.search_seconds[search.name]:.3f}" for search in file.searches]
        table.add_row(
            order.order, f"{order.stage_seconds:.3f}", f"{order.stage_seconds / first.stage_seconds:.2f}", *ends
        )
    _console.print("\nVirtual time; the last columns are each search's time from its start to its end")
    _console.print(table)
    _console.print(f"No order has a mean below {outcome.bound_seconds:.3f} s.")
