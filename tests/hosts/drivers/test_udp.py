"""The same cores over real sockets on loopback, with a parameter server."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import IPv4Address

import numpy as np
import pytest

from weir.hosts import (
    AllreduceTimeout,
    EndpointClosed,
    HostError,
    ParameterServerCore,
    WorkerCore,
    WorkerOptions,
    reference_sum,
)
from weir.hosts.collectives.communicator import Communicator
from weir.hosts.drivers.udp import UdpEndpoint, UdpHost, UdpWorker
from weir.tests.hosts.drivers.udp_job import (
    SERVER,
    address,
    expected,
    gradient,
    server_plan,
    train,
    worker_plan,
)
from weir.tests.support.errors import raises
from weir.wire.control import FinalRound, Resume

PORTS = itertools.count(20_000 + os.getpid() % 10_000)


@pytest.fixture
def port() -> int:
    return next(PORTS)


def test_threads_get_the_reference_sum(port: int) -> None:
    with UdpEndpoint(ParameterServerCore(server_plan(4)), SERVER, port), ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(lambda rank: train(rank, 4, port, 5), range(4)))
    assert sums == [expected(4, 5)] * 4


class EagerWorker(WorkerCore):
    """A worker with few rounds in flight of a large window: received datagrams need not wait long for others."""

    @property
    def batching_delay_ns(self) -> int:
        return 20_000


def test_a_delay_shorter_than_any_sleep_is_skipped(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may end a sleep 50 µs late, and the processor goes to others meanwhile."""
    slept: list[float] = []
    monkeypatch.setattr("weir.hosts.drivers.udp.time.sleep", slept.append)
    with (
        UdpEndpoint(ParameterServerCore(server_plan(1)), SERVER, port),
        UdpWorker(EagerWorker(worker_plan(0, 1)), address(0), port) as worker,
    ):
        reduced = worker.wait(worker.submit(gradient(0, 0)), 100)
    assert np.array_equal(reduced.array, reference_sum([gradient(0, 0)]))
    assert 20e-6 not in slept


def test_processes_get_the_reference_sum(port: int) -> None:
    """The server starts after the workers: their resends repair what was lost before."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        pending = pool.starmap_async(train, [(rank, 2, port, 3) for rank in range(2)])
        with UdpEndpoint(ParameterServerCore(server_plan(2)), SERVER, port):
            assert pending.get(timeout=200) == [expected(2, 3)] * 2


@pytest.fixture
def job(port: int) -> Iterator[tuple[UdpEndpoint, list[UdpWorker]]]:
    options = WorkerOptions(initial_timeout_ns=5_000_000)
    with ExitStack() as stack:
        server = stack.enter_context(UdpEndpoint(ParameterServerCore(server_plan(2)), SERVER, port))
        yield (
            server,
            [
                stack.enter_context(UdpWorker(WorkerCore(worker_plan(rank, 2), options), address(rank), port))
                for rank in range(2)
            ],
        )


def test_many_arrays_are_in_flight_and_weights_are_summed(job: tuple[UdpEndpoint, list[UdpWorker]]) -> None:
    _, workers = job
    arrays = [{"w": gradient(rank, 0), "empty": np.zeros((0, 3), np.float32)} for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(
            pool.map(lambda r: Communicator(workers[r]).allreduce_many(arrays[r], weight=10 * (r + 1)), range(2))
        )
    for result in results:
        assert result["empty"].array.shape == (0, 3)
        assert result["w"].weights.tolist() == [30] * 10
        total = reference_sum([arrays[0]["w"], arrays[1]["w"]])
        assert result["w"].mean().tobytes() == (total / np.float32(30)).tobytes()


def test_a_job_moves_to_a_new_generation(job: tuple[UdpEndpoint, list[UdpWorker]]) -> None:
    server, workers = job
    first = workers[0].submit(gradient(0, 1))  # cannot complete yet: the other worker has not submitted
    held = [endpoint.pause() for endpoint in (server, workers[0].endpoint, workers[1].endpoint)]
    assert [h.first_incomplete for h in held] == [0, 0, 0]
    server.resume(Resume(server_plan(2, generation=2)))
    for rank, worker in enumerate(workers):
        worker.endpoint.resume(Resume(worker_plan(rank, 2, generation=2)))
    second = workers[1].submit(gradient(1, 1))
    total = reference_sum([gradient(0, 1), gradient(1, 1)]).tobytes()
    assert workers[0].wait(first, 30).array.tobytes() == total
    assert workers[1].wait(second, 30).array.tobytes() == total


def test_a_final_round_is_fetched_from_its_holder(job: tuple[UdpEndpoint, list[UdpWorker]]) -> None:
    server, workers = job
    handles = [worker.submit(gradient(rank, 2)) for rank, worker in enumerate(workers)]
    total = reference_sum([gradient(0, 2), gradient(1, 2)])
    for worker, handle in zip(workers, handles, strict=True):
        assert worker.wait(handle, 30).array.tobytes() == total.tobytes()
    late = WorkerCore(replace(worker_plan(0, 2)))  # as if worker 0 had lost every result
    workers[0].close()
    server.pause()
    rounds = workers[1].endpoint.pause().first_incomplete
    late.pause()
    server.resume(Resume(server_plan(2, generation=2)))
    workers[1].endpoint.resume(Resume(worker_plan(1, 2, generation=2)))
    late.resume(Resume(worker_plan(0, 2, 2), tuple(FinalRound(r, address(1)) for r in range(rounds))))
    with UdpWorker(late, address(0), server.port) as worker:
        assert worker.wait(worker.submit(gradient(0, 2)), 30).array.tobytes() == total.tobytes()
    assert workers[1].core.counters.answered >= rounds


def test_a_timeout_says_what_is_missing(job: tuple[UdpEndpoint, list[UdpWorker]]) -> None:
    _, workers = job
    handle = workers[0].submit(gradient(0, 0), name="fc1.weight")
    changed = workers[0].endpoint.changed
    with changed:
        assert changed.wait_for(lambda: workers[0].core.counters.sent, 30)
    with pytest.raises(
        AllreduceTimeout, match=r"0\.05 s.*rank 0.*'fc1.weight' lacks 20 rounds.*round 0 from 127\.0\.10"
    ):
        workers[0].wait(handle, 0.05)


def test_an_unsendable_datagram_ends_in_a_timeout_only(port: int) -> None:
    plan = replace(worker_plan(0, 1), aggregator=0x7FFF_FFFF)  # the broadcast address of loopback
    with UdpWorker(WorkerCore(plan), address(0), port) as worker:
        handle = worker.submit(gradient(0, 0))
        with worker.endpoint.changed:
            assert worker.endpoint.changed.wait_for(lambda: worker.endpoint.socket.send_failures, 30)
        with pytest.raises(AllreduceTimeout, match=r"round 0 from 127\.255\.255\.255.*sends failed, the last: \[Errno"):
            worker.wait(handle, 0.05)
        worker.endpoint.check()


def test_waking_never_waits(port: int) -> None:
    """Not even if the thread to wake waits for the waking thread."""
    with UdpHost(address(0), port) as host, host.changed:
        host.wake()

        def wake_often() -> None:
            for _ in range(5_000):
                host.wake()

        woken = threading.Thread(target=wake_often, daemon=True)
        woken.start()
        woken.join(60)
        assert not woken.is_alive()


def test_waiting_on_a_closed_endpoint_is_an_error(job: tuple[UdpEndpoint, list[UdpWorker]]) -> None:
    _, workers = job
    handle = workers[0].submit(gradient(0, 0))
    workers[0].close()
    with raises(EndpointClosed, place="udp 127.0.10.1"):
        workers[0].wait(handle, 10)


def test_an_address_in_use_is_named(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((str(IPv4Address(SERVER)), port))
        with raises(OSError, errno=98):
            UdpEndpoint(ParameterServerCore(server_plan(2)), SERVER, port)


def test_a_job_has_one_core_at_an_address(job: tuple[UdpEndpoint, list[UdpWorker]]) -> None:
    server, _ = job
    with raises(HostError, value=3):
        UdpEndpoint(ParameterServerCore(server_plan(2)), SERVER, server.port)
