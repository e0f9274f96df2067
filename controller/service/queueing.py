"""Registrations that wait for room: each is a call that its client keeps open until its job starts.

::

    Register(worker_count) ──enter──▶ queue ──serve, whenever something ended──▶ admission ──▶ the call's answer

A client that gives its call up leaves the queue, and so do all if the controller ends: nothing of it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from ...topologies.errors import TopologyError
from ...wire import control_pb2 as pb
from ..controller import Controller
from ..errors import ControllerError, OutOfMemory, PlanError
from ..jobs.queue import Entry, JobQueue, Room, check_needs, reason_to_wait
from .limits import Limits
from .requests import job_spec, needs_of, queued_job
from .seating import Seating, TooMany

Context = grpc.aio.ServicerContext[Any, Any]
Admit = Callable[[pb.RegisterRequest, Context, int], Awaitable[pb.Registration]]


@dataclass(slots=True, eq=False)
class _Call:
    """A waiting client's call."""

    request: pb.RegisterRequest
    context: Context
    answer: asyncio.Future[pb.Registration]

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

    def __init__(self, controller: Controller, seating: Seating, limits: Limits, admit: Admit) -> None:
        """Create an empty queue; `admit` admits a job whose hosts are named."""
        self._controller = controller
        self._seating = seating
        self._limits = limits
        self._admit = admit
        self._queue: JobQueue[_Call] = JobQueue()

    async def enter(self, request: pb.RegisterRequest, context: Context, now_ns: int) -> Entry[_Call]:
        """Queue a job.

        Raises:
            PlanError, TopologyError: No such job can ever be.
            TooMany: The queue is full.
        """
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
        if number in self._controller.jobs or any(entry.job == number for entry in self._queue.entries):
            raise PlanError(f"job {number} runs already, or is queued; give every job its own number")
        request.job = number
        call = _Call(request, context, asyncio.get_running_loop().create_future())
        needs, count = needs_of(request), request.worker_count
        hosts = check_needs(self._controller.topology, number, count, needs, call.without)
        spec = job_spec(call.on(hosts), number, self._controller.topology)
        entry = Entry(number, count, needs, spec.priority, now_ns, call)
        self._queue.entries.append(entry)
        await self.serve(now_ns)
        return entry

    async def wait(self, entry: Entry[_Call]) -> pb.Registration:
        """Return the answer once the job has started. Raises what its admission raises."""
        try:
            return await entry.value.answer
        finally:
            self._leave(entry)

    async def serve(self, now_ns: int) -> None:
        """Start jobs from the front of the queue as long as there is room; update the reasons of the others."""
        while self._queue.entries:
            first, *others = self._queue.ordered(now_ns)
            call = first.value
            if call.context.done() or call.answer.done():
                self._leave(first)
                continue
            self._seating.sweep()
            room = Room(self._controller.topology, [seats.takes for seats in self._seating.jobs.values()])
            hosts = room.choose(first.count, first.needs, call.without)
            try:
                if hosts is not None:
                    self._answer(first, await self._admit(call.on(hosts), call.context, now_ns))
                    continue
                first.reason = reason_to_wait(first, room, call.without)
            except (OutOfMemory, TooMany) as error:
                first.reason = str(error)
            except (ControllerError, TopologyError) as error:
                self._leave(first)
                if not call.answer.done():
                    call.answer.set_exception(error)
                continue
            for entry in others:
                entry.reason = f"job {first.job} is first: {first.reason}"
            return

    def states(self, now_ns: int) -> list[pb.QueuedJob]:
        """Waiting jobs in their order."""
        return [queued_job(entry, at, now_ns) for at, entry in enumerate(self._queue.ordered(now_ns), 1)]

    def _answer(self, entry: Entry[_Call], registration: pb.Registration) -> None:
        self._leave(entry)
        if not entry.value.answer.done():
            entry.value.answer.set_result(registration)

    def _leave(self, entry: Entry[_Call]) -> None:
        if entry in self._queue.entries:
            self._queue.entries.remove(entry)

    def _new_number(self) -> int:
        queued = {entry.job for entry in self._queue.entries}
        while (number := self._seating.new_number()) in queued:
            pass
        return number
