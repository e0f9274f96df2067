"""The controller's state of one running job: its plan, its hosts' progress, its move, and its pending conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..congestion.undeclared_traffic import JobRounds
from ..errors import ControllerError
from ..placement import Placement
from ..planning.plan import FailurePolicy, JobPlan, JobSpec
from .fetches import Fetches
from .migration import MigrationPhase, Move
from .migration_cost import MigrationBudget
from .reports import Reports

_REPAIR_ROUND_TRIPS: Final = 3
"""Longest round trips until a round arrives whose first two packets were lost: the second time-out is twice as long."""


@dataclass(slots=True)
class WorkerProgress:
    """Last report of one worker."""

    rounds: int
    reported_ns: int
    grown_ns: int
    """When `rounds` grew last, or when the worker began to wait for more of them."""
    waiting: bool
    average: float = 0.0
    """Rounds in a second, as telemetry averages."""
    completed_ns: int = -1
    """When `rounds` grew last; −1: never."""
    last: tuple[float, float] = (0.0, 0.0)
    """Rounds in a second between the last report but one and the one before it, and between the last two."""

    @property
    def rounds_per_second(self) -> float:
        """Upper estimate of the recent rate, so that a job's own traffic is not taken for others'.

        A job works in bursts, which reports and telemetry see at different times.
        """
        return max(self.average, *self.last)

    def report(self, rounds: int, now_ns: int, waiting: bool, average_ns: int) -> None:
        """Record one report of the worker.

        Args:
            rounds: Rounds that it has completed.
            now_ns: Present time, in ns.
            waiting: True if it waits for more rounds, False while it computes.
            average_ns: Time constant of telemetry's averages, in ns.
        """
        if (elapsed_ns := now_ns - self.reported_ns) > 0:
            # Fewer than before: a move has made rounds incomplete again.
            rate = 1e9 * max(rounds - self.rounds, 0) / elapsed_ns
            self.average += (rate - self.average) * min(elapsed_ns, average_ns) / average_ns
            self.last = self.last[1], rate
        if rounds > self.rounds:
            self.completed_ns = now_ns
        if rounds > self.rounds or not (self.waiting and waiting):
            self.grown_ns = now_ns
        self.rounds, self.reported_ns, self.waiting = rounds, now_ns, waiting


@dataclass(slots=True)
class RunningJob:
    """One job. Hosts are named as in the topology."""

    plan: JobPlan
    """The plan in force, or about to be: its generation is the newest that switches have been written for."""
    moved_ns: int
    """When its last move ended, or when it was admitted."""
    note: str = ""
    """Reduced grants and their reasons, for people; empty if the job got all that it requested."""
    progress: dict[str, WorkerProgress] = field(default_factory=dict)
    """Last report of each worker; workers without reports are missing."""
    reports: Reports = field(default_factory=Reports)
    """Progress of its program, as its workers report it."""
    move: Move | None = None
    """The move under way, or None."""
    paused_ns: int = 0
    """When its last move began."""
    target: Placement | None = None
    """Target placement of the move; None: the present one, or one that the strategy finds if that is impossible."""
    why: str = ""
    """Reason of the present or last move, for people."""
    renew: str = ""
    """Reason why a new generation is due as soon as no move is under way."""
    troubles: tuple[ControllerError, ...] = ()
    """Obstacles to the move's next step, which is retried."""
    retry_at_ns: int = 0
    """When that is tried again."""
    gone: dict[str, str] = field(default_factory=dict)
    """The hosts that are out of the job for good, each with the reason."""
    newcomer: str | None = None
    """The server, while it has not confirmed that it takes over in mid-job."""
    first_round: int = 0
    """The round at which a server that takes over in mid-job begins to sum."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Data of the caller's own that the job keeps, also over a restart of the controller."""
    joined: set[str] = field(default_factory=set)
    """The hosts that have been heard of at least once."""
    left: set[str] = field(default_factory=set)
    """The hosts that are done with the job. They are taken out of the tree once someone waits for them."""
    doubts: dict[str, int] = field(default_factory=dict)
    """The hosts whose silence the network explains, each with the leases in a row that it was given for that."""
    silent: dict[str, int] = field(default_factory=dict)
    """The workers whose lease ran out and that the job waits for, each with the time since when."""
    fetches: dict[int, Fetches] = field(default_factory=dict)
    """Final rounds that its hosts fetch from each other, by the generation in which they do; without those that are
    over.
    """
    account: MigrationBudget | None = None
    """Gains of its moves for its own good; None: not evaluated yet."""
    ranks: Mapping[str, int] = field(init=False)
    """The rank of every worker that the job began with, also of those that are gone."""

    def __post_init__(self) -> None:
        self.ranks = {worker: rank for rank, worker in enumerate(self.spec.workers)}

    @property
    def number(self) -> int:
        """Number of the job, 1…65535."""
        return self.plan.spec.job

    @property
    def spec(self) -> JobSpec:
        """Specification of the job's current plan."""
        return self.plan.spec

    @property
    def active(self) -> tuple[str, ...]:
        """The workers that take part."""
        return tuple(w for w in self.spec.workers if w not in self.gone)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All that take part, the server last."""
        return (*self.active, *([self.spec.server] if self.spec.server is not None else []))

    @property
    def rounds_per_second(self) -> float:
        """Rounds per second of the slowest worker."""
        return min((self.progress[w].rounds_per_second for w in self.active if w in self.progress), default=0.0)

    @property
    def rounds(self) -> JobRounds:
        """Progress of the job."""
        told = [self.progress[worker] for worker in self.active if worker in self.progress]
        complete = [report.rounds for report in told]
        heard_ns = min(report.reported_ns for report in told) if len(told) == len(self.active) else -1
        telling = self.joined.issuperset(self.active) and not self.silent and not self.left
        unsettled = self.move is not None or not telling
        return JobRounds(self.plan, min(complete, default=0), max(complete, default=0), heard_ns, unsettled)

    def drop_fetched(self, now_ns: int) -> None:
        """Drop fetches whose packets have left the network, by the workers' progress."""
        if not self.fetches:
            return
        rounds = {worker: self.progress[worker].rounds if worker in self.progress else -1 for worker in self.active}
        for fetches in self.fetches.values():
            fetches.note(rounds, self.plan.pacing.round_trip_ns, now_ns)
        self.fetches = {
            generation: fetches
            for generation, fetches in self.fetches.items()
            if fetches.pairs and (fetches.over_ns is None or now_ns < fetches.over_ns)
        }

    def stuck(self, stuck_ns: int) -> list[str]:
        """Return workers that have waited for `stuck_ns` without completing a round, by their last reports.

        Without a report nothing is known: rounds may have been completed since. On slow links workers wait longer: a
        generation may send nothing before packets of earlier ones have left, and a lost packet takes long to be sent
        again.
        """
        pacing = self.plan.pacing
        begun_ns = self.moved_ns + pacing.hold_ns
        longest_ns = max(stuck_ns, _REPAIR_ROUND_TRIPS * pacing.round_trip_ns)
        return [
            name
            for name in self.active
            if (seen := self.progress.get(name)) is not None
            and name not in self.left
            and seen.waiting
            and seen.reported_ns - max(seen.grown_ns, begun_ns) >= longest_ns
        ]

    @property
    def someone_waits(self) -> bool:
        """True if a worker that has not left waits for rounds."""
        return any(self.progress[w].waiting for w in self.active if w in self.progress and w not in self.left)

    def waiting_for(self, now_ns: int, name_of: Mapping[int, str], expected: frozenset[str]) -> str:
        """Return one sentence about the job's pending condition. `expected`: hosts that have never sent a message."""
        who = f"job {self.spec.job}, generation {self.plan.generation}"
        silent = [f"{self.named(name)}, silent for {_s(now_ns - since)}" for name, since in self.silent.items()]
        move = self.move
        if move is not None:
            awaited = ", ".join(sorted(name_of[address] for address in move.awaited))
            moves = f"{who}: moves on ({self.why})"
            if silent:
                return f"{moves}; paused, waits for {', '.join(silent)}, as its policy is {self.spec.policy.value}"
            match move.phase:
                case MigrationPhase.PAUSING:
                    return f"{moves}; waits for {awaited} to pause"
                case MigrationPhase.SETTLING:
                    why = "; ".join(map(str, self.troubles)) or "it is being written"
                    return f"{moves}; waits for the switches to hold the new plan: {why}"
                case _:
                    return f"{moves}; waits for {awaited} to resume"
        if expected:
            return f"{who}: waits for {', '.join(map(self.named, sorted(expected)))} to join"
        waits = {w: p for w in self.active if (p := self.progress.get(w)) is not None and p.waiting}
        if not waits:
            return f"{who}: waits for nothing" + (f"; {self.note}" if self.note else "")
        least = min(waits.values(), key=lambda p: p.rounds)
        others = [w for w in self.active if w in self.progress and w not in waits]
        behind = f"; {', '.join(others)} compute" if others else ""
        return f"{who}: {', '.join(waits)} wait in round {least.rounds} since {_s(now_ns - least.grown_ns)}{behind}"

    def named(self, host: str) -> str:
        """Return a host of the job for people, such as `rank 1 (h2)`."""
        return f"{self._part(host)} ({host})"

    def check_part(self, host: str) -> None:
        """Check that a host has ever been in the job.

        Raises:
            ControllerError: It has not.
        """
        spec = self.spec
        if host not in self.ranks and host not in (spec.server, *spec.spares) and host not in self.gone:
            raise ControllerError(
                f"{host} is none of its workers {', '.join(spec.workers)}, nor its server",
                place=f"job {spec.job}",
                value=host,
            )

    def must_wait_for(self, host: str) -> bool:
        """Return True if the job waits for a worker that has gone silent."""
        return self.spec.policy is FailurePolicy.WAIT and host in self.ranks

    def _part(self, host: str) -> str:
        return f"rank {self.ranks[host]}" if host in self.ranks else "server"


def _s(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:.1f} s"
