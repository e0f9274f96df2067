"""`python -m bench`: run every benchmark and print its figure beside the peer's."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from bench import emulator, ports


def main() -> None:
    arguments = argparse.ArgumentParser(
        prog="python -m bench", description="Figures of Weir beside a peer's, in one run."
    )
    arguments.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = arguments.parse_args()
    if (obstacle := ports.obstacle()) is not None:
        print(f"without the switch on network interfaces: {obstacle}", file=sys.stderr)
    figures = [*emulator.figures(), *ports.figures()]
    if options.json:
        json.dump([{**asdict(figure), "ratio": figure.ratio} for figure in figures], sys.stdout, indent=1)
        print()
        return
    table = Table(title=f"one core of {platform.machine()}, Python {platform.python_version()}; medians")
    for column in ("what", "weir", "peer", "peer's", "ratio"):
        table.add_column(column, justify="left" if column in ("what", "peer") else "right")
    for figure in figures:
        table.add_row(
            figure.name,
            _amount(figure.per_second, figure.unit),
            figure.peer,
            _amount(figure.peer_per_second, figure.unit),
            f"{figure.ratio:.2f}",
        )
    Console().print(table)


def _amount(value: float, unit: str) -> str:
    scale, sign = (1e6, "M") if value >= 1e6 else (1e3, "k")
    return f"{value / scale:,.2f} {sign} {unit}"


if __name__ == "__main__":
    main()
