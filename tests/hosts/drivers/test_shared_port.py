"""Several processes of a host, each with jobs of its own, at the host's one address and port."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Final

import numpy as np
import pytest

from weir.hosts import HostError, ParameterServerCore, WorkerCore, WorkerOptions, reference_sum
from weir.hosts.drivers.shared_port import SharedPort
from weir.hosts.drivers.udp import UdpEndpoint, UdpHost, UdpWorker
from weir.hosts.protocol.messages import job_numbers
from weir.tests.hosts.drivers.udp_job import SERVER, address, gradient, server_plan, worker_plan
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.wire.aggregation import HEADER, HEADER_BYTES
from weir.wire.frames import Datagrams

PORTS = itertools.count(31_000 + os.getpid() % 10_000)
HOST: Final = address(0)
NOBODY: Final = 65534
"""Another user than root."""
OPTIONS: Final = WorkerOptions(initial_timeout_ns=5_000_000)

HOLDER: Final = """
import sys
from weir.hosts.drivers.udp import UdpHost
with UdpHost(int(sys.argv[1]), int(sys.argv[2])):
    print("has it", flush=True)
    sys.stdin.read()
"""
KNOCKER: Final = """
import os, socket, struct, sys
os.setuid(int(sys.argv[3]))
knocking = socket.socket(socket.AF_UNIX)
knocking.connect(chr(0) + sys.argv[1])
print(len(socket.recv_fds(knocking, 1, 2)[1]))
passing = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
passing.connect(chr(0) + sys.argv[2])
try:
    passing.send(struct.pack("=III4s", 1, 4, 0x7F000A65, bytes(4)))
    print(len(passing.recv(1)))
except OSError:
    print(0)
"""
"""Another user asks for the port, and passes on to a job's inbox what it never received; 0 where it was turned away."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")


@pytest.fixture
def port() -> int:
    return next(PORTS)


@pytest.fixture
def holder(port: int) -> Iterator[subprocess.Popen[str]]:
    """A process that was the first to bind the host's port; it has no job."""
    words = [sys.executable, "-c", HOLDER, str(HOST), str(port)]
    with subprocess.Popen(words, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has it\n"
        yield process
        process.kill()


@pytest.fixture
def far(port: int) -> Iterator[UdpHost]:
    """Host of the jobs' servers."""
    with UdpHost(SERVER, port) as host:
        yield host


def job(stack: ExitStack, number: int, where: UdpHost | int, far: UdpHost) -> UdpWorker:
    """The only worker of a job of its own, whose server runs."""
    stack.enter_context(UdpEndpoint(ParameterServerCore(replace(server_plan(1), job=number)), far))
    core = WorkerCore(replace(worker_plan(0, 1), job=number), OPTIONS)
    return stack.enter_context(UdpWorker(core, where, far.port))


def check_sums(workers: list[UdpWorker], steps: int = 3) -> None:
    """All at once, and each gets its own job's sum."""
    for step in range(steps):
        arrays = [gradient(worker.core.plan.job, step) for worker in workers]
        handles = [worker.submit(array) for worker, array in zip(workers, arrays, strict=True)]
        for worker, array, handle in zip(workers, arrays, handles, strict=True):
            assert worker.wait(handle, 60).array.tobytes() == reference_sum([array]).tobytes()


def test_each_of_several_sockets_gets_what_is_for_its_jobs(far: UdpHost, port: int) -> None:
    with ExitStack() as stack:
        hosts = [stack.enter_context(UdpHost(HOST, port)) for _ in range(3)]
        workers = [job(stack, 1 + number, hosts[number % 3], far) for number in range(5)]
        check_sums(workers)
        assert [worker.core.counters.unknown_job for worker in workers] == [0] * 5


def test_the_first_process_may_hang_or_end_and_others_come_later(
    far: UdpHost, port: int, holder: subprocess.Popen[str]
) -> None:
    with ExitStack() as stack:
        first = job(stack, 1, HOST, far)
        holder.send_signal(signal.SIGSTOP)
        second = job(stack, 2, HOST, far)  # any running process hands over the port
        check_sums([first, second])
        holder.kill()
        third = job(stack, 3, HOST, far)
        check_sums([first, second, third])
        first.close()
        check_sums([second, job(stack, 4, HOST, far)])


def test_a_job_of_another_process_is_not_taken_twice(far: UdpHost, port: int) -> None:
    with ExitStack() as stack:
        mine = job(stack, 1, HOST, far)
        twice = WorkerCore(replace(worker_plan(0, 1), job=1), OPTIONS)
        with raises(HostError, value=1):
            UdpWorker(twice, HOST, port)
        mine.close()
        again = stack.enter_context(UdpWorker(WorkerCore(replace(worker_plan(0, 1), job=1), OPTIONS), HOST, port))
        assert again.core.plan.job == 1


@contextmanager
def two_processes_ends(port: int) -> Iterator[tuple[SharedPort, SharedPort]]:
    """The process that bound a port, and one that received it."""
    with ExitStack() as stack:
        first = stack.enter_context(closing(SharedPort(HOST, port)))
        with ThreadPoolExecutor(1) as threads:
            knocking = threads.submit(SharedPort, HOST, port)
            while not knocking.done():
                first.receive()
        yield first, stack.enter_context(closing(knocking.result()))


def datagram_of(number: int) -> Datagrams:
    header = np.zeros(1, HEADER)
    header["job"] = number
    return Datagrams(np.array([SERVER], np.uint32), header.view(np.uint8).reshape(1, HEADER_BYTES))


def test_datagrams_for_ended_jobs_leave_nothing_open(port: int) -> None:
    with two_processes_ends(port) as (first, second):
        before = os.listdir("/proc/self/fd")
        for number in range(100, 200):
            second.claim_job(number)
            assert len(first.pass_on(datagram_of(number), {1})) == 0
            passed = [
                datagram for _ in range(2) for datagram in second.receive()
            ]  # a connecting process is accepted first
            assert [job_numbers(each).tolist() for each in passed] == [[number]]
            second.drop_job(number)
            assert first.receive() == []
        assert len(os.listdir("/proc/self/fd")) == len(before)


def test_without_free_descriptors_nothing_is_passed_on(port: int) -> None:
    with two_processes_ends(port) as (first, second):
        second.claim_job(5)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            left = first.pass_on(datagram_of(5), {1})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert job_numbers(left).tolist() == [5], "which is counted as of an unknown job"


def test_a_port_that_somebody_else_has_is_named(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        where = str(IPv4Address(HOST))
        other.bind((where, port))
        with raises(OSError, errno=98):
            UdpHost(HOST, port)


@as_root
def test_another_user_is_neither_handed_the_port_nor_heard(far: UdpHost, port: int) -> None:
    with ExitStack() as stack:
        worker = job(stack, 1, HOST, far)
        door = f"weir/{IPv4Address(HOST)}:{port}"
        words = [sys.executable, "-c", KNOCKER, door, f"{door}/1", str(NOBODY)]
        stranger = subprocess.run(words, capture_output=True, text=True, check=True)
        assert stranger.stdout.split() == ["0", "0"]
        check_sums([worker])
        assert worker.core.counters.malformed == 0
