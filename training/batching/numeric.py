"""The numeric rule: samples move from the straggler to the leader, step by step, by measured times alone.

It asks only that a worker's time does not fall when it gets more samples, so launch overheads, communication, and
devices that a few samples do not fill are all in it. Three phases: *fast approach* moves large steps after every
iteration; when straggler and leader change places, *fine tuning* moves small ones by medians of several iterations;
when all are even, it *holds*, and neither noise nor single slow iterations make it move.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Sequence
from enum import Enum
from math import inf
from statistics import median
from typing import Final

from ..errors import TrainingError
from .analytic import equal_shares

_EVEN: Final = 0.04
"""Spread (largest less least time, by their mean) up to which medians count as even."""
_UNEVEN: Final = 0.06
"""Spread of the medians of a long hold that begins fine tuning."""
_FAR: Final = 0.30
"""Spread from which on the approach is fast."""
_APPROACH_WINDOW: Final = 3
_WORSE: Final = 1.5
"""Growth factor of the spread after fine tuning that counts as a change of the machines."""
_SWAPS: Final = 3
"""So often leader and straggler change places before the approach is over."""
_FINE_WINDOW: Final = 7
_HOLD_WINDOW: Final = 15
_PART: Final = 0.8
"""Share of the equalising move that fine tuning makes: times grow less than in proportion to samples."""
_ANCHOR: Final = 0.6
"""A worker whose share has shrunk to this part of its earlier one is checked for saturation: its time should have
fallen.
"""
_FELL: Final = 0.1
"""Part of the proportional decrease by which the time must have fallen."""
_DOUBTS: Final = 3
"""So often on end it did not fall, lest a single slow iteration pass for saturation."""


class TuningPhase(Enum):
    """Phase of the rule after an iteration."""

    FAST = "fast approach"
    FINE = "fine tuning"
    HOLD = "hold"


class NumericRule:
    """The sizes of all workers' next shares. The same times give the same sizes everywhere."""

    def __init__(self, total: int, workers: int, *, step: int = 5, limits: Sequence[int | None] | None = None) -> None:
        """`total` samples are shared; the fast approach moves `step` at once; `limits` are known memory limits."""
        if step < 1:
            raise TrainingError(f"a fast approach by steps of {step} samples; it is at least 1")
        self.phase = TuningPhase.FAST
        self.limits: list[int | None] = list(limits or [None] * workers)
        """The most samples that each can hold, as far as is known."""
        self.floors = [1] * workers
        """Fewer samples than these are not taken from a worker: it would be no faster."""
        self._step = step
        self._sizes = equal_shares(total, workers)
        self._fit()
        self._roles: dict[int, str] = {}
        """Last role of each worker in this approach."""
        self._swaps = 0
        """Number of times that a worker has changed roles."""
        self._times: deque[Sequence[float]] = deque(maxlen=_HOLD_WINDOW)
        """Times per worker of each iteration with the present sizes."""
        self._last: deque[Sequence[float]] = deque(maxlen=_APPROACH_WINDOW)
        """Times per worker of the last iterations, with any sizes."""
        self._spread_before = inf
        """Spread of the medians before the last fine tuning; infinite if there was none since the approach."""
        self._doubts = [0] * workers
        """Number of consecutive checks per worker without a speed-up."""
        self._anchors: list[tuple[int, float] | None] = [None] * workers
        """Size and time of each worker before it began to lose samples."""

    @property
    def sizes(self) -> list[int]:
        """Sizes of the next iteration, by rank."""
        return list(self._sizes)

    def learn_limits(self, limits: Sequence[int | None]) -> None:
        """Set the maximum samples per worker from now on, as far as known; a known limit never grows."""
        before = self.sizes
        for worker, limit in enumerate(limits):
            known = self.limits[worker]
            if limit is not None:
                self.limits[worker] = limit if known is None else min(limit, known)
        self._fit()
        if self._sizes != before:
            self._moved()

    def event(self) -> None:
        """Approach fast again, after a change that times do not show yet."""
        self.phase, self._roles, self._swaps = TuningPhase.FAST, {}, 0
        self._times.clear()
        self._last.clear()
        self._spread_before = inf
        self.floors = [1] * len(self.floors)
        self._anchors = [None] * len(self._anchors)
        self._doubts = [0] * len(self._doubts)

    def observe(self, times: Sequence[float]) -> None:
        """Record each worker's time with its share, in any unit."""
        self._times.append(list(times))
        self._last.append(list(times))
        match self.phase:
            case TuningPhase.FAST if len(self._last) == _APPROACH_WINDOW:
                self._approach(_medians(self._last))
            case TuningPhase.FINE if len(self._times) >= _FINE_WINDOW:
                self._tune()
            case TuningPhase.HOLD if len(self._times) >= _FINE_WINDOW:
                if self._spread(_medians(self._times, _FINE_WINDOW)) > _FAR:
                    self.event()
                elif len(self._times) == _HOLD_WINDOW and self._spread(_medians(self._times, _HOLD_WINDOW)) > _UNEVEN:
                    self.phase = TuningPhase.FINE
                    self._tune()

    # --- phases ---

    def _approach(self, times: Sequence[float]) -> None:
        straggler, leader = self._straggler(times), self._leader(times)
        if straggler is None or leader is None or self._spread(times) <= _EVEN:
            self.phase = TuningPhase.FINE
        else:
            self._swaps += (self._roles.get(straggler) == "leader") + (self._roles.get(leader) == "straggler")
            if self._swaps >= _SWAPS:
                self.phase = TuningPhase.FINE  # the step is too large
                return
            self._roles |= {straggler: "straggler", leader: "leader"}
            self._detect_saturation(straggler, times[straggler])
            self._move(straggler, leader, self._step)

    def _tune(self) -> None:
        times = _medians(self._times, _FINE_WINDOW)
        spread = self._spread(times)
        if spread <= _EVEN:
            self.phase = TuningPhase.HOLD
            return
        if spread > _FAR and spread > _WORSE * self._spread_before:
            self.event()
            return
        self._spread_before = spread
        mean = sum(times) / len(times)
        order = sorted(range(len(times)), key=lambda worker: times[worker])
        before = self.sizes
        for leader, straggler in zip(order, reversed(order), strict=True):
            apart = times[straggler] - times[leader]
            if apart <= _EVEN / 2 * mean:
                break
            if before[straggler] > self.floors[straggler] and self._has_room(leader):
                each = times[straggler] / before[straggler] + times[leader] / before[leader]
                self._detect_saturation(straggler, times[straggler])
                self._move(straggler, leader, min(self._step, max(1, int(_PART * apart / each))))
        if self.sizes == before:
            self.phase = TuningPhase.HOLD

    # --- roles ---

    def _has_room(self, worker: int) -> bool:
        limit = self.limits[worker]
        return limit is None or self._sizes[worker] < limit

    def _straggler(self, times: Sequence[float]) -> int | None:
        """The slowest; None where it cannot become faster."""
        slowest = max(range(len(times)), key=lambda worker: times[worker])
        return slowest if self._sizes[slowest] > self.floors[slowest] else None

    def _leader(self, times: Sequence[float]) -> int | None:
        """The fastest of those that can take more."""
        able = [worker for worker in range(len(times)) if self._has_room(worker)]
        return min(able, key=lambda worker: times[worker], default=None)

    def _spread(self, times: Sequence[float]) -> float:
        """Difference of leader and straggler divided by the mean; 0 if no samples can be moved between them."""
        straggler, leader = self._straggler(times), self._leader(times)
        if straggler is None or leader is None:
            return 0.0
        return (times[straggler] - times[leader]) / (sum(times) / len(times))

    # --- moves ---

    def _move(self, straggler: int, leader: int, step: int) -> None:
        limit = self.limits[leader]
        step = min(step, self._sizes[straggler] - self.floors[straggler])
        if limit is not None:
            step = min(step, limit - self._sizes[leader])
        if step > 0 and straggler != leader:
            self._sizes[straggler] -= step
            self._sizes[leader] += step
            self._anchors[leader] = None
            self._moved()

    def _moved(self) -> None:
        self._times.clear()

    def _detect_saturation(self, worker: int, time: float) -> None:
        """Stop taking samples from a worker that has lost many and is hardly faster."""
        anchor = self._anchors[worker]
        if anchor is None:
            self._anchors[worker] = self._sizes[worker], time
            return
        size, before = anchor
        lost = 1 - self._sizes[worker] / size
        if lost >= 1 - _ANCHOR:
            self._doubts[worker] = self._doubts[worker] + 1 if 1 - time / before < _FELL * lost else 0
            if self._doubts[worker] == _DOUBTS:
                self.floors[worker] = self._sizes[worker]
            if self._doubts[worker] in (0, _DOUBTS):
                self._anchors[worker] = self._sizes[worker], time

    def _fit(self) -> None:
        """Shares beyond a limit go to those with room, the least of them first."""
        total = sum(self._sizes)
        limits = [total if limit is None else limit for limit in self.limits]
        if sum(limits) < total:
            raise TrainingError(
                f"workers hold {self.limits} samples at most, which is fewer than there are",
                value=list(self.limits),
            )
        kept = [min(size, limit) for size, limit in zip(self._sizes, limits, strict=True)]
        if kept == self._sizes:
            return

        def raised(least: int) -> list[int]:
            return [max(size, min(least, limit)) for size, limit in zip(kept, limits, strict=True)]

        least = bisect_right(range(total), total, key=lambda least: sum(raised(least))) - 1
        self._sizes = raised(least)
        first = [worker for worker, size in enumerate(self._sizes) if size == least < limits[worker]]
        for worker in first[: total - sum(self._sizes)]:
            self._sizes[worker] += 1


def _medians(times: Collection[Sequence[float]], window: int = _HOLD_WINDOW) -> list[float]:
    """Return each worker's median over the last of these iterations."""
    return [median(column) for column in zip(*list(times)[-window:], strict=True)]
