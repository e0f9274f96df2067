"""The parameter server's side of the protocol, as a state machine: the root of a job's tree (docs/design.md §3).

    contributions ─receive─▶ vetted ─▶ summed by place ─▶ complete? ─▶ results to every child ─poll─▶
                                            │ repeated and complete ─▶ the kept result to that child alone

A child is a worker or a switch. Each contribution's own linear check is verified before it is added, so a damaged one
is dropped by itself and the child's resend repairs it. A sum is never dirty, and its check is the sum of the checks.
PRESENT is taken as a contribution of zeros.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import MessageType, round_near
from ...wire.control import Held, Resume, ServerPlan
from ...wire.frames import Datagrams
from ..array_types import IntArray
from .authentication import SumCheck, pad_numbers
from .counters import Counters
from .fetching import answer_fetches
from .messages import LaneScratch, Messages, MessageWriter, open_messages, reduce_into, rows_of
from .plans import Classified, check_server_plan, next_plan
from .rounds import NO_ROUND, RoundStore

_RESULT_OF: Final = {
    MessageType.CONTRIBUTION: MessageType.RESULT,
    MessageType.SCALE: MessageType.SCALE_RESULT,
}
_PRESENT: Final = int(MessageType.PRESENT)  # a plain integer: NumPy compares it faster
_BIT_HASH: Final = 37
"""Powers of two below 2³⁶ are distinct modulo 37, and none is 0: a perfect hash of child bits."""


class ParameterServerCore(Classified[ServerPlan]):
    """The root of one job. It has no timers: workers' resends are the only repair.

    A plan without children makes it a mere holder, which hands out the final results of earlier generations.
    """

    def __init__(self, plan: ServerPlan) -> None:
        check_server_plan(plan)
        self.plan = plan
        self.counters = Counters()
        self.paused = False
        self.settled = 0
        """Counterpart of a worker's `settled`; constant, since no sums are taken from a server."""
        self._first_round = plan.first_round
        self._newest = plan.first_round  # the newest complete round, once one is
        self._check = SumCheck(plan.key, plan.workers)
        self._store = RoundStore(plan.slots, plan.lanes)
        self._out: list[Datagrams] = []
        self._received_lanes = LaneScratch()
        self._adopt(plan)

    def _adopt(self, plan: ServerPlan) -> None:
        """Start a generation: nothing is being summed; complete results of earlier ones stay to be fetched."""
        self.plan = plan
        self._writer = MessageWriter(plan.job, plan.generation, plan.slots, plan.lanes)
        self._child_addresses = np.array([child.address for child in plan.children], np.uint32)
        self._members = np.array(plan.members, np.uint32)
        self._all_bits = sum(child.bit for child in plan.children)
        self._bit_at = np.zeros(_BIT_HASH, np.int64)  # the children, by their bits' hashes
        self._bit_at[0] = 1  # a contribution without any bit belongs to no child
        self._address_at = np.zeros(_BIT_HASH, np.uint32)
        self._workers_at = np.zeros(_BIT_HASH, np.int64)
        for child in plan.children:
            self._bit_at[child.bit % _BIT_HASH] = child.bit
            self._address_at[child.bit % _BIT_HASH] = child.address
            self._workers_at[child.bit % _BIT_HASH] = child.workers
        self._store = self._store.grown(plan.slots)
        self._live = np.full(self._store.size, NO_ROUND, np.int64)  # round that this generation sums at a place
        self._bits = np.zeros(self._store.size, np.int64)  # the children whose contributions are in it
        self._row_at = np.zeros(self._store.size, np.int64)  # scratch
        self._completed_any = False

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
            messages, self._store, self._writer, self._newest, self._members, self.counters
        )
        self._out += answers
        if messages.lanes is None and np.count_nonzero(present := messages.kinds == _PRESENT):
            self._receive_kind(MessageType.CONTRIBUTION, self._with_zeros(messages.only(present)))
            messages = messages.only(~present)
        self._receive_kind(MessageType.SCALE if messages.lanes is None else MessageType.CONTRIBUTION, messages)

    def _with_zeros(self, messages: Messages) -> Messages:
        """PRESENT as the contributions that they stand for: of lanes that are 0."""
        messages.lanes = np.zeros((len(messages), self.plan.lanes), np.int32)
        messages.kinds = np.full(len(messages), MessageType.CONTRIBUTION, np.int64)
        return messages

    def _receive_kind(self, kind: MessageType, messages: Messages) -> None:
        messages, rounds = self._keep_fitting(messages, kind)
        places = rounds & self._store.mask
        while len(places):  # each pass takes one message per place, so that it can be vectorised
            if len(places) == 1:
                self._add(kind, messages, rounds, places)
                return
            rows = np.arange(len(places))
            self._row_at[places[::-1]] = rows[::-1]
            first = self._row_at[places] == rows  # the first message for each place
            if np.count_nonzero(first) == len(places):
                self._add(kind, messages, rounds, places)
                return
            self._add(kind, messages.only(first), rounds[first], places[first])
            messages, rounds, places = messages.only(~first), rounds[~first], places[~first]

    def _keep_fitting(self, messages: Messages, kind: MessageType) -> tuple[Messages, IntArray]:
        """Drop and count messages that no child of this server may send now, and those that fail a check."""
        rounds = round_near(messages.chunks, self._newest)
        fitting = messages.kinds == kind
        bits = messages.contributors
        entries = bits % _BIT_HASH
        member = (self._bit_at[entries] == bits) & (self._address_at[entries] == messages.addresses)
        placed = messages.slot == rounds & (self.plan.slots - 1)
        # A sender of round r has completed r − W in this generation, or it was final before: r cannot be further ahead.
        near = (rounds <= self._newest + self._store.size) | (not self._completed_any)
        numbers = pad_numbers(rounds, self.plan.workers - len(self.plan.members))
        intact = self._check.may_pass(
            numbers, messages.lanes, messages.weight, messages.check, self._workers_at[entries, None]
        )
        good = fitting & member & placed & near & intact
        if np.count_nonzero(good) < len(good):
            self.counters.drop_failing(
                ("unexpected_type", fitting),
                ("foreign", member),
                ("bad_slot", placed),
                ("out_of_window", near),
                ("bad_check", intact),
            )
            messages, rounds = messages.only(good), rounds[good]
        return messages, rounds

    def _add(self, kind: MessageType, messages: Messages, rounds: IntArray, places: IntArray) -> None:
        """Take at most one message for each place, as the switch does (docs/design.md §3.2)."""
        counters, store = self.counters, self._store
        bits, int_headers = messages.contributors, messages.int_headers
        live = self._live[places]
        newer = rounds > live
        restarting = np.count_nonzero(newer)
        if restarting == len(rounds):
            self._restart(messages, rounds, places, bits)
        else:
            if restarting:
                self._restart(messages.only(newer), rounds[newer], places[newer], bits[newer])
            same = rounds == live
            fitting = same & (store.has_lanes[places] == (messages.lanes is not None))
            stale = len(rounds) - restarting - np.count_nonzero(same)
            counters.late += int(stale)
            counters.unexpected_type += int(np.count_nonzero(same) - np.count_nonzero(fitting))
            there = (self._bits[places] & bits) != 0
            adding = fitting & ~there
            repeated = fitting & there
            joining = np.count_nonzero(adding)
            if joining == len(rounds):
                self._sum(messages, places, bits)
            elif joining:
                self._sum(messages.only(adding), places[adding], bits[adding])
            if np.count_nonzero(repeated):
                self._repeat(kind, places[repeated], messages.only(repeated))
            if restarting + joining < len(rounds):
                taken = newer | adding
                rounds, places, int_headers = rounds[taken], places[taken], rows_of(int_headers, taken)
        counters.accepted += len(places)
        complete = self._bits[places] == self._all_bits
        if np.count_nonzero(complete):
            self._emit(kind, rounds[complete], places[complete], rows_of(int_headers, complete))

    def _restart(self, messages: Messages, rounds: IntArray, places: IntArray, bits: IntArray) -> None:
        self._live[places] = rounds
        self._bits[places] = bits
        self._store.put(places, NO_ROUND, messages)

    def _sum(self, messages: Messages, places: IntArray, bits: IntArray) -> None:
        store = self._store
        self._bits[places] |= bits
        held = store.reduced.take(places, 1)
        reduce_into(held, messages.reduced)
        store.reduced[:, places] = held
        if messages.lanes is not None:
            store.lanes[places] += messages.lanes

    def _emit(
        self, kind: MessageType, rounds: IntArray, places: IntArray, int_headers: NDArray[np.uint8] | None
    ) -> None:
        """Rounds are complete, hence final: keep their results and send them to every child, each with the INT of the
        contribution that completed it.
        """
        self._store.round[places] = rounds
        self._newest = max(self._newest, int(rounds.max()))
        self._completed_any = True
        payload = self._store.write(self._writer, _RESULT_OF[kind], places, self._all_bits)
        children = len(self._child_addresses)
        addresses = np.repeat(self._child_addresses, len(places))
        stacks = None if int_headers is None else np.tile(int_headers, (children, 1))
        self._out.append(Datagrams(addresses, np.tile(payload, (children, 1)), int_headers=stacks))
        self.counters.sent += len(addresses)

    def _repeat(self, kind: MessageType, places: IntArray, messages: Messages) -> None:
        """Children contribute again: answer them where the round is complete, drop where it is not.

        The answer has the asking packet's flags besides the sum's, and its INT, as a switch's has.
        """
        complete = self._bits[places] == self._all_bits
        asked = int(np.count_nonzero(complete))
        self.counters.duplicate += len(places) - asked
        if asked:
            payload = self._store.write(
                self._writer, _RESULT_OF[kind], places[complete], self._all_bits, messages.flags[complete]
            )
            stacks = rows_of(messages.int_headers, complete)
            self._out.append(Datagrams(messages.addresses[complete], payload, int_headers=stacks))
            self.counters.answered += asked
            self.counters.sent += asked

    def poll(self, now_ns: int) -> list[Datagrams]:
        """Return the datagrams to send now (addresses: destinations), each element of one size."""
        out, self._out = self._out, []
        return out

    @property
    def deadline_ns(self) -> int | None:
        """When `poll` must be called at the latest: at once if there is something to send; no timer runs here."""
        return 0 if self._out else None

    @property
    def batching_delay_ns(self) -> int:
        """Time in ns that received datagrams may wait for more: none, since all children wait for the answer."""
        return 0

    def pause(self) -> Held:
        """Send nothing and take nothing from now on; report the rounds whose results are held. May be repeated."""
        self.paused = True
        self._out = []
        first = max(self._first_round, self._newest + 1 - self._store.size)
        recent = np.arange(first, self._newest + 2)  # the last one is not held
        first += int((~self._store.holds(recent)).argmax())
        kept = self._store.round
        return Held(self.plan.generation, first, frozenset(kept[kept > first].tolist()))

    def resume(self, resume: Resume) -> None:
        """Continue with a new plan. The workers fetch final rounds; contributions to them have ended.

        The plan that already runs changes nothing, so a repeated message does no harm.

        Raises:
            InvalidPlan: the server is not paused, or the plan does not fit it. The server then stays as it is.
        """
        plan = next_plan("the parameter server", resume, self.plan, paused=self.paused)
        if plan is None:
            return
        check_server_plan(plan, self.plan)
        self._newest = max([self._newest, *(final.round for final in resume.final)])
        self._adopt(plan)
        self.paused = False
