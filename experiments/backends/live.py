"""A running fabric with its controller, for processes that are started on its hosts: emulated, or in Mininet.

::

    Controller ─P4Runtime─▶ switches
    ControlService ◀─gRPC on a unix socket─ hosts' processes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ...controller.congestion import WALL_CLOCK_LEASE_NS, CongestionOptions
from ...controller.controller import Controller, ControllerOptions
from ...controller.jobs.membership import longest_silence_ns
from ...controller.p4runtime.loading import new_owner
from ...controller.placement.strategies import STRATEGIES
from ...controller.placement.strategies import strategy as strategy_named
from ...controller.service.heartbeats import HeartbeatSocket, HeartbeatSource
from ...controller.service.service import ControlService
from ...topologies import Routes, Topology
from ...topologies.mininet.fabric import MininetFabric, SwitchKind
from ...topologies.mininet.scratch import scratch_folder
from ...wire import control_pb2 as pb
from ...wire.heartbeat import HEARTBEAT_PORT
from ..errors import ExperimentError
from ..resources import check_resources
from .batch_sizes import size_rule
from .real_time import FabricHeartbeats, RealTimeFabric
from .sessions import open_sessions

LEASE_NS: Final = 10_000_000_000
"""Processes that compute on few cores are silent for long."""
_PROBE_NS: Final = 100_000_000
_SOLVE_NS: Final = 1_000_000_000
_QUEUE_PACKETS: Final = (96, 768)
"""Minimum and maximum queue bound, in packets.

Round trips here are processes' turns, which are long compared with the links' delays. Shorter queues would leave the
links idle, and the cost of a process's turn would be spread over fewer packets.
"""
_HOST_TURN_NS: Final = 4_000_000
"""Time of a host's turn in ns where ranks, fabric and controller share few cores: 2.5 ms with two ranks on two cores,
4.5 ms with four.
"""
_QUEUE_SHARE: Final = 0.75
"""Share of the capacity of a switch's smallest queue."""


@dataclass(frozen=True, slots=True)
class LiveFabric:
    """A running fabric with its controller and control service."""

    fabric: RealTimeFabric | MininetFabric
    service: ControlService
    controller: Controller

    def environment(self, job: int, seat: pb.Seat) -> dict[str, str]:
        """Return the variables by which a process takes a seat in a job of an emulated fabric."""
        assert isinstance(self.fabric, RealTimeFabric)
        return {
            "WEIR_CONTROL": self.service.address,
            "WEIR_JOB": str(job),
            "WEIR_TOKEN": seat.token,
            "WEIR_NIC": self.fabric.nic(seat.host),
        }


def heartbeat_source(fabric: RealTimeFabric | MininetFabric, host: str) -> HeartbeatSource:
    """Open the receiver of heartbeats that the fabric's hosts send to this host. Raises TopologyError, or OSError."""
    if isinstance(fabric, MininetFabric):
        return HeartbeatSocket(fabric.datagram_socket(host, HEARTBEAT_PORT))
    return FabricHeartbeats(fabric, host)


def bound_packets(topology: Topology) -> int:
    """Return the queue bound of a fabric whose hosts are processes, in packets."""
    least, most = _QUEUE_PACKETS
    smallest = min((link.queue_packets for link in topology.links), default=least)
    return max(least, min(most, int(_QUEUE_SHARE * smallest)))


@asynccontextmanager
async def live_fabric(
    topology: Topology,
    kind: SwitchKind | None = None,
    *,
    strategy: str = "widest",
    order: str = "fair",
    lease_ns: int = LEASE_NS,
    seed: int = 1,
    heartbeats_at: str | None = None,
) -> AsyncIterator[LiveFabric]:
    """Run a fabric, its controller and the service for jobs until the end of the block.

    Args:
        topology: Fabric.
        kind: Software of the switches in Mininet (root); None: emulated in this process.
        strategy: Placement strategy, by name.
        order: Order of jobs that `weir jobs` shows.
        lease_ns: Time without heartbeats after which a host or switch is lost, in ns.
        seed: Seed of the fabric's random draws.
        heartbeats_at: Host that receives heartbeats through the fabric; None: they use the hosts' streams.

    Raises:
        ExperimentError: The machine lacks resources for it. Errors of the other packages pass.
    """
    placing = strategy_named(strategy)  # before anything is started
    check_resources(len(topology.hosts))
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(scratch_folder("weir-live-"))
        fabric: RealTimeFabric | MininetFabric
        if kind is None:
            fabric = await asyncio.to_thread(RealTimeFabric, topology, folder, seed=seed)
        else:
            fabric = MininetFabric(topology, kind)
            topology = fabric.topology
        stack.enter_context(fabric)
        sessions = await stack.enter_async_context(open_sessions(topology, fabric.addresses, new_owner()))
        controller = Controller(
            topology,
            Routes(topology),
            sessions,
            placing,
            ControllerOptions(
                probe_period_ns=_PROBE_NS if kind is None else _SOLVE_NS,
                solve_period_ns=_SOLVE_NS,
                together=STRATEGIES[strategy].jointly,
                order=order,
                decide_aside=True,
                contains_failures=True,
                dwell_ns=5 * _SOLVE_NS,
                lease_ns=lease_ns,
                stuck_ns=lease_ns,
                patience_ns=None if heartbeats_at is None else longest_silence_ns(lease_ns),
                heartbeats_at=heartbeats_at,
                host_turn_ns=_HOST_TURN_NS,
                # The traffic of collectives over Gloo comes and goes with each sum. In the remaining capacity,
                # processes' turns, which no round trip in empty queues includes, would leave the links idle.
                congestion=CongestionOptions(bound_packets(topology), lease_ns=WALL_CLOCK_LEASE_NS, makes_room=False),
            ),
            time.monotonic_ns(),
            seed=seed,
        )
        await controller.start(time.monotonic_ns())
        heartbeats = None if heartbeats_at is None else heartbeat_source(fabric, heartbeats_at)
        service = await stack.enter_async_context(
            ControlService(controller, address=f"unix:{folder}/control", heartbeats=heartbeats, size_rule=size_rule)
        )
        await stack.enter_async_context(ends_with_controller(service))
        yield LiveFabric(fabric, service, controller)


@asynccontextmanager
async def ends_with_controller(service: ControlService) -> AsyncIterator[None]:
    """Cancel the block as soon as the service's controller has ended. Raises ExperimentError then."""
    block, ended_by = asyncio.current_task(), list[BaseException]()
    assert block is not None

    def notice(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            ended_by.append(error)
            block.cancel()

    watcher = asyncio.create_task(service.wait(), name="the end of the controller")
    watcher.add_done_callback(notice)
    try:
        yield
    except asyncio.CancelledError:
        if ended_by:
            raise ExperimentError(f"the fabric's controller has ended: {ended_by[0]}") from None
        raise
    finally:
        watcher.cancel()
