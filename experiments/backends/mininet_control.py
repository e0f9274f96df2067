"""Controller and control service of a run in Mininet, with their figures: queues, bounds, drops, heartbeats."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...controller.congestion import WALL_CLOCK_LEASE_NS, CongestionOptions
from ...controller.controller import Controller, ControllerOptions
from ...controller.int_config.settings import IntConfig
from ...controller.p4runtime.loading import new_owner
from ...controller.p4runtime.session import SwitchSession
from ...controller.p4runtime.tables import DROP_REASONS, DROPS
from ...controller.placement.strategies import STRATEGIES
from ...controller.placement.strategies import strategy as strategy_named
from ...controller.service.service import ControlService
from ...controller.telemetry.link_state import LinkState
from ...controller.telemetry.report_socket import ReportSocket
from ...topologies import Endpoint, Routes
from ...topologies.mininet.fabric import MininetFabric
from ...wire.frames import BULK_PRIORITY
from ..config import RunConfig
from ..records.record import MininetHeartbeats
from .live import heartbeat_source
from .queue_bounds import QueuePromises
from .sessions import open_sessions

SLOWER: Final = 100
"""Factor on the control loop's times, which a run file gives for virtual time."""

_LEASE_NS: Final = 20_000_000_000
_MIN_LEASE_NS: Final = 4_000_000_000
"""Minimum lease of hosts with heartbeats through the fabric: processes that compute on few cores can be silent for
long.
"""
_LATE_NS: Final = 200_000_000
"""Maximum delay of INT reports about a queue."""


class QueueDepths:
    """Depths of the data class's queues, from probes and reports."""

    def __init__(self, links: LinkState) -> None:
        self._links = links
        self.deepest: dict[Endpoint, int] = {}
        """The most packets of each queue that was reported, until `pop` was last called."""

    def pop(self) -> dict[Endpoint, int]:
        """Return the most packets of each queue since the last call."""
        measured, highs = self._links.queues["measured"][:, BULK_PRIORITY], self._links.pop_highs()[:, BULK_PRIORITY]
        told = zip(self._links.links, measured, highs, strict=True)
        taken = {link: int(high) for link, is_measured, high in told if is_measured}
        self.deepest.update((link, max(high, self.deepest.get(link, 0))) for link, high in taken.items())
        return taken


@dataclass(slots=True)
class MininetControl:
    """The running controller and its service, with measurements since they started."""

    controller: Controller
    service: ControlService
    sessions: Mapping[str, SwitchSession]
    bounds: QueuePromises
    depths: QueueDepths
    began_ns: int
    delays_ns: list[int]
    """Delays of the heartbeats that arrived."""
    drops_before: Mapping[str, int] = field(default_factory=dict)
    """Counts of the switches when the run began, by reason."""

    async def drops(self) -> dict[str, int]:
        """Return packets dropped by all switches since the run began, by reason."""
        drops = {reason: -self.drops_before.get(reason, 0) for reason in DROP_REASONS}
        for session in self.sessions.values():
            for reason, count in zip(DROP_REASONS, await session.read_counter(DROPS), strict=True):
                drops[reason] += count
        return drops

    def figures(self, *, heartbeats: bool) -> dict[str, Any]:
        """Return fields of `MininetResult` on queues, bounds and heartbeats."""
        return {
            "heartbeats": self._heartbeats() if heartbeats else None,
            "promised": {str(link): bound for link, bound in sorted(self.bounds.promised.items())},
            "broken": self.bounds.broken(self.service.now_ns()),
            "deepest": {str(link): depth for link, depth in self.depths.deepest.items()},
        }

    @property
    def telemetry_cost(self) -> str:
        """Cost of telemetry since the run began, in words."""
        return str(self.controller.telemetry_cost(time.monotonic_ns() - self.began_ns))

    def _heartbeats(self) -> MininetHeartbeats:
        counts, delays = self.controller.jobs.counts, np.array(self.delays_ns or [0]) / 1e6
        return MininetHeartbeats(
            sent=self.service.heartbeats.sent,
            delivered=self.service.heartbeats.came,
            p999_ms=float(np.percentile(delays, 99.9)),
            longest_ms=float(delays.max()),
            lease_ms=(self.controller.jobs.leases.lease_ns or 0) / 1e6,
            taken_for_dead=counts.leases_expired,
            explained=counts.verdicts_deferred,
        )


async def start_control(
    stack: AsyncExitStack, config: RunConfig, strategy: str, fabric: MininetFabric, folder: Path
) -> MininetControl:
    """Start a controller and its service for one run.

    Args:
        stack: Ends both.
        config: The run.
        strategy: Name of the placement strategy.
        fabric: The running fabric.
        folder: Folder of the service's socket.
    """
    sessions = await stack.enter_async_context(open_sessions(fabric.topology, fabric.addresses, new_owner()))
    controller = _controller(config, strategy, fabric, sessions)
    depths = QueueDepths(controller.links)
    bounds = QueuePromises(controller.windows, depths.pop, late_ns=_LATE_NS)
    controller.bounded.append(bounds.note)
    await controller.start()
    beats, delays_ns = config.heartbeats, list[int]()
    service = ControlService(
        controller,
        address=f"unix:{folder}/control",
        heartbeats=None if beats is None else heartbeat_source(fabric, beats.to),
        heard=lambda beat: delays_ns.append(time.monotonic_ns() - beat.sent_ns),  # one clock for a machine
    )
    control = MininetControl(controller, service, sessions, bounds, depths, time.monotonic_ns(), delays_ns)
    control.drops_before = await control.drops()
    await stack.enter_async_context(service)
    _receive_reports(stack, config.watching, fabric, controller, service.now_ns)
    return control


def _receive_reports(
    stack: AsyncExitStack,
    watching: IntConfig | None,
    fabric: MininetFabric,
    controller: Controller,
    clock: Callable[[], int],
) -> None:
    """Receive reports: if a collector's host is named, this process listens there, in the host's namespace."""
    if watching is None or watching.collector is None:
        return
    assert controller.reports is not None
    bound = fabric.datagram_socket(watching.collector, watching.port)
    reports = stack.enter_context(ReportSocket(controller.reports, watching.port, bound=bound))
    controller.sources.append(reports.poll)
    stack.callback(controller.sources.remove, reports.poll)  # the service ends after it
    loop = asyncio.get_running_loop()
    loop.add_reader(reports, lambda: reports.poll(clock()))
    stack.callback(loop.remove_reader, reports)


def _controller(
    config: RunConfig, strategy: str, fabric: MininetFabric, sessions: Mapping[str, SwitchSession]
) -> Controller:
    control, beats = config.control, config.heartbeats
    options = ControllerOptions(
        probe_period_ns=control.interval * SLOWER,
        solve_period_ns=control.solve_interval * SLOWER if STRATEGIES[strategy].resolves else 0,
        together=STRATEGIES[strategy].jointly,
        decide_aside=True,
        improvement=control.gain,
        dwell_ns=control.dwell * SLOWER,
        lease_ns=_LEASE_NS,
        host_lease_ns=None if beats is None else max(_MIN_LEASE_NS, beats.lease * SLOWER),
        patience_ns=None if beats is None else _LEASE_NS,
        heartbeats_at=beats.to if beats is not None and beats.detector == "telemetry" else None,
        congestion=congestion_options(config),
        watching=config.watching,
    )
    routes = Routes(fabric.topology)
    return Controller(
        fabric.topology,
        routes,
        sessions,
        strategy_named(strategy, config.strategy_options.get(strategy)),
        options,
        time.monotonic_ns(),
        seed=config.seed,
    )


def congestion_options(config: RunConfig) -> CongestionOptions:
    """Return the options of virtual time, but with the window lease of hosts that are processes."""
    options = config.congestion_options
    return replace(options, lease_ns=WALL_CLOCK_LEASE_NS if options.lease_ns else 0)
