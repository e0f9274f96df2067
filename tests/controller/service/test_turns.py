"""Turns from the control service: workers of two jobs on the same hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import pytest

from weir.controller.errors import PlanError
from weir.controller.service.turns import Attendant, TurnKeeper
from weir.hosts import ControlAbsent, ControlRefused, HostError
from weir.hosts.drivers.turn_client import TurnClient
from weir.tests.support.control_rig import ANSWER_S, ServiceRig, rig
from weir.wire import control_pb2 as pb

WORKERS = ["h1", "h2"]


@pytest.fixture
async def service() -> AsyncIterator[ServiceRig]:
    async with rig() as running:
        yield running


class Worker:
    """A worker's client; `begun` is set at a turn."""

    def __init__(self, service: ServiceRig, registration: pb.Registration, rank: int, **options: Any) -> None:
        token = options.pop("token", registration.seats[rank].token)
        self.client = TurnClient(service.service.address, registration.job, token, **options)
        self._loop = asyncio.get_running_loop()
        self.answers: asyncio.Queue[HostError | None] = asyncio.Queue()

    def ask(self) -> None:
        self.client.ask(lambda error: self._loop.call_soon_threadsafe(self.answers.put_nowait, error))

    async def answer(self) -> HostError | None:
        async with asyncio.timeout(ANSWER_S):
            return await self.answers.get()

    async def close(self) -> None:
        await asyncio.to_thread(self.client.close)


async def test_two_jobs_alternate_and_an_ended_worker_stops_nobody(service: ServiceRig) -> None:
    first, second = [await service.register(workers=WORKERS) for _ in range(2)]
    a, b = [[Worker(service, each, rank) for rank in range(2)] for each in (first, second)]
    try:
        for worker in a:
            worker.ask()
        for worker in a:
            assert await worker.answer() is None
        for worker in b:
            worker.ask()
        await asyncio.sleep(0.05)
        assert all(worker.answers.empty() for worker in b)
        for worker in a:
            worker.client.release()
        for worker in b:
            assert await worker.answer() is None
        for worker in a:
            worker.ask()
        await b[0].close()  # it has the turn on h1, and is never back; the other one keeps its own
        assert await a[0].answer() is None
        b[1].client.release()
        assert await a[1].answer() is None
        assert all(phase_ns > 0 for phase_ns in a[0].client.phases())
        assert a[0].client.phases() == (0, 0, 0)
    finally:
        for worker in [*a, *b]:
            await worker.close()


async def test_a_withdrawn_request_gets_no_turn(service: ServiceRig) -> None:
    first, second = [await service.register(workers=WORKERS[:1]) for _ in range(2)]
    a, b = Worker(service, first, 0), Worker(service, second, 0)
    try:
        a.ask()
        assert await a.answer() is None
        b.ask()
        await asyncio.sleep(0.05)
        b.client.release()
        a.client.release()
        a.ask()
        assert await a.answer() is None
        assert b.answers.empty()
    finally:
        await a.close()
        await b.close()


async def test_refused_workers_learn_why(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, server="h3")
    server = next(seat.token for seat in registration.seats if not seat.HasField("rank"))
    cases: list[tuple[dict[str, Any], type[HostError]]] = [
        ({"token": "no seat's"}, ControlRefused),
        ({"token": server}, ControlRefused),
        ({"device": "x" * 65}, ControlRefused),
    ]
    for options, kind in cases:
        worker = Worker(service, registration, 0, **options)
        worker.ask()
        assert isinstance(await worker.answer(), kind), options
        await worker.close()
    gone = pb.Registration(job=9999, seats=registration.seats)
    worker = Worker(service, gone, 0)
    worker.ask()
    assert isinstance(await worker.answer(), ControlAbsent)
    await worker.close()


async def test_streams_that_break_the_rules_are_refused(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    attend = pb.TurnRequest(job=registration.job, token=registration.seats[0].token)
    call: Any = service.channel.stream_stream(
        "/weir.control.v1.Control/TakeTurns",
        request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
        response_deserializer=pb.Turn.FromString,
    )
    ask = pb.TurnRequest(action=pb.TurnRequest.ASK, request=1)
    refused: list[list[Any]] = [
        [b"\xff\xff"],
        [attend, b"\xff\xff"],
        [attend, ask, ask],
        [attend, attend],
    ]
    for requests in refused:
        stream = call()
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for request in requests:
                await stream.write(request)
        async with asyncio.timeout(ANSWER_S):
            assert await stream.code() == grpc.StatusCode.INVALID_ARGUMENT, requests


def test_absent_workers_are_awaited_only_while_they_take_part() -> None:
    taking_part = {1: {"h1", "h2"}, 2: {"h1"}}
    keeper = TurnKeeper(lambda job: taking_part.get(job, set()))
    told: list[tuple[str, int]] = []

    def attend(job: int, host: str) -> Attendant:
        return keeper.attend(job, host, "", lambda number, request: told.append((f"{job} on {host}", request)))

    one = attend(1, "h1")
    keeper.ask(one, 1)
    with pytest.raises(PlanError):
        keeper.ask(one, 2)
    assert told == []
    assert "h2" in keeper.state(1)
    other = attend(2, "h1")
    keeper.ask(other, 1)
    assert told == [("2 on h1", 1)], "work is conserved"
    keeper.release(other)
    taking_part[1] = {"h1"}
    keeper.renew()
    assert told[1:] == [("1 on h1", 1)]
    assert keeper.state(1) == "computes on 1, waits on 0 of 1 devices beside job 2"
    again = attend(1, "h1")  # by a new stream: the turn of the old one is over
    keeper.ask(other, 2)
    assert told[2:] == [("2 on h1", 2)]
    keeper.leave(one)
    keeper.release(other)
    keeper.ask(again, 1)
    assert told[3:] == [("1 on h1", 1)]
    assert keeper.state(3) == ""
