"""Weir's law: the window that the most loaded queue allows, as the newest result says; it is lent, not given."""

from __future__ import annotations

from typing import Final

from ....wire.control import Pacing
from ..law import Feedback, LawDescription, WindowLaw


class ExplicitWindow(WindowLaw):
    """Window set by the window field. Without a result for a lease, one round finds out the allowed window."""

    bounded = True

    def __init__(self) -> None:
        self.begin(Pacing(), 0)

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._pacing, self._window, self._heard_ns = pacing, pacing.window, now_ns

    def update(self, feedback: Feedback) -> None:
        if feedback.window is not None:
            self._window, self._heard_ns = feedback.window, feedback.now_ns

    def on_loss(self, rounds: int, now_ns: int) -> None:
        """Do nothing: queues report their room themselves."""

    def window(self, now_ns: int) -> int:
        lease_ns = self._pacing.lease_ns
        if lease_ns and now_ns - self._heard_ns >= lease_ns:
            return 1
        return max(1, self._window)


DESCRIPTION: Final = LawDescription("explicit", "the switches' allowance", lambda _: ExplicitWindow(), bounded=True)
