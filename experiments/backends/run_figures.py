"""Figures of a run in virtual time: links, queues and their bounds, drops, jobs, flows, heartbeats, telemetry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...controller.controller import Controller
from ...controller.int_config.cost import TelemetryCost
from ...controller.p4runtime.session import SwitchSession
from ...controller.p4runtime.tables import DROP_REASONS, DROPS
from ...controller.planning.plan import lanes_of
from ...topologies import Endpoint, Routes
from ...wire.aggregation import message_bytes
from ...wire.frames import FRAME_HEADER_BYTES
from ..config.background import BACKGROUND_PAYLOAD_BYTES
from ..records.record import FlowTrace, HeartbeatFigures, JobTrace
from .agent_registry import AgentRegistry
from .competing_jobs import OtherJobs
from .emulated import EmulatedFabric, LinkFigures
from .heartbeats import VirtualHeartbeats
from .queue_bounds import QueuePromises
from .trained_job import TrainedJob
from .virtual_transport import Transfers
from .yielding_flows import YieldingFlows


class RunFigures:
    """Figures of one run up to now."""

    def __init__(
        self,
        emulated: EmulatedFabric,
        controller: Controller,
        sessions: Mapping[str, SwitchSession],
        *,
        agents: AgentRegistry,
        job: TrainedJob,
        others: OtherJobs,
        flows: YieldingFlows,
        transfers: Transfers,
        bounds: QueuePromises,
        heartbeats: VirtualHeartbeats | None,
        routes: Routes,
    ) -> None:
        """Read the figures from the parts of a run.

        Args:
            emulated: The fabric.
            controller: The controller.
            sessions: Session of each switch, by name.
            agents: Agents of the hosts.
            job: The run's job.
            others: Jobs beside it.
            flows: Flows that yield to jobs.
            transfers: Transfers between hosts.
            bounds: Bounds of queues, and what exceeded them.
            heartbeats: Heartbeats through the fabric; None: the run has none.
            routes: Routes of the fabric.
        """
        self._emulated = emulated
        self._fabric = emulated.fabric
        self._controller = controller
        self._sessions = sessions
        self._agents = agents
        self._job = job
        self._others = others
        self._flows = flows
        self._transfers = transfers
        self._bounds = bounds
        self._heartbeats = heartbeats
        self._routes = routes

    # --- links and queues ---

    def digest(self) -> str:
        """Return the digest of every frame that the fabric carried."""
        return self._fabric.digest()

    def links(self) -> Iterator[LinkFigures]:
        """Link figures; see `EmulatedFabric.links`. All traffic except the background counts as the job's."""
        return self._emulated.links()

    def queue(self, end: Endpoint) -> tuple[list[int], list[int]]:
        """Return the depth of a switch port's queues over time: instants in ns, depths in packets."""
        times, depths = self._fabric.queue_trace(end)
        return times.tolist(), depths.tolist()

    async def drops(self) -> dict[str, int]:
        """Return packets dropped so far, by reason, all switches, links and hosts together; only reasons that
        occurred.
        """
        drops = dict.fromkeys(DROP_REASONS, 0)
        for session in self._sessions.values():
            for reason, count in zip(DROP_REASONS, await session.read_counter(DROPS), strict=True):
                drops[reason] += count
        figures = list(self.links())
        drops["link loss"] = sum(figure.lost_packets for figure in figures)
        drops["beyond MTU"] = sum(figure.oversized_packets for figure in figures)
        drops["queue full"] = sum(figure.queue_drops for figure in figures)
        drops.update(self._agents.drops())
        return {reason: count for reason, count in drops.items() if count}

    # --- queue bounds ---

    @property
    def promised(self) -> dict[Endpoint, int | None]:
        """Queue bound by egress port, in packets: the loosest of the run; None if there was no bound at some time."""
        return self._bounds.promised

    @property
    def class_promised(self) -> dict[tuple[Endpoint, int], int]:
        """Loosest bounds of queues of classes above bulk, by egress port and priority, in packets."""
        return self._bounds.class_promised

    @property
    def class_held(self) -> dict[tuple[Endpoint, int], int]:
        """The most packets in each queue of a class above bulk, over all enqueues while it had a bound."""
        return self._bounds.class_held

    @property
    def promises(self) -> list[tuple[int, str]]:
        """All bounds in words, or the reasons that there were none, with their times."""
        return self._bounds.said

    @property
    def broken_promises(self) -> list[str]:
        """Queues that exceeded the bound of the time, over all enqueues of the run."""
        return self._bounds.broken(self._fabric.now_ns)

    @property
    def bound_formulas(self) -> list[str]:
        """Bounds in force now with their formulas: the largest ones, and the number of the others."""
        return self._bounds.formulas

    @property
    def refusals(self) -> list[str]:
        """Reasons that some queues have no bound with the present jobs."""
        return self._bounds.refusals

    # --- jobs and flows ---

    @property
    def resends(self) -> int:
        """Contributions that workers' timers sent again, of all jobs."""
        workers = [*self._job.workers, *self._others.workers()]
        return sum(worker.core.counters.retransmitted for worker in workers)

    @property
    def jobs(self) -> list[JobTrace]:
        """Progress of each job over time, for a run of several jobs."""
        return self._others.progress.traces if self._others else []

    @property
    def flows(self) -> list[FlowTrace]:
        """Traces of yielding background flows and of transfers so far."""
        return self._flows.traces + self._transfers.traces

    # --- control and telemetry ---

    @property
    def heartbeats(self) -> HeartbeatFigures | None:
        """Statistics of the workers' heartbeats; None if they did not go through the fabric."""
        if self._heartbeats is None:
            return None
        message = message_bytes(lanes_of(self._emulated.topology))
        return self._heartbeats.figures(
            self._routes,
            [name for job in (self._job, *self._others) for name in job.config.workers],
            FRAME_HEADER_BYTES + max(BACKGROUND_PAYLOAD_BYTES, message),
            self._controller.jobs.counts,
        )

    @property
    def telemetry_cost(self) -> TelemetryCost:
        """Traffic of probes, reports and INT headers on the links so far."""
        switches = self._emulated.switches
        forwarded = sum(
            switches[end.node].port_counters(end.port).tx_packets
            for end in self._emulated.topology.directed_links
            if end.node in switches
        )
        return self._controller.telemetry_cost(self._fabric.now_ns, forwarded)
