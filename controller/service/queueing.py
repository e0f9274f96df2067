"""Registrations that wait for room: each is a call that its client keeps open until its job starts.

::

    Register(needs) ──enter──▶ queue ──serve, whenever something ended──▶ admission ──▶ the call's answer
                                 │
                              journal ──▶ queue of the next controller, whose clients ask again by their tickets

A client that gives its call up leaves the queue. The journal has the waiting jobs: they keep their places in the queue
of the next controller, for a time in which their clients ask again.

A job that waits for room holds up those behind it. One that waits for a link or a switch does not: no job's end would
help it. It is tried again before the others, so it is the first once the fault is over.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from ...topologies.errors import TopologyError
from ...wire import control_pb2 as pb
from ..controller import Controller
from ..errors import ControllerEnded, ControllerError, NotPrimary, OutOfMemory, PlanError, SwitchError
from ..jobs.journal_file import JournalError
from ..jobs.queue import FreeCapacity, JobQueue, QueueEntry, check_needs
from ..p4runtime.refusals import WriteRefused
from .limits import Limits
from .requests import job_spec, queued_job, registration, wanted_of
from .seating import Seating, TooMany

_log = logging.getLogger(__name__)

_ABSENT: Final = "its client has not asked again since the controller began"
_FAULT_NS: Final = 2_000_000_000
"""Time after which a job that met a fault is tried again; each attempt may write to switches."""
_FAULTS: Final = 4
"""Attempts in one pass over the queue of jobs that have met a fault, and as many of other jobs that meet one."""

Context = grpc.aio.ServicerContext[Any, Any]
Admit = Callable[[pb.RegisterRequest, Context, int], Awaitable[pb.Registration]]
Answer = asyncio.Future[pb.Registration]


class EndedInQueue(ControllerError):
    """A waiting job was ended on request."""


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

    again_ns: int = 0
    """Time before which it is not tried again."""

    def on(self, hosts: list[str]) -> pb.RegisterRequest:
        """Return the request with these hosts for its workers."""
        named = pb.RegisterRequest()
        named.CopyFrom(self.request)
        named.ClearField("worker_count")
        named.workers[:] = hosts
        return named


class Queueing:
    """The queue of one control service. `enter` and `serve` run where the controller's actions do."""

    def __init__(self, controller: Controller, seating: Seating, limits: Limits, admit: Admit, now_ns: int) -> None:
        """Create the queue with the waiting jobs of the journal.

        Args:
            controller: The controller.
            seating: Seats of all jobs.
            limits: Limits of the service.
            admit: Admits a job whose hosts are named.
            now_ns: Present time, in ns.

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
        self._ended: OrderedDict[str, EndedInQueue] = OrderedDict()
        """Jobs that were ended while they waited, by their tickets, for clients that ask again."""
        for number, request, since_ns in controller.jobs.journal.queued(_read):
            try:
                if number not in seating.jobs:
                    self._add(number, request, None, min(since_ns, now_ns))  # clocks may have begun anew
                    continue
            except (ControllerError, TopologyError) as error:
                _log.warning("job %d does not wait any more: %s", number, error)
            self._drop(number)

    @property
    def numbers(self) -> set[int]:
        """Numbers of the waiting jobs."""
        return {entry.job for entry in self._queue.entries}

    async def enter(self, request: pb.RegisterRequest, context: Context, now_ns: int) -> Answer:
        """Queue a job, or take up the place that its client has already; return the future answer of its admission.

        Raises:
            PlanError, TopologyError: No such job can ever be.
            EndedInQueue: The job that has the ticket was ended.
            TooMany: The queue is full.
            JournalError: The journal cannot be written.
        """
        if request.ticket in self._ended:
            raise self._ended[request.ticket]
        call = _Call(context, asyncio.get_running_loop().create_future())
        if request.ticket and self._resumed(request.ticket, call):
            await self.serve(now_ns)
            return call.answer
        if len(self._queue.entries) >= self._limits.jobs:
            raise TooMany(f"{len(self._queue.entries)} jobs are queued, and no more than {self._limits.jobs} may be")
        number = request.job or self._new_number()
        _check_choice(request, number)
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

    def end(self, number: int, reason: str) -> bool:
        """Remove a waiting job, and answer its client; return False if no job of this number waits."""
        for entry in self._queue.entries:
            if entry.job == number:
                ended = EndedInQueue(
                    f"ended while it waited in the queue: {reason}", place=f"job {number}", value=number
                )
                if ticket := entry.value.request.ticket:
                    self._ended[ticket] = ended
                if len(self._ended) > self._limits.jobs:
                    self._ended.popitem(last=False)
                self._refuse(entry, ended)
                return True
        return False

    async def serve(self, now_ns: int) -> None:
        """Start the jobs that can be; update the reasons of the others.

        Raises:
            NotPrimary: Another controller has taken over.
        """
        self._sweep(now_ns)
        ahead: QueueEntry[_Waiting] | None = None
        refusing: dict[str, ControllerError] = {}
        faults = 0
        turn = self._turn(now_ns)
        for entry in self._queue.ordered(now_ns):
            if ahead is not None:
                entry.reason = f"job {ahead.job} is first: {ahead.reason}"
            elif entry.value.call is None:
                ahead, entry.reason = entry, _ABSENT
            elif entry.value.call.over:
                self._leave(entry)
            elif entry in turn or (not entry.value.again_ns and faults < _FAULTS):
                is_new = entry not in turn
                if (wait := await self._start(entry, entry.value.call, refusing, now_ns)) == "room":
                    ahead = entry
                faults += is_new and wait == "fault"

    def _turn(self, now_ns: int) -> set[QueueEntry[_Waiting]]:
        """Jobs that have met a fault and are tried again now: those that have waited longest since."""
        due = [entry for entry in self._queue.entries if 0 < entry.value.again_ns <= now_ns]
        return set(sorted(due, key=lambda entry: entry.value.again_ns)[:_FAULTS])

    async def _start(
        self, entry: QueueEntry[_Waiting], call: _Call, refusing: dict[str, ControllerError], now_ns: int
    ) -> Literal["", "room", "fault"]:
        """Start a job, refuse it, or say why it waits; return the kind of thing that it waits for, if it waits.

        `refusing` has the switches that have refused a write in this pass. Their hosts are left to later passes.
        """
        topology, wanted = self._controller.topology, entry.wanted
        while True:
            self._seating.sweep()
            groups = self._controller.host_groups(refusing)
            room = FreeCapacity(topology, [seats.takes for seats in self._seating.jobs.values()], groups)
            if (hosts := room.choose(wanted)) is None:
                entry.reason = "; ".join([room.reason_to_wait(wanted), *map(str, refusing.values())])
                entry.value.again_ns = now_ns + _FAULT_NS if refusing else 0
                return "room" if FreeCapacity(topology, groups=groups).choose(wanted) is not None else ""
            try:
                registered = await self._admit(entry.value.on(hosts), call.context, now_ns)
            except NotPrimary:
                raise
            except (ControllerError, TopologyError) as error:
                if not self._may_pass(error):
                    self._refuse(entry, error)
                    return ""
                entry.reason = str(error)
                if isinstance(error, OutOfMemory | TooMany):
                    return "room"
                if isinstance(error, SwitchError | WriteRefused) and self._has_one_of(error.switch, hosts):
                    refusing[error.switch] = error
                    continue
                entry.value.again_ns = now_ns + _FAULT_NS
                return "fault"
            self._leave(entry)
            if not call.answer.done():
                call.answer.set_result(registered)
            return ""

    def states(self, now_ns: int) -> list[pb.QueuedJob]:
        """Return the waiting jobs in their order."""
        return [queued_job(entry, index, now_ns) for index, entry in enumerate(self._queue.ordered(now_ns), 1)]

    def _add(self, number: int, request: pb.RegisterRequest, call: _Call | None, since_ns: int) -> QueueEntry[_Waiting]:
        waiting, wanted, topology = _Waiting(request, call), wanted_of(request), self._controller.topology
        default_slots = self._controller.planner.default_slots
        if request.workers:
            job_spec(request, number, topology, default_slots)  # which knows its hosts
        spec = job_spec(waiting.on(check_needs(topology, number, wanted)), number, topology, default_slots)
        entry = QueueEntry(number, wanted, spec.priority, since_ns, waiting)
        self._queue.entries.append(entry)
        return entry

    def _may_pass(self, error: Exception) -> bool:
        """Return True if a job that is refused now may be admitted later: jobs end, links and switches come back."""
        return self._controller.is_impaired or isinstance(error, OutOfMemory | TooMany | SwitchError | WriteRefused)

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

    def _has_one_of(self, switch: str, hosts: Collection[str]) -> bool:
        neighbours = self._controller.topology.neighbours(switch).values()
        return any(far.node in hosts for far in neighbours)

    def _refuse(self, entry: QueueEntry[_Waiting], error: Exception) -> None:
        self._leave(entry)
        call = entry.value.call
        if call is not None and not call.answer.done():
            call.answer.set_exception(error)

    def _leave(self, entry: QueueEntry[_Waiting]) -> None:
        if entry in self._queue.entries:
            self._queue.entries.remove(entry)
            if not self._closed:
                self._drop(entry.job)

    def _drop(self, number: int) -> None:
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


def _check_choice(request: pb.RegisterRequest, number: int) -> None:
    """Raise PlanError if a job names its hosts in two ways, or needs as a group of another job."""
    place = f"job {number}"
    if request.worker_count and (request.workers or request.parent):
        other = "the workers' hosts" if request.workers else "a parent, on whose workers it runs"
        raise PlanError(
            f"worker_count {request.worker_count} and {other} exclude each other",
            place=place,
            value=request.worker_count,
        )
    if request.groups:
        raise PlanError(
            "groups of a job that may wait in the queue are registered later, each with this job as parent; leave them "
            "out",
            place=place,
            value=len(request.groups),
        )
    if request.parent:
        raise PlanError(
            f"accelerators and memory of a group are those of its parent, job {request.parent}; leave them out",
            place=place,
            value=request.parent,
        )


def _record(request: pb.RegisterRequest, since_ns: int) -> dict[str, Any]:
    return {"request": MessageToDict(request, preserving_proto_field_name=True), "since_ns": since_ns}


def _read(number: int, saved: Any) -> tuple[int, pb.RegisterRequest, int]:
    try:
        return number, ParseDict(saved["request"], pb.RegisterRequest()), int(saved["since_ns"])
    except ParseError as error:
        raise ValueError(str(error)) from None


def _same(known: str, received: str) -> bool:
    return bool(known) and hmac.compare_digest(known.encode(), received.encode())
