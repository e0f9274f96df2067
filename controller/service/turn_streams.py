"""Streams of workers that take turns (`turns`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import Any

import grpc

from ...errors.texts import printable
from ...wire import control_pb2 as pb
from ..controller import Controller
from ..errors import PlanError
from .limits import Limits
from .malformed import Malformed
from .seating import Seating
from .seats import WrongToken
from .turns import Attendant, TurnKeeper

Context = grpc.aio.ServicerContext[Any, Any]
Requests = AsyncIterator[pb.TurnRequest | Malformed]
Begun = asyncio.Queue[pb.Turn | None]
"""Turns that have begun; None: the stream is over."""


class TurnStreams:
    """All streams of turns."""

    def __init__(self, controller: Controller, seating: Seating, limits: Limits) -> None:
        """Start without streams."""
        self._controller, self._seating, self._limits = controller, seating, limits
        self._keeper = TurnKeeper(self._workers_of)
        self._count = 0

    def renew(self) -> None:
        """Admit to turns the jobs that waited only for workers which are lost by now."""
        self._keeper.renew()

    def state(self, job: int) -> str:
        """Return a job's turns in words; empty if it takes none."""
        return self._keeper.state(job)

    async def serve(self, requests: Requests, context: Context) -> AsyncIterator[pb.Turn]:
        """Serve one worker's turns until it ends its stream or the job ends."""
        if self._count >= self._limits.streams:
            most = f"{self._count} workers take turns, and no more than {self._limits.streams} may; end jobs"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, most)
        self._count += 1
        begun: Begun = asyncio.Queue()
        failure: list[str] = []
        worker: Attendant | None = None
        reader: asyncio.Task[None] | None = None
        try:
            worker = await self._attending(requests, context, begun)
            reader = asyncio.create_task(self._read(worker, requests, begun, failure), name=f"turns of {worker.device}")
            while (turn := await begun.get()) is not None:
                yield turn
        finally:
            self._count -= 1
            if reader is not None:
                reader.cancel()
            if worker is not None:
                self._keeper.leave(worker)
        if failure:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, printable(failure[0]))

    async def _attending(self, requests: Requests, context: Context, begun: Begun) -> Attendant:
        """Return the worker that the first message names."""
        first: pb.TurnRequest | Malformed = pb.TurnRequest()
        with suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(self._limits.first_words_s):
                first = await anext(aiter(requests))
        if isinstance(first, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(first))
        self._seating.sweep()  # a job may just have ended
        if first.job not in self._seating.jobs:
            await context.abort(grpc.StatusCode.NOT_FOUND, self._seating.no_job(first.job))
        try:
            seat = self._seating.jobs[first.job].seat_of(first.token)
            if seat.rank is None:
                raise PlanError(f"job {first.job}: {seat} takes no turns; only workers do")
            return self._keeper.attend(
                first.job,
                seat.host,
                printable(first.device),
                lambda number, request: begun.put_nowait(pb.Turn(number=number, request=request)),
            )
        except WrongToken as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except PlanError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def _read(self, worker: Attendant, requests: Requests, begun: Begun, failure: list[str]) -> None:
        """Handle a worker's requests until it ends its stream; then None is put behind its turns."""
        try:
            async for request in requests:
                if isinstance(request, Malformed):
                    raise PlanError(str(request))
                if worker.job not in self._seating.jobs:
                    break
                if request.action == pb.TurnRequest.ASK:
                    self._keeper.ask(worker, request.request)
                elif request.action == pb.TurnRequest.RELEASE:
                    self._keeper.release(worker)
                else:
                    raise PlanError(f"job {worker.job}: action {request.action}; ask for turns and release them")
        except PlanError as error:
            failure.append(str(error))
        finally:
            begun.put_nowait(None)

    def _workers_of(self, job: int) -> Collection[str]:
        """Hosts of a job's workers that take part."""
        if job not in self._seating.jobs:
            return ()
        departed = {seat.host for seat in self._seating.jobs[job].departed()}
        return [host for host in self._controller.jobs[job].plan.workers if host not in departed]
