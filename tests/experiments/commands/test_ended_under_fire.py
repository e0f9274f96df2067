"""SIGTERM at any moment, while clients send mutated calls: switch and controller end, and in good order."""

from __future__ import annotations

import asyncio
import random
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
from weir.tests.emulator.p4runtime.p4runtime_fuzz import Maker, damaged, ids_of, mutate
from weir.tests.emulator.p4runtime.p4runtime_rig import Client, load_config, load_info, outcome
from weir.tests.emulator.ports.test_command import running
from weir.tests.experiments.commands.test_two_controllers import SERVED, rpc, setting
from weir.wire import control_pb2 as pb
from weir.wire.control_messages import ATTEND, END_JOB, LIST_JOBS, REGISTER

__all__ = ["rpc"]  # a fixture
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 140))]
CLIENTS = 3
LONGEST_S = 0.5
"""Until the signal comes, at most."""
PATIENCE_S = 60
"""Who does not end by then never does."""

Call = Callable[[], object]


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
        for thread in threads:
            # No call lasts longer, by its deadline; but gRPC's client, seldom, waits on for ever where its server ends.
            thread.join(PATIENCE_S)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_switch_ends(seed: int, tmp_path: Path) -> None:
    rng, address = random.Random(seed), f"unix:{tmp_path}/p4runtime"

    def calls(rng: random.Random) -> Iterator[Call]:
        maker, ids = Maker(load_info(), rng), ids_of(load_info())
        with grpc.insecure_channel(address) as channel:
            write: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/p4.v1.P4Runtime/Write")
            read: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream("/p4.v1.P4Runtime/Read")
            while True:
                request = p4r.WriteRequest(device_id=1, election_id=p4r.Uint128(low=1))
                request.updates.extend(maker.update() for _ in range(rng.randrange(1, 40)))
                if rng.random() < 0.5:
                    mutate(request, rng, ids)
                yield partial(write, damaged(request, rng) if rng.random() < 0.5 else request.SerializeToString())
                query = p4r.ReadRequest(device_id=1, entities=[update.entity for update in request.updates])
                yield partial(_all, read, query.SerializeToString())

    with running("--no-p4", "--device-id", "1", "--grpc-server-addr", address) as switch, Client(address) as client:
        stream = client.primary()
        assert client.set_config(load_config()) == "OK"
        with under_fire(calls, rng):
            time.sleep(rng.uniform(0, LONGEST_S))
            switch.send_signal(signal.SIGTERM)
            switch.communicate(timeout=PATIENCE_S)
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
            join = pb.FromHost(join=pb.Join(job=1, token="x"))
            with grpc.insecure_channel(of.address) as channel:
                while True:
                    method, message = rng.choice(messages)
                    content = damaged(message, rng) if rng.random() < 0.5 else message.SerializeToString()
                    unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
                    yield partial(unary, content)
                    attend: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(ATTEND)
                    yield partial(_all, attend, iter([damaged(join, rng)]))

        def burn() -> None:
            with under_fire(calls, rng):
                time.sleep(rng.uniform(0, LONGEST_S))
                controller.send(signal.SIGTERM)
                time.sleep(LONGEST_S)

        burning = asyncio.create_task(asyncio.to_thread(burn))
        assert await controller.end() == -signal.SIGTERM
        await burning


def _all(method: Callable[..., Iterator[object]], request: object) -> list[object]:
    return list(method(request, timeout=PATIENCE_S))
