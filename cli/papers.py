"""`weir papers`: published systems beside their baselines, and the repetition of each comparison."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .console import NOTES
from .help import command_group, examples

if TYPE_CHECKING:
    from ..experiments.repetition.paper import Paper, Sample
    from ..experiments.repetition.record import PaperRecord

app = command_group(
    help="List published systems beside baselines, or repeat one. Without a command it lists.",
    epilog=examples(
        "weir papers",
        "weir papers show congestion-control",
        "weir papers run agg-placement",
        "weir papers page docs/papers.md",
    ),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A name of weir papers, or a Python file of yours.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

_console = Console(highlight=False, markup=False)


@app.callback(invoke_without_command=True)
def list_papers(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the entries: name, system, strong baselines, and whether there is a record."""
    if context.invoked_subcommand is not None:
        return
    from ..experiments.papers import PAPERS, record_path

    if as_json:
        rows = [{**_as_dict(paper), "recorded": record_path(name).is_file()} for name, paper in PAPERS.items()]
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    table = Table("name", "system", "strong baselines", "record", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, paper in PAPERS.items():
        strong = ", ".join(baseline.label for baseline in paper.baselines if baseline.strong)
        table.add_row(name, paper.system.label, strong, "yes" if record_path(name).is_file() else "no")
    _console.print(table)


@app.command(epilog=examples("weir papers show congestion-control", "weir papers show my_paper.py --json"))
def show(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show an entry and its recorded figures.

    Printed are the paper's headline, the conditions here, the command that repeats the comparison, and for every
    baseline its mean and the relative change by the system, with 95 % intervals.
    """
    from ..experiments.papers import PAPERS, record_path
    from ..experiments.repetition.record import PaperRecord

    paper = PAPERS.describe(name)
    _show(paper, PaperRecord.load(record_path(name)), as_json)


@app.command(epilog=examples("weir papers run agg-placement", "weir papers run my_paper.py"))
def run(name: NameArgument, as_json: JsonOption = False) -> None:
    """Measure an entry again and write its record.

    The record of a registered entry is experiments/papers/records/NAME.json; that of a file of yours is a JSON file
    beside it. Figures of virtual time are the same on every machine.
    """
    from ..experiments.papers import PAPERS, repeat

    def say(sample: Sample) -> None:
        NOTES.print(f"{sample.condition}, seed {sample.seed}, {sample.contender}: {sample.figure} {sample.value:.6g}")

    _show(PAPERS.describe(name), repeat(name, say), as_json)


@app.command(epilog=examples("weir papers page docs/papers.md"))
def page(file: Annotated[Path, typer.Argument(metavar="PAGE.md", help="Page to write; it is replaced.")]) -> None:
    """Write the page of all registered entries from their records."""
    from ..experiments.errors import ExperimentError
    from ..experiments.papers import whole_page

    text = whole_page()
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"{file}: cannot be written ({error.strerror})") from None


def _show(paper: Paper, record: PaperRecord, as_json: bool) -> None:
    from ..experiments.repetition.page import amount, change
    from ..experiments.repetition.record import results

    if as_json:
        sys.stdout.write(json.dumps({**_as_dict(paper), "record": record.model_dump(mode="json")}) + "\n")
        return
    for key, text in (
        ("paper", paper.published),
        ("headline", paper.headline),
        ("here", paper.regime),
        ("repeat", record.command),
    ):
        _console.print(f"{key:<9} {text}", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("figure", "condition", "contender", "mean", "change by the system"):
        table.add_column(column, justify="right" if column.startswith(("mean", "change")) else "left")
    for result in results(paper, record):
        strong = " (strong)" if result.contender.strong else ""
        shown = "" if result.contender == paper.system else change(result)
        unit = f"{result.figure.name}, {result.figure.unit}"
        table.add_row(unit, result.condition, f"{result.contender.label}{strong}", amount(result), shown)
    _console.print(table)


def _as_dict(paper: Paper) -> dict[str, object]:
    return {
        "name": paper.name,
        "published": paper.published,
        "headline": paper.headline,
        "system": paper.system.name,
        "baselines": {baseline.name: {"strong": baseline.strong} for baseline in paper.baselines},
        "figures": [figure.name for figure in paper.figures],
        "regime": paper.regime,
        "run_files": list(paper.run_files),
        "seeds": paper.seeds,
    }
