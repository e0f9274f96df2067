"""Command line of the benchmarks, `python -m weir.bench`: run them and print their figures next to the peers'."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Final

from finsy import P4ClientError
from grpc import RpcError
from rich.console import Console

from weir.bench.machine import this_machine
from weir.bench.report import amount, as_json, markdown_table, terminal_table
from weir.controller.errors import ControllerError
from weir.experiments.errors import ExperimentError
from weir.experiments.page_tables import check_places, write_table
from weir.hosts import HostError
from weir.topologies import TopologyError

BENCHMARKS: Final = (
    "emulator",
    "ports",
    "inference",
    "writes",
    "lookups",
    "start",
    "plugin",
    "goodput",
    "endpoint",
    "transfers",
    "tensors",
    "codecs",
    "control",
    "reports",
    "live",
    "launch",
    "placement",
    "flows",
    "loading",
    "batching",
    "balance",
    "recovery",
    "mininet",
    "pytorch",
)
"""Modules of this package, in the order in which they run."""

_FAILURES: Final = (
    RuntimeError,
    OSError,
    SubprocessError,
    ControllerError,
    ExperimentError,
    HostError,
    TopologyError,
    P4ClientError,
    RpcError,
)
"""Exceptions that a benchmark may raise; the others go on."""

_PAGE_COLUMNS: Final = 160
"""Width of output that is no terminal."""


def main(words: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for. Missed aims are shown, and no failure: machines differ."""
    options = _options(words)
    names = options.only or BENCHMARKS
    if options.write is not None:
        try:
            check_places(options.write, map(place_of, names))
        except ExperimentError as error:
            raise SystemExit(f"bench: {error}") from error
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    tables = Console(width=None if sys.stdout.isatty() else _PAGE_COLUMNS)
    machine = this_machine()
    notes.print(f"bench: {machine}")
    report: dict[str, Any] = {}
    failed = []
    for name in names:
        module = importlib.import_module(f"weir.bench.{name}")
        obstacle = module.obstacle() if hasattr(module, "obstacle") else None
        if obstacle is not None:
            notes.print(f"bench: {name} is skipped: {obstacle}")
            report[name] = {"skipped": obstacle}
            continue
        figures = []
        try:
            for figure in module.figures():
                figures.append(figure)
                notes.print(f"bench: {figure.name}: {amount(figure.value, figure.unit)}")
        except _FAILURES as error:
            notes.print(f"bench: {name} has failed: {error}")
            failed.append(name)
            report[name] = {"failed": str(error)}
            continue
        report[name] = {"figures": [as_json(figure) for figure in figures]}
        if not options.json:
            tables.print(_title(module), style="bold", soft_wrap=True)
            tables.print(terminal_table(figures))
        if options.write is not None:
            write_table(options.write, place_of(name), markdown_table(figures, machine))
    if options.json:
        json.dump({"machine": machine.as_dict(), "benchmarks": report}, sys.stdout, indent=1)
        print()
    if failed:
        raise SystemExit(f"bench: failed: {', '.join(failed)}")


def place_of(name: str) -> str:
    """The marker of a benchmark's table in a page."""
    return f"bench {name}"


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m weir.bench", description="Figures of Weir beside a peer's, in one run."
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=BENCHMARKS,
        metavar="NAME",
        help=f"one of {', '.join(BENCHMARKS)}; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print all runs as JSON")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="put the tables into this document as well")
    return parser.parse_args(words)


def _title(module: Any) -> str:
    return str(module.__doc__).partition("\n")[0].removesuffix(".")


if __name__ == "__main__":
    main()
