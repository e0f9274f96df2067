"""Published systems and their comparisons, by name. A new one is a module here that ends in its DESCRIPTION, its run
file, and its record; or a user's Python file that ends in one, whose path is its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...imports import user_files
from ...imports.registry import Registry
from ..errors import ExperimentError
from ..repetition.paper import RECORDS, Paper, Sample

if TYPE_CHECKING:
    from ..repetition.record import PaperRecord

__all__ = ["PAPERS", "record_path", "repeat", "whole_page"]

PAPERS: Final = Registry(__name__, __path__, Paper, "paper", ExperimentError)


def record_path(name: str) -> Path:
    """Return the path of an entry's record: `experiments/papers/records/NAME.json`, or beside a user's file."""
    return Path(name).with_suffix(".json") if name.endswith(user_files.ENDING) else RECORDS / f"{name}.json"


def repeat(name: str, done: Callable[[Sample], object] = lambda _: None) -> PaperRecord:
    """Measure an entry and write its record.

    Args:
        name: Registered name, or the path of a user's file.
        done: Called with each sample once it is measured.

    Returns:
        The record that was written to `record_path`.

    Raises:
        ExperimentError: The name is unknown, the measurement cannot run here, or the record cannot be written.
    """
    from threadpoolctl import threadpool_limits

    from ..repetition.record import PaperRecord

    paper = PAPERS.describe(name)
    started = _processor_seconds()
    samples = []
    with threadpool_limits(1):  # processor times are those of one core
        for sample in paper.measure(paper):
            samples.append(sample)
            done(sample)
    record = PaperRecord.of(paper, name, samples, _processor_seconds() - started)
    record.save(record_path(name))
    return record


def whole_page() -> str:
    """Return docs/papers.md from the records of all registered entries. Raises ExperimentError if one is missing."""
    from ..repetition.page import page
    from ..repetition.record import PaperRecord

    return page((paper, PaperRecord.load(record_path(name))) for name, paper in PAPERS.items())


def _processor_seconds() -> float:
    """Return processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])
