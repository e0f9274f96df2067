"""The control service: gRPC beside the controller, in the same event loop (wire/control.proto).

::

    gRPC ──▶ ControlService ──call──▶ Runner ──▶ Controller
                 └──▶ Seating ──post──▶ ▲            │
                         ▲                           │
                         └────────── tell ◀──────────┘

A host's stream may break at any time and come back. The controller repeats missed messages (Pause, Resume), or they are
kept here until the host returns (the plan of the job's start, the reason of its end).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc

from ...errors.texts import printable
from ...topologies.errors import TopologyError
from ...wire import control_pb2 as pb
from ...wire.control import KEY_BYTES
from ...wire.control_channel import Tls, check_address, default_address, is_private
from ...wire.control_messages import CONTROL_CLASS, QUEUED, SERVICE
from ...wire.errors import WireError
from ...wire.heartbeat import Heartbeat
from ..controller import Controller
from ..errors import ControllerEnded, ControllerError, NotPrimary, OutOfMemory, PlanError, SwitchUnreachable
from ..inference.errors import ModelError
from ..inference.forest import Forest
from ..own_files import distrusted
from ..placement import PlacementError
from ..planning.plan import JobSpec
from .batch_sizes import JobBatchSizes, NotTakingPart, ReportMissing, RuleOf
from .heartbeats import HeartbeatReader, HeartbeatSource
from .limits import MESSAGE_BYTES, Limits, client_of
from .malformed import Malformed, checked, reader_of
from .queueing import EndedInQueue, Queueing
from .requests import (
    group_specs,
    is_queued,
    job_spec,
    job_state,
    model_list,
    needs_of,
    ranking_message,
    registration,
    stripe_of,
)
from .runner import Runner
from .seating import Seating, TooMany
from .seats import JobSeats, Seat, WrongToken
from .streams import HostStream
from .turn_streams import TurnStreams

_log = logging.getLogger(__name__)

_ANNOUNCE_S: Final = 0.5
"""Time between two checks of jobs' pending conditions, which are sent to hosts when they change."""
_GRACE_S: Final = 0.5
_SILENCE_NS: Final = 10_000_000_000
"""Time without an answer to pings after which a host counts as absent, if there are no leases, in ns."""
_IDLE_MS: Final = 300_000
"""A connection without any call is closed after this."""

_CODES: Final = (
    (TooMany, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (OutOfMemory, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (SwitchUnreachable, grpc.StatusCode.UNAVAILABLE),
    (ControllerEnded, grpc.StatusCode.UNAVAILABLE),
    (WrongToken, grpc.StatusCode.PERMISSION_DENIED),
    (ReportMissing, grpc.StatusCode.ABORTED),
    (NotTakingPart, grpc.StatusCode.ABORTED),
    (EndedInQueue, grpc.StatusCode.FAILED_PRECONDITION),
    (PlanError, grpc.StatusCode.INVALID_ARGUMENT),
    (ModelError, grpc.StatusCode.INVALID_ARGUMENT),
    (PlacementError, grpc.StatusCode.INVALID_ARGUMENT),
    (TopologyError, grpc.StatusCode.INVALID_ARGUMENT),
    (ControllerError, grpc.StatusCode.INTERNAL),
)

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


def check_listening(address: str | None, tls: Tls | None, *, allow_anyone: bool = False) -> str:
    """Check an address to serve, and its certificates, without opening it; return the address as gRPC takes it.

    Raises:
        ControllerError: The address is malformed, or is a TCP port without TLS, or a file is unusable.
    """
    try:
        target = check_address(default_address() if address is None else address)
        if tls is not None:
            tls.server_credentials()
    except WireError as error:
        raise ControllerError.of(error.within("control service")) from None
    if tls is None and not allow_anyone and not is_private(target):
        raise ControllerError(
            f"{target} is open to every user who reaches it, to register and end jobs: serve unix:PATH, "
            "give TLS files (--tls), or accept that (--allow-anyone)",
            place="control service",
            value=target,
        )
    return target


def claim_path(address: str) -> None:
    """Prepare the folder of a unix socket, which only this user may access if it is made here.

    gRPC replaces a socket that another process listens on, so that is checked first.

    Raises:
        OSError: Another process listens there, or there cannot be such a folder.
        ControllerError: Other users can replace the socket.
    """
    if not is_private(address):
        return
    path = Path(address.removeprefix("unix:"))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (reason := distrusted(path.parent)) is not None:
        raise ControllerError(
            f"cannot listen on {address}: {reason} and answer in its place; name a socket in a folder of this user's "
            "own",
            place="control service",
            value=address,
        )
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(os.fspath(path)) == 0:
            raise FileExistsError(path)


class ControlService:
    """Server of one controller; an async context manager, inside which `wait` raises its failure."""

    def __init__(
        self,
        controller: Controller,
        *,
        address: str | None = None,
        tls: Tls | None = None,
        allow_anyone: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
        limits: Limits | None = None,
        size_rule: RuleOf | None = None,
        heartbeats: HeartbeatSource | None = None,
        heard: Callable[[Heartbeat], object] = lambda _: None,
    ) -> None:
        """Create the service.

        Args:
            controller: The controller to serve.
            address: Address to listen on; port 0 picks a free one. None: this user's socket.
            tls: Certificates; without TLS only a unix path is served.
            allow_anyone: Allow TCP without TLS: whoever reaches the port may register and end jobs.
            clock: Time in ns.
            limits: Limits of each client.
            size_rule: Factory of batch-size rules.
            heartbeats: Source of heartbeats through the fabric, closed with the service; None: hosts' streams bring
                them.
            heard: Called with each heartbeat.

        Raises:
            ControllerError: The address cannot be served.
        """
        self.address = check_listening(address, tls, allow_anyone=allow_anyone)
        self._controller = controller
        self._tls = tls
        self._runner = Runner(controller, lambda message: self._seating.deliver(message), clock=clock)
        self._limits = limits or Limits()
        self._half_open = self._attending = self._asking = 0
        self._heartbeats_from = heartbeats
        self._seating = Seating(controller, self._runner, self._limits, heartbeats, heard)
        self._queueing = Queueing(controller, self._seating, self._limits, self._admit, self._runner.now_ns())
        self._sizes = None if size_rule is None else JobBatchSizes(size_rule)
        self._turns = TurnStreams(controller, self._seating, self._limits)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(options=self._options())
        self._server.add_generic_rpc_handlers([self._handlers()])
        try:
            claim_path(self.address)
            if self._tls is None:
                port = self._listen_without_tls()
            else:
                port = self._server.add_secure_port(self.address, self._tls.server_credentials())
        except WireError as error:
            raise ControllerError.of(error.within("control service")) from None
        except (RuntimeError, OSError):
            raise ControllerError(
                f"cannot listen on {self.address}: it is in use, or not an address of this machine",
                place="control service",
                value=self.address,
            ) from None
        if not self.address.startswith("unix:"):
            self.address = f"{self.address.rpartition(':')[0]}:{port}"
        await self._server.start()
        if self._heartbeats_from is not None:
            asyncio.get_running_loop().add_reader(self._heartbeats_from, self._seating.poll_heartbeats)
        # hosts of the jobs that go on could not be heard before: they have a whole lease to come back
        self._controller.jobs.leases.renew_all(self._runner.now_ns())
        self._tasks = [
            asyncio.create_task(self._runner.run(), name="controller"),
            asyncio.create_task(self._announce(), name="announcements"),
        ]
        return self

    def _listen_without_tls(self) -> int:
        """Listen on the address; return the port. A unix socket is this user's alone from its first moment."""
        if not is_private(self.address):
            return self._server.add_insecure_port(self.address)
        umask = os.umask(0o077)
        try:
            port = self._server.add_insecure_port(self.address)
        finally:
            os.umask(umask)
        os.chmod(self.address.removeprefix("unix:"), 0o600)
        return port

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._heartbeats_from is not None:
            asyncio.get_running_loop().remove_reader(self._heartbeats_from)
            self._heartbeats_from.close()
        self._queueing.close()
        await self._server.stop(_GRACE_S)
        for task in self._tasks:
            task.cancel()
        for failure in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(failure, Exception) and failure is not error and not isinstance(failure, ControllerEnded):
                _log.error("the controller has ended: %s", failure, exc_info=failure)

    async def wait(self) -> None:
        """Block until the controller ends, and raise its exception. Without a waiter the exception is logged."""
        await asyncio.gather(*self._tasks)

    def _options(self) -> list[tuple[str, int]]:
        """gRPC's, in milliseconds. A host that hangs does not answer pings, and its stream ends by that."""
        lease_ms = (self._controller.jobs.leases.lease_ns or _SILENCE_NS) // 1_000_000
        return [
            ("grpc.so_reuseport", 0),  # else two could listen on one port
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.keepalive_time_ms", max(lease_ms, 1_000)),
            ("grpc.keepalive_timeout_ms", max(lease_ms, 1_000)),
            ("grpc.http2.ping_timeout_ms", max(lease_ms, 1_000)),  # else a ping without answer is waited for a minute
            ("grpc.server_handshake_timeout_ms", int(1_000 * self._limits.first_words_s)),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
            ("grpc.max_allowed_incoming_connections", self._limits.accepted),
            CONTROL_CLASS,
        ]

    def _handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Register": grpc.unary_unary_rpc_method_handler(
                    checked(self.register), reader_of(pb.RegisterRequest), pb.Registration.SerializeToString
                ),
                "ListJobs": grpc.unary_unary_rpc_method_handler(
                    checked(self.list_jobs), reader_of(pb.ListJobsRequest), pb.JobList.SerializeToString
                ),
                "EndJob": grpc.unary_unary_rpc_method_handler(
                    checked(self.end_job), reader_of(pb.EndJobRequest), pb.EndJobReply.SerializeToString
                ),
                "LoadModel": grpc.unary_unary_rpc_method_handler(
                    checked(self.load_model), reader_of(pb.LoadModelRequest), pb.ModelList.SerializeToString
                ),
                "ListModels": grpc.unary_unary_rpc_method_handler(
                    checked(self.list_models), reader_of(pb.ListModelsRequest), pb.ModelList.SerializeToString
                ),
                "Balance": grpc.stream_stream_rpc_method_handler(
                    self.balance, reader_of(pb.BalanceRequest), pb.BatchSizes.SerializeToString
                ),
                "TakeTurns": grpc.stream_stream_rpc_method_handler(
                    self._turns.serve, reader_of(pb.TurnRequest), pb.Turn.SerializeToString
                ),
                "Attend": grpc.stream_stream_rpc_method_handler(
                    self.attend, reader_of(pb.FromHost), pb.ToHost.SerializeToString
                ),
            },
        )

    def now_ns(self) -> int:
        """Return the controller's time."""
        return self._runner.now_ns()

    @property
    def heartbeats(self) -> HeartbeatReader:
        """Statistics of heartbeats through the fabric."""
        return self._seating.heartbeats

    def first_failure(self, job: int) -> str:
        """Return who was the first to fail in a job and why; empty if that is unknown."""
        return self._seating.first_failure(job)

    def finished_calls(self) -> Sequence[tuple[int, int]]:
        """Return sums and round-trip time in ns of each job whose workers have left (`Seating.finished_calls`)."""
        return self._seating.finished_calls()

    # --- jobs ---

    async def register(self, request: pb.RegisterRequest, context: Context) -> pb.Registration:
        """Admit a job: INVALID_ARGUMENT, RESOURCE_EXHAUSTED or UNAVAILABLE where that cannot be.

        A job that says what its workers need waits in the queue until there is room, as long as its client waits. The
        call's initial metadata say so, after which a client may ask again if the call breaks.
        """
        if not is_queued(request):
            return await self._do(context, lambda now_ns: self._admit_named(request, context, now_ns))
        answer = await self._do(context, lambda now_ns: self._queueing.enter(request, context, now_ns))
        try:
            if not answer.done():
                await context.send_initial_metadata(((QUEUED, "1"),))
            return await self._queueing.wait(answer)
        except (ControllerError, TopologyError) as error:
            await context.abort(_code_of(error), printable(str(error)))

    async def _admit_named(self, request: pb.RegisterRequest, context: Context, now_ns: int) -> pb.Registration:
        if request.job in self._queueing.numbers:
            raise PlanError("queued; give every job its own number", place=f"job {request.job}", value=request.job)
        return await self._admit(request, context, now_ns)

    async def _admit(self, request: pb.RegisterRequest, context: Context, now_ns: int) -> pb.Registration:
        client = client_of(context.peer())
        self._seating.sweep()
        self._seating.check_room(client, 1 + len(request.groups), "itself and its groups")
        number = request.job or self._seating.new_number()
        spec = job_spec(request, number, self._controller.topology, self._controller.planner.default_slots, _new_key())
        if request.groups:
            return await self._admit_family(request, spec, context, now_ns)
        parent = 0
        if request.parent:
            parent, spec = self._in_family(request, spec)
        shares: Sequence[int] = (1,)
        if request.stripes > 1:
            shares = await self._controller.shares(spec, request.stripes, now_ns)
            self._seating.check_room(client, len(shares), "one for each stripe")
        admitted: list[JobSeats] = []
        try:
            for index in range(len(shares)):
                part = spec if not index else replace(spec, job=self._seating.new_number(), key=_new_key())
                await self._controller.admit(stripe_of(part, shares, index), now_ns)
                seats = JobSeats.assign(part, next(iter(admitted), None))
                seats.client = client
                seats.needs, seats.parent, seats.ticket = needs_of(request), parent, request.ticket
                admitted.append(seats)
            if len(shares) > 1:
                for seats in admitted:
                    seats.stripes = {seat.job: share for seat, share in zip(admitted, shares, strict=True)}
            self._seat(admitted, context)
        except (ControllerError, TopologyError):
            await self._give_up(admitted, now_ns)
            raise
        notes = {seats.job: self._controller.jobs[seats.job].note for seats in admitted}
        note = "; ".join(f"job {job}: {each}" if len(notes) > 1 else each for job, each in notes.items() if each)
        return registration(self._controller.jobs[number].plan, admitted[0], note)

    async def _admit_family(
        self, request: pb.RegisterRequest, first: JobSpec, context: Context, now_ns: int
    ) -> pb.Registration:
        """Admit a job with its groups, all or none."""
        numbers: dict[int, None] = {}
        while len(numbers) < len(request.groups):
            numbers.setdefault(self._new_number_beside(first.job))
        default_slots = self._controller.planner.default_slots
        first, *groups = group_specs(request, first, list(numbers), default_slots, _new_key)
        specs = [first, *groups]
        try:
            await self._controller.admit_together(specs, now_ns)
        except ControllerError as error:
            raise error.within(f"a job with {len(numbers)} groups, of {first.slots} slots each") from None
        admitted = [JobSeats.assign(spec) for spec in specs]
        for seats in admitted:
            seats.client, seats.parent = client_of(context.peer()), 0 if seats is admitted[0] else first.job
        try:
            self._seat(admitted, context)
        except ControllerError:
            await self._give_up(admitted, now_ns)
            raise
        jobs = self._controller.jobs
        answer, *answers = [registration(jobs[seats.job].plan, seats, jobs[seats.job].note) for seats in admitted]
        answer.groups.extend(answers)
        return answer

    def _new_number_beside(self, job: int) -> int:
        while (number := self._seating.new_number()) == job or number in self._queueing.numbers:
            pass
        return number

    def _seat(self, admitted: Sequence[JobSeats], context: Context) -> None:
        """Store the seats of jobs that were admitted by one call. Raises ControllerError; the jobs are then in vain."""
        if context.done():  # the client is gone, and the tokens with it
            raise ControllerError(f"job {admitted[0].job}: given up, for nobody waits for its registration any more")
        for seats in admitted:
            self._controller.jobs.keep(seats.job, seats.as_json())
        if self._sizes is not None:  # a number may be one that a job had before
            self._sizes.keep(self._seating.jobs.keys())
        for seats in admitted:
            self._seating.add(seats)

    async def _give_up(self, admitted: Sequence[JobSeats], now_ns: int) -> None:
        """Remove jobs that nobody can join."""
        for seats in admitted:
            with suppress(ControllerError):  # the job is gone in any case
                await self._controller.finish(seats.job, now_ns)

    def _in_family(self, request: pb.RegisterRequest, spec: JobSpec) -> tuple[int, JobSpec]:
        """Return the family's first job, and a new group of it with its policy and priority. Raises PlanError."""
        parent = request.parent
        if parent not in self._seating.jobs:
            raise PlanError(self._seating.no_job(parent), place=f"job {spec.job}: parent", value=parent)
        first = self._seating.jobs[parent].parent or parent
        shared = self._controller.jobs[first].spec
        if foreign := [host for host in spec.workers if host not in shared.workers]:
            raise PlanError(
                f"{', '.join(foreign)} no host of its parent's workers; job {first} has {', '.join(shared.workers)}",
                place=f"job {spec.job}",
                value=parent,
            )
        for name, own, common in (
            ("policy", spec.policy.value, shared.policy.value),
            ("priority", spec.priority, shared.priority),
        ):
            if request.HasField(name) and own != common:
                raise PlanError(
                    f"a group has the {name} of job {first}, {common}, not {own}; leave it out",
                    place=f"job {spec.job}",
                    value=own,
                    allowed=(common,),
                )
        return first, replace(spec, policy=shared.policy, priority=shared.priority)

    async def list_jobs(self, request: pb.ListJobsRequest, context: Context) -> pb.JobList:
        """Return every job, in the order of registration."""
        return await self._do(context, self._states)

    async def _states(self, now_ns: int) -> pb.JobList:
        self._seating.sweep()
        order = self._controller.order
        rankings = order.rankings(now_ns)
        return pb.JobList(
            jobs=[
                job_state(
                    self._controller.jobs[number],
                    seats,
                    self._seating.waits_for(number, now_ns),
                    ranking_message(order.order.name, rankings.get(number)),
                    self._turns.state(number),
                    now_ns,
                )
                for number, seats in self._seating.jobs.items()
            ],
            queued=self._queueing.states(now_ns),
            partners=[
                pb.Partners(jobs=partner.jobs, period_seconds=partner.period_seconds, speed_up=partner.speed_up)
                for partner in order.partners(now_ns)
            ],
        )

    async def end_job(self, request: pb.EndJobRequest, context: Context) -> pb.EndJobReply:
        """Remove a job that runs or waits. NOT_FOUND where no job has this number."""
        waiting = self._queueing.numbers
        if request.job not in self._seating.jobs and request.job not in waiting:
            queued = f"; queued are {', '.join(map(str, sorted(waiting)))}" if waiting else ""
            await context.abort(grpc.StatusCode.NOT_FOUND, self._seating.no_job(request.job) + queued)
        reason = printable(request.reason) or "ended on request"

        async def end(now_ns: int) -> None:
            if not self._queueing.end(request.job, reason):  # it may just have started
                await self._seating.end(request.job, reason, now_ns)

        await self._do(context, end)
        self._runner.post(self._queueing.serve)
        return pb.EndJobReply()

    # --- models ---

    async def load_model(self, request: pb.LoadModelRequest, context: Context) -> pb.ModelList:
        """Return the models after the change. INVALID_ARGUMENT for an impossible model or an unknown switch."""

        async def load(now_ns: int) -> pb.ModelList:
            forest = Forest.from_json(request.model) if request.model else None
            await self._controller.load_model(list(request.switches), forest, now_ns)
            return model_list(self._controller.models, self._controller.topology)

        return await self._do(context, load)

    async def list_models(self, request: pb.ListModelsRequest, context: Context) -> pb.ModelList:
        """Return the model of each switch that has one."""

        async def models(_: int) -> pb.ModelList:
            return model_list(self._controller.models, self._controller.topology)

        return await self._do(context, models)

    # --- hosts ---

    async def attend(
        self, requests: AsyncIterator[pb.FromHost | Malformed], context: Context
    ) -> AsyncIterator[pb.ToHost]:
        """Serve one host's stream until the host leaves, the job ends, or the host attends by another stream."""
        join = await self._first(requests, context)
        self._seating.sweep()
        seats = self._seating.jobs.get(join.job) or self._seating.ended.get(join.job)
        if seats is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, self._seating.no_job(join.job))
        try:
            seat = seats.seat_of(join.token)
        except WrongToken as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        if seat.last is not None:
            yield seat.last
            return
        if self._attending >= self._limits.streams:
            most = f"{self._attending} hosts attend, and no more than {self._limits.streams} may; end jobs"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, most)
        self._attending += 1
        stream = self._seating.attend(seats, seat, join.generation)
        reader = asyncio.create_task(self._read(seats, seat, stream, requests), name=f"job {seats.job}: {seat}")
        reader.add_done_callback(partial(_report_failure, stream))
        try:
            async for message in stream.messages():
                yield message
        finally:
            self._attending -= 1
            reader.cancel()
            if seat.stream is stream:
                seat.stream = None
        if stream.failure is not None:
            await context.abort(*stream.failure)

    async def balance(
        self, requests: AsyncIterator[pb.BalanceRequest | Malformed], context: Context
    ) -> AsyncIterator[pb.BatchSizes]:
        """Yield all workers' reports, from one of them, step by step: everyone's batch sizes. A refusal ends the
        stream.
        """
        if self._asking >= self._limits.streams:
            most = f"{self._asking} workers ask for batch sizes, and no more than {self._limits.streams} may; end jobs"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, most)
        self._asking += 1
        try:
            async for request in requests:
                if self._sizes is None:  # not sooner: a client of gRPC's asyncio that still writes gets INTERNAL
                    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this controller decides no batch sizes")
                if isinstance(request, Malformed):
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(request))
                self._seating.sweep()  # a job may just have ended
                if request.job not in self._seating.jobs:
                    await context.abort(grpc.StatusCode.NOT_FOUND, self._seating.no_job(request.job))
                try:
                    sizes = self._balanced(self._sizes, request, self._seating.jobs[request.job])
                except ControllerError as error:
                    await context.abort(_code_of(error), printable(str(error)))
                yield pb.BatchSizes(sizes=sizes)
        finally:
            self._asking -= 1

    def _balanced(self, sizes: JobBatchSizes, request: pb.BalanceRequest, seats: JobSeats) -> list[int]:
        ranks = {host: seat.rank for host, seat in seats.seats.items() if seat.rank is not None}
        seat = seats.seat_of(request.token)
        if seat.rank is None:
            raise PlanError(f"job {seats.job}: {seat} has no batch; only workers have")
        taking_part = frozenset(ranks[host] for host in self._controller.jobs[seats.job].plan.workers)
        if seat.rank not in taking_part:
            raise NotTakingPart(f"job {seats.job} goes on without {seat}")
        return sizes.decide(request, len(ranks), taking_part)

    async def _first(self, requests: AsyncIterator[pb.FromHost | Malformed], context: Context) -> pb.Join:
        if self._half_open >= self._limits.half_open:
            many = f"{self._half_open} streams have not said Join yet, and no more may be; try again"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, many)
        first: pb.FromHost | Malformed = pb.FromHost()
        self._half_open += 1
        try:
            with suppress(TimeoutError, StopAsyncIteration):
                async with asyncio.timeout(self._limits.first_words_s):
                    first = await anext(aiter(requests))
        finally:
            self._half_open -= 1
        if isinstance(first, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(first))
        if first.WhichOneof("content") != "join":
            said = first.WhichOneof("content") or "nothing"
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"the first message of Attend is Join; this stream began with {said}"
            )
        return first.join

    async def _read(
        self, seats: JobSeats, seat: Seat, stream: HostStream, requests: AsyncIterator[pb.FromHost | Malformed]
    ) -> None:
        """Handle a host's messages until it ends its stream; errors are sent to the host."""
        try:
            async for message in requests:
                if seat.stream is not stream or seats.job not in self._seating.jobs:
                    return
                if isinstance(message, Malformed):
                    raise ValueError(str(message))
                self._seating.on_message(seats, seat, message)
        except ValueError as error:
            stream.end((grpc.StatusCode.INVALID_ARGUMENT, f"job {seats.job}: {seat}: {error}"))
        else:
            if seat.stream is stream:
                self._seating.hang_up(seats, seat)
            stream.end()

    async def _announce(self) -> None:
        """Send hosts their job's pending condition, whenever it has changed."""
        while True:
            try:
                await self._runner.call(self._seating.announce)
                await self._runner.call(self._queueing.serve)
                self._turns.renew()
            except (ControllerEnded, NotPrimary):
                raise
            except ControllerError as error:  # a failed write is retried
                _log.warning("%s", error)
            await asyncio.sleep(_ANNOUNCE_S)

    # --- errors ---

    async def _do(self, context: Context, action: Callable[[int], Awaitable[T]]) -> T:
        """Have the controller do something; its errors become the call's."""
        try:
            return await self._runner.call(action)
        except (ControllerError, TopologyError) as error:
            await context.abort(_code_of(error), printable(str(error)))


def _code_of(error: Exception) -> grpc.StatusCode:
    return next(code for kind, code in _CODES if isinstance(error, kind))


def _new_key() -> str:
    return secrets.token_hex(KEY_BYTES)


def _report_failure(stream: HostStream, reader: asyncio.Task[None]) -> None:
    """End the stream of a host whose reader failed: it must not wait for an answer."""
    if not reader.cancelled() and (error := reader.exception()) is not None:
        what = f"{reader.get_name()} is not heard any more, for the controller failed: {error!r}"
        _log.error("%s", what, exc_info=error)
        stream.end((grpc.StatusCode.INTERNAL, what))
