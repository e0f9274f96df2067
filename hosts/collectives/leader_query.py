"""A question that one worker asks for all, again and again: what everyone's batch size is to be.

::

    every worker ──report──▶ a sum to all: everyone's reports
                             leader: the lowest rank whose report is in it ──all reports──▶ who knows
    every worker ◀──answer── a sum to all, the others add zeros ◀── leader ◀── answer ──────────┘

Both sums have the same bits at every worker, so all know alike who leads, who is lost, and what the answer is. Nobody
waits long for an answer: one that is late is handed out with a later question's sums, which is not asked then. So
each answer is acted on before the next reports are asked about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ControlAbsent, ControlRefused
from ..numerics.tensors import Reduced
from .communicator import Communicator, Handle

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 0.1
"""So long is an answer waited for, once."""

_NONE: Final = 0
_REFUSED: Final = -1
"""What the leader says in place of an answer, whose numbers are 0 or more and not all 0."""


class Answer(Protocol):
    """An answer to the leader, on its way."""

    def done(self) -> bool:
        """Whether `wait` returns, or raises, at once."""

    def wait(self, timeout_s: float, /) -> list[int]:
        """A number for each worker, by rank. Raises ControlAbsent where nobody answers, and otherwise why there is no
        answer.
        """


Ask = Callable[[NDArray[np.float64], NDArray[np.bool_]], Answer]
"""What the leader asks: everyone's report (workers, k) by rank, and whose are there (workers,)."""


class LeaderQuery:
    """One worker's part. For a question all workers call `report`, `ask` and `answer`, in this order."""

    def __init__(self, communicator: Communicator, ask: Ask, *, name: str) -> None:
        """`name` is what errors call it by."""
        self._communicator = communicator
        self._ask = ask
        self._name = name
        self._leader = 0
        self._asked: tuple[Answer, NDArray[np.bool_]] | None = None
        """Whose answer was not handed out yet, and who took part when it was asked for."""
        self._said = False
        """Whether it was said that no answers come."""

    def report(self, own: NDArray[np.float64]) -> Handle:
        """Tell all; its result are two arguments of `ask`."""
        return self._communicator.gather_present_async(own, name=self._name)

    def ask(self, reports: NDArray[np.float64], present: NDArray[np.bool_]) -> Answer | None:
        """As the leader, ask who knows. The caller waits `PATIENCE_S` for it at most; None: for nothing."""
        self._leader = int(present.argmax())
        if self._leader != self._communicator.rank:
            return None
        if self._asked is not None and np.array_equal(self._asked[1], present):
            return None  # it was waited for once
        asked = self._ask(reports, present)
        self._asked = asked, present
        return asked

    def answer(self) -> Handle:
        """Hand the answer to all. The result is a number for each worker, by rank; or None, where there is no answer
        now. Raises why it was refused, which only the leader knows in full.
        """
        words, refusal = np.full(self._communicator.size, _NONE, np.int32), None
        if self._asked is not None:
            try:
                words[:] = self._taken(self._asked[0])
            except Exception as error:  # noqa: BLE001 (all others are to know before it is raised)
                words[:], refusal = _REFUSED, error
        leads = self._leader == self._communicator.rank

        def finish(reduced: Reduced) -> list[int] | None:
            if refusal is not None:
                raise refusal
            if not reduced.weights.all():  # the leader was lost
                return None
            if (reduced.values == _REFUSED).all():
                raise ControlRefused(
                    f"rank {self._leader}, which asks for all, was refused and says why",
                    place=self._name,
                    value=self._leader,
                )
            numbers: list[int] = reduced.values.tolist()
            return numbers if any(numbers) else None

        return self._communicator.reduced_async(words, finish, name=f"{self._name}: answer", weight=int(leads))

    def _taken(self, asked: Answer) -> list[int] | int:
        """What the leader hands out."""
        if not asked.done():
            self._say(f"no answer within {PATIENCE_S:g} s")
            return _NONE
        self._asked = None
        try:
            numbers = asked.wait(0)
        except ControlAbsent as error:
            self._say(str(error))
            return _NONE
        self._said = False
        return numbers

    def _say(self, why: str) -> None:
        if not self._said:
            self._said = True
            _log.warning("%s stay as they are until there is an answer: %s", self._name, why)
