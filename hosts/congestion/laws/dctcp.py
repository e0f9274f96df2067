"""DCTCP's law on rounds, which reads the congestion flag (Alizadeh et al., "Data Center TCP", SIGCOMM 2010, section 3;
RFC 8257, section 3.3).

α ← (1 − g)·α + g·F once a window of data, with F the share of its results that were marked. A mark cuts W to
W·(1 − α/2), at most once a window of data: what was sent before the cut tells nothing of the smaller window. Otherwise
W grows by a round a window. Flags of all contributions are or-reduced into a result, so all workers see the same marks.
"""

from __future__ import annotations

from typing import Final

from ....wire.control import Pacing
from ..law import Feedback, LawDescription
from .loss import LossDriven

GAIN: Final = 1 / 16
"""g: weight of one window's share of marks in α, the average of all."""


class Dctcp(LossDriven):
    """Rounds in the network by the share of marked results, and by losses as of any TCP."""

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        super().begin(pacing, now_ns)
        self.alpha = 1.0
        self._results = self._marked = 0  # in this window of data
        self._window_end = 0  # so many results have come when all is back that was under way as the window began

    def update(self, feedback: Feedback) -> None:
        self._come += feedback.rounds
        self._results += feedback.rounds
        self._marked += feedback.marked
        if self._come > self._window_end:
            self.alpha += GAIN * (self._marked / self._results - self.alpha)
            self._window_end, self._results, self._marked = self._come + feedback.in_flight, 0, 0
        if not feedback.marked:
            self._grow(feedback.rounds)
        elif self._come > self._cut_end:
            self._cut(self._window * (1 - self.alpha / 2), feedback.in_flight)


DESCRIPTION: Final = LawDescription("dctcp", "marks that results carry", lambda _: Dctcp())
