"""Going on with the jobs of a journal, as another controller has left them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...topologies.errors import TopologyError
from ...topologies.model import Topology
from ...topologies.routing import Routes
from ...wire.control import Pacing
from ..errors import ControllerError, PlanError
from ..planning.plan import job_plan
from ..planning.planner import Planner
from .job import RunningJob
from .journal import NO_RECORD
from .journal_records import JobRecord
from .migrator import Migrator
from .registry import JobRegistry


def restore_jobs(topology: Topology, planner: Planner, jobs: JobRegistry, moves: Migrator, now_ns: int) -> None:
    """Restore jobs from the journal. All leases restart; a move that was under way is resumed.

    Jobs that are impossible on the planner's routes are restored all the same, and `Migrator.follow` moves them.

    Args:
        topology: The fabric.
        planner: Planner of placements, which receives the jobs' memory and histories.
        jobs: Registry with the journal, which receives the jobs.
        moves: Their moves.
        now_ns: Present time, in ns.

    Raises:
        JournalError: A record does not fit this fabric.
    """
    planner.histories.update(jobs.journal.histories)
    for number, record, kept in jobs.journal.jobs():
        try:
            job = _restore(topology, planner, jobs, record, kept, now_ns)
            if record.moving:
                moves.restore(job, record.moving, record.finals, record.again, now_ns)
        except (ControllerError, TopologyError, *NO_RECORD) as error:
            raise jobs.journal.misfit(number, error) from None


def _restore(
    topology: Topology,
    planner: Planner,
    jobs: JobRegistry,
    record: JobRecord,
    kept: Mapping[str, Any],
    now_ns: int,
) -> RunningJob:
    number = record.spec.job
    planner.histories[number] = record.history
    planner.memory.reoccupy(number, record.allotments)
    spec, root = record.spec, record.placement.root
    if not topology.is_switch(root) and root != spec.server:  # it was lost, and the move goes on without it
        spec = replace(spec, server=root, spares=())
    try:
        laid = planner.lay(spec, record.placement, record.generation, record.allotments)
    except PlanError:  # no way is left to some of its hosts; until it moves, it is laid by the ways that there were
        every_way = Routes(topology)
        laid = job_plan(topology, every_way, spec, record.placement, record.generation, record.allotments)
    plan = replace(laid, spec=record.spec, pacing=Pacing(gap_ns=record.gap_ns))
    job = RunningJob(plan, now_ns, record.note)
    jobs.add(job)
    job.gone, job.left, job.joined = dict(record.gone), set(record.left), set(record.joined)
    job.kept = kept
    job.newcomer, job.first_round = record.newcomer, record.first_round
    for host in job.hosts:
        if host in job.joined and host not in job.left:
            jobs.leases.renew((number, host), now_ns)
    return job
