"""Timing: the median of several runs, the peer's runs in between, so that both see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

RUNS: Final = 7


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    name: str
    per_second: float
    unit: str
    peer: str
    peer_per_second: float

    @property
    def ratio(self) -> float:
        return self.per_second / self.peer_per_second


def compare(
    name: str,
    unit: str,
    units: int,
    work: Callable[[], object],
    peer: str,
    peer_units: int,
    peer_work: Callable[[], object],
) -> Figure:
    """Time `work`, which does `units` units, and `peer_work` in turns; each warmed up once."""
    work()
    peer_work()
    mine, theirs = [], []
    for _ in range(RUNS):
        mine.append(_seconds(work))
        theirs.append(_seconds(peer_work))
    return Figure(name, units / statistics.median(mine), unit, peer, peer_units / statistics.median(theirs))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
