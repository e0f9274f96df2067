"""Registrations that wait for room: each is a call that its client keeps open until its job starts.

::

    Register(worker_count) ──enter──▶ queue ──serve, whenever something ended──▶ admission ──▶ the call's answer
                                        │
                                     journal ──▶ queue of the next controller, whose clients ask again by their tickets

A client that gives its call up leaves the queue. The journal has the waiting jobs: they keep their places in the queue
of the next controller, for a time in which their clients ask again.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from ...topologies.errors import TopologyError
from ...wire import control_pb2 as pb
from ..controller import Controller
from ..errors import ControllerEnded, ControllerError, OutOfMemory, PlanError, SwitchError
from ..jobs.journal_file import JournalError
from ..jobs.queue import Entry, JobQueue, Room, check_needs, reason_to_wait
from .limits import Limits
from .requests import job_spec, needs_of, queued_job, registration
from .seating import Seating, TooMany

_log = logging.getLogger(__name__)

_ABSENT: Final = "its client has not asked again since the controller began"

Context = grpc.aio.ServicerContext[Any, Any]
Admit = Callable[[pb.RegisterRequest, Context, int], Awaitable[pb.Registration]]
Answer = asyncio.Future[pb.Registration]


@dataclass(slots=True, eq=False)
class _Call:
    """A waiting client's call."""

    context: Context
    answer: Answer

    @property
    def over(self) -> bool:
        """True if no client waits for the answer any more."""
        return bool(self.context.done()) or self.answer.done()


@dataclass(slots=True, eq=False)
class _Waiting:
    """A queued registration."""

    request: pb.RegisterRequest
    call: _Call | None
    """None: an earlier controller had the call, and the client has not asked again."""

    @property
    def without(self) -> list[str]:
        """Hosts that have another part in the job, and so are none of its workers'."""
        return [*([self.request.server] if self.request.server else []), *self.request.spares]

    def on(self, hosts: list[str]) -> pb.RegisterRequest:
        """The request with these hosts for its workers."""
        named = pb.RegisterRequest()
        named.CopyFrom(self.request)
        named.ClearField("worker_count")
        named.workers.extend(hosts)
        return named


class Queueing:
    """The queue of one control service. `enter` and `serve` run where the controller's actions do."""

    def __init__(self, controller: Controller, seating: Seating, limits: Limits, admit: Admit, now_ns: int) -> None:
        """Create the queue of the journal; `admit` admits a job whose hosts are named.

        Raises:
            JournalError: A record cannot be read.
        """
        self._controller = controller
        self._seating = seating
        self._limits = limits
        self._admit = admit
        self._began_ns = now_ns
        self._closed = False
        self._queue: JobQueue[_Waiting] = JobQueue()
        for number, request, since_ns in controller.jobs.journal.queued(_read):
            try:
                if number not in seating.jobs:
                    self._add(number, request, None, min(since_ns, now_ns))  # clocks may have begun anew
                    continue
            except (ControllerError, TopologyError) as error:
                _log.warning("job %d does not wait any more: %s", number, error)
            self._forget(number)

    @property
    def numbers(self) -> set[int]:
        """Numbers of the waiting jobs."""
        return {entry.job for entry in self._queue.entries}

    async def enter(self, request: pb.RegisterRequest, context: Context, now_ns: int) -> Answer:
        """Queue a job, or take up the place that its client has already; return the future answer of its admission.

        Raises:
            PlanError, TopologyError: No such job can ever be.
            TooMany: The queue is full.
            JournalError: The journal cannot be written.
        """
        call = _Call(context, asyncio.get_running_loop().create_future())
        if request.ticket and self._resumed(request.ticket, call):
            await self.serve(now_ns)
            return call.answer
        if len(self._queue.entries) >= self._limits.jobs:
            raise TooMany(f"{len(self._queue.entries)} jobs are queued, and no more than {self._limits.jobs} may be")
        number = request.job or self._new_number()
        if request.workers or request.parent:
            other = "the workers' hosts" if request.workers else "a parent, on whose workers it runs"
            raise PlanError(
                f"worker_count {request.worker_count} and {other} exclude each other",
                place=f"job {number}",
                value=request.worker_count,
            )
        if number in self._controller.jobs or number in self.numbers:
            raise PlanError(f"job {number} runs already, or is queued; give every job its own number")
        request.job = number
        entry = self._add(number, request, call, now_ns)
        try:
            self._controller.jobs.journal.write_queued(number, _record(request, now_ns))
        except JournalError:
            self._queue.entries.remove(entry)
            raise
        await self.serve(now_ns)
        return call.answer

    async def wait(self, answer: Answer) -> pb.Registration:
        """Return the answer once the job has started. Raises what its admission raises."""
        try:
            return await answer
        finally:
            for entry in self._queue.entries[:]:
                if entry.value.call is not None and entry.value.call.answer is answer:
                    self._leave(entry)

    def close(self) -> None:
        """End all calls; the journal keeps the waiting jobs for the next controller."""
        self._closed = True
        for entry in self._queue.entries:
            if entry.value.call is not None and not entry.value.call.answer.done():
                entry.value.call.answer.set_exception(ControllerEnded(asyncio.CancelledError()))

    async def serve(self, now_ns: int) -> None:
        """Start jobs from the front of the queue as long as there is room; update the reasons of the others."""
        self._sweep(now_ns)
        while self._queue.entries:
            first, *others = self._queue.ordered(now_ns)
            waiting, call = first.value, first.value.call
            if call is None:
                first.reason = _ABSENT
                break
            if call.over:
                self._leave(first)
                continue
            self._seating.sweep()
            room = Room(self._controller.topology, [seats.takes for seats in self._seating.jobs.values()])
            hosts = room.choose(first.count, first.needs, waiting.without)
            try:
                if hosts is not None:
                    self._answer(first, call, await self._admit(waiting.on(hosts), call.context, now_ns))
                    continue
                first.reason = reason_to_wait(first, room, waiting.without)
            except (ControllerError, TopologyError) as error:
                if not self._may_pass(error):
                    self._leave(first)
                    if not call.answer.done():
                        call.answer.set_exception(error)
                    continue
                first.reason = str(error)
            break
        else:
            return
        for entry in others:
            entry.reason = f"job {first.job} is first: {first.reason}"

    def states(self, now_ns: int) -> list[pb.QueuedJob]:
        """Waiting jobs in their order."""
        return [queued_job(entry, at, now_ns) for at, entry in enumerate(self._queue.ordered(now_ns), 1)]

    def _add(self, number: int, request: pb.RegisterRequest, call: _Call | None, since_ns: int) -> Entry[_Waiting]:
        waiting, needs, topology = _Waiting(request, call), needs_of(request), self._controller.topology
        hosts = check_needs(topology, number, request.worker_count, needs, waiting.without)
        spec = job_spec(waiting.on(hosts), number, topology)
        entry = Entry(number, request.worker_count, needs, spec.priority, since_ns, waiting)
        self._queue.entries.append(entry)
        return entry

    def _may_pass(self, error: Exception) -> bool:
        """Return True if a job that is refused now may be admitted later: jobs end, links and switches come back."""
        return self._controller.is_impaired or isinstance(error, OutOfMemory | TooMany | SwitchError)

    def _resumed(self, ticket: str, call: _Call) -> bool:
        """Have a client's new call take the place of its last one; whether it had one."""
        for entry in self._queue.entries:
            if _same(entry.value.request.ticket, ticket):
                entry.value.call = call
                return True
        for seats in self._seating.jobs.values():
            if _same(seats.ticket, ticket):
                running = self._controller.jobs[seats.job]
                call.answer.set_result(registration(running.plan, seats, running.note))
                return True
        return False

    def _sweep(self, now_ns: int) -> None:
        """Remove the jobs of clients that have not come back in time."""
        if now_ns - self._began_ns < self._limits.absent_ns:
            return
        for entry in [entry for entry in self._queue.entries if entry.value.call is None]:
            _log.warning("job %d does not wait any more: %s", entry.job, _ABSENT)
            self._leave(entry)

    def _answer(self, entry: Entry[_Waiting], call: _Call, registered: pb.Registration) -> None:
        self._leave(entry)
        if not call.answer.done():
            call.answer.set_result(registered)

    def _leave(self, entry: Entry[_Waiting]) -> None:
        if entry in self._queue.entries:
            self._queue.entries.remove(entry)
            if not self._closed:
                self._forget(entry.job)

    def _forget(self, number: int) -> None:
        """Remove a job from the journal. If that fails, the next controller waits for its client in vain."""
        try:
            self._controller.jobs.journal.write_queued(number, None)
        except JournalError as error:
            _log.warning("%s", error)

    def _new_number(self) -> int:
        queued = self.numbers
        while (number := self._seating.new_number()) in queued:
            pass
        return number


def _record(request: pb.RegisterRequest, since_ns: int) -> dict[str, Any]:
    return {"request": MessageToDict(request, preserving_proto_field_name=True), "since_ns": since_ns}


def _read(number: int, saved: Any) -> tuple[int, pb.RegisterRequest, int]:
    try:
        return number, ParseDict(saved["request"], pb.RegisterRequest()), int(saved["since_ns"])
    except ParseError as error:
        raise ValueError(str(error)) from None


def _same(known: str, given: str) -> bool:
    return bool(known) and hmac.compare_digest(known.encode(), given.encode())
