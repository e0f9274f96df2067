"""All-reduce of 64 MB among eight processes in Mininet, summed in a switch, beside Gloo's ring over the same links.

::

    eight host namespaces ══ one weir-switch, whose ports have a rate ═▶ results, or the ring's segments

Both ways use the same fabric and take turns in one run. Gloo is PyTorch's: without the extra `.[torch]` it is left out.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

from weir.bench.fabric import write_job
from weir.bench.goodput import NET_SHARE
from weir.bench.measure import Aim, Figure
from weir.bench.rank import Rank
from weir.controller.congestion import CongestionOptions
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobPlan, JobSpec
from weir.experiments.backends.sessions import open_sessions
from weir.topologies import Endpoint, Host, Link, Switch, Topology
from weir.topologies.mininet import fabric as mininet_fabric
from weir.topologies.mininet.fabric import MininetFabric, interface
from weir.wire.aggregation import AGGREGATION_PORT

WORKERS: Final = 8
RATE_BPS: Final = 40_000_000
"""Rate of the switch's ports: the load that two cores carry with all processes on them."""
VALUES: Final = 16 << 20
"""float32 numbers of the tensor: 64 MiB."""
SLOTS: Final = 1024
QUEUE_PACKETS: Final = 512
BOUND_PACKETS: Final = 192
"""Bound of the switch's queues: processes that share cores answer late, so more must be on the way."""
RUNS: Final = 3
LINE_AIM: Final = 0.9
GLOO_AIM: Final = 1.6
_GRPC_PORT: Final = 50_951
_STORE_PORT: Final = 29_500


def obstacle() -> str | None:
    """Return the reason why this cannot run here; None if it can."""
    return mininet_fabric.obstacle()


def fabric() -> Topology:
    """One switch, eight hosts, with names that no other fabric's interfaces have."""
    hosts = tuple(Host(f"bh{rank}", IPv4Address(f"10.0.1.{rank + 1}")) for rank in range(WORKERS))
    links = tuple(
        Link(Endpoint(host.name, 0), Endpoint("bs1", rank + 1), RATE_BPS, 0, 0.0, QUEUE_PACKETS)
        for rank, host in enumerate(hosts)
    )
    return Topology("bench", hosts, (Switch("bs1", 1, SLOTS),), links)


class Ranks:
    """The processes of one way to sum, waiting for their turns."""

    def __init__(self, fabric: MininetFabric, tasks: Mapping[str, Rank]) -> None:
        root = Path(__file__).parent.parent
        self._processes: list[Popen[str]] = []
        for host, task in tasks.items():
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface(Endpoint(host, 0))}
            command = [sys.executable, "-m", "weir.bench.rank", task.dump()]
            self._processes.append(
                fabric.popen(host, command, cwd=root, env=environment, stdin=PIPE, stdout=PIPE, text=True)
            )
        self._lines()

    def sum(self) -> float:
        """Seconds of the slowest rank."""
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
def _running(fabric: MininetFabric, tasks: Mapping[str, Rank]) -> Iterator[Ranks]:
    ranks = Ranks(fabric, tasks)
    yield ranks
    ranks.close()


async def _write_job(fabric: MininetFabric, spec: JobSpec, placement: Placement) -> JobPlan:
    async with open_sessions(fabric.topology, fabric.addresses) as sessions:
        return await write_job(fabric.topology, sessions, spec, placement, CongestionOptions(BOUND_PACKETS))


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module. Raises TopologyError where Mininet cannot be had."""
    topology = fabric()
    names = [host.name for host in topology.hosts]
    with ExitStack() as stack:
        running = stack.enter_context(MininetFabric(topology, first_grpc_port=_GRPC_PORT))
        spec = JobSpec(1, tuple(names), None, SLOTS, SLOTS // 2)
        placement = Placement(dict.fromkeys(names, "bs1"), {}, "bs1")
        plan = asyncio.run(_write_job(running, spec, placement))
        ranks = list(enumerate(topology.hosts))
        weir = stack.enter_context(
            _running(
                running,
                {
                    host.name: Rank(rank, WORKERS, VALUES, plan.workers[host.name], int(host.address), AGGREGATION_PORT)
                    for rank, host in ranks
                },
            )
        )
        gloo = None
        if importlib.util.find_spec("torch") is not None:
            store = f"{topology.hosts[0].address}:{_STORE_PORT}"
            tasks = {host.name: Rank(rank, WORKERS, VALUES, store=store) for rank, host in ranks}
            gloo = stack.enter_context(_running(running, tasks))
        turns = [(weir.sum(), None if gloo is None else gloo.sum()) for _ in range(RUNS)]
    rates = tuple(4 * VALUES / mine for mine, _ in turns)
    yield Figure(
        f"goodput of each of {WORKERS} processes in Mininet, links of {RATE_BPS // 1_000_000} Mbit/s",
        "B/s",
        rates,
        "line rate net of headers",
        (RATE_BPS * NET_SHARE / 8,) * RUNS,
        aim=Aim(LINE_AIM, of_ratio=True),
    )
    if gloo is not None:
        theirs = tuple(4 * VALUES / seconds for _, seconds in turns if seconds is not None)
        yield Figure(
            "all-reduce of 64 MB among 8 processes",
            "B/s",
            rates,
            "Gloo's ring",
            theirs,
            aim=Aim(GLOO_AIM, of_ratio=True),
        )
