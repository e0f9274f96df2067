"""SIGTERM at any moment, while clients send mutated calls, read everything and send packets: both servers end.

In good order, and soon: within five seconds of a processor's time.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r

from weir.emulator.p4runtime import P4RuntimeServer
from weir.tests.cli.test_two_controllers import SERVED, rpc, setting
from weir.tests.emulator.p4runtime.p4runtime_fuzz import (
    Maker,
    damaged,
    ids_of,
    mutate,
    pipeline_request,
    stream_messages,
)
from weir.tests.emulator.p4runtime.p4runtime_rig import Client, load_config, load_info, outcome
from weir.tests.emulator.ports.test_command import running
from weir.wire import control_pb2 as pb
from weir.wire.control_messages import ATTEND, BALANCE, END_JOB, LIST_JOBS, REGISTER

__all__ = ["rpc"]  # a fixture
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 120))]
CLIENTS = 3
LONGEST_S = 0.5
"""Until the signal comes, at most."""
PATIENCE_S = 60
"""Seconds after which a process counts as hanging."""
LINGER_S = 10
"""Seconds that clients may outlive a server."""
MAX_S = 5.0
"""Limit of processor time from the signal to the end: wall-clock time depends on other processes as well."""
WAITING_S = 30.0
"""Limit of wall-clock time from the signal to the end, with several other processes on the processors."""

EVERYTHING = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(register_entry=p4r.RegisterEntry())] * 30)
"""All registers, thirty times."""

Call = Callable[[], object]


class Ending:
    """Resources that a child process uses from just before its signal to end."""

    def __init__(self, pid: int) -> None:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        self._so_far_s = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")  # in user mode and in the kernel
        self._others_s = self._ended_s()
        self._begun_s = time.monotonic()

    def check(self) -> None:
        """Check that it has ended, and no other process since. AssertionError if that took too long."""
        assert self._ended_s() - self._others_s - self._so_far_s < MAX_S
        assert time.monotonic() - self._begun_s < WAITING_S

    @staticmethod
    def _ended_s() -> float:
        """Processor time of all ended children, in seconds."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


@contextmanager
def under_fire(make: Callable[[random.Random], Iterator[Call]], rng: random.Random) -> Iterator[None]:
    """Clients call what they make, until the block ends. At least one of each client's calls is done by then."""
    over, begun = threading.Event(), threading.Barrier(CLIENTS + 1)

    def fire(seed: int) -> None:
        calls = make(random.Random(seed))
        outcome(next(calls))
        begun.wait()
        for call in calls:
            if over.is_set():
                return
            outcome(call)

    threads = [threading.Thread(target=fire, args=[rng.randrange(1 << 32)], daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        begun.wait()
        yield
    finally:
        over.set()
        end_s = time.monotonic() + LINGER_S
        for thread in threads:  # gRPC's client sometimes waits on for ever where its server ends, whatever the deadline
            thread.join(max(0, end_s - time.monotonic()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_switch_ends(seed: int, tmp_path: Path) -> None:
    rng, address = random.Random(seed), f"unix:{tmp_path}/p4runtime"

    info = load_info()

    def calls(rng: random.Random) -> Iterator[Call]:
        maker, ids = Maker(info, rng), ids_of(info)
        with grpc.insecure_channel(address) as channel:
            write: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/p4.v1.P4Runtime/Write")
            read: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream("/p4.v1.P4Runtime/Read")
            pipeline: grpc.UnaryUnaryMultiCallable[bytes, bytes]
            pipeline = channel.unary_unary("/p4.v1.P4Runtime/SetForwardingPipelineConfig")
            stream: grpc.StreamStreamMultiCallable[bytes, bytes]
            stream = channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")
            while True:
                request = p4r.WriteRequest(device_id=1, election_id=p4r.Uint128(low=1))
                request.updates.extend(maker.update() for _ in range(rng.randrange(1, 40)))
                if rng.random() < 0.5:
                    mutate(request, rng, ids)
                yield partial(write, damaged(request, rng) if rng.random() < 0.5 else request.SerializeToString())
                query = p4r.ReadRequest(device_id=1, entities=[update.entity for update in request.updates])
                yield partial(_all, read, query.SerializeToString())
                yield partial(_all, read, EVERYTHING.SerializeToString())
                yield partial(pipeline, pipeline_request(rng, info, ids))
                yield partial(_all, stream, iter(stream_messages(rng, ids, rng.randrange(99))))

    with running("--no-p4", "--device-id", "1", "--grpc-server-addr", address) as switch, Client(address) as client:
        stream = client.primary()
        assert client.set_config(load_config()) == "OK"
        with under_fire(calls, rng):
            end_s = time.monotonic() + rng.uniform(0, LONGEST_S)
            while time.monotonic() < end_s:
                for _ in range(50):
                    stream.send(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=rng.randbytes(200))))
                time.sleep(0.001)
            ending = Ending(switch.pid)
            switch.send_signal(signal.SIGTERM)
            switch.communicate(timeout=PATIENCE_S)
            ending.check()
        assert switch.returncode == 0
        stream.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_controller_ends(seed: int, rpc: P4RuntimeServer, tmp_path: Path) -> None:
    rng = random.Random(seed)
    async with setting(rpc, tmp_path) as of:
        controller = await of.start(10)
        await controller.says(SERVED)

        def calls(rng: random.Random) -> Iterator[Call]:
            messages = [
                (REGISTER, pb.RegisterRequest(workers=["h1", "h2"], slots=16)),
                (LIST_JOBS, pb.ListJobsRequest()),
                (END_JOB, pb.EndJobRequest(job=1, reason="because")),
            ]
            streams = [
                (ATTEND, pb.FromHost(join=pb.Join(job=1, token="x"))),
                (BALANCE, pb.BalanceRequest(job=1, token="x", samples=80, reports=[pb.SpeedReport(speed=1.0)])),
            ]
            with grpc.insecure_channel(of.address) as channel:
                while True:
                    method, message = rng.choice(messages)
                    content = damaged(message, rng) if rng.random() < 0.5 else message.SerializeToString()
                    unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
                    yield partial(unary, content)
                    method, message = rng.choice(streams)
                    stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(method)
                    yield partial(_all, stream, iter([damaged(message, rng)]))

        def burn() -> None:
            with under_fire(calls, rng):
                time.sleep(rng.uniform(0, LONGEST_S))
                endings.append(Ending(controller.process.pid))
                controller.send(signal.SIGTERM)
                time.sleep(LONGEST_S)

        endings: list[Ending] = []
        burning = asyncio.create_task(asyncio.to_thread(burn))
        assert await controller.end() == 128 + signal.SIGTERM
        endings[0].check()
        await burning


def _all(method: Callable[..., Iterator[object]], request: object) -> list[object]:
    return list(method(request, timeout=PATIENCE_S))
