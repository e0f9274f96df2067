"""TCP's law without marks, on rounds (RFC 5681, sections 3.1 and 3.2): it fills the queue until something is lost.

The window doubles in a round trip up to the threshold, which is what it was after the last loss, and then grows by a
round a window. A loss halves it, at most once for a window of data.
"""

from __future__ import annotations

from math import inf

from ...wire.control import Pacing
from .law import Feedback


class LossDriven:
    """Rounds in the network by losses alone."""

    yields = True
    gap_ns = 0

    def __init__(self) -> None:
        self.begin(Pacing(), 0)

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._window, self._threshold = float(pacing.window), inf
        self._come = 0  # results, ever
        self._cut_end = 0  # so many results have come when all is back that was under way at the last cut

    def take(self, feedback: Feedback) -> None:
        self._come += feedback.rounds
        slow_start = self._window < self._threshold
        self._window += feedback.rounds if slow_start else feedback.rounds / self._window

    def lose(self, rounds: int, now_ns: int) -> None:
        if self._come < self._cut_end:
            return
        self._cut_end = self._come + int(self._window)
        self._window = self._threshold = max(1.0, self._window / 2)

    def window(self, now_ns: int) -> int:
        return max(1, int(self._window))
