"""Timed all-reduce among processes in Mininet: summed in a switch by Weir, and by Gloo's ring over the same links.

::

    eight host namespaces ══ one weir-switch, whose ports have a rate ═▶ results, or the ring's segments

Both ways use the same fabric and take turns in one run. Gloo is PyTorch's: without the extra `.[torch]` it is left out.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from subprocess import PIPE, Popen
from typing import Final

from ...controller.congestion import CongestionOptions
from ...controller.placement import Placement
from ...controller.planning.plan import JobPlan, JobSpec
from ...topologies import Endpoint, Host, Link, Switch, Topology
from ...topologies.mininet.fabric import MininetFabric, interface
from ...topologies.mininet.processes import run_until_ended
from ...wire.aggregation import AGGREGATION_PORT
from . import all_reduce_rank
from .all_reduce_rank import Rank
from .sessions import open_sessions
from .written_job import write_job

WORKERS: Final = 8
RATE_BPS: Final = 40_000_000
"""Rate of the switch's ports: the load that two cores carry with all processes on them."""
VALUES: Final = 16 << 20
"""float32 numbers of the tensor: 64 MiB."""
SLOTS: Final = 1024
QUEUE_PACKETS: Final = 512
BOUND_PACKETS: Final = 192
"""Bound of the switch's queues: processes that share cores answer late, so more must be on the way."""
_STORE_PORT: Final = 29_500


def fabric(workers: int = WORKERS) -> Topology:
    """Return one switch with a host for each worker, with names that no other fabric's interfaces have."""
    hosts = tuple(Host(f"bh{rank}", IPv4Address(f"10.0.1.{rank + 1}")) for rank in range(workers))
    links = tuple(
        Link(Endpoint(host.name, 0), Endpoint("bs1", rank + 1), RATE_BPS, 0, 0.0, QUEUE_PACKETS)
        for rank, host in enumerate(hosts)
    )
    return Topology("bench", hosts, (Switch("bs1", 1, SLOTS),), links)


class _Ranks:
    """The processes of one way to sum, waiting for their turns."""

    def __init__(self, fabric: MininetFabric, tasks: Mapping[str, Rank]) -> None:
        self._processes: list[Popen[str]] = []
        for host, task in tasks.items():
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface(Endpoint(host, 0))}
            command = [sys.executable, "-m", all_reduce_rank.__name__, task.dump()]
            self._processes.append(fabric.popen(host, command, env=environment, stdin=PIPE, stdout=PIPE, text=True))
        self._lines()

    def sum(self) -> float:
        """Sum once and return the seconds of the slowest rank."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return max(map(float, self._lines()))

    def close(self) -> None:
        """Let the processes end."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait()

    def _lines(self) -> Sequence[str]:
        lines = []
        for rank, process in enumerate(self._processes):
            assert process.stdout is not None
            if not (line := process.stdout.readline()):
                raise RuntimeError(f"rank {rank} ended with status {process.wait()}")
            lines.append(line)
        return lines


@contextmanager
def _running(fabric: MininetFabric, tasks: Mapping[str, Rank]) -> Iterator[_Ranks]:
    ranks = _Ranks(fabric, tasks)
    yield ranks
    ranks.close()


async def _write_job(fabric: MininetFabric, spec: JobSpec, placement: Placement) -> JobPlan:
    async with open_sessions(fabric.topology, fabric.addresses) as sessions:
        return await write_job(fabric.topology, sessions, spec, placement, CongestionOptions(BOUND_PACKETS))


def turns(runs: int) -> Iterator[tuple[float, float | None]]:
    """Sum a tensor of `VALUES` numbers by both ways in turn.

    Args:
        runs: Number of turns.

    Yields:
        Seconds of the slowest rank by Weir, and by Gloo; None without PyTorch.

    Raises:
        TopologyError: Mininet cannot run here.
        RuntimeError: A rank failed, or its sum is wrong.
    """
    topology = fabric()
    names = [host.name for host in topology.hosts]
    with ExitStack() as stack:
        running = stack.enter_context(MininetFabric(topology))
        spec = JobSpec(1, tuple(names), None, SLOTS, SLOTS // 2)
        placement = Placement(dict.fromkeys(names, "bs1"), {}, "bs1")
        plan = run_until_ended(_write_job(running, spec, placement))
        ranks = list(enumerate(topology.hosts))
        tasks = {
            host.name: Rank(rank, WORKERS, VALUES, plan.workers[host.name], int(host.address), AGGREGATION_PORT)
            for rank, host in ranks
        }
        weir = stack.enter_context(_running(running, tasks))
        gloo = None
        if importlib.util.find_spec("torch") is not None:
            store = f"{topology.hosts[0].address}:{_STORE_PORT}"
            tasks = {host.name: Rank(rank, WORKERS, VALUES, store=store) for rank, host in ranks}
            gloo = stack.enter_context(_running(running, tasks))
        for _ in range(runs):
            yield weir.sum(), None if gloo is None else gloo.sum()
