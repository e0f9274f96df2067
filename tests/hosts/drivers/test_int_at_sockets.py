"""A host with a socket in a job whose other member requests INT: it does not receive results with INT, and requests
them

::

    rank 0, UdpWorker ──▶ the job's port ┐                 ┌─▶ the job's port   results without INT
                                         ├─▶ server's core ┤
    rank 1, by hand ─────── with INT ────┘                 └─▶ port 5000        results with INT, closed
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from typing import Final

import numpy as np

from weir.hosts import HostError, ParameterServerCore, WorkerCore, WorkerOptions
from weir.hosts.congestion import Feedback, FixedWindow, Hpcc
from weir.hosts.drivers.udp import UdpWorker
from weir.tests.hosts.drivers.udp_job import WINDOW, address, expected, gradient, server_plan, worker_plan
from weir.tests.support.errors import raises
from weir.tests.wire.int_stacks import Said, int_header
from weir.wire.aggregation import AGGREGATION_PORT
from weir.wire.control import WorkerPlan
from weir.wire.frames import Datagrams
from weir.wire.int_md import INT_PORT
from weir.wire.int_messages import embed, link_request

PORT: Final = 20_000 + os.getpid() % 10_000
SERVER: Final = 0x7F40_0000 + os.getpid() % (1 << 16)
"""An address of this process's own, for port 5000 is everybody's."""
STEPS: Final = 3
REQUEST: Final = link_request(AGGREGATION_PORT, 9)
STACK: Final = int_header([Said(1, 2, 3, 4, 5)])
"""INT headers that a switch on the way adds to the request."""


def plan(rank: int) -> WorkerPlan:
    return replace(worker_plan(rank, 2), aggregator=SERVER)


def at(host: int, port: int = PORT) -> tuple[str, int]:
    return str(IPv4Address(host)), port


def row(data: bytes, rows: int = 1) -> np.ndarray:
    return np.broadcast_to(np.frombuffer(data, np.uint8), (rows, len(data)))


class Asking(FixedWindow):
    """Law whose contributions request INT, and which keeps the reports."""

    int_header = REQUEST

    def __init__(self) -> None:
        super().__init__(WINDOW)
        self.told: list[Feedback] = []

    def update(self, feedback: Feedback) -> None:
        self.told.append(feedback)


class ByHand:
    """The server, and the member at rank 1, whose contributions come when rank 0 has no more to send: so they complete
    rounds, and results bring their INT.
    """

    def __init__(self) -> None:
        self.law = Asking()
        self.server = ParameterServerCore(server_plan(2))
        self.member = WorkerCore(plan(1), WorkerOptions(initial_timeout_ns=10**12, law=lambda: self.law))
        self.handles = [self.member.submit(gradient(1, step)) for step in range(STEPS)]
        self.with_int = 0
        """Results that were sent to rank 0 with INT."""
        self._ended = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Both, until the end of the block."""
        with ExitStack() as stack:
            stack.enter_context(self._socket).bind(at(SERVER))
            thread = threading.Thread(target=self._run, daemon=True)
            thread.start()
            try:
                yield
            finally:
                self._ended = True
                thread.join(60)

    def _run(self) -> None:
        while not self._ended:
            if select.select([self._socket], [], [], 0.02)[0]:
                data, (source, _) = self._socket.recvfrom(4096)
                self.server.receive(0, Datagrams(np.array([int(IPv4Address(source))], np.uint32), row(data)))
            else:
                for sent in self.member.poll(0):
                    headers = sent.int_headers
                    assert headers is None or {bytes(header) for header in headers} == {REQUEST}
                    sources = np.full(len(sent), address(1), np.uint32)
                    pushed = None if headers is None else row(STACK, len(sent))
                    self.server.receive(0, Datagrams(sources, sent.payload, int_headers=pushed))
            for results in self.server.poll(0):
                self._deliver(results)

    def _deliver(self, results: Datagrams) -> None:
        """Deliver results with INT to port 5000 at rank 0, and to the job's port, too, where they are unexpected."""
        mine, headers = results.addresses == address(1), results.int_headers
        if np.count_nonzero(mine):
            sources = np.full(np.count_nonzero(mine), SERVER, np.uint32)
            given = None if headers is None else headers[mine]
            self.member.receive(1, Datagrams(sources, results.payload[mine], int_headers=given))
        for each in embed(results).payload[~mine]:
            self.with_int += headers is not None
            for port in (PORT,) if headers is None else (INT_PORT, PORT):
                self._socket.sendto(each.tobytes(), at(address(0), port))


def test_results_with_int_are_requested_again_with_equal_sums() -> None:
    hand = ByHand()
    options = WorkerOptions(initial_timeout_ns=20_000_000)
    with hand.running(), UdpWorker(WorkerCore(plan(0), options), address(0), PORT) as worker:
        sums = [worker.wait(worker.submit(gradient(0, step)), 60).array.tobytes() for step in range(STEPS)]
    assert sums == expected(2, STEPS)
    reduced = [hand.member.pop_result(handle) for handle in hand.handles]
    assert [None if each is None else each.array.tobytes() for each in reduced] == sums
    counters = worker.core.counters
    assert hand.with_int >= STEPS
    assert counters.retransmitted >= hand.with_int, "each was asked for again"
    assert counters.malformed == hand.with_int, "a message behind INT is none at the job's port"
    told = {bytes(header) for heard in hand.law.told if heard.int_headers is not None for header in heard.int_headers}
    assert told == {STACK}, "who asked has it"


def test_a_law_that_reads_int_is_refused_at_a_socket() -> None:
    law = partial(Hpcc, {}, round_bytes=1_094, flows=1, hops=9)
    core = WorkerCore(plan(0), WorkerOptions(law=law))
    with raises(HostError, place="udp 127.0.10.1", value=3):
        UdpWorker(core, address(0), PORT)
