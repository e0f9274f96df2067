"""Figures of a run's strategies as rows: for a data frame, and for a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ...imports.extras import MissingExtra
from ..errors import ExperimentError

COLUMNS: Final = (
    "strategy",
    "seed",
    "steps",
    "mean_ms",
    "p95_ms",
    "busiest_link",
    "busiest_link_bytes",
    "largest_queue",
    "largest_queue_packets",
    "broken_bounds",
    "resends",
    "dropped_packets",
    "moves",
    "accuracy",
)
"""Names of the figures."""


def rows_of(results: Sequence[Any], seed: int) -> list[dict[str, Any]]:
    """Return the figures of each strategy, under `COLUMNS`; times in ms.

    Args:
        results: The record's `StrategyResult` of each strategy.
        seed: The run's seed.
    """
    rows = [
        (
            result.strategy,
            seed,
            len(result.iteration_ns),
            result.mean_ms,
            result.p95_ms,
            result.busiest_link,
            result.busiest_link_bytes,
            result.largest_queue,
            result.largest_queue_packets,
            len(result.broken),
            result.resends,
            sum(result.drops.values()),
            len(result.moves),
            result.accuracy,
        )
        for result in results
    ]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def frame_of(rows: Sequence[dict[str, Any]]) -> Any:
    """Return a pandas DataFrame of the rows. Raises MissingExtra without pandas."""
    try:
        pandas: Any = import_module("pandas")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "to_frame() needs pandas, which is not installed: pip install pandas", name="pandas"
        ) from error
    return pandas.DataFrame(list(rows), columns=list(COLUMNS))


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows with a line of column names. Raises ExperimentError if the file cannot be written."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise ExperimentError(f"cannot be written ({error.strerror})", place=str(path), value=error.errno) from None
