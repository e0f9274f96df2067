"""Mutated and lying calls of the control service: none wedges it, crashes it, or leaves anything behind."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import grpc
import pytest

from weir.experiments.backends.batch_sizes import size_rule
from weir.tests.support.control_rig import ServiceRig, rig
from weir.wire import control_pb2 as pb
from weir.wire.control_messages import ATTEND, BALANCE, END_JOB, LIST_JOBS, LIST_MODELS, LOAD_MODEL, REGISTER

T = TypeVar("T")

HOSTS = ["h1", "h2", "h3", "h4"]
EXTREMES = (0, 1, 2, 3, 7, 63, 64, 255, 256, 1 << 16, (1 << 31) - 1, (1 << 32) - 1)
NUMBERS = (0.0, 5e-324, 1e-9, 1e-3, 1.0, 400.0, 1e3, 1e12, 1e300, 1e308, -1.0, float("inf"), float("nan"))
WIDE = (*EXTREMES, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
ANSWER_S = 120.0
STRATEGIES = ("ps", "widest", "scarce", "grid", "canary")
SEEDS = [
    pytest.param(1, 150, id="1"),
    *(pytest.param(seed, 50_000, id=str(seed), marks=pytest.mark.long(minutes=2)) for seed in range(100, 110)),
]
MEMORY_BYTES = 48 << 20
"""More than this may no run grow by after its first fifth."""


class Fuzzer:
    """Calls from one seed."""

    def __init__(self, service: ServiceRig, seed: int) -> None:
        self.rng = random.Random(seed)
        self.service = service
        self.seats: list[tuple[int, str]] = [(1, ""), (9, "x")]
        self.workers = {1: 2, 9: 2}
        """Number of workers of a seat's job, by its number."""

    async def call(self) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            match self.rng.randrange(5):
                case 0:
                    await self.unary()
                case 1:
                    await self.register()
                case 2:
                    await self.balance()
                case _:
                    await self.attend()

    async def unary(self) -> None:
        method, message = self.rng.choice(
            [
                (REGISTER, pb.RegisterRequest(workers=HOSTS[:2], server="h3", slots=16)),
                (LIST_JOBS, pb.ListJobsRequest()),
                (END_JOB, pb.EndJobRequest(job=self.rng.choice(self.seats)[0], reason="because")),
                (LIST_MODELS, pb.ListModelsRequest()),
                (LOAD_MODEL, pb.LoadModelRequest(switches=["s1"], model=self.model())),
            ]
        )
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.service.channel.unary_unary(method)
        await call(self.mutated(message.SerializeToString()), timeout=ANSWER_S)

    async def balance(self) -> None:
        """Some questions over one stream, of which some are damaged."""
        questions = [self.question().SerializeToString() for _ in range(self.rng.randrange(1, 4))]
        balance: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self.service.channel.stream_stream(BALANCE)
        async for _ in balance(
            iter([self.mostly(question, [self.mutated(question)]) for question in questions]), timeout=ANSWER_S
        ):
            pass

    def question(self) -> pb.BalanceRequest:
        job, token = self.rng.choice(self.seats)
        reports = [
            pb.SpeedReport(
                rank=rank,
                speed=self.mostly(400.0, NUMBERS),
                seconds=self.mostly(0.2, NUMBERS),
                limit=self.mostly(0, EXTREMES),
            )
            for rank in range(self.mostly(self.workers[job], range(4)))
        ]
        return pb.BalanceRequest(
            job=job,
            token=token,
            samples=self.rng.choice(EXTREMES),
            rule=self.mostly("analytic", ["numeric", "fair"]),
            size_step=self.rng.choice(EXTREMES),
            reports=reports,
        )

    def model(self) -> str:
        """Text of a model file, with numbers of any size."""
        numbers = [self.rng.choice([*WIDE, *NUMBERS, -1]) for _ in range(8)]
        text = json.dumps(
            {"format": "weir-forest", "version": 1, "classes": numbers[:3], "trees": [numbers], "scale": numbers}
        )
        return self.mostly(text, ["", "{}", "[" * 10_000, text[: self.rng.randrange(len(text))]])

    def mostly(self, usual: T, others: Sequence[T]) -> T:
        return usual if self.rng.random() < 0.7 else self.rng.choice(others)

    async def register(self) -> None:
        rng = self.rng
        registration = await self.service.register(
            workers=rng.sample(HOSTS, rng.randrange(1, 4)),
            server=rng.choice(["", "h4"]),
            slots=rng.choice([0, 16, 64]),
            policy=rng.randrange(3),
            min_workers=rng.randrange(3),
            gradient_bytes=self.mostly(0, WIDE),
            weight=self.mostly(1.0, NUMBERS),
            stripes=self.mostly(0, (1, 2, 3, 16, 17)),
            priority=self.mostly(0, (1, 7, 8, 0xFFFF_FFFF)),
            traffic_class=self.mostly(0, (1, 2, 5, 6, 0xFFFF_FFFF)),
            accelerators=self.mostly(0, EXTREMES),
            memory_bytes=self.mostly(0, WIDE),
            parent=self.mostly(0, [job for job, _ in self.seats]),
            groups=[
                pb.Group(ranks=rng.choices((0, 1, 2, *EXTREMES), k=rng.randrange(3)))
                for _ in range(self.mostly(0, (1, 3)))
            ],
        )
        self.seats = [*self.seats[-20:], *((registration.job, seat.token) for seat in registration.seats)]
        self.workers[registration.job] = sum(seat.HasField("rank") for seat in registration.seats)

    async def attend(self) -> None:
        rng = self.rng
        job, token = rng.choice(self.seats)
        stream: grpc.aio.StreamStreamCall[bytes, bytes] = self.service.channel.stream_stream(ATTEND)()
        messages = [pb.FromHost(join=pb.Join(job=job, token=token, generation=rng.choice([0, 0, 0, 1, 300])))]
        messages += [self.lie() for _ in range(rng.randrange(6))]
        for message in messages:
            data = message.SerializeToString()
            await stream.write(self.mutated(data) if rng.random() < 0.1 else data)
        reading = asyncio.create_task(self.read(stream))
        await asyncio.wait([reading], timeout=rng.choice([0.0, 0.02]))
        if rng.random() < 0.5 and not stream.done():
            await stream.done_writing()
        stream.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    @staticmethod
    async def read(stream: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        while await stream.read() is not grpc.aio.EOF:
            pass

    def lie(self) -> pb.FromHost:
        rng = self.rng
        narrow, wide = rng.choice(EXTREMES), rng.choice(WIDE)
        match rng.randrange(7):
            case 5:
                report = pb.Report(step=wide, steps=narrow, stage=rng.choice(["", "a", "x" * 65, "\x00"]))
                report.loss, report.accuracy = rng.choice(NUMBERS), rng.choice(NUMBERS)
                for name in ("compute_ns", "exposed_ns", "bytes", "waiting_ns"):
                    setattr(report, name, rng.choice(WIDE))
                if rng.random() < 0.5:
                    report.steps_left = rng.choice(WIDE)
                return pb.FromHost(report=report)
            case 6:
                calls = [pb.Call(collective="sum", name=rng.choice(["", "g", "x" * 5_000])) for _ in range(narrow % 8)]
                return pb.FromHost(calls=pb.Calls(first=wide, calls=calls, awaited=rng.choice(WIDE), asks=True))
            case 0:
                return pb.FromHost(heartbeat=pb.Heartbeat(rounds=wide, waiting=rng.random() < 0.5))
            case 1:
                complete, done = ([rng.choice(WIDE) for _ in range(rng.randrange(5))] for _ in range(2))
                generation = rng.choice([1, 2, 3, narrow])
                held = pb.Held(generation=generation, first_incomplete=wide, complete=complete, done=done)
                return pb.FromHost(held=held)
            case 2:
                return pb.FromHost(resumed=pb.Resumed(generation=rng.choice([1, 2, 3, narrow])))
            case 3:
                return pb.FromHost(leave=pb.Leave(reason=rng.choice(["", "[/x]\x00\n", "x" * 5_000])))
            case _:
                return pb.FromHost(join=pb.Join(job=narrow))

    async def calls(self, count: int) -> None:
        """Make calls, ten at a time."""
        for _ in range(count // 10):
            await asyncio.gather(*(self.call() for _ in range(10)))

    def mutated(self, data: bytes) -> bytes:
        rng, changed = self.rng, bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(changed) + 1)
            match rng.randrange(3):
                case 0:
                    del changed[at:]
                case 1:
                    changed[at:at] = rng.randbytes(rng.randrange(1, 9))
                case _ if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
        return bytes(changed)


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def tasks() -> list[asyncio.Task[object]]:
    """All tasks but those of gRPC's client: it keeps one for ever of some calls (one in hundreds) that were cancelled
    while they started, though the call is done and its channel closed.
    """
    return [
        task for task in asyncio.all_tasks() if not getattr(task.get_coro(), "__qualname__", "").startswith("_AioCall.")
    ]


def of_grpc_itself(record: logging.LogRecord) -> bool:
    """Return whether a log record is one of two harmless ones of gRPC.

    gRPC may report a vain wake-up of a second event loop, of this process or an earlier test, for calls cancelled
    there: it has one queue of events for all loops (github.com/grpc/grpc/issues/25364). Or it may report a message
    whose client was gone, which it only omits if it had noticed that before sending.
    """
    failure = record.exc_info[1] if record.exc_info else None
    in_vain = isinstance(failure, BlockingIOError) or str(failure) == "Event loop is closed"
    to_nobody = isinstance(failure, grpc.aio.InternalError) and "Send" in str(failure)
    return to_nobody or (in_vain and "PollerCompletionQueue._handle_events" in record.getMessage())


@pytest.mark.parametrize(("seed", "calls"), SEEDS)
async def test_no_call_wedges_or_crashes_it_or_leaves_anything_behind(
    seed: int, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = STRATEGIES[seed % len(STRATEGIES)]
    async with rig(lease_ns=2_000_000_000, size_rule=size_rule, placed_by=strategy) as service:
        await service.jobs()
        before = len(tasks())
        fuzzer = Fuzzer(service, seed)
        await fuzzer.calls(calls // 5)
        for _ in range(2):  # native code that is compiled meanwhile takes memory once
            warm = resident_bytes()
            await fuzzer.calls(calls - calls // 5)
            if (grown := resident_bytes() - warm) < MEMORY_BYTES:
                break
        assert grown < MEMORY_BYTES
        for job in await service.jobs():
            with suppress(grpc.aio.AioRpcError):  # its hosts fell silent meanwhile, and it ended by itself
                await service.end(job.job)
        assert service.controller.jobs == {}
        async with asyncio.timeout(ANSWER_S):
            while service.service._attending or service.service._half_open or len(tasks()) > before:
                await asyncio.sleep(0.05)
        assert await service.controller.verify() == {}
        registration = await service.register(workers=HOSTS[:2])
        hosts = [await service.joined(registration, rank) for rank in range(2)]
        for host in hosts:
            await host.hear("worker_plan")
    assert [
        (record.getMessage(), record.exc_info and repr(record.exc_info[1]))
        for record in caplog.records
        if (record.exc_info or record.levelno >= logging.CRITICAL) and not of_grpc_itself(record)
    ] == []
