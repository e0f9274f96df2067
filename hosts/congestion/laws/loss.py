"""TCP's law without marks, on rounds (RFC 5681, sections 3.1 and 3.2): it fills the queue until packets are lost.

The window doubles per round trip until the first loss, and then grows by a round per window. A loss halves it, at most
once per window of data: rounds sent before the cut say nothing about the smaller window.
"""

from __future__ import annotations

from typing import Final

from ....wire.control import Pacing
from ..law import Feedback, LawDescription, WindowLaw


class LossDriven(WindowLaw):
    """Rounds in the network by losses alone."""

    def __init__(self) -> None:
        self.begin(Pacing(), 0)

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._window, self._starting = float(pacing.window), True
        self._come = 0  # results, ever
        self._cut_end = 0  # so many results have come when all is back that was under way at the last cut

    def update(self, feedback: Feedback) -> None:
        self._come += feedback.rounds
        self._grow(feedback.rounds)

    def on_loss(self, rounds: int, now_ns: int) -> None:
        if self._come >= self._cut_end:
            self._cut(self._window / 2, int(self._window))

    def window(self, now_ns: int) -> int:
        return int(self._window)

    def _grow(self, rounds: int) -> None:
        """Grow by the amount that `rounds` results allow."""
        self._window += rounds if self._starting else rounds / self._window

    def _cut(self, window: float, in_flight: int) -> None:
        self._starting = False
        self._window = max(1.0, window)
        self._cut_end = self._come + in_flight


DESCRIPTION: Final = LawDescription("loss", "losses", lambda _: LossDriven())
