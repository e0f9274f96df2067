"""A constant window: the baseline of loss and queues without congestion control."""

from __future__ import annotations

from typing import Final

from ....wire.control import Pacing
from ..law import Feedback, LawDescription, WindowLaw


class FixedWindow(WindowLaw):
    """Always the same; only the span of the job's slots is below it."""

    yields = False

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        """Start; nothing is requested of the network."""

    def update(self, feedback: Feedback) -> None:
        """Do nothing: the window is fixed."""

    def on_loss(self, rounds: int, now_ns: int) -> None:
        """Do nothing: lost rounds are sent again at the same window."""

    def window(self, now_ns: int) -> int:
        return self._rounds


DESCRIPTION: Final = LawDescription("fixed", "constant: the job's window", lambda setting: FixedWindow(setting.window))
