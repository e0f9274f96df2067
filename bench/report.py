"""Output of the benchmarks: tables for a terminal and for a document, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from weir.bench.machine import MachineDescription
from weir.bench.measure import Figure

COLUMNS = ("what", "weir", "spread", "peer", "peer's", "ratio", "aim", "")


def terminal_table(figures: Sequence[Figure]) -> Table:
    """A table with units, medians, spreads, ratios and aims."""
    table = Table()
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("what", "peer") else "right")
    for figure in figures:
        table.add_row(*_cells(figure))
    return table


def markdown_table(figures: Sequence[Figure], machine: MachineDescription) -> str:
    """The same for a document, with the machine above it."""
    lines = [f"*{machine}*", "", "| " + " | ".join(COLUMNS) + " |", "|---|---:|---:|---|---:|---:|---:|---|"]
    lines += ["| " + " | ".join(_cells(figure)) + " |" for figure in figures]
    return "\n".join(lines)


def as_json(figure: Figure) -> dict[str, Any]:
    """All measured values of a figure, and the values derived from them."""
    derived = ("value", "peer_value", "spread", "ratio", "met")
    return {**asdict(figure), **{name: getattr(figure, name) for name in derived}}


def amount(value: float, unit: str) -> str:
    """A value with its unit: rates in k and M, times in ms, µs and ns, all else as it is."""
    if unit.endswith("/s"):
        for scale, sign in ((1e9, "G "), (1e6, "M "), (1e3, "k ")):
            if abs(value) >= scale:
                return f"{_digits(value / scale)} {sign}{unit}"
    elif unit == "s" and 0 < abs(value) < 1:
        for scale, sign in ((1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
            if abs(value) >= scale:
                return f"{_digits(value / scale)} {sign}"
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    """Three significant digits, none of them exponents."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cells(figure: Figure) -> tuple[str, ...]:
    ratio, peer = figure.ratio, figure.peer_value
    return (
        figure.name,
        amount(figure.value, figure.unit),
        f"{figure.spread:.0%}",
        figure.peer or "",
        "" if peer is None else amount(peer, figure.unit),
        "" if ratio is None else _digits(ratio),
        _aim(figure),
        {None: "", True: "✓", False: "✗"}[figure.met],
    )


def _aim(figure: Figure) -> str:
    if figure.aim is None:
        return ""
    if figure.aim.of_ratio:
        return f"≥ {_digits(figure.aim.bound)} ×"
    return f"{'≤' if figure.less_is_better else '≥'} {amount(figure.aim.bound, figure.unit)}"
