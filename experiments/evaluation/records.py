"""What is kept of a point: a JSON file of its own, whole or not at all, so that an evaluation can go on."""

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

from ..errors import ExperimentError
from ..records.record import checkout, versions
from .suite import Point

FOLDER: Final = "points"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figures(_Record):
    """What one strategy came to at one point."""

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
    """What the controller's model says of the steps in which the job did not move, with others' traffic as it was, on
    mean; None: not asked, or it moved in each.
    """
    errors: tuple[float, ...] = ()
    """Of each of these steps: the predicted time over the measured one, less 1."""
    broken: tuple[str, ...] = ()
    """Queues that held more than was promised of them at the time, in packets."""
    failed: str = ""
    """Why the strategy could not."""

    @classmethod
    def of_failure(cls, strategy: str, background: float, why: Exception) -> Figures:
        """Of a strategy that could not place the jobs of a point with so much background."""
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
    """One point, whole."""

    point: Point
    figures: tuple[Figures, ...]
    seconds: float
    """Processor time that the point took, of all strategies together."""
    made_by: dict[str, str] = {}
    """Versions, commit and processor; empty where that was not kept yet. A point is the same whatever made it: this is
    for who wonders why figures differ.
    """

    def save(self, folder: Path) -> None:
        """Write it below an evaluation's folder, whole or not at all. Raises ExperimentError."""
        path = folder / FOLDER / f"{self.point.key}.json"
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
    def load(cls, folder: Path, point: Point) -> PointRecord | None:
        """None where the point was not run, or its record is damaged, or of another format."""
        try:
            record = cls.model_validate_json((folder / FOLDER / f"{point.key}.json").read_bytes())
        except (OSError, ValidationError, UnicodeDecodeError):
            return None
        return record if record.point == point else None


@cache
def maker() -> dict[str, str]:
    """What runs points here."""
    return {**versions(), "commit": checkout(), "processor": processor()}


def processor() -> str:
    """As the kernel calls it."""
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
    """All figures, a row for each point and strategy, as compressed CSV: the same bytes for the same records."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        told = record.point.conditions
        for own in record.figures:
            writer.writerow(
                [
                    told["grid"],
                    record.point.engine,
                    *(told[name] for name in COLUMNS[2:11]),
                    record.point.seed,
                    own.strategy,
                    *_numbers(own),
                    own.failed,
                ]
            )
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def _numbers(own: Figures) -> list[str]:
    scaled = (
        (own.mean_s, 1e3),
        (own.p95_s, 1e3),
        (own.max_link_load, 1.0),
        (own.decision_ms, 1.0),
        (own.moves, 1),
        (own.background, 1.0),
        (own.predicted_s, 1e3),
        (max(map(abs, own.errors), default=None), 1.0),
    )
    return ["" if value is None else f"{value * factor:.4g}" for value, factor in scaled]
