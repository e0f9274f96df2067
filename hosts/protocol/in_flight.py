"""A worker's rounds in flight: what the network still holds, what is lost, what is to be sent again and when.

::

    launch ─▶ in the network ──── land ───▶ complete
                 │      ▲
       overtaken │      │ relaunch, when its turn has come and there is room
                 ▼      │
               lost, kept in its slot

Two limits are apart (docs/design.md §3.4). The span, rounds from the oldest incomplete one on, is bound by the slots;
the worker's core keeps it. What is bound here is how much the queues on the way may hold: the rounds in the network. A
round that later ones have overtaken is there no more, so others go on while it is repaired.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import MessageType
from ..array_types import BoolArray, IntArray
from .rounds import NO_ROUND
from .timers import MAX_DOUBLINGS, RetransmissionTimeout

NEVER: Final = np.iinfo(np.int64).max
REORDERING: Final = 2
"""A round is overtaken when one that was sent more than this many rounds later is complete: paths keep their order."""
TURNS: Final = 8
"""Nobody knows whose packet was lost, and one resend repairs what was lost above a switch: workers take turns."""
SPARE: Final = 2
"""Times the rounds that fill the network are let into it while others are repaired: what comes, comes in batches."""
FEWEST: Final = 16
"""Rounds are in the network at least, if the window allows: where few are, no later one shows that one is lost."""
_GOLDEN: Final = (5**0.5 - 1) / 2

_RESULT: Final = int(MessageType.RESULT)
_FETCH: Final = int(MessageType.FETCH)
_NOT_TO_OVERTAKE: Final = 1 << 62
_NO_PLACES: Final = np.empty(0, np.intp)


class InFlight:
    """The rounds of one generation that were sent and are not complete. Arrays are indexed by place, as the store's."""

    def __init__(
        self, size: int, timeout: RetransmissionTimeout, *, span: int, window: int, rank: int, workers: int
    ) -> None:
        """`span`: W, the most rounds from the oldest incomplete one on; `window`: most in the network at first."""
        self.round = np.full(size, NO_ROUND, np.int64)
        self.peer = np.zeros(size, np.uint32)
        self.answer = np.zeros(size, np.int64)
        """The message type that answers it."""
        self.attempts = np.zeros(size, np.int64)
        self.first_sent_ns = np.zeros(size, np.int64)
        self.expirations = 0
        """How many rounds were taken for lost, by a timer or because later ones overtook them."""
        self._timeout = timeout
        self._span = span
        self._window = window
        self._rank = rank
        # Resends of many workers at once would find the same queue full each time, and lose the same packets: no two
        # workers wait alike, and each up to half as long again.
        self._apart = rank * _GOLDEN % 1 / 2
        self._workers = workers
        self._mask = size - 1
        self._travelling = np.zeros(size, np.bool_)
        self._wanted = np.zeros(size, np.bool_)  # lost, and this worker's turn has come
        self._first_order = np.zeros(size, np.int64)  # of its first sending, among all sendings
        self._order = np.full(size, _NOT_TO_OVERTAKE, np.int64)  # of its last one
        self._turn = np.zeros(size, np.int64)
        self._deadline = np.full(size, NEVER, np.int64)
        self._sendings = 0
        self._newest_order = -1  # of what is complete
        self._sifted = True
        self._yields = True
        self._repairing = False  # some rounds were overtaken and not sent again yet
        self._lapsed = False  # some rounds may have expired and not been sent again
        self._filling = window  # rounds that fill the network without waiting anywhere
        self._landed = 0  # since it was last told how many these are
        self._landed_since_ns = 0
        self._progress_ns = 0
        self._earliest_ns = int(NEVER)
        self._earliest_is_stale = False

    # --- what may be sent ---

    def obey(self, window: int, *, yields: bool = True) -> None:
        """Have at most this many rounds in the network (at least one, and at most the span), from now on; fewer while
        others are repaired only if it `yields`.

        A window that grows has come with a result: what has expired, and was not sent again for want of room, is taken
        for under way once more. All may have waited for one slow worker, and sent again by all at once it would fill
        queues for nothing.
        """
        window = max(1, min(self._span, window))
        if self._lapsed and window > self._window:
            self._lapsed = False
            waiting = self._wanted & (self._overtaken_by() <= 0)
            self._wanted[waiting] = False
            self._travelling[waiting] = True
            self._deadline[waiting] = self._progress_ns + self._timeout.first_ns
            self._earliest_is_stale = True
        self._window = window
        self._yields = yields

    @property
    def window(self) -> int:
        """The most rounds in the network, as it was told last."""
        return self._window

    @property
    def travelling(self) -> int:
        """How many rounds are in the network."""
        return int(np.count_nonzero(self._travelling))

    @property
    def room(self) -> int:
        """How many rounds may be sent now, for the first time or again."""
        return max(0, self._limit() - self.travelling)

    def _limit(self) -> int:
        """How many rounds may be in the network: the window, or while rounds wait for someone's repair as many as leave
        room in the span for the workers' turns, but never less than twice what fills the empty network.

        More would only wait in queues, and while they do, workers repair what another has repaired already.
        """
        if self._repairing and self._yields:
            return min(self._window, max(FEWEST, self._span // (2 * TURNS), SPARE * self._filling))
        return self._window

    def to_repair(self, now_ns: int) -> NDArray[np.intp]:
        """Places of the rounds to be sent again now, the oldest first: lost ones whose turn it is, as room allows."""
        if not self._sifted:
            self._sift()
        if now_ns >= self._deadline_ns():
            self._expire(now_ns)
        if not np.count_nonzero(self._wanted):
            return _NO_PLACES
        places = np.flatnonzero(self._wanted)
        return places[np.argsort(self.round[places])[: self.room]]

    def _sift(self) -> None:
        """Find what later rounds have overtaken, and whether it is this worker's turn to repair it.

        Who repairs in vain does harm: a switch or server that has the round already answers every copy. So the workers
        whose turn is later wait for as many more rounds; how many, depends on what the span has room for.
        """
        self._sifted = True
        later = self._overtaken_by()
        lost = later > 0
        self._repairing = bool(np.count_nonzero(lost))
        if self._repairing:
            self.expirations += int(np.count_nonzero(lost & self._travelling))
            self._travelling[lost] = False
            round_trip = self._sendings - self._newest_order
            patience = min(round_trip, max(0, self._span - self._window) // (2 * TURNS))
            self._wanted |= later > self._turn * patience

    def _overtaken_by(self) -> IntArray:
        """How many sendings later than reordering explains the newest complete round is: overtaken where above 0."""
        later: IntArray = self._newest_order - REORDERING - self._order
        return later

    def _expire(self, now_ns: int) -> None:
        """Take for lost what has been away for too long."""
        due = self._deadline <= now_ns
        self._earliest_is_stale = True
        if np.count_nonzero(due):
            self._timeout.expired()
            self.expirations += int(np.count_nonzero(due))
            self._travelling[due] = False
            self._wanted[due] = True
            self._lapsed = True
            # while they wait for room, something is in the network and has a deadline; for the pace the worker wakes
            self._deadline[due] = NEVER

    # --- what happens to rounds ---

    def launch(self, rounds: IntArray, now_ns: int) -> None:
        """Rounds are sent for the first time, in this order; `peer` and `answer` are set already."""
        places = rounds & self._mask
        self.round[places] = rounds
        self.attempts[places] = 1
        self.first_sent_ns[places] = now_ns
        self._turn[places] = (rounds + self._rank) % self._workers * TURNS // self._workers
        deadline = now_ns + self._timeout.first_ns
        self._deadline[places] = deadline
        self._earliest_ns = min(self._earliest_ns, deadline)
        self._first_order[places] = self._send(places)

    def relaunch(self, places: NDArray[np.intp], now_ns: int) -> None:
        """Rounds are sent again, in this order; their time-outs double each time, and differ from those of others."""
        attempts = self.attempts[places]
        waits = np.minimum(self._timeout.unscaled_ns << np.minimum(attempts, MAX_DOUBLINGS), self._timeout.max_ns)
        self._deadline[places] = now_ns + waits + (waits * self._apart).astype(np.int64)
        self._earliest_is_stale = True
        self.attempts[places] = attempts + 1
        self._turn[places] = np.where(attempts == 1, TURNS - self._turn[places], 0)  # others' turns come first
        self._wanted[places] = False
        self._send(places)

    def _send(self, places: IntArray | NDArray[np.intp]) -> IntArray:
        self._travelling[places] = True
        orders: IntArray = np.arange(self._sendings, self._sendings + len(places))
        self._sendings += len(places)
        self._order[places] = orders
        fetches = self.answer[places] > _FETCH
        if np.count_nonzero(fetches):  # they take another way: they neither overtake nor are overtaken
            self._order[places[fetches]] = _NOT_TO_OVERTAKE
            orders[fetches] = -1
        return orders

    def land(self, places: IntArray, now_ns: int) -> None:
        """Rounds are complete."""
        self._landed += len(places)
        passed_ns = now_ns - self._landed_since_ns
        if passed_ns >= self._timeout.round_trip_ns > 0:  # rate times the shortest round trip (Little's law)
            self._filling = -(-self._landed * self._timeout.shortest_ns // passed_ns)
            self._landed, self._landed_since_ns = 0, now_ns
        self._newest_order = max(self._newest_order, int(self._first_order[places].max()))
        self.round[places] = NO_ROUND
        self._travelling[places] = False
        self._wanted[places] = False
        self._order[places] = _NOT_TO_OVERTAKE
        self._deadline[places] = NEVER
        self._earliest_is_stale = True
        self._sifted = False
        self._progress_ns = now_ns

    def once(self, places: IntArray) -> BoolArray:
        """Which of these rounds were asked of the aggregator, and once only."""
        asked: BoolArray = (self.attempts[places] == 1) & (self.answer[places] < _FETCH)
        return asked

    # --- time ---

    @property
    def deadline_ns(self) -> int | None:
        """When `to_repair` should be asked at the latest; None while nothing is away."""
        deadline = self._deadline_ns()
        return None if deadline == NEVER else deadline

    def _deadline_ns(self) -> int:
        """As long as rounds come back, those that are behind them are on their way: no timer expires."""
        if self._earliest_is_stale:
            self._earliest_ns = int(self._deadline.min())
            self._earliest_is_stale = False
        if self._earliest_ns == NEVER:
            return self._earliest_ns
        return max(self._earliest_ns, self._progress_ns + self._timeout.first_ns)
