"""All running jobs of a fabric: who takes part, who is lost, what moves, and what each host is to be told. Pure: what
switches must be written for is the caller's matter, between `poll` and `settle`.

::

    heartbeat, leave, held, resumed ─▶ RunningJob ─▶ end_leases, let_go, repair ─▶ begin ─▶ poll ─▶ outbox
    fail ─────────────────▶ lose ────────▶│                                          └─ settling: the caller writes
                                          └─▶ journal
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ...topologies.errors import TopologyError
from ...topologies.model import Topology
from ...wire.control import Abort, Held, ServerPlan, WorkerPlan
from ..errors import ControllerError
from ..leases import Leases
from ..options import Message, Options
from ..placement import Placement
from ..planning.generations import previous_generation
from ..planning.plan import FailurePolicy, JobPlan
from ..planning.planner import Planner
from .job import Progress, RunningJob
from .journal import Journal
from .journal_records import JobRecord
from .moves import Move, Phase

_log = logging.getLogger(__name__)

MOST_ABORTED: Final = 1_000
"""So many are remembered, with the reason; then the oldest is forgotten."""


@dataclass(slots=True)
class Counts:
    """How often, since the controller began."""

    admitted: int = 0
    aborted: int = 0
    moves: int = 0
    leases_expired: int = 0
    leases: int = 0
    """In force now."""


class JobRegistry:
    """The running jobs, by number."""

    def __init__(self, topology: Topology, planner: Planner, options: Options, journal: Journal) -> None:
        self.jobs: dict[int, RunningJob] = {}
        self.aborted: dict[int, str] = {}
        """Jobs that were aborted, and why."""
        self.outbox: list[Message] = []
        """What the hosts are to be told."""
        self.options = options
        self.ended = False
        """A job has ended that the switches may still hold."""
        self.counts = Counts()
        self.leases = Leases[tuple[int, str]](options.lease_ns)
        """Of hosts, by job."""
        self._topology = topology
        self._planner = planner
        self._journal = journal
        self._host_at = {int(host.address): host.name for host in topology.hosts}

    def job(self, number: int) -> RunningJob:
        """Raises ControllerError where there is none."""
        if number not in self.jobs:
            raise ControllerError(f"no job {number}; running are {', '.join(map(str, self.jobs)) or 'none'}")
        return self.jobs[number]

    @property
    def deadline_ns(self) -> int | None:
        """When a lease or a move has something to do; 0 while something waits for the next tick."""
        if (
            self.outbox
            or self.ended
            or self._journal.is_due
            or any(job.move is None and job.renew for job in self.jobs.values())
        ):
            return 0
        deadlines = [self.leases.deadline_ns]
        for job in self.jobs.values():
            if job.move is not None:
                deadline = job.move.deadline_ns
                deadlines.append(job.retry_at_ns if deadline is None else deadline)
        return min((d for d in deadlines if d is not None), default=None)

    # --- what hosts say ---

    def heartbeat(self, job: int, host: str, rounds: int, now_ns: int, waiting: bool) -> None:
        running = self.job(job)
        running.check_part(host)
        if (why := running.gone.get(host)) is not None:
            if host not in running.left:
                self.outbox.append(Message(host, Abort(job, f"{why}; the job went on without {host}")))
            return
        self.leases.renew((job, host), now_ns)
        if host not in running.joined:
            running.joined.add(host)
            self._journal.change(job)
        running.silent.pop(host, None)
        if host not in running.ranks:
            return
        seen = running.progress.get(host)
        if seen is None:
            running.progress[host] = Progress(rounds, now_ns, now_ns, waiting)
        else:
            seen.report(rounds, now_ns, waiting)

    def leave(self, job: int, host: str) -> None:
        running = self.job(job)
        running.check_part(host)
        self.leases.end((job, host))
        running.silent.pop(host, None)
        running.left.add(host)
        self._journal.change(job)

    def held(self, job: int, host: str, held: Held) -> None:
        running = self.job(job)
        running.check_part(host)
        if running.move is None or host in running.gone:
            return
        try:
            running.move.held(self.address(host), held)
        except ControllerError as error:
            self.abort(job, str(error))

    def resumed(self, job: int, host: str, generation: int) -> None:
        if (move := self.job(job).move) is not None:
            move.resumed(self.address(host), generation)

    def waiting_for(self, job: int, now_ns: int) -> str:
        if job in self.aborted:
            return f"job {job}: aborted: {self.aborted[job]}"
        running = self.job(job)
        leased = self.options.lease_ns is not None
        expected = {h for h in running.hosts if leased and not self.leases.lives((job, h)) and h not in running.silent}
        return running.waiting_for(now_ns, self._host_at, frozenset(expected))

    # --- who is lost ---

    def end_leases(self, now_ns: int) -> None:
        lease_ns = self.options.lease_ns or 0
        lost: dict[int, dict[str, str]] = {}
        for number, host in self.leases.expire(now_ns):
            self.counts.leases_expired += 1
            job = self.jobs[number]
            if job.must_wait_for(host):
                job.silent[host] = now_ns - lease_ns
                if job.move is None:
                    self.begin(number, job, f"{host} is silent", now_ns)
            else:
                lost.setdefault(number, {})[host] = f"{host} was silent for {lease_ns / 1e9:g} s"
        for number, hosts in lost.items():
            self.lose(number, self.jobs[number], hosts, now_ns)

    def fail(self, job: int, host: str, why: str, now_ns: int) -> None:
        running = self.job(job)
        running.check_part(host)
        self.lose(job, running, {host: f"{host} failed: {why}"}, now_ns)

    def lose(self, number: int, job: RunningJob, hosts: Mapping[str, str], now_ns: int) -> None:
        """These hosts failed and are out for good: go on without them as the job's policy has it."""
        lost = {host: why for host, why in hosts.items() if host not in job.gone}
        if not lost:
            return
        why = "; ".join(lost.values())
        _log.warning("job %d: %s", number, why)
        workers = [host for host in lost if host in job.ranks]
        self._take_out(number, job, lost)
        if not job.active:
            self.abort(number, f"{why}; no worker is left")
        elif workers and job.spec.policy is FailurePolicy.ABORT:
            self.abort(number, f"{why}, and the job's policy is to abort")
        elif workers and job.spec.policy is FailurePolicy.WAIT:
            self.abort(number, f"{why}; it cannot come back, for which the job's policy would wait")
        elif workers and len(job.active) < job.spec.least_workers:
            self.abort(number, f"{why}; {len(job.active)} workers are left, and it needs {job.spec.least_workers}")
        else:
            self._go_without(number, job, lost, why, now_ns)

    def _take_out(self, number: int, job: RunningJob, hosts: Mapping[str, str]) -> None:
        """Out for good. A server is followed by the first spare host that lives, if there is any."""
        spec = job.spec
        job.gone.update(hosts)
        for host in hosts:
            self.leases.end((number, host))
            job.silent.pop(host, None)
        spares, server = tuple(s for s in spec.spares if s not in job.gone), spec.server
        if server in hosts:
            server = job.newcomer = next(iter(self._living(number, spares)), None)
            spares = tuple(s for s in spares if s != server) if server is not None else ()
        job.plan = replace(job.plan, spec=replace(spec, server=server, spares=spares))
        self._journal.change(number)

    def _living(self, number: int, hosts: Iterable[str]) -> Iterable[str]:
        """Those with a lease, where there are leases."""
        return (h for h in hosts if self.options.lease_ns is None or self.leases.lives((number, h)))

    def _go_without(self, number: int, job: RunningJob, hosts: Iterable[str], why: str, now_ns: int) -> None:
        if job.move is None:
            self.begin(number, job, why, now_ns)
            return
        try:
            job.move.lose(map(self.address, hosts), now_ns)
        except ControllerError as error:
            self.abort(number, str(error))

    def let_go(self, now_ns: int) -> None:
        """Hosts that have left: end the jobs that have no worker any more, go on with those where someone waits."""
        for number, job in list(self.jobs.items()):
            left = {host: f"{host} has left" for host in sorted(job.left - job.gone.keys())}
            if not left:
                continue
            if job.left.issuperset(job.active):
                self.remove(number)
            elif job.move is not None or job.someone_waits or job.spec.server in left:
                self._take_out(number, job, left)
                self._go_without(number, job, left, "; ".join(left.values()), now_ns)

    def abort(self, number: int, why: str) -> None:
        """End a job that cannot go on, and tell everyone."""
        job = self.jobs[number]
        _log.error("job %d is aborted: %s", number, why)
        told = dict.fromkeys((*job.spec.workers, *job.hosts, *job.spec.spares))
        self.outbox += [Message(host, Abort(number, why)) for host in told if host not in job.left]
        self.aborted[number] = why
        if len(self.aborted) > MOST_ABORTED:
            del self.aborted[next(iter(self.aborted))]
        self.counts.aborted += 1
        self.remove(number)

    def remove(self, number: int) -> None:
        job = self.jobs.pop(number)
        for host in (*job.spec.workers, *job.hosts, *job.spec.spares):
            self.leases.end((number, host))
        self._planner.memory.retain(number)
        self.ended = True
        self._journal.change(number)

    # --- what moves ---

    def begin(self, number: int, job: RunningJob, why: str, now_ns: int, placement: Placement | None = None) -> None:
        _log.info("job %d leaves generation %d: %s", number, job.plan.generation, why)
        job.target, job.why, job.renew, job.retry_at_ns = placement, why, "", 0
        self.counts.moves += 1
        job.move = self._move(number, job, job.plan.generation, now_ns)
        self._journal.change(number)

    def _move(self, number: int, job: RunningJob, generation: int, now_ns: int) -> Move:
        """A move that leaves this generation."""
        servers = [] if job.spec.server in (None, job.newcomer) else [job.hosts[-1]]
        return Move(
            job=number,
            generation=generation,
            workers=map(self.address, job.active),
            servers=map(self.address, servers),
            slots=job.spec.slots,
            now_ns=now_ns,
            retry_ns=self.options.retry_ns,
            patience_ns=None if job.spec.policy is FailurePolicy.WAIT else self.options.patience_ns,
        )

    def repair(self, now_ns: int) -> None:
        """Begin a new generation of each job that is stuck."""
        if self.options.stuck_ns is None:
            return
        for number, job in self.jobs.items():
            if job.move is None and (stuck := job.stuck(now_ns, self.options.stuck_ns)):
                _log.warning("job %d starts a new generation: no progress at %s", number, ", ".join(stuck))
                self.begin(number, job, f"no progress at {', '.join(stuck)}", now_ns)

    def poll(self, number: int, now_ns: int) -> bool:
        """Go on with a job's move, or begin one that is due; whether the switches must be written now, and `settle`
        called then.
        """
        job = self.jobs.get(number)
        if job is None:
            return False
        if job.move is None and job.renew:
            self.begin(number, job, job.renew, now_ns)
        if (move := job.move) is None:
            return False
        try:
            out = move.poll(now_ns)
        except ControllerError as error:
            self.abort(number, str(error))
            return False
        silent = {self._host_at[address] for address in move.lost} - job.gone.keys()
        self.lose(number, job, {host: f"{host} did not answer" for host in sorted(silent)}, now_ns)
        if number not in self.jobs:
            return False
        self.outbox += [Message(self._host_at[address], content) for address, content in out]
        if move.phase is Phase.DONE:
            job.move, job.target, job.newcomer, job.moved_ns = None, None, None, now_ns
            self._journal.change(number)
        return move.phase is Phase.SETTLING and now_ns >= job.retry_at_ns

    def settle(self, number: int, now_ns: int) -> None:
        """The switches hold the job's plan: its hosts go on by it."""
        job = self.jobs[number]
        move, plan = job.move, job.plan
        assert move is not None
        assert move.settlement is not None
        self._planner.memory.retain(number, plan.switches)
        plans: dict[int, WorkerPlan | ServerPlan] = {self.address(name): p for name, p in plan.workers.items()}
        joining: set[int] = set()
        if (server := job.spec.server) is not None:
            joins = server == job.newcomer
            job.first_round = move.settlement.least if joins else 0
            plans[self.address(server)] = server_plan(plan, job.first_round)
            joining |= {self.address(server)} if joins else set()
        job.trouble = ""
        move.settled(plans, now_ns, joining)
        self._journal.change(number)
        self.poll(number, now_ns)

    def has_no_place(self, number: int, job: RunningJob, error: ControllerError, now_ns: int) -> None:
        """Do without hosts that no way leads to, where the job's policy has it so; else try again later."""
        _log.warning("job %d finds no place: %s", number, error)
        job.trouble, job.retry_at_ns = str(error), now_ns + self.options.retry_ns
        cut_off = self._planner.cut_off(job.spec, job.active)
        if not cut_off or job.spec.policy is FailurePolicy.WAIT:
            return
        if job.spec.server is not None and 2 * len(cut_off) > len(job.active):
            cut_off = (job.spec.server,)
        self.lose(number, job, {host: f"no way leads to {host}" for host in cut_off}, now_ns)

    # --- what outlives the controller ---

    def keep(self, number: int, data: Mapping[str, Any]) -> None:
        self.job(number).kept = data
        self._journal.change(number)
        self._journal.write_jobs(self.jobs)

    def restore(self, now_ns: int) -> None:
        """Go on with the jobs of the journal. All leases begin anew; a move that was under way is
        taken up where it was.

        Raises JournalError for what does not fit this fabric.
        """
        self._planner.histories.update(self._journal.histories)
        for number, record, kept in self._journal.jobs():
            try:
                self._restore(number, record, kept, now_ns)
            except (ControllerError, TopologyError, KeyError, ValueError) as error:
                raise self._journal.misfit(number, error) from None

    def _restore(self, number: int, record: JobRecord, kept: Mapping[str, Any], now_ns: int) -> None:
        planner = self._planner
        planner.histories[number] = record.history
        planner.memory.take(number, record.allotments)
        spec, root = record.spec, record.placement.root
        if not self._topology.is_switch(root) and root != spec.server:  # it was lost, and the move goes on without it
            spec = replace(spec, server=root, spares=())
        plan = replace(planner.lay(spec, record.placement, record.generation, record.allotments), spec=record.spec)
        job = self.jobs[number] = RunningJob(plan, now_ns, record.note)
        job.gone, job.left, job.joined = dict(record.gone), set(record.left), set(record.joined)
        job.kept = kept
        job.newcomer, job.first_round = record.newcomer, record.first_round
        for host in job.hosts:
            if host in job.joined and host not in job.left:
                self.leases.renew((number, host), now_ns)
        if record.moving:
            job.renew = f"{record.moving}, when the controller was restarted"
        if record.finals is not None:
            job.why, job.move = record.moving, self._move(number, job, previous_generation(plan.generation), now_ns)
            plans: dict[str, WorkerPlan | ServerPlan] = {**plan.workers}
            if plan.spec.server is not None:
                plans[plan.spec.server] = server_plan(plan, record.first_round)
            resumes = {
                self.address(host): (plans[host], finals) for host, finals in record.finals.items() if host in plans
            }
            joining = () if record.newcomer is None else (self.address(record.newcomer),)
            job.move.take_up(resumes, joining, now_ns)

    def address(self, host: str) -> int:
        return int(self._topology.host(host).address)


def server_plan(plan: JobPlan, first_round: int = 0) -> ServerPlan:
    """The server's part: the root's, or without children a mere holder's of the rounds that it has completed before."""
    spec = plan.spec
    server = plan.server or ServerPlan(spec.job, plan.generation, spec.slots, (), len(spec.workers))
    return replace(server, first_round=first_round)
