"""Goodput of summing large tensors in switches, without and with loss: the compiled program, in virtual time.

::

    workers ══links══▶ switches (a tree) ──▶ root: a switch, or a parameter server
       ▲                                       │
       └────────────── results ◀───────────────┘

The peer is the line rate of the workers' links less the headers of full packets. Time is the fabric's own, so that the
figures are the same on every machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weir.bench.measure import Aim, Figure
from weir.controller.congestion import CongestionOptions
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec
from weir.experiments.backends.agents import HostAgent, VirtualHost
from weir.experiments.backends.emulated import EmulatedFabric
from weir.experiments.backends.written_job import write_job
from weir.hosts.protocol.server import ParameterServerCore
from weir.hosts.protocol.worker import WorkerCore
from weir.topologies import Topology
from weir.topologies.generators import leaf_spine
from weir.wire.aggregation import LANES, MESSAGE_BYTES
from weir.wire.frames import FRAME_HEADER_BYTES

WORKERS: Final = 8
SLOTS: Final = 1024
CHUNKS: Final = 16_384
"""Chunks of the tensor: 16 MiB."""
LOSS: Final = 0.01
AIMS: Final = {0.0: 0.95, LOSS: 0.8}
"""Required share of the line rate, by loss rate."""

RATE_BPS: Final = 1_000_000_000
HOST_POLL_NS: Final = 30_000
NET_SHARE: Final = 4 * LANES / (FRAME_HEADER_BYTES + MESSAGE_BYTES)
"""Share of the line rate that headers leave to the lanes."""
_LIMIT_NS: Final = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job on a fabric, and where it is summed."""

    name: str
    leaves: int
    spines: int
    workers: Sequence[str]
    server: str | None
    placement: Placement

    def topology(self, loss: float) -> Topology:
        """The fabric, each link of which loses this share of its frames in each direction."""
        hosts = -(-(WORKERS + 1) // self.leaves)
        return leaf_spine(self.leaves, self.spines, hosts, rate_bps=RATE_BPS, loss=loss)


def _hosts(count: int) -> list[str]:
    return [f"h{number}" for number in range(1, count + 1)]


_RACK: Final = dict.fromkeys(_hosts(WORKERS), "s1")
_LEAVES: Final = {f"h{3 * leaf + place}": f"s{leaf + 1}" for leaf in range(4) for place in (1, 2)}
SCENARIOS: Final = (
    Scenario("a rack, the switch is the root", 1, 0, [*_RACK], None, Placement(_RACK, {}, "s1")),
    Scenario("a rack, a parameter server", 1, 0, [*_RACK], "h9", Placement(_RACK, {"s1": "h9"}, "h9")),
    Scenario(
        "four racks, a spine is the root",
        4,
        2,
        [*_LEAVES],
        None,
        Placement(_LEAVES, dict.fromkeys(_LEAVES.values(), "s5"), "s5"),
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of summing one tensor."""

    seconds: float
    """Virtual time until the last worker had the sum, in seconds."""
    share: float
    """Share of the line rate net of headers, per worker."""
    resends: int
    largest_queue_packets: int
    """Longest queue of any switch port, in packets."""
    sums: list[NDArray[np.float32]] = field(repr=False)
    """Each worker's result, by rank."""


def gradients(chunks: int, seed: int = 1) -> list[NDArray[np.float32]]:
    """One tensor for each worker."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(chunks * LANES, np.float32) for _ in range(WORKERS)]


def measure(
    scenario: Scenario, tensors: Sequence[NDArray[np.float32]], *, loss: float, slots: int = SLOTS, seed: int = 1
) -> Outcome:
    """Sum one tensor per worker. Raises RuntimeError where that takes more than a minute of virtual time."""
    return asyncio.run(_measure(scenario, tensors, loss, slots, seed))


async def _measure(
    scenario: Scenario, tensors: Sequence[NDArray[np.float32]], loss: float, slots: int, seed: int
) -> Outcome:
    topology = scenario.topology(loss)
    emulated = EmulatedFabric(topology, seed=seed, poll_ns=HOST_POLL_NS)
    fabric = emulated.fabric
    spec = JobSpec(1, tuple(scenario.workers), scenario.server, slots, slots // 2)
    with emulated.serve() as server:
        async with emulated.sessions(server) as sessions:
            plan = await write_job(topology, sessions, spec, scenario.placement, CongestionOptions())
    workers = [HostAgent(VirtualHost(emulated, name), WorkerCore(plan.workers[name])) for name in scenario.workers]
    agents: dict[str, HostAgent[WorkerCore] | HostAgent[ParameterServerCore]] = {w.name: w for w in workers}
    if scenario.server is not None and plan.server is not None:
        agents[scenario.server] = HostAgent(VirtualHost(emulated, scenario.server), ParameterServerCore(plan.server))
    started_ns = fabric.now_ns
    for worker, tensor in zip(workers, tensors, strict=True):
        worker.core.submit(tensor)
        worker.flush()
    while not all(worker.core.idle for worker in workers):
        for wake in fabric.run(started_ns + _LIMIT_NS):
            agents[wake.host].handle(wake)
        if fabric.now_ns >= started_ns + _LIMIT_NS:
            raise RuntimeError(f"{scenario.name}: {workers[0].core.waiting_for(fabric.now_ns)}")
    elapsed_ns = fabric.now_ns - started_ns
    reduced = [worker.core.pop_result(0) for worker in workers]
    return Outcome(
        elapsed_ns / 1e9,
        8e9 * tensors[0].nbytes / elapsed_ns / (RATE_BPS * NET_SHARE),
        sum(worker.core.counters.retransmitted for worker in workers),
        max(counters.max_depth_packets for counters in fabric.port_counters().values()),
        [result.array for result in reduced if result is not None],
    )


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    tensors = gradients(CHUNKS)
    for scenario in SCENARIOS:
        for loss, aim in AIMS.items():
            outcomes = [measure(scenario, tensors, loss=loss, seed=seed) for seed in ((1, 2) if loss else (1,))]
            yield Figure(
                f"goodput of each of {WORKERS} workers, {100 * loss:g} % loss: {scenario.name}",
                "B/s",
                tuple(tensors[0].nbytes / outcome.seconds for outcome in outcomes),
                "line rate net of headers",
                (RATE_BPS * NET_SHARE / 8,) * len(outcomes),
                aim=Aim(aim, of_ratio=True),
            )
