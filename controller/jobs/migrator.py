"""A running job's way from one generation to the next: every decision in the life of a move, in one place. Pure.

::

    begin, repair,                       PAUSING              SETTLING                        RESUMING
    follow, renew, lose ──▶ a move ──▶ Pause, Held ──▶ place, plan, write again ─▶ Resume, Resumed ──▶ DONE
                              ▲            │                  ▲      │                   │
                              │            │ no worker left   └──────┘ no place, or      │ a host is lost: PAUSING
                              │            ▼                    a switch refuses:        │ again, in the generation
                              │          abort                  tried again              │ that was being resumed
                              └── reasons for another generation meanwhile (`RunningJob.renew`) ◀────────┘

`migration.Move` is the message exchange with one job's hosts; a `Migrator` begins it, finds the job a placement, and
removes hosts from the job. `re_placement` decides whether a job should move. This module writes to no switch: `advance`
receives functions that do, and calls them at the right step.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ...topologies.model import Endpoint
from ...wire.aggregation import next_generation
from ...wire.control import FinalRound, Held
from ..decisions import Decisions
from ..errors import ControllerError, PlanError
from ..options import ControllerOptions, Message
from ..placement import Placement
from ..planning.generations import previous_generation
from ..planning.plan import FailurePolicy
from ..planning.planner import Planner
from .background_estimator import BackgroundTrafficEstimator
from .fetches import Fetches
from .job import RunningJob
from .migration import MigrationPhase, Move, MoveError
from .registry import JobRegistry

_log = logging.getLogger(__name__)

_REMEMBERED: Final = 16
WriteSwitches = Callable[[Collection[str]], Awaitable[Sequence[ControllerError]]]
"""Writes all switches' target state, and retries the named ones; returns the errors of those among them that still
refuse.
"""


class Migrator:
    """The moves of all running jobs."""

    def __init__(
        self,
        jobs: JobRegistry,
        planner: Planner,
        outlook: BackgroundTrafficEstimator,
        decisions: Decisions,
        options: ControllerOptions,
    ) -> None:
        """Create the moves, none of which is under way.

        Args:
            jobs: Running jobs.
            planner: Planner of placements.
            outlook: Estimator of the traffic that jobs meet.
            decisions: Record of decisions.
            options: Options of the controller.
        """
        self.options = options
        """May be replaced by others at any time; of these, moves heed what says when and how jobs move."""
        self._jobs = jobs
        self._planner = planner
        self._decisions = decisions
        self.pauses_ns: deque[int] = deque(maxlen=_REMEMBERED)
        """Pauses of the last moves: until jobs resumed, plus the time that they then held back."""
        self.outlook = outlook
        """Link conditions of jobs."""

    @property
    def deadline_ns(self) -> int | None:
        """When a move has something to do; 0 while one waits to begin."""
        if any(job.move is None and job.renew for job in self._jobs.values()):
            return 0
        deadlines = []
        for job in self._jobs.values():
            if job.move is not None:
                deadline = job.move.deadline_ns
                deadlines.append(job.retry_at_ns if deadline is None else deadline)
        return min(deadlines, default=None)

    # --- why a job moves ---

    def begin(self, number: int, now_ns: int, placement: Placement | None = None, why: str = "asked to") -> None:
        """Begin to move a job; no effect on a job that is moving.

        Args:
            number: Number of the job.
            now_ns: Present time, in ns.
            placement: Placement of the next generation; None: the present one, for example after a stuck round.
            why: Reason, for people.

        Raises:
            PlanError: The placement is not possible; the job then stays.
        """
        if self._jobs[number].move is None:
            self.migrate_jointly({number: placement}, now_ns, why)

    def migrate_jointly(self, placements: Mapping[int, Placement | None], now_ns: int, why: str) -> None:
        """Begin moves of several jobs, none of which is moving.

        Raises:
            PlanError: Their placements are not possible together; all jobs then stay.
        """
        jobs = [(self._jobs[number], placement) for number, placement in placements.items()]
        try:
            for job, placement in jobs:
                if placement is not None:
                    self._planner.plan(job.spec, placement, next_generation(job.plan.generation))
        except PlanError:
            for job, _ in jobs:
                self._planner.memory.retain(job.number, job.plan.switches)
            raise
        for job, placement in jobs:
            self._begin(job, why, now_ns, placement)

    def repair(self, now_ns: int) -> None:
        """Begin a new generation of each job that is stuck."""
        if self.options.stuck_ns is None:
            return
        for number, job in list(self._jobs.items()):
            with self._jobs.failing_alone(number):
                if job.move is None and (stuck := job.stuck(self.options.stuck_ns)):
                    _log.warning("job %d starts a new generation: no progress at %s", number, ", ".join(stuck))
                    self._begin(job, f"no progress at {', '.join(stuck)}", now_ns)

    def update_topology(self, lost: Collection[str], now_ns: int) -> None:
        """Adapt all jobs to a changed fabric: they keep their trees if they can, and else move.

        Args:
            lost: Names of the switches that are lost.
            now_ns: Present time.
        """
        for job in list(self._jobs.values()):
            with self._jobs.failing_alone(job.number):
                self._plan_again(job, lost, now_ns)

    def _plan_again(self, job: RunningJob, lost: Collection[str], now_ns: int) -> None:
        """Keep the job's tree in the changed fabric if possible, and else begin a move."""
        plan = job.plan
        try:
            job.plan = replace(self._planner.plan(plan.spec, plan.placement, plan.generation), pacing=plan.pacing)
        except PlanError:
            used = sorted({*lost} & {*plan.switches, plan.placement.root})
            why = f"{', '.join(used)} is lost" if used else "the links that are left do not carry its tree"
            if job.move is None:
                self._begin(job, why, now_ns)
            elif job.move.phase is MigrationPhase.RESUMING:
                job.renew = why

    def renew(self, restarted: Iterable[str]) -> None:
        """Start a new generation of each job that uses these switches, which have restarted with empty registers.

        Rounds summed there are summed again.
        """
        for name in sorted(restarted):
            for job in self._jobs.values():
                if name in job.plan.switches and (job.move is None or job.move.phase is MigrationPhase.RESUMING):
                    job.renew = f"{name} has started anew"

    def pace(self, gaps_ns: Mapping[int, int]) -> None:
        """Set the gap between two rounds of these jobs' hosts, which is sent with a new generation.

        If some hosts are missing, none sends.
        """
        for number, gap_ns in gaps_ns.items():
            job = self._jobs[number]
            if job.move is None and not job.renew and job.joined.issuperset(job.active):
                job.renew = (
                    f"its hosts are to send a round each {gap_ns / 1e3:.0f} us" if gap_ns else "no gap is needed"
                )

    def _begin(self, job: RunningJob, why: str, now_ns: int, target: Placement | None = None) -> None:
        _log.info("job %d leaves generation %d: %s", job.number, job.plan.generation, why)
        job.target, job.why, job.renew, job.retry_at_ns = target, why, "", 0
        self._jobs.counts.moves += 1
        job.paused_ns = now_ns
        job.move = self._new_move(job, job.plan.generation, now_ns)
        self._jobs.journal.change(job.number)

    def _new_move(self, job: RunningJob, generation: int, now_ns: int) -> Move:
        """A move that leaves this generation."""
        servers = [] if job.spec.server in (None, job.newcomer) else [job.hosts[-1]]
        return Move(
            job=job.number,
            generation=generation,
            workers=map(self._jobs.address, job.active),
            servers=map(self._jobs.address, servers),
            slots=job.spec.slots,
            now_ns=now_ns,
            retry_ns=self.options.retry_ns,
            patience_ns=None if job.spec.policy is FailurePolicy.WAIT else self.options.patience_ns,
        )

    def restore(
        self,
        job: RunningJob,
        why: str,
        finals: Mapping[str, tuple[FinalRound, ...]] | None,
        again: tuple[int, ...],
        now_ns: int,
    ) -> None:
        """Resume a move that was under way when the controller ended.

        Args:
            job: The job.
            why: Reason of the move.
            finals: Rounds that each host fetches, if the move had reached its Resumes; None: it begins again.
            again: Rounds that all workers sum again by these Resumes.
            now_ns: Present time, in ns.
        """
        job.renew = f"{why}, when the controller was restarted"
        if finals is None:
            return
        job.why, job.paused_ns = why, now_ns
        job.move = self._new_move(job, previous_generation(job.plan.generation), now_ns)
        plans = job.plan.host_plans(job.first_round)
        resumes = {self._jobs.address(host): (plans[host], rounds) for host, rounds in finals.items() if host in plans}
        job.move.restore(resumes, again, self._joining(job), now_ns)
        job.fetches[job.plan.generation] = Fetches.of(finals, self._jobs.host_at)

    # --- lost hosts ---

    def mark_lost(self, job: RunningJob, hosts: Mapping[str, str], now_ns: int) -> None:
        """Exclude failed hosts for good, each with its reason, and go on without them as the job's policy has it."""
        lost = {host: why for host, why in hosts.items() if host not in job.gone}
        if not lost:
            return
        why = "; ".join(lost.values())
        _log.warning("job %d: %s", job.number, why)
        workers = [host for host in lost if host in job.ranks]
        self._remove_hosts(job, lost)
        if not job.active:
            self._jobs.abort(job.number, f"{why}; no worker is left")
        elif workers and job.spec.policy is FailurePolicy.ABORT:
            self._jobs.abort(job.number, f"{why}, and the job's policy is to abort")
        elif workers and job.spec.policy is FailurePolicy.WAIT:
            self._jobs.abort(job.number, f"{why}; it cannot come back, for which the job's policy would wait")
        elif workers and len(job.active) < job.spec.min_workers:
            self._jobs.abort(
                job.number, f"{why}; {len(job.active)} workers are left, and it needs {job.spec.min_workers}"
            )
        else:
            self._go_on(job, lost, why, now_ns)

    def go_without(self, job: RunningJob, hosts: Mapping[str, str], now_ns: int) -> None:
        """Remove these hosts from the job, each with its reason; none of them counts as failed."""
        self._remove_hosts(job, hosts)
        self._go_on(job, hosts, "; ".join(hosts.values()), now_ns)

    def _remove_hosts(self, job: RunningJob, hosts: Mapping[str, str]) -> None:
        """Remove hosts for good. A server is replaced by the first living spare; without one, the job continues without
        server.
        """
        spec = job.spec
        job.gone.update(hosts)
        for host in hosts:
            self._jobs.leases.end((job.number, host))
            job.silent.pop(host, None)
        spares, server = tuple(s for s in spec.spares if s not in job.gone), spec.server
        if server in hosts:
            server = job.newcomer = next(self._jobs.living(job.number, spares), None)
            if server is None:
                job.gone.update({spare: f"{spare} was not there to follow {spec.server}" for spare in spares})
            spares = tuple(s for s in spares if s not in (server, *job.gone))
        job.plan = replace(job.plan, spec=replace(spec, server=server, spares=spares))
        self._jobs.journal.change(job.number)

    def _go_on(self, job: RunningJob, hosts: Iterable[str], why: str, now_ns: int) -> None:
        """Those who are left go on in a generation without these hosts."""
        if job.move is None:
            self._begin(job, why, now_ns)
            return
        try:
            job.move.mark_lost(map(self._jobs.address, hosts), now_ns)
        except MoveError as error:
            self._jobs.abort(job.number, str(error))

    # --- how it moves ---

    def held(self, number: int, host: str, held: Held) -> None:
        """Process a host's answer to Pause. Raises ControllerError for a host that was never in the job."""
        job = self._jobs[number]
        job.check_part(host)
        if job.move is None or host in job.gone:
            return
        try:
            if job.move.held(self._jobs.address(host), held):
                self._note_takeover(job, host)
        except MoveError as error:
            self._jobs.abort(number, str(error))

    def resumed(self, number: int, host: str, generation: int, now_ns: int) -> None:
        """Record that a host continues in a generation. Copies of earlier confirmations change nothing, and the last
        confirmation ends the move.

        Args:
            number: Number of the job.
            host: Name of the host.
            generation: Generation that the host confirms.
            now_ns: Present time, in ns.
        """
        job = self._jobs[number]
        if job.move is None:
            return
        if job.move.resumed(self._jobs.address(host), generation):
            self._note_takeover(job, host)
        if job.move.phase is MigrationPhase.DONE:
            job.move, job.target, job.moved_ns = None, None, now_ns
            self.pauses_ns.append(now_ns - job.paused_ns + job.plan.pacing.hold_ns)
            self._jobs.journal.change(number)

    def _note_takeover(self, job: RunningJob, host: str) -> None:
        """A server that has answered has taken over: it has rounds to hold, and resumes like all others, even where the
        same move pauses it again.
        """
        if host == job.newcomer:
            job.newcomer = None
            self._jobs.journal.change(job.number)

    def fetches(self, now_ns: int) -> Mapping[int, Mapping[Endpoint, int]]:
        """Return the packets of rounds that hosts of moved jobs may fetch from each other now, by job and link."""
        routes, most = self._planner.routes, self.options.congestion.bound_packets
        found: dict[int, Mapping[Endpoint, int]] = {}
        for number, job in self._jobs.items():
            job.drop_fetched(now_ns)
            packets = Counter[Endpoint]()
            for fetches in job.fetches.values():
                packets.update(fetches.packets(routes, most))
            if packets:
                found[number] = packets
        return found

    async def advance(self, now_ns: int, write: WriteSwitches) -> None:
        """Take every job's move as far as it gets: messages for its hosts, then, once all have paused, the next plan
        into the switches, then the hosts' Resumes. Moves that are due begin.
        """
        for job in list(self._jobs.values()):
            due = False
            with self._jobs.failing_alone(job.number):
                if job.move is None and job.renew:
                    self._begin(job, job.renew, now_ns)
                due = self._exchange(job, now_ns) and await self._plan_next(job, now_ns)
            if due:
                troubles = await write(job.plan.switches)  # of all jobs
                with self._jobs.failing_alone(job.number):
                    if troubles:
                        self._try_later(job, troubles, now_ns)
                    else:
                        self._resume(job, now_ns)

    def _exchange(self, job: RunningJob, now_ns: int) -> bool:
        """Put what is due to be said to its hosts into the outbox; whether the switches are to be written now."""
        if (move := job.move) is None:
            return False
        try:
            out = move.poll(now_ns)
        except MoveError as error:
            self._jobs.abort(job.number, str(error))
            return False
        silent = {self._jobs.host_at(address) for address in move.lost} - job.gone.keys()
        self.mark_lost(job, {host: f"{host} did not answer" for host in sorted(silent)}, now_ns)
        if job.number not in self._jobs:
            return False
        self._jobs.outbox += [Message(self._jobs.host_at(address), content) for address, content in out]
        return move.phase is MigrationPhase.SETTLING and now_ns >= job.retry_at_ns

    async def _plan_next(self, job: RunningJob, now_ns: int) -> bool:
        """Plan the next generation for those who are left; False where they find no place now."""
        assert job.move is not None
        try:
            target = job.target or job.plan.placement
            if not self._planner.stands(target, job.spec, job.active):
                around = self.outlook.conditions_for(job.number, now_ns)
                place = partial(self._planner.place_anew, job.spec, job.active, around)
                target, job.note = await self._decisions.make(place)
            job.plan = self._planner.plan(job.spec, target, next_generation(job.move.generation))
        except ControllerError as error:
            self._has_no_place(job, error, now_ns)
            return False
        assert job.move.settlement is not None
        finals = {self._jobs.host_at(address): rounds for address, rounds in job.move.settlement.fetches.items()}
        job.fetches[job.plan.generation] = Fetches.of(finals, self._jobs.host_at)
        self._planner.history(job.number).go(job.plan.generation, job.plan.switches)
        return True

    def _has_no_place(self, job: RunningJob, error: ControllerError, now_ns: int) -> None:
        """Do without hosts that no way leads to, where the job's policy has it so; else try again later."""
        if str(error) not in map(str, job.troubles):
            _log.warning("job %d finds no place: %s", job.number, error)
        self._try_later(job, (error,), now_ns)
        cut_off = self._planner.cut_off(job.spec, job.active)
        if not cut_off or job.spec.policy is FailurePolicy.WAIT:
            return
        if job.spec.server is not None and 2 * len(cut_off) > len(job.active):
            cut_off = (job.spec.server,)
        self.mark_lost(job, {host: f"no way leads to {host}" for host in cut_off}, now_ns)

    def _try_later(self, job: RunningJob, troubles: Sequence[ControllerError], now_ns: int) -> None:
        job.troubles, job.retry_at_ns = tuple(troubles), now_ns + self.options.retry_ns

    def _resume(self, job: RunningJob, now_ns: int) -> None:
        """The switches hold the job's plan: its hosts go on by it."""
        move, plan = job.move, job.plan
        assert move is not None
        assert move.settlement is not None
        self._planner.memory.retain(job.number, plan.switches)
        job.first_round = 0 if job.newcomer is None else move.settlement.least
        plans = {self._jobs.address(host): part for host, part in plan.host_plans(job.first_round).items()}
        job.troubles = ()
        move.settled(plans, now_ns, self._joining(job))
        self._jobs.journal.change(job.number)
        self._exchange(job, now_ns)

    def _joining(self, job: RunningJob) -> tuple[int, ...]:
        """The address of the server, where it takes over in mid-job and so has nothing to resume."""
        return () if job.newcomer is None else (self._jobs.address(job.newcomer),)
