"""A worker's rounds in flight: rounds in the network, lost rounds, and the time and order in which they are sent again.

::

    launch ─▶ in the network ──── land ───▶ complete
                 │      ▲
       overtaken │      │ relaunch, when its turn has come and there is room
                 ▼      │
               lost, kept in its slot

Two limits are apart (docs/design.md §3.4). The span, rounds from the oldest incomplete one on, is bound by the slots;
the worker's core enforces it. This module limits the rounds in the network, that is, the load of the queues on the way.
A round that later ones have overtaken is there no more, so others go on while it is repaired.
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
"""Number of turns for a repair. The worker whose packet was lost is unknown, and one resend repairs a loss above a
switch, so workers take turns.
"""
SPARE: Final = 2
"""Multiple of the rounds that fill the network which may enter it during repairs: results come in batches."""
FEWEST: Final = 16
"""Rounds are in the network at least, if the window allows: where few are, no later one shows that one is lost."""
TURN_ROUND_TRIPS: Final = 3
"""Length of a worker's turn to send a copy, in longest round trips: clocks of turns are one apart at most, the copy is
sent within one, and it is gone after another one.
"""
_GOLDEN: Final = (5**0.5 - 1) / 2

_RESULT: Final = int(MessageType.RESULT)
_FETCH: Final = int(MessageType.FETCH)
_NOT_TO_OVERTAKE: Final = 1 << 62
_NO_PLACES: Final = np.empty(0, np.intp)


class InFlight:
    """The rounds of one generation that were sent and are not complete. Arrays are indexed by place, as the store's."""

    def __init__(
        self,
        size: int,
        timeout: RetransmissionTimeout,
        *,
        span: int,
        window: int,
        rank: int,
        workers: int,
        longest_round_trip_ns: int = 0,
    ) -> None:
        """Start with nothing in flight.

        Args:
            size: Number of places.
            timeout: Time-out of rounds.
            span: W, the most rounds from the oldest incomplete one on.
            window: Most rounds in the network at first.
            rank: This worker's.
            workers: Number of the job's workers.
            longest_round_trip_ns: Longest time that a round may be in the network, the same at all workers. On its
                account the time-out sends one copy at a time, in the workers' turns. 0: unknown, or links lose frames.
        """
        self.round = np.full(size, NO_ROUND, np.int64)
        self.peer = np.zeros(size, np.uint32)
        self.kind = np.zeros(size, np.int64)
        """The message type that is sent for it."""
        self.answer = np.zeros(size, np.int64)
        """The message type that answers it."""
        self.wanted = np.zeros(size, np.bool_)
        """False where DONE answers it as well."""
        self.attempts = np.zeros(size, np.int64)
        self.first_sent_ns = np.zeros(size, np.int64)
        self.expirations = 0
        """Number of rounds taken for lost, by a timer or because later ones overtook them."""
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
        self._newest_order = -1  # order of the newest complete round
        self._sifted = True
        self._yields = True
        self._repairing = False  # some rounds were overtaken and not sent again yet
        self._lapsed = False  # some rounds may have expired and not been sent again
        self._resumed = False  # some of these count as in flight again, until a timer expires or all are complete
        self._filling = window  # rounds that fill the network without waiting anywhere
        self._landed = 0  # since it was last told how many these are
        self._landed_since_ns = 0
        self._progress_ns = 0
        self._turn_ns = TURN_ROUND_TRIPS * longest_round_trip_ns
        self._by_turns = longest_round_trip_ns > 0
        """True if nothing was lost: then no copy is needed, and at most one of the job's may be in the network."""
        self._heard_ns = 0  # when the generation began, or its newest result came
        self._copies_from_ns = self._copies_until_ns = 0  # earliest time of this worker's next copy, latest of this one
        self._earliest_ns = int(NEVER)
        self._earliest_is_stale = False

    def begin(self, now_ns: int) -> None:
        """Begin the generation, about now for all workers."""
        self._heard_ns = max(self._heard_ns, now_ns)

    # --- permission to send ---

    def set_window(self, window: int, *, yields: bool = True) -> None:
        """Set the number of rounds in the network (at least one, at most the span) from now on.

        Args:
            window: number of rounds. During repairs fewer are sent only with `yields`.
            yields: whether repairs may reduce the number.

        A window grows on a result. Rounds that have expired, but were not sent again for lack of room, then count as in
        flight once more: all may have waited for one slow worker, and if every worker sent them again at once they
        would only fill queues. Their new time-out has no back-off. A longer one would often exceed the lease, after
        which the window is one round again: of many lost rounds, one would come back in each time-out.
        """
        window = max(1, min(self._span, window))
        if self._lapsed and window > self._window:
            self._lapsed = False
            waiting = self._wanted & (self._overtaken_by() <= 0)
            self._wanted[waiting] = False
            self._travelling[waiting] = True
            self._deadline[waiting] = self._progress_ns + self._timeout.unscaled_ns
            self._earliest_is_stale = True
            self._resumed = bool(np.count_nonzero(waiting))
        self._window = window
        self._yields = yields

    @property
    def window(self) -> int:
        """The most rounds in the network, as it was told last."""
        return self._window

    @property
    def in_network(self) -> int:
        """Number of rounds in the network."""
        return int(np.count_nonzero(self._travelling))

    @property
    def room(self) -> int:
        """Number of rounds that may be sent now, for the first time or again."""
        return max(0, self._limit() - self.in_network)

    def _limit(self) -> int:
        """Upper bound of the rounds in the network.

        Normally the window. While rounds wait for someone's repair, the bound leaves room in the span for the workers'
        turns, but is never less than twice the rounds that fill the empty network.

        More would only wait in queues, and while they do, workers repair rounds that another has repaired already.
        """
        if self._repairing and self._yields:
            return min(self._window, max(FEWEST, self._span // (2 * TURNS), SPARE * self._filling))
        return self._window

    def due_for_retransmit(self, now_ns: int) -> NDArray[np.intp]:
        """Places of the rounds to be sent again now, the oldest first: lost ones whose turn it is, as room allows."""
        if not self._sifted:
            self._sift()
        if now_ns >= self._deadline_ns():
            self._expire(now_ns)
        if self._by_turns and now_ns > self._copies_until_ns:
            self._wanted[:] = False  # its pace did not allow the copy within the turn
        if not np.count_nonzero(self._wanted):
            return _NO_PLACES
        places = np.flatnonzero(self._wanted)
        room = 1 if self._by_turns else self.room  # a copy takes the place of its original, which is gone
        return places[np.argsort(self.round[places])[:room]]

    def _sift(self) -> None:
        """Find rounds that later ones have overtaken, and decide whether it is this worker's turn to repair them.

        A needless repair does harm: a switch or server that has the round already answers every copy. So workers with a
        later turn wait for that many more rounds; the number depends on the room in the span.
        """
        self._sifted = True
        later = self._overtaken_by()
        lost = later > 0
        self._repairing = bool(np.count_nonzero(lost))
        if self._repairing:
            self._by_turns = False
            self.expirations += int(np.count_nonzero(lost & self._travelling))
            self._travelling[lost] = False
            round_trip = self._sendings - self._newest_order
            patience = min(round_trip, max(0, self._span - self._window) // (2 * TURNS))
            self._wanted |= later > self._turn * patience

    def _overtaken_by(self) -> IntArray:
        """Sendings by which the newest complete round is later than reordering explains, per round: above 0, it was
        overtaken.
        """
        later: IntArray = self._newest_order - REORDERING - self._order
        return later

    def _expire(self, now_ns: int) -> None:
        """Take for lost what has been away for too long."""
        due = self._deadline <= now_ns
        self._earliest_is_stale = True
        if self._by_turns:
            self._copy_oldest(np.flatnonzero(due), now_ns)
            return
        if np.count_nonzero(due):
            self._resumed = False
            self._timeout.expired()
            self.expirations += int(np.count_nonzero(due))
            self._travelling[due] = False
            self._wanted[due] = True
            self._lapsed = True
            # while they wait for room, something is in the network and has a deadline; for the pace the worker wakes
            self._deadline[due] = NEVER

    def _copy_oldest(self, due: NDArray[np.intp], now_ns: int) -> None:
        """Want a copy of the oldest round that is due, if this worker's turn has just begun.

        All workers may wait for a slow one. Each switch that has its own sum passes every copy up, and their answers
        come down, so copies of all at once would fill queues that hold one stream.
        """
        round_trip_ns = self._turn_ns // TURN_ROUND_TRIPS
        began_ns = self._turn_from_ns(now_ns - round_trip_ns)
        self._copies_from_ns, self._copies_until_ns = now_ns + 1, began_ns + round_trip_ns
        if len(due) and began_ns <= now_ns:
            self._timeout.expired()
            self.expirations += 1
            self._wanted[due[np.argmin(self.round[due])]] = True

    def _turn_from_ns(self, at_ns: int) -> int:
        """Beginning of this worker's next turn, at `at_ns` or later.

        All workers hear of a result within a round trip, so their turns follow each other.
        """
        first_ns = self._heard_ns + self._turn_ns // TURN_ROUND_TRIPS + self._rank * self._turn_ns
        cycle_ns = self._workers * self._turn_ns
        return first_ns + max(0, -(-(at_ns - first_ns) // cycle_ns)) * cycle_ns

    # --- rounds' transitions ---

    def launch(self, rounds: IntArray, now_ns: int) -> None:
        """Note that rounds are sent for the first time, in this order; `peer`, `kind` and `answer` are set already."""
        places = rounds & self._mask
        self.round[places] = rounds
        self.attempts[places] = 1
        self.first_sent_ns[places] = now_ns
        self._turn[places] = (rounds + self._rank) % self._workers * TURNS // self._workers
        deadline = now_ns + self._timeout.first_ns
        self._deadline[places] = deadline
        self._earliest_ns = min(self._earliest_ns, deadline)
        self._first_order[places] = self._send(places)

    def mark_resent(self, places: NDArray[np.intp], now_ns: int) -> None:
        """Note that rounds are sent again, in this order; their time-outs double each time, and differ from those of
        others.
        """
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

    def complete(self, places: IntArray, now_ns: int) -> None:
        """Record that the rounds at these places are complete."""
        self._landed += len(places)
        passed_ns = now_ns - self._landed_since_ns
        if passed_ns >= self._timeout.round_trip_ns > 0:  # rate times the shortest round trip (Little's law)
            self._filling = -(-self._landed * self._timeout.shortest_ns // passed_ns)
            self._landed, self._landed_since_ns = 0, now_ns
        self._newest_order = max(self._newest_order, int(self._first_order[places].max()))
        if np.count_nonzero(self.answer[places] < _FETCH):
            self._heard_ns = now_ns
        self.round[places] = NO_ROUND
        self._travelling[places] = False
        self._wanted[places] = False
        self._order[places] = _NOT_TO_OVERTAKE
        self._deadline[places] = NEVER
        self._earliest_is_stale = True
        self._sifted = False
        self._progress_ns = now_ns
        if self._resumed and not np.count_nonzero(self._travelling):
            self._resumed = False

    def once(self, places: IntArray) -> BoolArray:
        """Return the mask of the rounds that were requested from the aggregator, and only once."""
        asked: BoolArray = (self.attempts[places] == 1) & (self.answer[places] < _FETCH)
        return asked

    # --- time ---

    @property
    def deadline_ns(self) -> int | None:
        """When `to_repair` should be asked at the latest; None while nothing is away."""
        deadline = self._deadline_ns()
        return None if deadline == NEVER else deadline

    def _deadline_ns(self) -> int:
        """Deadline in ns. As long as rounds come back, those behind them are in flight: no timer expires."""
        if self._earliest_is_stale:
            self._earliest_ns = int(self._deadline.min())
            self._earliest_is_stale = False
        if self._earliest_ns == NEVER:
            return self._earliest_ns
        timeout_ns = self._timeout.unscaled_ns if self._resumed else self._timeout.first_ns
        deadline_ns = max(self._earliest_ns, self._progress_ns + timeout_ns)
        return self._turn_from_ns(max(deadline_ns, self._copies_from_ns)) if self._by_turns else deadline_ns
