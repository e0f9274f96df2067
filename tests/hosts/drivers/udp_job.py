"""A small job over real sockets on loopback, whose ranks may be processes: their imports are here, not in a test."""

from __future__ import annotations

import numpy as np

from weir.hosts import WorkerCore, reference_sum
from weir.hosts.collectives.communicator import Communicator
from weir.hosts.drivers.udp import UdpWorker
from weir.wire.control import Child, ServerPlan, WorkerPlan

JOB, SLOTS, WINDOW = 3, 64, 32


def address(host: int) -> int:
    return 0x7F00_0A01 + host


SERVER = address(100)


def worker_plan(rank: int, workers: int, generation: int = 1) -> WorkerPlan:
    return WorkerPlan(JOB, generation, rank, workers, SERVER, 1 << rank, SLOTS, WINDOW, members=members(workers))


def server_plan(workers: int, generation: int = 1) -> ServerPlan:
    children = tuple(Child(1 << rank, address(rank)) for rank in range(workers))
    return ServerPlan(JOB, generation, SLOTS, children, workers, members=members(workers))


def members(workers: int) -> tuple[int, ...]:
    return tuple(map(address, range(workers)))


def gradient(rank: int, step: int) -> np.ndarray:
    return np.random.default_rng([rank, step]).standard_normal((70, 33)).astype(np.float32)


def train(rank: int, workers: int, port: int, steps: int) -> list[bytes]:
    with UdpWorker(WorkerCore(worker_plan(rank, workers)), address(rank), port) as worker:
        communicator = Communicator(worker, timeout_s=100)
        return [communicator.allreduce(gradient(rank, step), name=f"step {step}").tobytes() for step in range(steps)]


def expected(workers: int, steps: int) -> list[bytes]:
    return [reference_sum([gradient(rank, step) for rank in range(workers)]).tobytes() for step in range(steps)]
