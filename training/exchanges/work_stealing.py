"""Work stealing inside an iteration, after FlexRR (Harlap et al., SoCC 2016): messages of helpers and helped workers.

::

    helped worker ──Progress──▶ helper              after every unit of work
                  ◀──Offer─────                     the helper is ahead by more than the threshold
                  ──Slice or Refusal──▶             rows from the end of the worker's iteration, or none
                  ◀──Started───                     the helper computes the slice; its gradient is in its next update
                  ──Cancel─────▶                    the worker has come to the slice, and has not heard of its start

FlexRR's constants are not published; the defaults are those that are usually quoted. `WorkSharing` is a state machine:
messages come in by `receive`, and those to send are in `outbox`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ..samples import Rows


@dataclass(frozen=True, slots=True)
class SharingLimits:
    """Sizes and thresholds of work stealing, in shares of an iteration."""

    helpers: int
    """Workers that may help each worker: those with the next lower ranks, cyclically."""
    threshold: float
    """Progress by which a helper is ahead of the worker that it offers help."""
    first: float
    """Rows of the first slice that a worker gives to a helper in an iteration."""
    slice: float
    """Rows of later slices, and of a unit: the rows between two looks at messages."""

    def rows(self, share: float, size: int) -> int:
        """Return the number of rows of a share of an iteration with `size` rows, at least 1."""
        return max(1, round(share * size))


@dataclass(frozen=True, slots=True)
class Progress:
    """Report to helpers, and the answer to an offer that is refused."""

    rank: int
    done: float
    """Iterations of the sender, with the share of the present one whose rows it need not begin."""
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """Offer of help."""

    rank: int
    done: float


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows that the helper is to compute."""

    rank: int
    number: int
    """Number of the slice among those of the worker `rank`."""
    rows: Rows


@dataclass(frozen=True, slots=True)
class Started:
    """Note that a helper computes the slice."""

    number: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Note that the worker computes its slice itself, unless the helper has started."""

    rank: int
    number: int


Message = Progress | Offer | Slice | Started | Cancel


@dataclass(slots=True)
class WorkSharing:
    """One worker's work of an iteration, what it has given away, and what it has taken from others."""

    rank: int
    workers: int
    limits: SharingLimits
    outbox: list[tuple[int, Message]] = field(default_factory=list)
    """Messages to send, each with the rank of its receiver."""
    kept: list[Rows] = field(default_factory=list)
    """Rows of the iteration that this worker computes itself."""
    _clock: int = 0
    _size: int = 1
    _rows: deque[Rows] = field(default_factory=deque)
    """Rows that remain, one each."""
    _in_hand: deque[Slice] = field(default_factory=deque)
    _given: dict[int, tuple[int, Rows]] = field(default_factory=dict)
    """Helper and rows of the slices whose start is not known, by number, in the order in which they were given."""
    _cancelled: dict[int, Rows] = field(default_factory=dict)
    _helped_by: set[int] = field(default_factory=set)
    """Helpers of this iteration."""
    _seen: dict[int, float] = field(default_factory=dict)
    """Progress of others by their last reports."""
    _offered: int | None = None
    """Worker whose answer to an offer is not here."""
    _numbers: int = 0

    @property
    def done(self) -> float:
        """Progress: whole iterations, and the share of this one whose rows are computed or given away."""
        return self._clock + 1 - len(self._rows) / self._size

    def begin(self, clock: int, rows: Rows) -> None:
        """Begin iteration `clock` with these rows."""
        self._clock, self._size = clock, len(rows)
        self._rows = deque(rows[index : index + 1] for index in range(len(rows)))
        self.kept = []
        self._given.clear()
        self._cancelled.clear()
        self._helped_by.clear()
        self._report()

    def unit(self) -> int:
        """Take the worker's next own rows, which it computes; return their number, 0 if none is left."""
        count = min(self.limits.rows(self.limits.slice, self._size), len(self._rows))
        taken = [self._rows.popleft() for _ in range(count)]
        self.kept += taken
        if taken:
            self._report()
        return count

    def taken_slice(self) -> Slice | None:
        """Take a slice of another worker's to compute now, and tell that worker; None: no slice is in hand."""
        if not self._in_hand:
            return None
        taken = self._in_hand.popleft()
        self.outbox.append((taken.rank, Started(taken.number)))
        return taken

    def take_back(self) -> int:
        """Take back the slice that was given last and is not known to be started, to compute it.

        If a note that the helper has started is on its way nevertheless, the helper's gradient counts (`settle`).

        Returns:
            Number of rows; 0 if there is no such slice.
        """
        if not self._given:
            return 0
        number, (helper, rows) = self._given.popitem()
        self.outbox.append((helper, Cancel(self.rank, number)))
        self._cancelled[number] = rows
        return len(rows)

    def settle(self) -> None:
        """Keep the rows that were taken back and that no helper had started, as all notes have arrived."""
        self.kept += self._cancelled.values()
        self._cancelled.clear()

    def offer_help(self) -> None:
        """Offer help to the slowest of the workers that this one may help, if it is ahead by the threshold."""
        if self._offered is not None or self._in_hand or not self._seen:
            return
        slowest = min(self._seen, key=lambda rank: self._seen[rank])
        if self.done > self._seen[slowest] + self.limits.threshold:
            self._offered = slowest
            self.outbox.append((slowest, Offer(self.rank, self.done)))

    def receive(self, message: Message) -> None:
        """Take a message that has arrived."""
        match message:
            case Progress(rank, _, refuses=True):
                self._offered = None
                self._seen.pop(rank, None)  # the next offer waits for another report
            case Progress(rank, done):
                self._seen[rank] = done
            case Offer(rank, done):
                self._answer(rank, done)
            case Slice():
                self._offered = None
                self._in_hand.append(message)
            case Started(number):
                self._given.pop(number, None)
                self._cancelled.pop(number, None)
            case Cancel(rank, number):
                self._in_hand = deque(each for each in self._in_hand if (each.rank, each.number) != (rank, number))

    def _answer(self, helper: int, done: float) -> None:
        """Give the helper rows, except those of the next unit."""
        spare = len(self._rows) - self.limits.rows(self.limits.slice, self._size)
        if spare <= 0 or done <= self.done + self.limits.threshold:
            self.outbox.append((helper, Progress(self.rank, self.done, refuses=True)))
            return
        share = self.limits.slice if helper in self._helped_by else self.limits.first
        self._helped_by.add(helper)
        count = min(self.limits.rows(share, self._size), spare)
        rows = np.concatenate([self._rows.pop() for _ in range(count)][::-1])
        self._numbers += 1
        self._given[self._numbers] = helper, rows
        self.outbox.append((helper, Slice(self.rank, self._numbers, rows)))
        self._report()

    def _report(self) -> None:
        helpers = min(self.limits.helpers, self.workers - 1)
        self.outbox += [
            ((self.rank - 1 - index) % self.workers, Progress(self.rank, self.done)) for index in range(helpers)
        ]
