"""Record of a point: a JSON file for each strategy, written atomically.

So an evaluation can continue, and a strategy that is added to a suite is the only one that is run.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from threadpoolctl import threadpool_info

from ..errors import ExperimentError
from ..records.record import checkout, versions
from .suite import Point

FOLDER: Final = "points"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StrategyFigures(_Record):
    """Results of one strategy at one point."""

    strategy: str
    mean_s: float | None
    """Completion time of an aggregation phase, over all steps of all jobs; None: the strategy could not place them."""
    p95_s: float | None
    max_link_load: float | None
    """Share of its rate that the fullest link used over the run, by everybody's traffic."""
    decision_ms: float | None
    """Median of the decisions, in processor time; None where there was nothing to decide."""
    moves: int
    background: float
    """Mean load of the links between switches by others' traffic, as it was."""
    predicted_s: float | None = None
    """Mean step time by the controller's model, over steps in which the job did not move, with the actual background;
    None: not evaluated, or the job moved in each.
    """
    errors: tuple[float, ...] = ()
    """Predicted over measured time, minus 1, of each of these steps."""
    broken: tuple[str, ...] = ()
    """Queues that exceeded the bound of the time, in packets."""
    failed: str = ""
    """Reason that the strategy failed."""
    seconds: float = 0.0
    """Processor time that the run took."""
    made_by: dict[str, str] = {}
    """Versions, commit and processor; empty if not recorded. They do not identify a point, but help to explain
    differences between figures.
    """

    @classmethod
    def of_failure(cls, strategy: str, background: float, why: Exception) -> StrategyFigures:
        """Return figures of a strategy that could not place the jobs of a point with this background."""
        return cls(
            strategy=strategy,
            mean_s=None,
            p95_s=None,
            max_link_load=None,
            decision_ms=None,
            moves=0,
            background=background,
            failed=str(why),
        )


class PointRecord(_Record):
    """One point, with the figures of all its strategies in their order."""

    point: Point
    figures: tuple[StrategyFigures, ...]

    @property
    def seconds(self) -> float:
        """Processor time that all strategies took together."""
        return sum(own.seconds for own in self.figures)

    def save(self, folder: Path) -> None:
        """Write a file for each strategy below an evaluation's folder, each whole or not at all.

        Raises ExperimentError.
        """
        for alone, own in zip(self.point.by_strategy, self.figures, strict=True):
            PointRecord(point=alone, figures=(own,))._write(_path(folder, alone))

    def _write(self, path: Path) -> None:
        beside = path.with_suffix(".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("w", encoding="utf-8") as file:
                file.write(self.model_dump_json())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            raise ExperimentError(f"{path}: the point's record cannot be written ({error.strerror})") from None

    @classmethod
    def load(cls, folder: Path, point: Point) -> PointRecord:
        """Return the record with the strategies of the point that have figures.

        A strategy has none if it was not run, or if its file is damaged or of another format.
        """
        records = [record for alone in point.by_strategy if (record := cls._read(folder, alone)) is not None]
        strategies = tuple(name for record in records for name in record.point.strategies)
        figures = tuple(own for record in records for own in record.figures)
        return cls(point=point.model_copy(update={"strategies": strategies}), figures=figures)

    @classmethod
    def _read(cls, folder: Path, alone: Point) -> PointRecord | None:
        try:
            record = cls.model_validate_json(_path(folder, alone).read_bytes())
        except (OSError, ValidationError, UnicodeDecodeError):
            return None
        return record if record.point == alone else None


def _path(folder: Path, alone: Point) -> Path:
    """File of a point with one strategy."""
    return folder / FOLDER / f"{alone.key}.json"


@cache
def maker() -> dict[str, str]:
    """Return versions, commit and processor of this machine, and the code that BLAS chose for it."""
    return {**versions(), "commit": checkout(), "processor": processor(), "blas": blas()}


def blas() -> str:
    """Return kernels of NumPy's BLAS, such as Haswell: others round sums of products differently in the last bit."""
    kernels = {library.get("architecture", "") for library in threadpool_info() if library["user_api"] == "blas"}
    return ", ".join(sorted(kernels)) or "unknown"


def processor() -> str:
    """Name of the processor, from the kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()


COLUMNS: Final = (
    "grid",
    "engine",
    "fabric",
    "workers",
    "spread",
    "rates",
    "load",
    "background",
    "jobs",
    "memory",
    "telemetry",
    "importance",
    "seed",
    "strategy",
    "mean_ms",
    "p95_ms",
    "max_link_load",
    "decision_ms",
    "moves",
    "background_load",
    "predicted_ms",
    "largest_error",
    "failed",
)


def write_csv(records: Iterable[PointRecord], path: Path) -> None:
    """Write all figures, a row for each point and strategy, as compressed CSV: the same bytes for the same records."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        told = record.point.conditions
        for figures in record.figures:
            writer.writerow(
                [
                    told["grid"],
                    record.point.engine,
                    *(told[name] for name in COLUMNS[2:12]),
                    record.point.seed,
                    figures.strategy,
                    *_numbers(figures),
                    figures.failed,
                ]
            )
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def _numbers(figures: StrategyFigures) -> list[str]:
    scaled = (
        (figures.mean_s, 1e3),
        (figures.p95_s, 1e3),
        (figures.max_link_load, 1.0),
        (figures.decision_ms, 1.0),
        (figures.moves, 1),
        (figures.background, 1.0),
        (figures.predicted_s, 1e3),
        (max(map(abs, figures.errors), default=None), 1.0),
    )
    return ["" if value is None else f"{value * factor:.4g}" for value, factor in scaled]
