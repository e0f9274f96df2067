"""A custom window law: `congestion: {law: user_law.py}` in a run file beside it.

A law decides how many rounds of a worker's sums may be in the network. This one grows by a round per window and halves
when a quarter of a window's results carry marks. It says `bounded`, so that Weir limits it to the window that the
switches allow, and queues keep their bounds.
"""

from __future__ import annotations

from weir.hosts.congestion import Feedback, WindowLaw
from weir.hosts.congestion.laws import LawDescription
from weir.wire.control import Pacing


class Halving(WindowLaw):
    """Additive increase, multiplicative decrease by the share of marked results."""

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._rounds = float(pacing.window)
        self._results = self._marked = 0

    def update(self, feedback: Feedback) -> None:
        self._results += feedback.rounds
        self._marked += feedback.marked
        if self._results >= self._rounds:  # about one round trip
            self._rounds = self._rounds / 2 if 4 * self._marked > self._results else self._rounds + 1
            self._results = self._marked = 0

    def on_loss(self, rounds: int, now_ns: int) -> None:
        self._rounds /= 2

    def window(self, now_ns: int) -> int:
        return max(1, int(self._rounds))


DESCRIPTION = LawDescription("halving", "halved by marks", lambda setting: Halving(), bounded=True)
