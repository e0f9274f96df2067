"""Whether running jobs would be better off elsewhere: one after another beside the others, then all together.

::

    every solve period:  job, job, …, all together ──one decision at a time──▶ moves begin

A job moves where that makes its step faster by more than the share `Options.improvement`, by every reading of
telemetry of the last two periods (by the last alone, it is looked at again a period later), where it wins back in good
time what moves have been seen to take, and not again before it has dwelt there. Readings that are not fresh speak for
no move.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from ..decisions import Decisions
from ..errors import ControllerError
from ..planning.plan import rounds_of_step
from ..planning.planner import Better, Planner, Surroundings
from ..telemetry.snapshot import Snapshot
from .job import RunningJob
from .mover import Mover
from .registry import JobRegistry

_log = logging.getLogger(__name__)

_STEADY_PERIODS: Final = 2
"""Of probes: a move must pay by all readings since so long ago."""
_ALL: Final = 0
"""In place of a job's number: all of them together."""

_Question = tuple[Callable[[], Any], Callable[[Any, int], None]]
"""What is to be decided, and what is done with the answer."""


class Improver:
    """Of all running jobs."""

    def __init__(self, jobs: JobRegistry, moves: Mover, planner: Planner, decisions: Decisions, now_ns: int) -> None:
        self._jobs = jobs
        self._moves = moves
        self._planner = planner
        self._decisions = decisions
        self._next_solve_ns = now_ns + moves.options.solve_period_ns
        self._to_consider: deque[int] = deque()
        """The numbers of jobs whose turn has come."""
        self._readings: deque[tuple[int, Snapshot]] = deque(maxlen=_STEADY_PERIODS + 1)
        """The last ones, oldest first, each with its time."""
        self._again: dict[int, int] = {}
        """When to look again at jobs that should move by the last reading alone."""
        self._deciding: tuple[Future[Any], Callable[[Any, int], None], str] | None = None

    @property
    def deadline_ns(self) -> int | None:
        """When jobs are to be looked at; 0 while some wait for that."""
        if not self._moves.options.solve_period_ns:
            return None
        if self._deciding is not None:
            return 0 if self._deciding[0].done() else None
        return 0 if self._to_consider else min([self._next_solve_ns, *self._again.values()])

    def consider(self, now_ns: int) -> None:
        """Take what was decided, and have the next thing decided that is due.

        One at a time: a decision may take long, and what all hosts say waits for the end of a tick where it is made at
        once.
        """
        options = self._moves.options
        if self._deciding is not None:
            if self._deciding[0].done():
                self._conclude(now_ns)
            return
        if not options.solve_period_ns:
            return
        self._read_ahead(now_ns)
        for number in [number for number, at_ns in self._again.items() if now_ns >= at_ns]:
            del self._again[number]
            if number not in self._to_consider:
                self._to_consider.appendleft(number)
        if now_ns >= self._next_solve_ns and not self._to_consider:
            self._next_solve_ns = now_ns + options.solve_period_ns
            self._to_consider.extend(self._jobs)
            if options.together and len(self._jobs) > 1:
                self._to_consider.append(_ALL)
        while self._to_consider:
            number = self._to_consider.popleft()
            question = self._all_together(now_ns) if number == _ALL else self._alone(number, now_ns)
            if question is not None:
                whose = "all jobs stay" if number == _ALL else f"job {number} stays"
                self._deciding = self._decisions.begin(question[0]), question[1], whose
                if self._deciding[0].done():
                    self._conclude(now_ns)
                return

    def _conclude(self, now_ns: int) -> None:
        assert self._deciding is not None
        (future, then, whose), self._deciding = self._deciding, None
        try:
            then(future.result(), now_ns)
        except ControllerError as error:
            _log.warning("%s where %s: %s", whose, "they are" if whose.startswith("all") else "it is", error)

    # --- what is known ---

    def _read_ahead(self, now_ns: int) -> None:
        """Keep the readings of the last periods before jobs are looked at."""
        period_ns = self._moves.outlook.period_ns
        next_ns = min([self._next_solve_ns, *self._again.values()])
        soon = next_ns - _STEADY_PERIODS * period_ns <= now_ns < next_ns
        if soon and (not self._readings or now_ns >= self._readings[-1][0] + period_ns):
            self._readings.append((now_ns, self._moves.outlook.background(now_ns)))

    def _steady(self, now_ns: int) -> list[Snapshot]:
        """The readings of the last periods, that of now the last."""
        if self._readings and self._readings[-1][0] == now_ns:
            self._readings.pop()
        self._readings.append((now_ns, self._moves.outlook.background(now_ns)))
        since_ns = now_ns - _STEADY_PERIODS * self._moves.outlook.period_ns
        return [seen for at_ns, seen in self._readings if at_ns > since_ns]

    def _rests(self, job: RunningJob, now_ns: int) -> bool:
        """Whether a job may be moved for its own good."""
        return job.move is None and now_ns - job.moved_ns >= self._moves.options.dwell_ns

    # --- one by one ---

    def _alone(self, number: int, now_ns: int) -> _Question | None:
        job = self._jobs.get(number)
        if job is None or not self._rests(job, now_ns):
            return None
        others = self._moves.outlook.others(number)
        unsettled, own = self._moves.outlook.unsettled(now_ns), job.plan.streams
        readings = [
            Surroundings.of(links, others).doubted([*links.stale, *links.unmeasured, *unsettled], own)
            for links in self._steady(now_ns)
        ]
        decide = self._planner.better(job.plan, job.active, readings, self._moves.options.improvement)
        return decide, partial(self._move, job, job.plan.generation)

    def _is_there(self, job: RunningJob, generation: int) -> bool:
        """Whether a job runs where it ran."""
        return self._jobs.get(job.number) is job and job.plan.generation == generation and job.move is None

    def _move(self, job: RunningJob, generation: int, better: Better | None, now_ns: int) -> None:
        """Unless the job has ended or moved meanwhile."""
        if better is None or not self._is_there(job, generation) or not self._wins_back([(job, better)]):
            return
        if better.is_steady:
            self._moves.begin(job.number, now_ns, better.placement, "a faster placement")
        else:
            self._again[job.number] = now_ns + self._moves.outlook.period_ns

    def _wins_back(self, moves: list[tuple[RunningJob, Better]]) -> bool:
        """Whether the time that steps save makes up for the pauses. A job that does not say how fast it is may move."""
        if not self._moves.pauses_ns or not all(job.rounds_per_second for job, _ in moves):
            return True
        pause_ns = sum(self._moves.pauses_ns) / len(self._moves.pauses_ns) * len(moves)
        saved = 0.0
        for job, better in moves:
            steps_per_second = job.rounds_per_second / sum(rounds_of_step(job.spec, self._planner.topology))
            saved += steps_per_second * (better.now_seconds - better.then_seconds)
        return saved * self._moves.options.payback_ns > pause_ns

    # --- all together ---

    def _all_together(self, now_ns: int) -> _Question | None:
        jobs = [job for job in self._jobs.values() if job.move is None]
        readings = self._steady(now_ns)
        if len(jobs) < 2 or len(jobs) < len(self._jobs) or self._moves.outlook.unsettled(now_ns):
            return None
        if not all(links.is_fresh for links in readings):
            return None
        movable = [self._rests(job, now_ns) for job in jobs]
        if not any(movable):
            return None
        plans = [(job.plan, job.active) for job in jobs]
        around = [Surroundings.of(links, {}) for links in readings]
        decide = self._planner.better_together(plans, movable, around, self._moves.options.improvement)
        return decide, partial(self._move_all, [(job, job.plan.generation) for job in jobs])

    def _move_all(self, jobs: list[tuple[RunningJob, int]], better: dict[int, Better], now_ns: int) -> None:
        """Unless some job has come, ended or moved meanwhile."""
        as_it_was = len(jobs) == len(self._jobs) and all(self._is_there(*each) for each in jobs)
        if not as_it_was:
            return
        moves = [(jobs[at][0], each) for at, each in better.items() if each.is_steady]
        if self._wins_back(moves):
            for job, each in moves:
                self._moves.begin(job.number, now_ns, each.placement, "a faster placement of all jobs")
