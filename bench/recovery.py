"""Time from the death of a worker, or of the aggregating switch, to the next sum at all survivors, in lease periods.

::

    four workers in their namespaces ══ leaves ══ spines, one of which sums ◀── controller, control service

Real processes in Mininet, killed by SIGKILL: first a worker, then the switch. The controller sees neither die: a lease
must run out first, up to a quarter of which is over at the time of death.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from ipaddress import IPv4Address
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread
from typing import Final

from weir.bench.measure import Aim, Figure
from weir.controller.controller import Controller, ControllerOptions
from weir.controller.placement import Placement, PlacementError, Problem
from weir.controller.service.service import ControlService
from weir.experiments.backends.sessions import open_sessions
from weir.hosts import ControlClient
from weir.topologies import Endpoint, Host, Link, Routes, Switch, Topology
from weir.topologies.mininet import fabric as mininet_fabric
from weir.topologies.mininet.fabric import MininetFabric
from weir.wire import control_pb2 as pb

LEASE_S: Final = 1.0
RUNS: Final = 5
AIM: Final = 3.0
RATE_BPS: Final = 100_000_000
_LEAVES: Final = ("rs1", "rs2")
_SPINES: Final = ("rs3", "rs4")
_STEPS: Final = 20
"""Sums before anything breaks."""
_LIMIT_S: Final = 60.0
_LOOK_S: Final = 0.01


def obstacle() -> str | None:
    """Return the reason why this cannot run here; None if it can."""
    return mininet_fabric.obstacle()


def figures() -> Iterator[Figure]:
    """Both, in lease periods."""
    runs = [asyncio.run(_run()) for _ in range(RUNS)]
    for index, what in enumerate(("a worker", "the switch that sums")):
        values = tuple(run[index] / LEASE_S for run in runs)
        yield Figure(f"from the death of {what} to the next sum", "leases", values, less_is_better=True, aim=Aim(AIM))


def fabric() -> Topology:
    """Two leaves with two hosts each, and two spines."""
    hosts = tuple(Host(f"rh{i + 1}", IPv4Address(f"10.0.{i // 2 + 1}.{i % 2 + 1}")) for i in range(4))
    links = [
        Link(Endpoint(host.name, 0), Endpoint(_LEAVES[i // 2], i % 2 + 1), RATE_BPS) for i, host in enumerate(hosts)
    ]
    links += [
        Link(Endpoint(leaf, 3 + up), Endpoint(spine, 1 + down), RATE_BPS)
        for down, leaf in enumerate(_LEAVES)
        for up, spine in enumerate(_SPINES)
    ]
    switches = tuple(Switch(name, number) for number, name in enumerate((*_LEAVES, *_SPINES), start=1))
    return Topology("recovery", hosts, switches, tuple(links))


class _AtASpine:
    """The first spine that can sums all, so that it is known whom to kill."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        for spine in _SPINES:
            if problem.takes(spine):
                return Placement(dict.fromkeys(problem.workers, spine), {}, spine)
        raise PlacementError("no spine is left")


class _Rank:
    """One process, and when it got its sums."""

    def __init__(self, network: MininetFabric, control: str, job: int, seat: pb.Seat) -> None:
        self.sums: list[tuple[int, int]] = []
        """(monotonic ns, generation)"""
        self.process: Popen[str] = network.popen(
            seat.host,
            [sys.executable, "-m", "weir.bench.recovery_rank", control, str(job)],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seat.token}\n")
        self.process.stdin.close()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            time_ns, generation = line.split()
            self.sums.append((int(time_ns), int(generation)))

    def first_after(self, generation: int) -> int | None:
        """When it got its first sum in a later generation; None: it has not."""
        if not self.sums or self.sums[-1][1] <= generation:
            return None
        return next(time_ns for time_ns, number in self.sums if number > generation)


async def _run() -> tuple[float, float]:
    """Seconds from each death to the survivors' next sum."""
    topology = fabric()
    async with AsyncExitStack() as stack:
        network = stack.enter_context(MininetFabric(topology))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-bench-"))
        sessions = await stack.enter_async_context(open_sessions(topology, network.addresses))
        lease_ns = int(1e9 * LEASE_S)
        options = ControllerOptions(
            probe_period_ns=lease_ns // 10, solve_period_ns=0, lease_ns=lease_ns, stuck_ns=3 * lease_ns
        )
        controller = Controller(topology, Routes(topology), sessions, _AtASpine(), options, time.monotonic_ns())
        await controller.start(time.monotonic_ns())
        service = await stack.enter_async_context(ControlService(controller, address=f"unix:{folder}/control"))
        client = stack.enter_context(ControlClient(service.address))
        registration = await asyncio.to_thread(client.register, [host.name for host in topology.hosts])
        job = registration.job
        ranks = [_Rank(network, service.address, job, seat) for seat in registration.seats]
        await _until(lambda: all(len(rank.sums) >= _STEPS for rank in ranks), "the first sums")

        worker = await _recovery(controller, job, ranks[:-1], ranks[-1].process.pid)
        root = controller.jobs[job].plan.placement.root
        switch = await _recovery(controller, job, ranks[:-1], network.pids[root])
        await asyncio.to_thread(client.end, job)
        return worker, switch


async def _recovery(controller: Controller, job: int, survivors: Sequence[_Rank], pid: int) -> float:
    """Kill a process; seconds until all survivors have their next sum."""
    generation = controller.jobs[job].plan.generation
    killed_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    await _until(lambda: all(rank.first_after(generation) for rank in survivors), "the survivors' next sum")
    return (max(rank.first_after(generation) or 0 for rank in survivors) - killed_ns) / 1e9


async def _until(done: Callable[[], bool], description: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"recovery: waited {_LIMIT_S:g} s for {description}")
        await asyncio.sleep(_LOOK_S)
