"""Collectives over sockets on loopback: many jobs on one socket, shards and groups among them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from weir.hosts import (
    CallMismatch,
    Communicator,
    EndpointClosed,
    HostError,
    InvalidPlan,
    ParameterServerCore,
    UdpEndpoint,
    UdpHost,
    UdpWorker,
    WorkerCore,
    connect,
)
from weir.hosts.collectives.groups import new_groups
from weir.hosts.collectives.sharding import ShardedDriver
from weir.hosts.numerics.tensors import reference_sum
from weir.tests.hosts.collectives.test_adasum import tree
from weir.tests.support.errors import raises
from weir.wire.control import Child, ServerPlan, WorkerPlan

PORTS = itertools.count(20_000 + os.getpid() % 10_000)
SLOTS, WINDOW = 32, 16
SERVER = 0x7F00_0C64
WORLD = 1


def address(rank: int) -> int:
    return 0x7F00_0C01 + rank


class Hosts:
    """`workers` hosts and a server host, each with one socket for all jobs: the registrar of their groups."""

    def __init__(self, stack: ExitStack, workers: int) -> None:
        port = next(PORTS)
        self.workers = [stack.enter_context(UdpHost(address(rank), port)) for rank in range(workers)]
        self.server = stack.enter_context(UdpHost(SERVER, port))
        self.servers: list[ParameterServerCore] = []
        self._jobs = itertools.count(WORLD)
        self._plans: dict[str, tuple[int, WorkerPlan]] = {}

    def register(self, groups: Sequence[Sequence[int]]) -> list[list[str]]:
        return [self.add_job(ranks) for ranks in groups]

    def add_job(self, ranks: Sequence[int]) -> list[str]:
        """Its workers' tickets."""
        job = next(self._jobs)
        if job > 90:
            raise HostError("the switches are full")
        children = tuple(Child(1 << i, address(rank)) for i, rank in enumerate(ranks))
        core = ParameterServerCore(ServerPlan(job, 1, SLOTS, children, len(ranks)))
        self.servers.append(core)
        UdpEndpoint(core, self.server)
        tickets = []
        for i, rank in enumerate(ranks):
            tickets.append(f"{job}.{i}")
            plan = WorkerPlan(job, 1, i, len(ranks), SERVER, 1 << i, SLOTS, WINDOW)
            self._plans[tickets[-1]] = (rank, plan)
        return tickets

    def join(self, ticket: str) -> UdpWorker:
        rank, plan = self._plans[ticket]
        return UdpWorker(WorkerCore(plan), self.workers[rank])


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(stack, 4)


def world(hosts: Hosts) -> list[Communicator]:
    return [Communicator(hosts.join(ticket), timeout_s=30) for ticket in hosts.add_job(range(4))]


def at_each(members: Sequence[Communicator], call: Callable[[Communicator], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(call, members))


def test_every_collective(hosts: Hosts) -> None:
    arrays = [np.random.default_rng(rank).standard_normal((30, 41)) for rank in range(4)]

    def script(c: Communicator) -> list[Any]:
        late = [
            c.allreduce_async(arrays[c.rank].astype(dtype), name=dtype) for dtype in ("float16", "float32", "int64")
        ]
        results = [
            c.allreduce(arrays[c.rank], op="mean", weight=c.rank + 1),
            c.allreduce(arrays[c.rank], op="max"),
            c.broadcast(arrays[c.rank], 2),
            c.all_gather(arrays[c.rank]),
            c.broadcast_bytes(b"x" * 5000 if c.rank == 3 else None, 3),
            c.reduce(arrays[c.rank], 1),
        ]
        c.barrier()
        return [*results, *(handle.wait() for handle in late)]

    for rank, results in enumerate(at_each(world(hosts), script)):
        mean, largest, copied, gathered, text, reduced, half, single, long = results
        assert mean.tobytes() == reference_sum(arrays, mean=True, weights=[1, 2, 3, 4]).tobytes()
        assert largest.tobytes() == np.max(arrays, axis=0).tobytes()
        assert copied.tobytes() == arrays[2].tobytes()
        assert gathered.tobytes() == np.array(arrays).tobytes()
        assert text == b"x" * 5000
        assert (reduced is None) == (rank != 1)
        for result, dtype in ((half, "float16"), (single, "float32"), (long, "int64")):
            assert result.tobytes() == reference_sum([a.astype(dtype) for a in arrays]).tobytes()


def test_shards_share_a_socket(hosts: Hosts) -> None:
    arrays = [np.random.default_rng(rank).standard_normal(20_000).astype(np.float32) for rank in range(4)]
    tickets = [hosts.add_job(range(4)) for _ in range(3)]
    drivers = [ShardedDriver([hosts.join(shard[rank]) for shard in tickets]) for rank in range(4)]
    members = [Communicator(driver, timeout_s=30) for driver in drivers]
    results = at_each(members, lambda c: c.allreduce(arrays[c.rank]))
    assert [result.tobytes() for result in results] == [reference_sum(arrays).tobytes()] * 4


def test_many_small_groups_at_once(hosts: Hosts) -> None:
    pairs = [[a, b] for a in range(4) for b in range(4) if a != b]
    wanted = [*pairs, [3, 1, 0], [2], [0, 1, 2, 3]]

    def script(c: Communicator) -> list[Any]:
        groups = new_groups(c, wanted, hosts)
        handles = [group.all_gather_async(np.array([c.rank])) for group in groups if group is not None]
        assert [group is None for group in groups] == [c.rank not in ranks for ranks in wanted]
        return [handle.wait().reshape(-1).tolist() for handle in reversed(handles)][::-1]

    for rank, results in enumerate(at_each(world(hosts), script)):
        assert results == [ranks for ranks in wanted if rank in ranks]


def test_racks_and_adasum_over_sockets(hosts: Hosts) -> None:
    arrays = np.random.default_rng(4).standard_normal((4, 3001))
    port, addresses = next(PORTS), [address(rank) for rank in range(4)]

    def script(c: Communicator) -> list[Any]:
        with connect(WORLD, addresses, c.rank, port=port) as transport:
            member = Communicator(drivers[c.rank], timeout_s=30, connect=lambda: transport)
            rack = next(group for group in new_groups(member, [[0, 1], [2, 3]], hosts) if group is not None)
            results = [
                member.allreduce(arrays[c.rank], op="adasum"),
                member.allreduce(arrays[c.rank], op="adasum", rack=rack),
                member.allreduce(arrays[c.rank], op="adacons"),
            ]
            member.barrier()
            return [result.tobytes() for result in results]

    drivers = [hosts.join(ticket) for ticket in hosts.add_job(range(4))]
    flat, racked, consensus = zip(*at_each([Communicator(driver) for driver in drivers], script), strict=True)
    for results, vectors in ((flat, [*arrays]), (racked, [arrays[0] + arrays[1], arrays[2] + arrays[3]])):
        assert len(set(results)) == 1
        assert np.frombuffer(results[0]) == pytest.approx(tree(vectors), rel=1e-9)
    assert len(set(consensus)) == 1


def test_groups_that_cannot_be(hosts: Hosts) -> None:
    members = world(hosts)
    for ranks in ([0, 4], [], [1, 1]):
        with raises(InvalidPlan, place="groups", value=ranks):
            new_groups(members[0], [ranks], hosts)

    def script(c: Communicator) -> str:
        with raises(HostError, place="groups") as caught:
            new_groups(c, [[0, 1]] * 100, hosts)
        return str(caught.value)

    assert len(set(at_each(members, script))) == 1


def test_groups_that_are_not_the_same_are_told(hosts: Hosts) -> None:
    def script(c: Communicator) -> None:
        with pytest.raises(CallMismatch):
            new_groups(c, [[0, c.rank]] if c.rank else [[0]], hosts)

    at_each(world(hosts), script)


def test_a_host_is_in_a_job_once_and_jobs_end_alone(hosts: Hosts) -> None:
    first, second = hosts.add_job([0]), hosts.add_job([0])
    workers = [hosts.join(first[0]), hosts.join(second[0])]
    with raises(HostError, place="udp 127.0.12.1", value=1):
        hosts.join(first[0])
    members = [Communicator(worker, timeout_s=30) for worker in workers]
    workers[0].close()
    with raises(EndpointClosed, place="job 1"):
        members[0].barrier()
    assert members[1].allreduce(np.ones(3)).tolist() == [1, 1, 1]
    again = Communicator(hosts.join(first[0]), timeout_s=30)
    workers[0].close()  # once more: it is not this one that runs
    assert again.allreduce(np.ones(3)).tolist() == [1, 1, 1]
    hosts.workers[0].close()
    with pytest.raises(EndpointClosed):
        members[1].barrier()


def test_datagrams_without_a_job_are_counted(hosts: Hosts) -> None:
    """A worker of a job that is gone at the server goes on sending; the others' sums are not touched."""
    tickets = [hosts.add_job([0, 1]) for _ in range(3)]
    workers = [[hosts.join(ticket) for ticket in pair] for pair in tickets]
    stray = WorkerCore(WorkerPlan(77, 1, 0, 1, SERVER, 1, SLOTS, WINDOW))
    lonely = UdpWorker(stray, hosts.workers[0])
    lonely.submit(np.ones(3, np.float32))
    for pair in workers:
        members = [Communicator(worker, timeout_s=30) for worker in pair]
        assert [result.tolist() for result in at_each(members, lambda c: c.allreduce(np.ones(3)))] == [[2, 2, 2]] * 2
    while not any(core.counters.unknown_job for core in hosts.servers):  # it sends again and again
        time.sleep(0.01)
    lonely.close()
