"""The control service: gRPC beside the controller, in the same event loop (wire/control.proto).

::

    gRPC ──▶ ControlService ──post, call──▶ Runner ──▶ Controller
                 ▲    └─ seats: who may sit where            │
                 └──────────────── tell ◀────────────────────┘

A host's stream may break at any time and come back: what it missed is repeated by the controller (Pause, Resume), or
kept here until it comes (the plan of the job's start, the reason of its end).
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc

from ...topologies.errors import TopologyError
from ...wire import control_pb2 as pb
from ...wire.control import Abort, Resume
from ...wire.control_channel import DEFAULT_ADDRESS, Tls, check_address, is_local
from ...wire.control_messages import SERVICE, read_held, to_host
from ...wire.errors import WireError
from ..controller import Controller, Message
from ..errors import ControllerEnded, ControllerError, OutOfMemory, PlanError, SwitchUnreachable
from ..placement import PlacementError
from .requests import first_messages, job_spec, job_state, registration
from .runner import Runner
from .seats import HostStream, JobSeats, Seat, WrongToken, list_seats

_log = logging.getLogger(__name__)

_JOIN_S: Final = 10.0
"""A stream whose first message takes longer is closed."""
_ANNOUNCE_S: Final = 0.5
"""Between two looks at what a job waits for, which its hosts are told when it changes."""
_DURATION: Final = re.compile(r"\d+(\.\d+)? s\b")
"""How long it has waited already is no change."""
_HEARTBEATS_IN_A_LEASE: Final = 4
_HEARTBEAT_WITHOUT_LEASE_NS: Final = 1_000_000_000
_LAST_ENDS: Final = 1_000
"""So many jobs' ends are remembered for hosts that come back too late."""
_GRACE_S: Final = 0.5

_CODES: Final = (
    (OutOfMemory, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (SwitchUnreachable, grpc.StatusCode.UNAVAILABLE),
    (ControllerEnded, grpc.StatusCode.UNAVAILABLE),
    (WrongToken, grpc.StatusCode.PERMISSION_DENIED),
    (PlanError, grpc.StatusCode.INVALID_ARGUMENT),
    (PlacementError, grpc.StatusCode.INVALID_ARGUMENT),
    (TopologyError, grpc.StatusCode.INVALID_ARGUMENT),
    (ControllerError, grpc.StatusCode.INTERNAL),
)

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class ControlService:
    """Serves one controller; an async context manager, within which `wait` tells when it fails."""

    def __init__(
        self,
        controller: Controller,
        *,
        address: str = DEFAULT_ADDRESS,
        tls: Tls | None = None,
        allow_remote: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Without TLS only an address of this machine is served, unless `allow_remote`. Port 0: any that is free.

        Raises ControllerError for an address that cannot be served.
        """
        try:
            self.address = check_address(address)
        except WireError as error:
            raise ControllerError(f"control service: {error}") from None
        if tls is None and not allow_remote and not is_local(address):
            raise ControllerError(
                f"control service: {address} can be reached from elsewhere and is not secured: give it TLS files, or "
                "allow that on purpose"
            )
        self._controller = controller
        self._tls = tls
        self._runner = Runner(controller, self._tell, clock=clock)
        self._jobs: dict[int, JobSeats] = {}
        for job, running in controller.jobs.items():
            if running.kept:
                self._jobs[job] = JobSeats.from_json(job, running.kept, first_messages(running.plan))
            else:  # whoever registered it was never told its tokens
                self._runner.post(partial(controller.finish, job))
        self._ends: OrderedDict[int, pb.ToHost] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])  # else two could listen on one port
        self._server.add_generic_rpc_handlers([self._handlers()])
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(self.address)
            else:
                port = self._server.add_secure_port(self.address, self._tls.server_credentials())
        except WireError as error:
            raise ControllerError(f"control service: {error}") from None
        except RuntimeError:
            raise ControllerError(
                f"control service: cannot listen on {self.address}: it is in use, or not an address of this machine"
            ) from None
        if not self.address.startswith("unix:"):
            self.address = f"{self.address.rpartition(':')[0]}:{port}"
        await self._server.start()
        self._tasks = [
            asyncio.create_task(self._runner.run(), name="controller"),
            asyncio.create_task(self._announce(), name="announcements"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop(_GRACE_S)
        for task in self._tasks:
            task.cancel()
        for failure in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(failure, Exception) and failure is not error and not isinstance(failure, ControllerEnded):
                _log.error("the controller has ended: %s", failure, exc_info=failure)

    async def wait(self) -> None:
        """Never returns; raises what ends the controller. Whoever does not wait finds it in the log."""
        await asyncio.gather(*self._tasks)

    def _handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Register": grpc.unary_unary_rpc_method_handler(
                    self.register, pb.RegisterRequest.FromString, pb.Registration.SerializeToString
                ),
                "ListJobs": grpc.unary_unary_rpc_method_handler(
                    self.list_jobs, pb.ListJobsRequest.FromString, pb.JobList.SerializeToString
                ),
                "EndJob": grpc.unary_unary_rpc_method_handler(
                    self.end_job, pb.EndJobRequest.FromString, pb.EndJobReply.SerializeToString
                ),
                "Attend": grpc.stream_stream_rpc_method_handler(
                    self.attend, pb.FromHost.FromString, pb.ToHost.SerializeToString
                ),
            },
        )

    def now_ns(self) -> int:
        """The controller's time."""
        return self._runner.now_ns()

    # --- jobs ---

    async def register(self, request: pb.RegisterRequest, context: Context) -> pb.Registration:
        """Admit a job: INVALID_ARGUMENT, RESOURCE_EXHAUSTED or UNAVAILABLE where that cannot be."""
        return await self._do(context, lambda now_ns: self._admit(request, context, now_ns))

    async def _admit(self, request: pb.RegisterRequest, context: Context, now_ns: int) -> pb.Registration:
        spec = job_spec(request, request.job or self._new_number(), self._controller.topology)
        plans = await self._controller.admit(spec, now_ns)
        if context.done():  # whoever asked is gone, and with him the tokens
            await self._controller.finish(spec.job, now_ns)
            raise ControllerError(f"job {spec.job}: given up, for nobody waits for its registration any more")
        seats = JobSeats.assign(spec)
        seats.plans = {message.host: to_host(message.content) for message in plans}
        try:
            self._controller.jobs.keep(spec.job, seats.as_json())
        except ControllerError:
            await self._controller.finish(spec.job, now_ns)
            raise
        self._jobs[spec.job] = seats
        self._ends.pop(spec.job, None)
        running = self._controller.jobs[spec.job]
        return registration(running.plan, seats, running.note)

    def _new_number(self) -> int:
        """One that no job has had for long, by all odds: the switches' slots still hold the rounds of the last ones."""
        while (number := 1 + secrets.randbelow(0xFFFF)) in self._controller.jobs or number in self._ends:
            pass
        return number

    async def list_jobs(self, request: pb.ListJobsRequest, context: Context) -> pb.JobList:
        """Every job, in the order of registration."""
        return await self._do(context, self._states)

    async def _states(self, now_ns: int) -> pb.JobList:
        self._sweep()
        return pb.JobList(
            jobs=[
                job_state(self._controller.jobs[number].plan, seats, self._waits_for(number, now_ns), now_ns)
                for number, seats in self._jobs.items()
            ]
        )

    def _waits_for(self, number: int, now_ns: int) -> str:
        seats = self._jobs[number]
        if awaited := seats.awaited:
            return f"waits for {list_seats(awaited)} to join"
        return self._controller.jobs.waiting_for(number, now_ns)

    async def end_job(self, request: pb.EndJobRequest, context: Context) -> pb.EndJobReply:
        """NOT_FOUND where no job has this number."""
        if request.job not in self._jobs:
            await context.abort(grpc.StatusCode.NOT_FOUND, self._no_job(request.job))
        reason = request.reason or "ended on request"
        await self._do(context, lambda now_ns: self._end(request.job, reason, now_ns))
        return pb.EndJobReply()

    async def _end(self, job: int, reason: str, now_ns: int) -> None:
        """Take a job from the switches and tell its hosts."""
        if job in self._jobs:
            self._over(job, pb.ToHost(ended=pb.Ended(job=job, reason=reason)))
        if job in self._controller.jobs:
            await self._controller.finish(job, now_ns)

    def _over(self, job: int, last: pb.ToHost) -> None:
        """A job is no more: that is the last that its hosts are told."""
        seats = self._jobs.pop(job)
        for seat in seats.seats.values():
            last = seat.last or last
            seat.finish(last)
        self._ends[job] = last
        while len(self._ends) > _LAST_ENDS:
            self._ends.popitem(last=False)

    def _no_job(self, job: int) -> str:
        return f"no job {job}; there are {', '.join(map(str, self._jobs)) or 'none'}"

    # --- hosts ---

    async def attend(self, requests: AsyncIterator[pb.FromHost], context: Context) -> AsyncIterator[pb.ToHost]:
        """One host's stream, until the host leaves, the job ends, or the host attends by another stream."""
        join = await self._first(requests, context)
        self._sweep()
        if join.job not in self._jobs and join.job in self._ends:
            yield self._ends[join.job]
            return
        if join.job not in self._jobs:
            await context.abort(grpc.StatusCode.NOT_FOUND, self._no_job(join.job))
        seats = self._jobs[join.job]
        try:
            seat = seats.seat_of(join.token)
        except WrongToken as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        if seat.last is not None:
            yield seat.last
            return
        stream = self._take_seat(seats, seat, join.generation)
        reader = asyncio.create_task(self._read(seats, seat, stream, requests), name=f"job {seats.job}: {seat}")
        reader.add_done_callback(partial(_tell_of_failure, stream))
        try:
            async for message in stream.messages():
                yield message
        finally:
            reader.cancel()
            if seat.stream is stream:
                seat.stream = None
        if stream.failure is not None:
            await context.abort(*stream.failure)

    async def _first(self, requests: AsyncIterator[pb.FromHost], context: Context) -> pb.Join:
        first = pb.FromHost()
        with suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(_JOIN_S):
                first = await anext(aiter(requests))
        if first.WhichOneof("content") != "join":
            said = first.WhichOneof("content") or "nothing"
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"the first message of Attend is Join; this stream began with {said}"
            )
        return first.join

    def _take_seat(self, seats: JobSeats, seat: Seat, generation: int) -> HostStream:
        """A host sits down; when it is the last one, the job starts."""
        if seat.stream is not None:
            seat.stream.end((grpc.StatusCode.ABORTED, f"job {seats.job}: {seat} attends by another stream now"))
        seat.stream = stream = HostStream()
        lease_ns = self._controller.jobs.leases.lease_ns
        joined = pb.Joined(
            host=seat.host,
            address=int(self._controller.topology.host(seat.host).address),
            heartbeat_ns=lease_ns // _HEARTBEATS_IN_A_LEASE if lease_ns else _HEARTBEAT_WITHOUT_LEASE_NS,
            spare=seat.spare,
        )
        stream.send(pb.ToHost(joined=joined))
        if seats.told:
            stream.send(pb.ToHost(waiting=pb.Waiting(reason=seats.told)))
        seat.joined = True
        if seats.awaited:
            return stream
        if seats.plans:
            self._start(seats)
        elif generation == 0:
            self._seat_anew(seats, seat)
        return stream

    def _start(self, seats: JobSeats) -> None:
        """All are there: give them their plans. Their leases begin, for some may die before they say a word."""
        plans, seats.plans = seats.plans, {}
        self._post(seats.job, lambda _: self._controller.jobs.keep(seats.job, seats.as_json()))
        job, beat = seats.job, self._controller.members.heartbeat
        for host, plan in plans.items():
            seats.seats[host].tell(plan)
            self._post(job, lambda now_ns, host=host: beat(job, host, 0, now_ns, waiting=False))  # type: ignore[misc]

    def _seat_anew(self, seats: JobSeats, seat: Seat) -> None:
        """A host without a plan joins a job that runs: it has missed the plan of the start, or lost what it knew."""
        assert seat.stream is not None
        plan = self._controller.jobs[seats.job].plan
        own = plan.server if seat.host == plan.spec.server else plan.workers.get(seat.host)
        if own is not None and not seat.ran:
            seat.stream.send(to_host(own))
        elif seat.ran:
            lost = "was started anew, and has lost the sums that it had"
            self._fail(seats, seat, lost)
            seat.stream.end((grpc.StatusCode.FAILED_PRECONDITION, f"job {seats.job}: {seat} ran already: it {lost}"))

    async def _read(
        self, seats: JobSeats, seat: Seat, stream: HostStream, requests: AsyncIterator[pb.FromHost]
    ) -> None:
        """Take what a host says, until it ends its stream; it is told what is wrong with that."""
        try:
            async for message in requests:
                if seat.stream is not stream or seats.job not in self._jobs:
                    return
                self._hear(seats, seat, message)
        except ValueError as error:
            stream.end((grpc.StatusCode.INVALID_ARGUMENT, f"job {seats.job}: {seat}: {error}"))
        else:
            if seat.stream is stream and seat.left:
                self._post(seats.job, lambda _: self._controller.members.leave(seats.job, seat.host))
            stream.end()

    def _hear(self, seats: JobSeats, seat: Seat, message: pb.FromHost) -> None:
        """Raises ValueError for what no host says."""
        job, host, controller = seats.job, seat.host, self._controller
        match message.WhichOneof("content"):
            case "heartbeat":
                rounds, waiting = message.heartbeat.rounds, message.heartbeat.waiting
                seat.rounds, seat.heard_ns = rounds, self._runner.now_ns()
                seat.ran |= not seat.spare
                self._post(job, lambda now_ns: controller.members.heartbeat(job, host, rounds, now_ns, waiting=waiting))
            case "held":
                held = read_held(message.held)
                self._post(job, lambda _: controller.moves.held(job, host, held))
            case "resumed":
                generation, seat.ran = message.resumed.generation, True
                self._post(job, lambda _: controller.moves.resumed(job, host, generation))
            case "leave":
                self._leave(seats, seat, message.leave.reason)
            case other:
                raise ValueError(f"{other or 'an empty message'} has no place in a stream that has begun")

    def _leave(self, seats: JobSeats, seat: Seat, reason: str) -> None:
        """Who is done stays until all are: it may hold what others lack. Who fails is lost at once."""
        if reason:
            self._fail(seats, seat, reason)
            if seat.stream is not None:
                seat.stream.end()
            return
        seat.left = True
        running = self._controller.jobs.get(seats.job)
        if running is not None and all(seats.seats[host].left for host in running.plan.workers):
            self._post(seats.job, lambda now_ns: self._end(seats.job, "all workers have left", now_ns))

    def _fail(self, seats: JobSeats, seat: Seat, why: str) -> None:
        """Whoever had a plan is lost to the job at once; a plan that nobody had is kept for who comes next."""
        if seat.ran:
            self._post(seats.job, lambda now_ns: self._controller.members.fail(seats.job, seat.host, why, now_ns))

    def _post(self, job: int, action: Callable[[int], object]) -> None:
        """Of a job that may have ended before its turn comes."""
        self._runner.post(lambda now_ns: action(now_ns) if job in self._controller.jobs else None)

    def _tell(self, message: Message) -> None:
        """From the controller to a host."""
        content = message.content
        job = content.plan.job if isinstance(content, Resume) else content.job
        if (seats := self._jobs.get(job)) is None:
            return
        told = to_host(content)
        if isinstance(content, Abort):
            seats.seats[message.host].finish(told)
        elif message.host in seats.plans:
            seats.plans[message.host] = told
        else:
            seats.seats[message.host].tell(told)

    async def _announce(self) -> None:
        """Tell the hosts what their job waits for, whenever that has changed."""
        while True:
            await self._runner.call(self._announce_all)
            await asyncio.sleep(_ANNOUNCE_S)

    async def _announce_all(self, now_ns: int) -> None:
        self._sweep()
        for job, seats in self._jobs.items():
            reason = self._waits_for(job, now_ns)
            if _DURATION.sub("", reason) != _DURATION.sub("", seats.told):
                seats.told = reason
                seats.tell(pb.ToHost(waiting=pb.Waiting(reason=reason)))

    def _sweep(self) -> None:
        """Let go of the jobs that the controller has ended by itself."""
        for job in [job for job in self._jobs if job not in self._controller.jobs]:
            if (reason := self._controller.jobs.aborted.get(job)) is not None:
                self._over(job, to_host(Abort(job, reason)))
            else:
                self._over(job, pb.ToHost(ended=pb.Ended(job=job, reason="no worker is left")))

    # --- errors ---

    async def _do(self, context: Context, action: Callable[[int], Awaitable[T]]) -> T:
        """Have the controller do something; its errors become the call's."""
        try:
            return await self._runner.call(action)
        except (ControllerError, TopologyError) as error:
            code = next(code for kind, code in _CODES if isinstance(error, kind))
            await context.abort(code, str(error))


def _tell_of_failure(stream: HostStream, reader: asyncio.Task[None]) -> None:
    """A host whom nobody hears any more must not wait for an answer."""
    if not reader.cancelled() and (error := reader.exception()) is not None:
        what = f"{reader.get_name()} is not heard any more, for the controller failed: {error!r}"
        _log.error("%s", what, exc_info=error)
        stream.end((grpc.StatusCode.INTERNAL, what))
