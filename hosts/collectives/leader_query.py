"""A repeated request by one worker for all: everyone's next batch size.

::

    every worker ──report──▶ a sum to all: everyone's reports
                             leader: the lowest rank whose report is in it ──all reports──▶ the service
    every worker ◀──answer── a sum to all, the others add zeros ◀── leader ◀── answer ──────────┘

Both sums have the same bits at every worker, so all agree on the leader, on lost workers, and on the answer. The wait
for an answer is short: a late one is delivered with a later request's sums, and that request is skipped. So each answer
is applied before the next reports are sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ControlAbsent, ControlRefused
from ..numerics.tensors import Reduced
from .communicator import Communicator
from .handle import Handle

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 0.1
"""Maximum wait for an answer."""

_NONE: Final = 0
_REFUSED: Final = -1
"""Sentinel in place of an answer, whose numbers are non-negative and not all 0."""


class PendingAnswer(Protocol):
    """An answer to the leader, on its way."""

    def done(self) -> bool:
        """True if `wait` returns, or raises, at once."""

    def wait(self, timeout_s: float, /) -> list[int]:
        """Return a number for each worker, by rank.

        Raises:
            ControlAbsent: There is no service; other errors give the reason of a refusal.
        """


Ask = Callable[[NDArray[np.float64], NDArray[np.bool_]], PendingAnswer]
"""The leader's request: everyone's report (workers, k) by rank, and the mask of present reports (workers,)."""


class LeaderQuery:
    """One worker's part. For a question all workers call `report`, `send_request` and `answer`, in this order."""

    def __init__(self, communicator: Communicator, ask: Ask, *, name: str) -> None:
        """Create a query; `name` is its name in errors."""
        self._communicator = communicator
        self._request = ask
        self._name = name
        self._leader = 0
        self._asked: tuple[PendingAnswer, NDArray[np.bool_]] | None = None
        """The pending answer, and the workers that took part in its request."""
        self._said = False
        """True if the absence of answers has been logged."""

    def report(self, values: NDArray[np.float64]) -> Handle:
        """Send this worker's report to all; the result is two arguments of `send_request`."""
        return self._communicator.gather_present_async(values, name=self._name)

    def send_request(self, reports: NDArray[np.float64], present: NDArray[np.bool_]) -> PendingAnswer | None:
        """Send the request, as the leader; None for other workers. The caller waits at most `PATIENCE_S` for it."""
        self._leader = int(present.argmax())
        if self._leader != self._communicator.rank:
            return None
        if self._asked is not None and np.array_equal(self._asked[1], present):
            return None  # it was waited for once
        asked = self._request(reports, present)
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

    def _taken(self, asked: PendingAnswer) -> list[int] | int:
        """The numbers that the leader sends to all."""
        if not asked.done():
            self._warn_once(f"no answer within {PATIENCE_S:g} s")
            return _NONE
        self._asked = None
        try:
            numbers = asked.wait(0)
        except ControlAbsent as error:
            self._warn_once(str(error))
            return _NONE
        self._said = False
        return numbers

    def _warn_once(self, why: str) -> None:
        if not self._said:
            self._said = True
            _log.warning("%s stay as they are until there is an answer: %s", self._name, why)
