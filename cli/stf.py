"""`weir stf`: packet tests in p4c's own format against the emulated switch."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from ..experiments.errors import ExperimentError
from .console import NOTES

if TYPE_CHECKING:
    from ..emulator.stf import SuiteResult

_console = Console(highlight=False, markup=False)


def stf(
    program: Annotated[
        Path | None,
        typer.Argument(metavar="PROGRAM", help="A v1model program: p4c's BMv2 JSON, or P4 that p4c compiles now."),
    ] = None,
    tests: Annotated[list[Path] | None, typer.Argument(metavar="TEST.stf", help="STF tests of that program.")] = None,
    p4c: Annotated[
        Path | None,
        typer.Option(
            "--p4c",
            metavar="FOLDER",
            help="Instead, compile and run every FOLDER/*.stf; p4c's source tree will do.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")] = False,
) -> None:
    """Run STF packet tests of a P4 program. The exit status is 1 when one fails."""
    if p4c is not None and program is None:
        failed = _folder(p4c, as_json)
    elif p4c is None and program is not None and tests:
        failed = _program(program, tests, as_json)
    else:
        raise ExperimentError("weir stf takes either PROGRAM TEST.stf... or --p4c FOLDER")
    if failed:
        raise typer.Exit(1)


def _program(path: Path, tests: list[Path], as_json: bool) -> bool:
    """Play tests of one program; whether one failed."""
    from ..emulator.stf import load_program, play, read_test

    read = [read_test(test) for test in tests]
    program = load_program(path)
    outcomes = [(test.path, play(program, test)) for test in read]
    failed = any(outcome.failures for _, outcome in outcomes)
    if as_json:
        results: list[dict[str, Any]] = [
            {
                "test": str(test),
                "passed": not outcome.failures,
                "packets": outcome.packets,
                "checks": outcome.checks,
                "failures": outcome.failures,
                "notes": outcome.notes,
            }
            for test, outcome in outcomes
        ]
        sys.stdout.write(json.dumps({"program": str(path), "results": results}) + "\n")
        return failed
    for test, outcome in outcomes:
        for note in outcome.notes:
            _console.print(f"  {note}", markup=False, soft_wrap=True)
        for failure in outcome.failures:
            _console.print(f"✗ {failure}", markup=False, soft_wrap=True)
        if not outcome.failures:
            text = f"✓ {test.name}: {outcome.packets} packets sent, {outcome.checks} checks hold"
            _console.print(text, markup=False, soft_wrap=True)
    return failed


def _folder(folder: Path, as_json: bool) -> bool:
    """Compile and play a folder's tests with progress on stderr; whether one failed."""
    from ..emulator.stf import Verdict, run_test, tests_in

    tests = tests_in(folder)
    results = [run_test(test) for test in track(tests, "STF tests", console=NOTES, transient=True)]
    counts = Counter(result.verdict for result in results)
    if as_json:
        sys.stdout.write(
            json.dumps(
                {
                    "folder": str(folder),
                    "counts": {verdict.value: counts[verdict] for verdict in Verdict},
                    "results": [
                        {"test": result.test, "verdict": result.verdict.value, "detail": result.detail}
                        for result in results
                    ],
                }
            )
            + "\n"
        )
    else:
        _console.print(_table(results))
        _console.print(f"{len(results)} tests: " + ", ".join(f"{counts[v]} {v.value}" for v in Verdict))
    return counts[Verdict.FAILED] > 0


def _table(results: list[SuiteResult]) -> Table:
    """Table of the tests that did not pass, with the reason; tests of other architectures are one row each."""
    from ..emulator.stf import Verdict

    table = Table(title="what did not pass", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("test", "verdict", "why"):
        table.add_column(column, overflow="fold", no_wrap=column != "why")
    others = Counter(result.detail for result in results if result.verdict == Verdict.NOT_V1MODEL)
    for verdict in (Verdict.FAILED, Verdict.REFUSED, Verdict.NOT_COMPILED):
        for result in results:
            if result.verdict == verdict:
                table.add_row(result.test, verdict.value, escape(result.detail))
    for detail, count in sorted(others.items()):
        table.add_row(f"{count} tests", Verdict.NOT_V1MODEL.value, detail)
    return table
