"""DCTCP's law on rounds, which reads the congestion flag (Alizadeh et al., "Data Center TCP", SIGCOMM 2010, section 3).

α ← (1 − g)·α + g·F once a window, with F the share of results that were marked. A window with marks is cut to W·(1 −
α/2), one without grows by a round. Flags of all contributions are or-reduced into a result, so all workers see the same
marks.
"""

from __future__ import annotations

from typing import Final

from ...wire.control import Pacing
from .law import Feedback

GAIN: Final = 1 / 16
"""g."""


class Dctcp:
    """Rounds in the network by the share of marked results."""

    yields = True

    def __init__(self) -> None:
        self._window = 1.0
        self._starting = True
        self.alpha = 1.0
        self._rounds = 0
        self._marked = 0

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._window, self._starting, self.alpha = float(pacing.window), True, 1.0
        self._rounds = self._marked = 0

    def take(self, feedback: Feedback) -> None:
        self._rounds += feedback.rounds
        self._marked += feedback.marked
        if self._starting and not feedback.marked:
            self._window += feedback.rounds  # doubles in a round trip, until the first mark
        if self._rounds < self._window:
            return
        share = self._marked / self._rounds
        self.alpha += GAIN * (share - self.alpha)
        if self._marked:
            self._starting = False
            self._window = max(1.0, self._window * (1 - self.alpha / 2))
        elif not self._starting:
            self._window += 1
        self._rounds = self._marked = 0

    def lose(self, rounds: int, now_ns: int) -> None:
        self._starting = False
        self._window = max(1.0, self._window / 2)

    def window(self, now_ns: int) -> int:
        return max(1, int(self._window))
