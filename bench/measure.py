"""Figures, and timing: several runs, the peer's runs in between, so that both see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Clock = Callable[[Callable[[], object]], float]
"""Seconds that work takes."""

RUNS: Final = 7


@dataclass(frozen=True, slots=True)
class Aim:
    """Goal of a figure: a minimum, or a maximum if less is better."""

    bound: float
    of_ratio: bool = False
    """True if the aim bounds the ratio to the peer (always from below) instead of the figure's own value."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a table: several runs of one measurement, each paired with a peer's run."""

    name: str
    unit: str
    """Such as "packets/s" or "s"; these two kinds are printed with k, M, m and µ."""
    values: tuple[float, ...]
    """One for each run."""
    peer: str | None = None
    peer_values: tuple[float, ...] = ()
    """One for each run of the peer; where there are as many as `values`, they were taken in turns."""
    less_is_better: bool = False
    aim: Aim | None = None

    @property
    def value(self) -> float:
        """The median run."""
        return statistics.median(self.values)

    @property
    def peer_value(self) -> float | None:
        """The peer's median run; None without a peer."""
        return statistics.median(self.peer_values) if self.peer_values else None

    @property
    def spread(self) -> float:
        """Difference between the largest and the smallest run, as a share of the median."""
        return (max(self.values) - min(self.values)) / self.value if self.value else 0.0

    @property
    def ratio(self) -> float | None:
        """Median ratio to the peer over the turns (above 1 is better); both runs of a turn saw the same machine."""
        peer = self.peer_value
        if peer is None:
            return None
        if len(self.values) != len(self.peer_values):
            return peer / self.value if self.less_is_better else self.value / peer
        ratios = [mine / theirs for mine, theirs in zip(self.values, self.peer_values, strict=True)]
        return statistics.median(1 / ratio if self.less_is_better else ratio for ratio in ratios)

    @property
    def met(self) -> bool | None:
        """True if the aim is reached; None without an aim."""
        if self.aim is None:
            return None
        if not self.aim.of_ratio:
            return self.value <= self.aim.bound if self.less_is_better else self.value >= self.aim.bound
        return self.ratio is not None and self.ratio >= self.aim.bound


@dataclass(frozen=True, slots=True)
class TimedWork:
    """Work to time, which does `units` units of it: packets, lanes, entries."""

    name: str
    units: float
    work: Callable[[], object]

    def rate(self, clock: Clock) -> float:
        """Units per second of one run."""
        return self.units / clock(self.work)


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one run."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_seconds(work: Callable[[], object]) -> float:
    """Processor time of one run in this thread; other processes affect it only through caches."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def compare(
    name: str,
    unit: str,
    mine: TimedWork,
    peer: TimedWork,
    *,
    aim: Aim | None = None,
    runs: int = RUNS,
    clock: Clock = seconds,
) -> Figure:
    """The rates (`unit`, per second by `clock`) of two contenders that take turns; each is warmed up once."""
    mine.work()
    peer.work()
    turns = [(mine.rate(clock), peer.rate(clock)) for _ in range(runs)]
    ours, theirs = zip(*turns, strict=True)
    return Figure(name, unit, ours, peer.name, theirs, aim=aim)
