"""Worker side of the protocol, as a state machine: no socket, no clock, no randomness (docs/design.md §3).

    submit ─▶ tensors ─▶ rounds ─▶ sliding window ─poll─▶ contributions, fetches
                ▲                     │    ▲
                └─ sums ◀─ last rounds' results ◀─receive─ results, fetched results

The driver calls `poll` after every `submit`, `receive` and `resume`, and again at `deadline_ns`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from ...errors.values import Checks
from ...wire.aggregation import MessageFlag, MessageType, round_near
from ...wire.control import Departure, Held, Resume, WorkerPlan
from ...wire.frames import Datagrams
from ..array_types import BoolArray, IntArray
from ..congestion import ExplicitWindow, Feedback, Pacer, WindowLaw
from ..errors import HostError, InvalidPlan, InvalidTensor, WorkerLeft
from ..numerics.tensors import Reduced, Tensor
from .authentication import SumCheck, pad_numbers
from .counters import Counters
from .departures import describe_departures
from .fetching import answer_fetches
from .in_flight import InFlight
from .messages import LaneScratch, Messages, MessageWriter, open_messages, reduced_columns
from .plans import Classified, check_worker_plan, next_plan
from .rounds import NO_ROUND, RoundStore
from .stream import TensorStream
from .timers import RetransmissionTimeout

BATCHING_DELAYS: Final = 4
"""Number of times per round trip that a worker processes received datagrams."""

_RESULT: Final = int(MessageType.RESULT)  # plain integers: NumPy compares them faster
_FETCH: Final = int(MessageType.FETCH)
_RETRANSMISSION: Final = int(MessageFlag.RETRANSMISSION)
_CONGESTION: Final = int(MessageFlag.CONGESTION)
_LANES: Final = int(MessageFlag.LANES)
_WANTED: Final = int(MessageFlag.WANTED)
_DONE: Final = int(MessageType.DONE)
_RESULT_OF: Final = np.zeros(max(MessageType) + 1, np.int64)
"""The message type that a round's result has, indexed by that of this worker's message."""
_RESULT_OF[MessageType.SCALE] = MessageType.SCALE_RESULT
_RESULT_OF[[MessageType.CONTRIBUTION, MessageType.PRESENT]] = _RESULT
_FETCHED_FOR: Final = {
    MessageType.RESULT: MessageType.FETCHED,
    MessageType.SCALE_RESULT: MessageType.SCALE_FETCHED,
}


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Pacing of a worker."""

    initial_timeout_ns: int = 10_000_000
    """Retransmission time-out before the first round trip of a round with lanes is measured."""
    min_timeout_ns: int = 400_000
    max_timeout_ns: int = 1_000_000_000
    law: Callable[[], WindowLaw] = ExplicitWindow
    """Factory of the window law, which decides the number of rounds in the network."""
    first_round: int = 0
    """Number of the job's first round; the same at all of its hosts."""

    def __post_init__(self) -> None:
        """Raises InvalidPlan."""
        checks = Checks(InvalidPlan, "worker")
        for name in ("initial_timeout_ns", "min_timeout_ns", "max_timeout_ns"):
            checks.integer(name, getattr(self, name), 1)
        checks.integer("first_round", self.first_round)
        if not callable(self.law):
            raise checks.refuse("law", self.law, "makes no window law", "a function without arguments")


class WorkerCore(Classified[WorkerPlan]):
    """One worker of one job. Tensors are summed in the order of `submit`, which must be the same at every worker."""

    def __init__(self, plan: WorkerPlan, options: WorkerOptions = WorkerOptions()) -> None:
        check_worker_plan(plan)
        self.plan = plan
        self.counters = Counters()
        self.paused = False
        self.failure: HostError | None = None
        """Error after which no tensor has a sum and none is accepted: the workers' calls differ, or one has left."""
        self.settled = 0
        """Number of tensors with a result for `pop_result`, taken or not; plus one for the failure."""
        self._options = options
        self._lead = plan.window  # of every tensor: the workers must agree on it, so it outlives changes of the window
        self._check = SumCheck(plan.key, plan.workers)
        self._max_members = len(plan.members)
        self._writer = MessageWriter(plan.job, plan.generation, plan.slots, plan.lanes)
        self._timeout = RetransmissionTimeout(
            options.initial_timeout_ns, options.min_timeout_ns, options.max_timeout_ns
        )
        self._stream = TensorStream(options.first_round)
        self._store = RoundStore(plan.slots, plan.lanes)
        self._law = options.law()
        self._new_in_flight()
        self._final: dict[int, int] = {}  # final rounds that are to be fetched → holder
        self._departures: tuple[Departure, ...] = ()
        self._next_handle = 0
        self._now_ns = 0  # when it was last asked what it sends
        self._failed_handle = sys.maxsize  # of the first tensor whose sum will not come, beyond all while there is none
        self._results: dict[int, Reduced] = {}
        self._unsent = False  # poll may find rounds to send for the first time
        self._unrepaired = False  # rounds are to be sent again when the pace allows it
        self._answers: list[Datagrams] = []
        self._received_lanes = LaneScratch()

    def _new_in_flight(self) -> None:
        """Forget what is in flight, and how much may be. The arrays are indexed by place, as the store's are."""
        size = self._store.size
        self._pacer = Pacer(self.plan.pacing, rank=self.plan.rank, workers=self.plan.workers)
        self._timeout.min_ns = max(self._options.min_timeout_ns, self.plan.pacing.round_trip_ns)
        self._timeout.max_ns = max(self._options.max_timeout_ns, self._timeout.min_ns)
        self._in_flight = InFlight(
            size,
            self._timeout,
            span=self.plan.window,
            window=self.plan.pacing.window,
            rank=self.plan.rank,
            workers=self.plan.workers,
            longest_round_trip_ns=self.plan.pacing.round_trip_ns if self._law.bounded else 0,
        )
        self._window_round = NO_ROUND  # the newest round whose result's window was obeyed
        self._row_at = np.zeros(size, np.int64)  # scratch
        self._members = np.array(self.plan.members, np.uint32)
        self._max_members = max(self._max_members, len(self._members))
        # results are all present workers' sums; fetched ones may be of some that are gone
        self._sizes = np.arange(len(self._members), self._max_members + 1)
        self._to_aggregator = np.full(size, self.plan.aggregator, np.uint32)
        self._stream.restart()

    # --- tensors ---

    def submit(self, tensor: ArrayLike | Tensor, *, name: str = "tensor", weight: int = 1) -> int:
        """Return the queue a tensor, or an array which is copied, to be summed over all workers; returns its handle.

        `name` and `weight` are those of `Tensor`, for an array. Raises `InvalidTensor` for an array that cannot be
        summed; nothing is queued then. Raises the `failure`, if there is one for this tensor.
        """
        if self.failure is not None and self._next_handle >= self._failed_handle:
            raise self._failure_of(self._next_handle)
        if not isinstance(tensor, Tensor):
            plan = self.plan
            tensor = Tensor(
                tensor, workers=plan.workers, lanes=plan.lanes, keyed=bool(plan.key), name=name, weight=weight
            )
        elif tensor.message_lanes != self.plan.lanes:
            raise InvalidTensor(
                f"it was made for messages of {tensor.message_lanes} lanes; job {self.plan.job} has {self.plan.lanes}",
                place=f"tensor {tensor.name!r}",
                value=tensor.message_lanes,
            )
        tensor.place(self._next_handle, self._stream.end, self._lead)
        self._next_handle += 1
        if tensor.remaining:
            self._stream.append(tensor)
            self._unsent = True
        else:
            self._finish(tensor)
        return tensor.handle

    def pop_result(self, handle: int) -> Reduced | None:
        """Return the sum of a submitted tensor, handed out once; None while it is not complete.

        Raises the `failure`, if that is why the sum will not come.
        """
        if self.failure is not None and handle >= self._failed_handle and handle not in self._results:
            raise self._failure_of(handle)
        return self._results.pop(handle, None)

    def done(self, handle: int) -> bool:
        """Return whether `pop_result` has a result, or an error, of a submitted tensor that was not handed out yet."""
        return handle in self._results or handle >= self._failed_handle

    @property
    def submitted(self) -> int:
        """Number of submitted tensors."""
        return self._next_handle

    def end_after(self, departures: Sequence[Departure]) -> None:
        """Refuse every tensor that one of these workers, which have left, takes no part in; the earlier ones go on.

        May be repeated with more workers.
        """
        self._departures = tuple({departure.rank: departure for departure in (*self._departures, *departures)}.values())
        calls = min((departure.calls for departure in self._departures), default=self._failed_handle)
        # A tensor whose rounds have begun to be summed is not lacking: the workers that left have contributed to it.
        lacking = next((t for t in self._stream.tensors if t.handle >= calls and t.start >= self._stream.base), None)
        first = max(calls, self._next_handle) if lacking is None else lacking.handle
        if first >= self._failed_handle:
            return
        self.failure = WorkerLeft(describe_departures(self._departures, self._next_handle))
        self._failed_handle = first
        self.settled += 1
        if lacking is not None:
            self._end_stream(lacking, self._now_ns)

    def _failure_of(self, handle: int) -> HostError:
        """Return the error that explains why this tensor has no sum."""
        assert self.failure is not None
        if isinstance(self.failure, WorkerLeft):
            return WorkerLeft(describe_departures(self._departures, max(self._next_handle, handle + 1)))
        return self.failure

    @property
    def int_header(self) -> bytes:
        """INT header that the law adds to contributions with lanes (`WindowLaw.int_header`)."""
        return self._law.int_header

    @property
    def rounds_complete(self) -> int:
        """Number of rounds, from the job's first on, that are complete here without a gap."""
        return self._stream.base - self._options.first_round

    @property
    def rounds_submitted(self) -> int:
        """Number of rounds, from the job's first on, of all submitted tensors."""
        return self._stream.end - self._options.first_round

    @property
    def idle(self) -> bool:
        """True if every submitted tensor is summed."""
        return self._stream.base == self._stream.end

    @property
    def awaited(self) -> int | None:
        """Handle of the oldest tensor without a sum, or of the first whose sum will not come; None if there is none."""
        for tensor in self._stream.tensors:
            if not tensor.delivered:
                return tensor.handle
        return self._failed_handle if self.failure is not None else None

    def _finish(self, tensor: Tensor) -> None:
        if tensor.delivered:  # others still lacked some of its rounds
            return
        tensor.note_delivery()
        self._results[tensor.handle] = tensor.reduced()
        self.settled += 1

    # --- receiving ---

    def receive(self, now_ns: int, datagrams: Datagrams) -> None:
        """Process datagrams of one size (addresses: their sources). Never raises for their content: drops are
        counted.
        """
        if self.paused:
            self.counters.received += len(datagrams)
            self.counters.paused += len(datagrams)
            return
        plan = self.plan
        messages = open_messages(datagrams, plan.job, plan.generation, self.counters, plan.lanes, self._received_lanes)
        if messages is None:
            return
        messages, answers = answer_fetches(
            messages, self._store, self._writer, self._stream.base, self._members, self.counters
        )
        self._answers += answers
        rounds = round_near(messages.chunks, self._stream.base)
        messages, rounds = self._keep_awaited(messages, rounds)
        if len(rounds):
            self._complete(now_ns, messages, rounds)

    def _keep_awaited(self, messages: Messages, rounds: IntArray) -> tuple[Messages, IntArray]:
        """Drop and count what does not answer a round in flight from whom it was asked, or fails a check."""
        counters = self.counters
        places = rounds & self._store.mask
        in_flight = self._in_flight
        awaited = in_flight.round[places] == rounds
        asked = in_flight.peer[places] == messages.addresses
        fitting = in_flight.answer[places] == messages.kinds
        ended = messages.kinds == _DONE
        if np.count_nonzero(ended):
            fitting |= ended & ~in_flight.wanted[places] & (in_flight.answer[places] == _RESULT)
        placed = messages.slot == rounds & (self.plan.slots - 1)
        expected = awaited & asked & fitting & placed
        good = self._passing(messages, rounds, expected & ~ended) | (expected & ended)
        if np.count_nonzero(good) < len(good):
            intact = good | ~expected
            complete = (rounds < self._stream.base) | self._store.holds(rounds)
            counters.drop_failing(
                ("duplicate", awaited | ~complete),
                ("out_of_window", awaited),
                ("foreign", asked),
                ("unexpected_type", fitting),
                ("bad_slot", placed),
                ("bad_check", intact),
            )
            messages, rounds = messages.only(good), rounds[good]
        if len(rounds) > 1:
            places = rounds & self._store.mask
            rows = np.arange(len(rounds))
            self._row_at[places] = rows
            distinct = self._row_at[places] == rows
            repeats = len(rounds) - int(np.count_nonzero(distinct))
            if repeats:
                counters.duplicate += repeats
                messages, rounds = messages.only(distinct), rounds[distinct]
        counters.accepted += len(rounds)
        return messages, rounds

    def _passing(self, messages: Messages, rounds: IntArray, expected: BoolArray) -> BoolArray:
        """Mask of the expected messages that pass their check; rounds that are not expected may be of no tensor at
        all.
        """
        count = np.count_nonzero(expected)
        if not count:
            return expected
        if count < len(expected):
            passing = expected.copy()
            chosen = messages.only(expected)
            passing[expected] = self._passing(chosen, rounds[expected], np.ones(len(chosen), np.bool_))
            return passing
        wraps = messages.lanes is None or self._stream.may_wrap(rounds)
        counts = self._sizes
        if len(counts) > 1:
            counts = np.where(messages.kinds[:, None] > _FETCH, counts, counts[0])
        numbers = pad_numbers(rounds[:, None], self.plan.workers - counts)
        return self._check.passes(numbers, messages.lanes, messages.weight, messages.check, wraps, counts)

    def _complete(self, now_ns: int, messages: Messages, rounds: IntArray) -> None:
        """Keep the results of distinct rounds in flight, note them in their tensors, and move the window on."""
        store = self._store
        places = rounds & store.mask
        exponents, weights, lanes = messages.exponent, messages.weight, messages.lanes
        had_lanes = lanes is not None or bool((messages.kinds == _DONE).all())
        store.put(places, rounds, messages)
        in_flight = self._in_flight
        clean = in_flight.once(places) & (messages.flags & _RETRANSMISSION == 0)
        once = in_flight.first_sent_ns[places][clean]
        round_trip_ns = now_ns - min(once.tolist()) if len(once) else None
        if round_trip_ns is not None:
            self._timeout.sample(round_trip_ns, has_lanes=had_lanes)
        numbers = rounds.tolist()
        newest = max(numbers)
        window: int | None = None
        if newest > self._window_round:
            row = numbers.index(newest)
            if in_flight.answer[places[row]] < _FETCH:  # a fetched result's view of the queues is old
                self._window_round = newest
                window = int(messages.window[row])
        marked = int(np.count_nonzero(messages.flags & _CONGESTION))
        trip_ns = round_trip_ns if had_lanes else None  # one without lanes takes a fraction of it
        in_flight.complete(places, now_ns)
        told = Feedback(
            now_ns, len(numbers), marked, in_flight.in_network, window, trip_ns, int_headers=messages.int_headers
        )
        self._law.update(told)
        failed: list[Tensor] = []
        for tensor, rows in self._stream.split(rounds):
            local = rounds[rows] - tensor.start
            tensor.add_results(local, exponents[rows], weights[rows], None if lanes is None else lanes[rows])
            if tensor.failure is not None:
                failed.append(tensor)
            elif not tensor.remaining:
                self._finish(tensor)
        self._unsent = True
        for tensor in failed:
            self._fail_from(tensor, now_ns)
        if min(numbers) == self._stream.base:
            self._stream.advance(self._store)

    def _fail_from(self, tensor: Tensor, now_ns: int) -> None:
        """End the stream in front of this tensor; tensors before it continue."""
        if tensor.handle >= self._failed_handle:
            return
        self.failure = tensor.failure
        self.settled += 1
        self._failed_handle = tensor.handle
        self._end_stream(tensor, now_ns)

    def _end_stream(self, tensor: Tensor, now_ns: int) -> None:
        """Sum nothing from this tensor on."""
        self._stream.cut_before(tensor, self._store)
        in_flight = self._in_flight.round
        gone = np.flatnonzero((in_flight != NO_ROUND) & ~self._stream.has(in_flight))
        if len(gone):
            self._in_flight.complete(gone, now_ns)

    # --- sending ---

    def poll(self, now_ns: int) -> list[Datagrams]:
        """Return the datagrams to send now (addresses: destinations), each element of one size."""
        if self.paused:
            return []
        out, self._answers = self._answers, []
        in_flight = self._in_flight
        self._now_ns = now_ns
        if self._pacer.begin(now_ns):  # a generation's time begins when this worker is first asked what it sends in it
            self._law.begin(self.plan.pacing, now_ns)
            in_flight.begin(now_ns)
        in_flight.set_window(self._law.window(now_ns), yields=self._law.yields)
        self._pacer.set_gap(self._law.gap_ns)
        most = self._pacer.room(now_ns)
        lost = in_flight.expirations
        lacking = in_flight.due_for_retransmit(now_ns)
        if in_flight.expirations > lost:
            self._law.on_loss(in_flight.expirations - lost, now_ns)
        places = lacking[:most]
        self._unrepaired = len(places) < len(lacking)
        if len(places) and self._stream.holds_older(int(in_flight.round[places[0]]), self._store):
            # other workers may spend all their room on waiting for it, and this worker all of its own on resending
            self._unsent = True
            if len(places) == in_flight.room:
                places = places[:-1]
        if len(places):
            self._pacer.sent(len(places), now_ns)
            rounds, places = self._in_sending_order(in_flight.round[places])
            in_flight.mark_resent(places, now_ns)
            self.counters.retransmitted += len(places)
            out += self._messages(rounds, _RETRANSMISSION)
        most = self._pacer.room(now_ns)
        if self._unsent:
            room = in_flight.room if most is None else min(most, in_flight.room)
            rounds = self._stream.sendable(room, self.plan.window, self._store)
            self._unsent = most is not None and len(rounds) == most
            if len(rounds):
                self._pacer.sent(len(rounds), now_ns)
                self._address(rounds)
                rounds, places = self._in_sending_order(rounds)
                in_flight.launch(rounds, now_ns)
                out += self._messages(rounds, 0)
        self._pacer.wait(waiting=self._unsent or self._unrepaired)
        return out

    @property
    def deadline_ns(self) -> int | None:
        """When `poll` must be called at the latest; None while no timer runs."""
        if self.paused:
            return None
        if self._answers or self._pacer.waits:
            return 0
        deadline_ns, paced_ns = self._in_flight.deadline_ns, self._pacer.next_ns(self._now_ns)
        if self._unsent or self._unrepaired:
            return paced_ns or 0
        return deadline_ns if deadline_ns is None or paced_ns is None else max(deadline_ns, paced_ns)

    @property
    def batching_delay_ns(self) -> int:
        """Time in ns that received datagrams may wait for more, for larger batches at nearly the same round trips.

        With few rounds in flight it is no longer than those take to arrive: a full window takes a round trip.
        """
        in_flight, round_trip_ns = self._in_flight, self._timeout.round_trip_ns
        return min(round_trip_ns // BATCHING_DELAYS, round_trip_ns * in_flight.in_network // in_flight.window)

    def _address(self, rounds: IntArray) -> None:
        """Set the destination of rounds, the kind of message and of its answer: from the aggregator, or from holders of
        final rounds.
        """
        in_flight = self._in_flight
        places = rounds & self._store.mask
        in_flight.peer[places] = self.plan.aggregator
        in_flight.kind[places] = kinds = self._stream.kinds(rounds, presents=self.plan.presents)
        in_flight.answer[places] = _RESULT_OF[kinds]
        in_flight.wanted[places] = not self.plan.prunes or self._stream.wanted(rounds)
        if self._final:
            for place, number in zip(places.tolist(), rounds.tolist(), strict=True):
                holder = self._final.pop(number, None)
                if holder is not None:
                    in_flight.peer[place] = holder
                    in_flight.kind[place] = _FETCH
                    in_flight.answer[place] = _FETCHED_FOR[in_flight.answer[place]]

    def _in_sending_order(self, rounds: IntArray) -> tuple[IntArray, IntArray]:
        """Return rounds grouped by the kind of their answer, for few batches, and their places; the kind of the first
        round comes first. CONTRIBUTION and PRESENT are of one group: all workers send their rounds in the same order.
        """
        places = rounds & self._store.mask
        answers = self._in_flight.answer[places]
        other = answers != answers[0]
        if np.count_nonzero(other):
            order = np.argsort(np.where(other, answers, 0), kind="stable")
            rounds, places = rounds[order], places[order]
        return rounds, places

    def _messages(self, rounds: IntArray, flags: int) -> list[Datagrams]:
        """The datagrams of rounds in sending order."""
        self.counters.sent += len(rounds)
        kinds = self._in_flight.kind[rounds & self._store.mask]
        ends = np.flatnonzero(kinds[1:] != kinds[:-1]) + 1
        out = []
        for batch in np.split(rounds, ends) if len(ends) else [rounds]:
            kind = MessageType(int(self._in_flight.kind[batch[0] & self._store.mask]))
            if kind is MessageType.FETCH:
                out.append(self._fetches(batch, flags))
            else:
                out.append(self._contributions(kind, batch, flags))
        return out

    def _fetches(self, rounds: IntArray, flags: int) -> Datagrams:
        asked = reduced_columns(len(rounds), flags=flags)
        payload = self._writer.write(MessageType.FETCH, rounds, contributors=0, reduced=asked)
        return Datagrams(self._in_flight.peer[rounds & self._store.mask], payload)

    def _contributions(self, kind: MessageType, rounds: IntArray, flags: int) -> Datagrams:
        adds = kind is MessageType.CONTRIBUTION
        exponents, weights, lanes = self._stream.contents(rounds, adds)
        numbers = pad_numbers(rounds, self.plan.workers - len(self.plan.members))
        wraps = kind is MessageType.SCALE or self._stream.may_wrap(rounds)
        check = self._check.of(numbers, lanes, weights, wraps)
        flags |= _LANES if adds else 0
        asked_for = 0 if kind is MessageType.SCALE else self._in_flight.wanted[rounds & self._store.mask] * _WANTED
        reduced = reduced_columns(len(rounds), flags=flags | asked_for, exponent=exponents, weight=weights, check=check)
        payload = self._writer.write(kind, rounds, contributors=self.plan.child_bit, reduced=reduced, lanes=lanes)
        asked = b"" if kind is MessageType.SCALE else self._law.int_header
        headers = np.broadcast_to(np.frombuffer(asked, np.uint8), (len(rounds), len(asked))) if asked else None
        return Datagrams(self._to_aggregator[: len(rounds)], payload, int_headers=headers)

    # --- moving to another generation ---

    def pause(self) -> Held:
        """Send nothing and take nothing from now on; report the rounds whose results are held. May be repeated."""
        self.paused = True
        self._answers = []
        base, kept = self._stream.base, self._store.round
        ended = kept[self._store.done & (kept >= self._stream.surely_final(self._store))]
        return Held(self.plan.generation, base, frozenset(kept[kept > base].tolist()), done=frozenset(ended.tolist()))

    def resume(self, resume: Resume) -> None:
        """Go on with a new plan: fetch the final rounds that are missing here, sum the others again.

        Among the others are rounds that a DONE has ended here, if the hosts that want their results have none.

        If a worker was lost, the chunks without a final sum agree on their exponents again, so that its numbers do not
        scale a sum that they are not in. The plan that already runs changes nothing, so a repeated message does no
        harm.

        Raises:
            InvalidPlan: this worker is not paused, or the plan does not fit it. It stays as it is.
        """
        plan = next_plan(f"worker {self.plan.rank}", resume, self.plan, paused=self.paused)
        if plan is None:
            return
        check_worker_plan(plan, self.plan)
        some_lost = len(plan.members) < len(self.plan.members)
        self.plan = plan
        self._writer = MessageWriter(plan.job, plan.generation, plan.slots, plan.lanes)
        self._store = self._store.grown(plan.slots)
        if len(again := self._store.reopen(np.array(resume.again, np.int64))):
            self._stream.reopen(again)
        self._new_in_flight()
        self._final = {
            final.round: final.holder
            for final in resume.final
            if final.round >= self._stream.base and not self._store.holds(np.array([final.round]))[0]
        }
        if some_lost:
            fetched = np.array(list(self._final), np.int64)
            useful = self._stream.agree_again(self._store, fetched, self._lead)
            self._final = {number: self._final[number] for number in useful.tolist()}
        self._timeout.begin()
        self._unsent = True
        self.paused = False

    # --- waiting ---

    def waiting_for(self, now_ns: int) -> str:
        """Return one sentence for a timeout's error: the oldest round missing, its tensor, from whom, how often
        sent.
        """
        who = f"job {self.plan.job}, rank {self.plan.rank}, generation {self.plan.generation}"
        if self.paused:
            return f"{who}: paused; waits for a new plan"
        if self.idle:
            return f"{who}: waits for nothing"
        tensor, place = self._stream.tensors[0], self._stream.base & self._store.mask
        progress = f"tensor {tensor.name!r} lacks {tensor.remaining} rounds"
        in_flight = self._in_flight
        if in_flight.round[place] != self._stream.base:
            return f"{who}: {progress}; round {self._stream.base} was not sent yet"
        peer = IPv4Address(int(in_flight.peer[place]))
        since = (now_ns - int(in_flight.first_sent_ns[place])) / 1e9
        return (
            f"{who}: {progress}; waits for round {self._stream.base} from {peer}, "
            f"sent {in_flight.attempts[place]} times in {since:.3f} s"
        )
