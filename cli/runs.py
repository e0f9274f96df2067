"""`weir demo`, `run` and `replay`: train a job once per strategy and compare."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ..experiments.errors import ExperimentError
from ..topologies.mininet.fabric import SwitchKind
from .console import NOTES
from .fabric_options import switch_in
from .help import STRATEGY_NAMES, complete_strategy
from .live import HistoryOption, WebOption, watching
from .start_up import announce_compilation

if TYPE_CHECKING:
    from ..experiments.config import RunConfig
    from ..experiments.records.record import RunRecord


class FabricKind(StrEnum):
    """Kind of fabric that a run's job uses."""

    VIRTUAL = "virtual"
    MININET = "mininet"


_console = Console(highlight=False, markup=False)


OutOption = Annotated[Path, typer.Option("--out", help="Folder that run records are made in.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Replace the file's seed.")]


def demo(
    out: OutOption = Path("runs"),
    loss: Annotated[
        float, typer.Option(help="Probability that a link loses a packet, every link, both directions.")
    ] = 0.0,
    web: WebOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train the demo's model once per strategy, and compare.

    Queue bounds are computed before the run; weir -v prints them. The exit status is 1 if a queue exceeds its bound.
    """
    from importlib import resources

    announce_compilation()

    from ..experiments.config import RunConfig

    with resources.as_file(resources.files("weir.experiments") / "demo.yaml") as path:
        config = RunConfig.load(path)
    _check_promises(_run(config.replaced("--loss", loss=loss), out, as_json, web=web, history=history))


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The run: fabric, job, training, background, strategies (YAML).")
    ],
    out: OutOption = Path("runs"),
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Run this one in place of the file's: {STRATEGY_NAMES}; may be repeated.",
            autocompletion=complete_strategy,
        ),
    ] = None,
    seed: SeedOption = None,
    fabric: Annotated[
        FabricKind, typer.Option(help="In virtual time, or then in Mininet as well (root), compared.")
    ] = FabricKind.VIRTUAL,
    switch: Annotated[
        SwitchKind | None, typer.Option(help="Software of every switch in Mininet; default: weir.")
    ] = None,
    web: WebOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the figures to this CSV file, too.")
    ] = None,
    pdf: Annotated[
        Path | None, typer.Option("--pdf", metavar="FOLDER", help="Write the plots for a paper to this folder, too.")
    ] = None,
    style: Annotated[
        Path | None, typer.Option("--style", metavar="FILE", help="Matplotlib style for --pdf, over the paper's.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check FILE: nothing is run, and no Python file of it is executed.")
    ] = False,
) -> None:
    """Run FILE once per strategy, compare, and keep a record.

    A file with a section `scheduling` compares orders of many jobs, or ways to share devices, in place of strategies
    (docs/scheduling.md); its options are --out, --seed, --json and --check. A file with a section `torchrun` runs a
    PyTorch script (docs/runs.md); its options are --seed, --web, --history and --check.

    Queue bounds are computed before the run; weir -v prints them. The exit status is 1 if a queue of the virtual
    fabric exceeds its bound.
    """
    try:
        file.stat()  # before imports that compile native code at first use
    except OSError as error:
        raise ExperimentError(f"cannot be read ({error.strerror})", place=str(file), value=str(file)) from None
    announce_compilation()

    from ..experiments.config import RunConfig
    from ..experiments.config.fabric import sections_of
    from ..experiments.records.plots import save_pdfs
    from .scheduling import run_scheduling_file
    from .torchrun import run_torchrun_file

    if style is not None and (pdf is None or not style.is_file()):
        raise ExperimentError(
            "no such file" if pdf is not None else "needs --pdf", place=f"--style {style}", value=style
        )
    mininet = switch_in(fabric is FabricKind.MININET, switch, "the run is in virtual time")
    others = {"--strategy": strategy, "--fabric mininet": mininet, "--csv": csv, "--pdf": pdf}
    sections = sections_of(file)
    if "scheduling" in sections:
        _refuse({**others, "--web": web, "--history": history}, file, "scheduling")
        run_scheduling_file(file, out, seed=seed, as_json=as_json, check=check)
        return
    if "torchrun" in sections:
        _refuse({**others, "--json": as_json or None}, file, "torchrun")
        run_torchrun_file(file, seed=seed, check=check, web=web, history=history)
        return
    if check:
        own = RunConfig.check(file).python_files
        _console.print(f"{file}: valid; a run executes {', '.join(own) or 'no Python file'}", soft_wrap=True)
        return
    config = RunConfig.load(file)
    if strategy:
        config = config.replaced("--strategy", strategies=strategy)
    if seed is not None:
        config = config.replaced("--seed", seed=seed)
    record = _run(config, out, as_json, mininet, web, history)
    if csv is not None:
        record.save_csv(csv)
    if pdf is not None:
        save_pdfs(record, pdf, style)
    _check_promises(record)


def _refuse(options: Mapping[str, object], file: Path, section: str) -> None:
    """Raise ExperimentError if one of the options, which are for runs of a job, is given."""
    if wrong := [name for name, value in options.items() if value is not None]:
        raise ExperimentError(f"{wrong[0]} is for runs of a job; {file} has a section {section}")


def replay(
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="A run record: its folder or its record.json.")],
    out: OutOption = Path("runs"),
    trust: Annotated[bool, typer.Option("--trust", help="Execute the Python files that the record names.")] = False,
) -> None:
    """Run a record again and compare every figure. The exit status is 1 when one differs."""
    from ..experiments.records.record import RunRecord

    before = RunRecord.load(record, trust=trust)
    after = _run(before.config, out, as_json=False, mininet=before.mininet_switch)
    differences = before.differences(after)
    for line in differences:
        _console.print(f"✗ {line}")
    if differences:
        raise typer.Exit(1)
    _console.print("✓ the replay reproduced every figure of the record")


def _check_promises(record: RunRecord) -> None:
    """Raise Exit if a queue exceeded its bound."""
    from ..experiments.records.report import broken_promises

    if broken_promises(record):
        raise typer.Exit(1)


def _run(
    config: RunConfig,
    out: Path,
    as_json: bool,
    mininet: SwitchKind | None = None,
    web: str | None = None,
    history: Path | None = None,
) -> RunRecord:
    """Run all strategies with progress on stderr; print tables and claims (or JSON); return the record."""
    from ..experiments.records import report
    from ..experiments.run import execute

    with watching(web, history) as watch:
        record, folder = execute(config, out, NOTES, mininet, watch)
    if as_json:
        sys.stdout.write(json.dumps({"folder": str(folder), **record.model_dump(mode="json")}) + "\n")
        return record
    title = f"{config.name}: aggregation phase of {config.training.steps} training steps, seed {config.seed}"
    _console.print(_table(title, report.COLUMNS, report.rows(record.results)))
    if record.modes:
        _console.print(_table(report.mode_title(record), report.MODE_COLUMNS, report.mode_rows(record)))
    if mininet is not None:
        title = f"the same in Mininet, {mininet} switches: wall-clock times"
        _console.print(_table(title, report.MININET_COLUMNS, report.mininet_rows(record.mininet)))
        for note in report.mininet_notes(record):
            _console.print(f"note: {note}", soft_wrap=True)
    for line in report.telemetry_summary(record) + report.condition_lines(record):
        _console.print(line, soft_wrap=True)
    for holds, text in report.claims(record):
        _console.print(f"{'✓' if holds else '✗'} {text}", soft_wrap=True)
    _console.print(f"run record: {folder}/index.html")
    return record


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Names at the left, figures at the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
