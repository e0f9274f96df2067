"""Progress of every job of a run over virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...controller.planning.plan import JobPlan
from ..records.record import JobTrace
from .round_count import Rounds

PROGRESS_SAMPLE_NS: Final = 100_000


class JobTraces:
    """Chunks that each job of the run has summed at its slowest worker, over time."""

    def __init__(self) -> None:
        self.next_ns = 0
        """When to look again."""
        self._rounds: dict[int, Rounds] = {}
        self._traces: dict[int, JobTrace] = {}

    @property
    def traces(self) -> list[JobTrace]:
        """One for each job that was taken in, in that order."""
        return list(self._traces.values())

    def begin(self, plan: JobPlan, rounds: Rounds, turn_ns: int, now_ns: int, latency_ns: int) -> None:
        """Record the admission of a job.

        Args:
            plan: Plan of the job.
            rounds: Rounds of one of its sums.
            turn_ns: Time of a packet of every stream on their shared link, in ns (`JobTrace.turn_ns`).
            now_ns: Present time, in ns.
            latency_ns: Time until the job's hosts receive the plan, in ns.
        """
        number = plan.spec.job
        self._rounds[number] = rounds
        self._traces[number] = JobTrace(
            job=number,
            workers=len(plan.spec.workers),
            round_trip_ns=plan.round_trip_ns,
            turn_ns=turn_ns,
            joined_ns=now_ns,
            sends_ns=now_ns + latency_ns + plan.pacing.hold_ns,
            time_ns=[],
            chunks=[],
        )

    def end(self, job: int, now_ns: int) -> None:
        """Note that a job has left."""
        self._traces[job].left_ns = now_ns

    def update(self, complete: Mapping[int, int], now_ns: int) -> None:
        """Record the number of complete rounds of each job."""
        self.next_ns = now_ns + PROGRESS_SAMPLE_NS
        for job, rounds in complete.items():
            trace = self._traces[job]
            trace.time_ns.append(now_ns)
            trace.chunks.append(self._rounds[job].chunks_in(rounds))
            trace.rounds.append(rounds)
