"""What a controller knows of one running job: its plan, its hosts' progress, its move, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..congestion.undeclared import JobRounds
from ..errors import ControllerError
from ..placement import Placement
from ..planning.plan import FailurePolicy, JobPlan, JobSpec
from .moves import Move, Phase
from .worth import Account


@dataclass(slots=True)
class Progress:
    """What one worker has reported."""

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
        """What it may have been of late, at most: a job works in bursts, and reports and telemetry see them at other
        times. So what may be its own traffic is not taken for others'.
        """
        return max(self.average, *self.last)

    def report(self, rounds: int, now_ns: int, waiting: bool, average_ns: int) -> None:
        """`average_ns`: T of telemetry's averages."""
        if (elapsed_ns := now_ns - self.reported_ns) > 0:
            rate = 1e9 * (rounds - self.rounds) / elapsed_ns
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
    """What the job was not given as it had asked for, and why, for people; empty where it was."""
    progress: dict[str, Progress] = field(default_factory=dict)
    """What each worker has reported last; who has not reported yet is missing."""
    move: Move | None = None
    """The move under way; None: there is none."""
    paused_ns: int = 0
    """When its last move began."""
    target: Placement | None = None
    """The placement that the move leads to; None: the present one, or what the strategy finds where that cannot be."""
    why: str = ""
    """Why the job moves, or moved last, for people."""
    renew: str = ""
    """Why a new generation is due as soon as no move is under way."""
    troubles: tuple[ControllerError, ...] = ()
    """What stands in the way of the move's next step, which is tried again."""
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
    account: Account | None = None
    """What its moves for its own good have won; None: it was not looked at yet."""
    ranks: Mapping[str, int] = field(init=False)
    """The rank of every worker that the job began with, also of those that are gone."""

    def __post_init__(self) -> None:
        self.ranks = {worker: rank for rank, worker in enumerate(self.spec.workers)}

    @property
    def number(self) -> int:
        return self.plan.spec.job

    @property
    def spec(self) -> JobSpec:
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
        """How many rounds the slowest worker completes in a second."""
        return min((self.progress[w].rounds_per_second for w in self.active if w in self.progress), default=0.0)

    @property
    def rounds(self) -> JobRounds:
        """How far it is."""
        told = [self.progress[worker] for worker in self.active if worker in self.progress]
        complete = [each.rounds for each in told]
        heard_ns = min(each.reported_ns for each in told) if len(told) == len(self.active) else -1
        telling = self.joined.issuperset(self.active) and not self.silent and not self.left
        unsettled = self.move is not None or not telling
        return JobRounds(self.plan, min(complete, default=0), max(complete, default=0), heard_ns, unsettled)

    def stuck(self, stuck_ns: int) -> list[str]:
        """The workers that have waited for so long without completing a round, as their last reports say: while none
        comes nothing is known, and rounds may have been completed since.
        """
        return [
            name
            for name in self.active
            if (seen := self.progress.get(name)) is not None
            and name not in self.left
            and seen.waiting
            and seen.reported_ns - max(seen.grown_ns, self.moved_ns) >= stuck_ns
        ]

    @property
    def someone_waits(self) -> bool:
        """Whether a worker that has not left waits for rounds."""
        return any(self.progress[w].waiting for w in self.active if w in self.progress and w not in self.left)

    def waiting_for(self, now_ns: int, name_of: Mapping[int, str], expected: frozenset[str]) -> str:
        """One sentence: what the job waits for. `expected`: hosts that have never been heard of."""
        who = f"job {self.spec.job}, generation {self.plan.generation}"
        silent = [
            f"{name} ({self._part(name)}), silent for {_s(now_ns - since)}" for name, since in self.silent.items()
        ]
        move = self.move
        if move is not None:
            awaited = ", ".join(sorted(name_of[address] for address in move.awaited))
            moves = f"{who}: moves on ({self.why})"
            if silent:
                return f"{moves}; paused, waits for {', '.join(silent)}, as its policy is {self.spec.policy.value}"
            match move.phase:
                case Phase.PAUSING:
                    return f"{moves}; waits for {awaited} to pause"
                case Phase.SETTLING:
                    why = "; ".join(map(str, self.troubles)) or "it is being written"
                    return f"{moves}; waits for the switches to hold the new plan: {why}"
                case _:
                    return f"{moves}; waits for {awaited} to resume"
        if expected:
            return f"{who}: waits for {', '.join(f'{name} ({self._part(name)})' for name in sorted(expected))} to join"
        waits = {w: p for w in self.active if (p := self.progress.get(w)) is not None and p.waiting}
        if not waits:
            return f"{who}: waits for nothing" + (f"; {self.note}" if self.note else "")
        least = min(waits.values(), key=lambda p: p.rounds)
        others = [w for w in self.active if w in self.progress and w not in waits]
        behind = f"; {', '.join(others)} compute" if others else ""
        return f"{who}: {', '.join(waits)} wait in round {least.rounds} since {_s(now_ns - least.grown_ns)}{behind}"

    def check_part(self, host: str) -> None:
        """Raises ControllerError for a host that was never in the job."""
        spec = self.spec
        if host not in self.ranks and host not in (spec.server, *spec.spares) and host not in self.gone:
            raise ControllerError(
                f"job {spec.job}: {host} is none of its workers {', '.join(spec.workers)}, nor its server"
            )

    def must_wait_for(self, host: str) -> bool:
        """Whether a worker that falls silent is waited for."""
        return self.spec.policy is FailurePolicy.WAIT and host in self.ranks

    def _part(self, host: str) -> str:
        return f"rank {self.ranks[host]}" if host in self.ranks else "server"


def _s(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:.1f} s"
