"""Running jobs without switches and hosts: the migrator and the improver are pure, and the test supplies the answers of
telemetry, strategies and switches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from weir.controller.congestion import CongestionOptions, WindowController
from weir.controller.decisions import Decisions
from weir.controller.errors import ControllerError
from weir.controller.jobs.background_estimator import BackgroundTrafficEstimator
from weir.controller.jobs.job import RunningJob
from weir.controller.jobs.journal import Journal
from weir.controller.jobs.journal_file import JournalFile
from weir.controller.jobs.migrator import Migrator
from weir.controller.jobs.re_placement import RePlacementScheduler
from weir.controller.jobs.registry import JobRegistry
from weir.controller.options import ControllerOptions, Message
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import JobSpec
from weir.controller.planning.planner import Planner
from weir.controller.telemetry.link_state import LinkState
from weir.controller.telemetry.snapshot import Snapshot
from weir.topologies.model import Endpoint, Topology
from weir.topologies.routing import Routes

MS = 1_000_000
NOTHING_KNOWN = Snapshot({}, frozenset(), frozenset())


class Told(LinkState):
    """Telemetry with given values."""

    def __init__(self, topology: Topology, period_ns: int) -> None:
        super().__init__(topology, period_ns=period_ns)
        self.said = NOTHING_KNOWN
        self.read_ns: list[int] = []
        """When it was asked."""

    def snapshot(self, now_ns: int, exclude: Mapping[Endpoint, float] | None = None) -> Snapshot:
        self.read_ns.append(now_ns)
        return self.said


class PureRig:
    """A fabric's jobs from `now_ns` on; writes to switches are recorded, or refused during `troubles`."""

    def __init__(
        self,
        topology: Topology,
        options: ControllerOptions,
        now_ns: int = 0,
        lease_ns: int | None = None,
        path: Path | None = None,
    ) -> None:
        """`path` is the journal's."""
        self.planner = Planner(topology, Routes(topology), strategy("ps"), 1)
        self.links = Told(topology, options.probe_period_ns)
        journal = Journal(None if path is None else JournalFile(path), topology, self.planner)
        self.jobs = JobRegistry(topology, self.planner, lease_ns, journal)
        self.outlook = BackgroundTrafficEstimator(self.jobs, self.planner, self.links)
        decisions = Decisions(aside=False)
        self.moves = Migrator(self.jobs, self.planner, self.outlook, decisions, options)
        self.windows = WindowController(topology, CongestionOptions())
        self.improver = RePlacementScheduler(self.jobs, self.moves, self.planner, self.windows, decisions, now_ns)
        self.written: list[frozenset[str]] = []
        self.troubles: Sequence[ControllerError] = ()

    def add(self, spec: JobSpec, placement: Placement, now_ns: int = 0) -> RunningJob:
        plan = self.planner.plan(spec, placement, self.planner.history(spec.job).next())
        self.planner.history(spec.job).go(plan.generation, plan.switches)
        job = RunningJob(plan, now_ns)
        self.jobs.add(job)
        return job

    async def advance(self, now_ns: int) -> list[Message]:
        """Advance to this time and return the messages to hosts."""
        await self.moves.advance(now_ns, self._write)
        return self.jobs.pop_outbox()

    async def _write(self, switches: Collection[str]) -> Sequence[ControllerError]:
        self.written.append(frozenset(switches))
        return self.troubles
