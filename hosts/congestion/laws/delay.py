"""A law by delay, like Swift's (Kumar et al., SIGCOMM 2020, sections 3.1 and 3.5).

Below a target round trip the window grows by a round a window; above it is cut in the measure of the excess, and by
half where rounds are lost, but at most once a round trip.
"""

from __future__ import annotations

from typing import Final

from ....wire.control import Pacing
from ..law import Feedback, LawDescription, WindowLaw

GROWTH: Final = 1.0
"""Rounds that the window grows by for each window of results within the target."""
CUT: Final = 0.8
"""β: share of the relative excess that the window is cut by."""
MAX_CUT: Final = 0.5
"""The most that one cut takes, as a share of the window."""
TARGET: Final = 1.5
"""Target, in minimum round trips; the part above 1 may wait in queues."""


class DelayTarget(WindowLaw):
    """Window law that adjusts the rounds in the network by their round-trip time."""

    def __init__(self) -> None:
        self.begin(Pacing(), 0)

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._window = float(pacing.window)
        self._min_ns: int | None = None
        self._trip_ns = 0  # the newest round trip
        self._cut_ns: int | None = None

    def update(self, feedback: Feedback) -> None:
        round_trip_ns = feedback.round_trip_ns
        if round_trip_ns is None:
            return
        self._trip_ns = round_trip_ns
        self._min_ns = round_trip_ns if self._min_ns is None else min(self._min_ns, round_trip_ns)
        target_ns = TARGET * self._min_ns
        if round_trip_ns <= target_ns:
            self._window += GROWTH * feedback.rounds / self._window
        else:
            excess = (round_trip_ns - target_ns) / round_trip_ns
            self._cut(max(1 - CUT * excess, 1 - MAX_CUT), feedback.now_ns)

    def on_loss(self, rounds: int, now_ns: int) -> None:
        self._cut(1 - MAX_CUT, now_ns)

    def window(self, now_ns: int) -> int:
        return int(self._window)

    def _cut(self, share: float, now_ns: int) -> None:
        """Reduce the window to this share, unless feedback on the last cut cannot have arrived."""
        if self._cut_ns is None or now_ns - self._cut_ns >= self._trip_ns:
            self._window = max(1.0, self._window * share)
            self._cut_ns = now_ns


DESCRIPTION: Final = LawDescription("delay", "round trips", lambda _: DelayTarget())
