"""Re-placement of running jobs: each job in turn next to the others, then all together.

::

    every solve period:  job, job, …, all together ──one decision at a time──▶ moves begin

A job moves if that makes its step faster by more than the share `Options.improvement`, by every reading of telemetry of
the last two periods. (If only the last reading says so, the job is evaluated again a period later.) The gain must also
pay for the measured cost of a move (`migration_cost`), and the job stays for a minimum time. Stale readings never
support a move.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, Final

from ...topologies.model import Endpoint
from ..congestion.window_controller import WindowController
from ..decisions import Decisions
from ..errors import ControllerError, described
from ..placement import Placement
from ..placement.model.links import Links
from ..placement.model.loads import LinkLoad
from ..planning.improvement import Improvement, saved_together
from ..planning.persistence import LoadHistory
from ..planning.plan import rounds_of_step
from ..planning.planner import LinkConditions, Planner, loads_of
from ..telemetry.snapshot import Snapshot
from .job import RunningJob
from .migration_cost import MigrationBudget, seconds_to_break_even
from .migrator import Migrator
from .registry import JobRegistry

_log = logging.getLogger(__name__)

_STEADY_PERIODS: Final = 2
"""Probe periods over which every reading must favour the move."""
_KEPT: Final = 12
"""Maximum number of readings kept."""


@dataclass(frozen=True)
class _Reading:
    """Link readings at one time."""

    at_ns: int
    links: Snapshot

    @cached_property
    def loads(self) -> Mapping[Endpoint, LinkLoad]:
        """Loads for placement, the same for all jobs."""
        return loads_of(self.links)


_Question = tuple[Callable[[], Any], Callable[[Any, int], None]]
"""A decision to compute, and the function that applies its result."""


class RePlacementScheduler:
    """Re-placement of all running jobs."""

    def __init__(
        self,
        jobs: JobRegistry,
        moves: Migrator,
        planner: Planner,
        windows: WindowController,
        decisions: Decisions,
        now_ns: int,
    ) -> None:
        """Create the scheduler; the first decisions are due one solve period from now.

        Args:
            jobs: Running jobs.
            moves: Their moves.
            planner: Planner of placements.
            windows: Windows of all jobs.
            decisions: Record of decisions.
            now_ns: Present time, in ns.
        """
        self._jobs = jobs
        self._moves = moves
        self._planner = planner
        self._windows = windows
        self._decisions = decisions
        self._next_solve_ns = now_ns + moves.options.solve_period_ns
        self._to_consider: deque[int | None] = deque()
        """The numbers of jobs whose turn has come; None: all of them together."""
        self._readings: deque[_Reading] = deque(maxlen=_KEPT)
        """The last ones, oldest first."""
        self._loads = LoadHistory(_KEPT)
        self._again: dict[int, int] = {}
        """When to look again at jobs that should move as soon as readings have said so for longer."""
        self._deciding: tuple[Future[Any], Callable[[Any, int], None], str] | None = None

    @property
    def deadline_ns(self) -> int | None:
        """When jobs are to be looked at; 0 while some wait for that."""
        if not self._moves.options.solve_period_ns:
            return None
        if self._deciding is not None:
            return 0 if self._deciding[0].done() else None
        return 0 if self._to_consider else min([self._next_solve_ns, *self._again.values()])

    def step(self, now_ns: int) -> None:
        """Apply finished decisions, and start the next one that is due.

        One at a time: a decision may take long, and messages from all hosts wait for the end of a tick if it is made
        synchronously.
        """
        options = self._moves.options
        if self._deciding is not None:
            if self._deciding[0].done():
                self._apply(now_ns)
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
                self._to_consider.append(None)
        while self._to_consider:
            whom = self._to_consider.popleft()
            whose = "all jobs stay" if whom is None else f"job {whom} stays"
            try:
                question = self._evaluate_all(now_ns) if whom is None else self._evaluate_job(whom, now_ns)
            except ControllerError:
                raise
            except Exception as error:  # noqa: BLE001 (of a strategy, perhaps a user's file)
                self._note_unexpected(whose, error)
                continue
            if question is not None:
                self._deciding = self._decisions.begin(question[0]), question[1], whose
                if self._deciding[0].done():
                    self._apply(now_ns)
                return

    def _apply(self, now_ns: int) -> None:
        assert self._deciding is not None
        (future, then, whose), self._deciding = self._deciding, None
        try:
            then(future.result(), now_ns)
        except ControllerError as error:
            _log.warning("%s where %s: %s", whose, "they are" if whose.startswith("all") else "it is", error)
        except Exception as error:  # noqa: BLE001 (likewise)
            self._note_unexpected(whose, error)

    def _note_unexpected(self, whose: str, error: Exception) -> None:
        """Log a decision that failed by a fault of the strategy or of this code; raise it where none is contained."""
        if not self._jobs.contains_failures:
            raise error
        _log.error("%s in place, for the decision failed: %s", whose, described(error))
        _log.debug("%s in place", whose, exc_info=error)

    # --- readings ---

    def _read_ahead(self, now_ns: int) -> None:
        """Keep the readings of the last periods before jobs are looked at."""
        period_ns = self._moves.outlook.period_ns
        next_ns = min([self._next_solve_ns, *self._again.values()])
        soon = next_ns - _STEADY_PERIODS * period_ns <= now_ns < next_ns
        if soon and (not self._readings or now_ns >= self._readings[-1].at_ns + period_ns):
            self._append_reading(now_ns)

    def _append_reading(self, now_ns: int) -> None:
        """Keep the readings of now."""
        reading = _Reading(now_ns, self._moves.outlook.background(now_ns))
        self._readings.append(reading)
        self._loads.add(Links.of(self._planner.routes), 1e-9 * now_ns, reading.loads)

    def _read(self, now_ns: int) -> list[_Reading]:
        """The last readings, that of now the last."""
        if self._readings and self._readings[-1].at_ns == now_ns:
            self._readings.pop()
        self._append_reading(now_ns)
        return list(self._readings)

    def _persistence(self, jobs: Sequence[RunningJob]) -> float:
        """Share of loads that lasts until the next evaluation, or for a step of the slowest job if that is longer."""
        horizons_s = [1e-9 * self._moves.options.solve_period_ns]
        for job in jobs:
            if job.rounds_per_second:
                horizons_s.append(sum(rounds_of_step(job.spec, self._planner.topology)) / job.rounds_per_second)
        return self._loads.persistence(max(horizons_s))

    def _is_steady(self, better: Improvement, readings: list[_Reading], now_ns: int) -> bool:
        """Return True if the placement is better by every reading of the last periods."""
        return len(better.saved) >= self._recent(readings, now_ns)

    def _recent(self, readings: list[_Reading], now_ns: int) -> int:
        """Number of readings within the last periods."""
        since_ns = now_ns - _STEADY_PERIODS * self._moves.outlook.period_ns
        return sum(reading.at_ns > since_ns for reading in readings)

    def _rests(self, job: RunningJob, now_ns: int) -> bool:
        """Return True if a job may be moved for its own good."""
        return job.move is None and now_ns - job.moved_ns >= self._moves.options.dwell_ns

    # --- one by one ---

    def _evaluate_job(self, number: int, now_ns: int) -> _Question | None:
        job = self._jobs.get(number)
        if job is None or not self._rests(job, now_ns):
            return None
        others = self._moves.outlook.others(number)
        unsettled, own = self._moves.outlook.unsettled(now_ns), job.plan.streams
        readings = self._read_since(job.moved_ns, now_ns)
        lasting = self._persistence([job])
        around = [
            LinkConditions(reading.loads, others, lasting).discard_untrusted(
                [*reading.links.stale, *reading.links.unmeasured, *unsettled], own
            )
            for reading in readings
        ]
        account = self._account(job, now_ns)
        beside = [(other.plan, other.active) for other in self._jobs.values() if other is not job]
        better = self._planner.better(job.plan, job.active, around, self._moves.options.improvement, beside)
        saving = self._planner.saving(job.plan, job.active, around[-1], account.baseline)

        def decide() -> tuple[float, Improvement | None]:
            return 0.0 if account.at_baseline else saving(), better()

        return decide, partial(self._move, job, job.plan.generation, readings)

    def _read_since(self, since_ns: int, now_ns: int) -> list[_Reading]:
        """The last readings since then; that of now in any case."""
        return [reading for reading in self._read(now_ns) if reading.at_ns > since_ns or reading.at_ns == now_ns]

    def _account(self, job: RunningJob, now_ns: int) -> MigrationBudget:
        """The job's; a new one where it is not where it has been moved to, or cannot go home any more."""
        account = job.account
        if (
            account is None
            or account.current != job.plan.placement
            or not self._planner.stands(account.baseline, job.spec, job.active)
        ):
            account = job.account = MigrationBudget.opened(job.plan.placement, now_ns * 1e-9)
        return account

    def _is_there(self, job: RunningJob, generation: int) -> bool:
        """Return True if a job still runs in this generation."""
        return self._jobs.get(job.number) is job and job.plan.generation == generation and job.move is None

    def _move(
        self,
        job: RunningJob,
        generation: int,
        readings: list[_Reading],
        found: tuple[float, Improvement | None],
        now_ns: int,
    ) -> None:
        """Unless the job has ended or moved meanwhile."""
        if not self._is_there(job, generation):
            return
        saving, better = found
        account, pace = self._account(job, now_ns), self._steps_per_second(job, better)
        account.update(now_ns * 1e-9, saving * pace)
        price = self._pause_seconds(job) + (better.refill_seconds if better is not None else 0.0)
        if better is not None and not account.allows_a_move(now_ns * 1e-9):
            better = None
        if better is None:
            if account.should_revert(now_ns * 1e-9, price):
                self._begin([(job, account.baseline)], price, now_ns, "what moves have won is lost again")
            return
        saved = [pace * saved_seconds for saved_seconds in better.saved]
        wait_ns = round(1e9 * self._seconds_to_break_even(price, saved, readings, now_ns))
        if wait_ns or not self._is_steady(better, readings, now_ns):
            self._again[job.number] = now_ns + max(wait_ns, self._moves.outlook.period_ns)
        else:
            self._begin([(job, better.placement)], price, now_ns, "a faster placement")

    def _seconds_to_break_even(self, price: float, saved: list[float], readings: list[_Reading], now_ns: int) -> float:
        ages = [1e-9 * (now_ns - reading.at_ns) for reading in reversed(readings)]
        return seconds_to_break_even(price, saved, ages, 1e-9 * self._moves.outlook.period_ns)

    def _steps_per_second(self, job: RunningJob, better: Improvement | None) -> float:
        """Steps per second from the hosts' reports; before the first report, as if the job only communicated."""
        back_to_back = 1 / better.now_seconds if better is not None else math.inf
        reported = job.rounds_per_second / sum(rounds_of_step(job.spec, self._planner.topology))
        return min(reported, back_to_back) if reported or better is None else back_to_back

    def _pause_seconds(self, job: RunningJob) -> float:
        """Expected pause of a job while it moves, from the last moves.

        Without earlier moves: a telemetry period plus the maximum time that a round of it may be under way, for which
        it holds back.
        """
        if pauses_ns := self._moves.pauses_ns:
            return 1e-9 * sum(pauses_ns) / len(pauses_ns)
        return 1e-9 * (self._moves.outlook.period_ns + self._windows.round_trip_ns(job.plan))

    def _begin(self, moves: list[tuple[RunningJob, Placement]], price: float, now_ns: int, why: str) -> None:
        self._moves.migrate_jointly({job.number: placement for job, placement in moves}, now_ns, why)
        for job, placement in moves:
            self._account(job, now_ns).move(placement, price / len(moves))

    # --- all together ---

    def _evaluate_all(self, now_ns: int) -> _Question | None:
        jobs = [*self._jobs.values()]
        movable = [self._rests(job, now_ns) for job in jobs]
        moving = any(job.move is not None for job in jobs)
        if len(jobs) < 2 or moving or not any(movable) or self._moves.outlook.unsettled(now_ns):
            return None
        readings = self._read_since(max(job.moved_ns for job in jobs), now_ns)
        fresh = list(takewhile(lambda reading: reading.links.is_fresh, reversed(readings)))[::-1]
        if len(fresh) < self._recent(readings, now_ns):
            return None
        readings = fresh
        plans = [(job.plan, job.active) for job in jobs]
        lasting = self._persistence(jobs)
        around = [LinkConditions(reading.loads, {}, lasting) for reading in readings]
        decide = self._planner.better_together(plans, movable, around, self._moves.options.improvement)
        return decide, partial(self._move_all, [(job, job.plan.generation) for job in jobs], readings)

    def _move_all(
        self,
        jobs: list[tuple[RunningJob, int]],
        readings: list[_Reading],
        better: dict[int, Improvement],
        now_ns: int,
    ) -> None:
        """Unless some job has come, ended or moved meanwhile."""
        same = [job for job, _ in jobs] == [*self._jobs.values()]
        if not same or not all(self._is_there(*each) for each in jobs) or not better:
            return
        moves = [
            (jobs[index][0], proposal)
            for index, proposal in better.items()
            if proposal.placement != jobs[index][0].plan.placement
        ]
        allowed = all(self._account(job, now_ns).allows_a_move(now_ns * 1e-9) for job, _ in moves)
        steady = all(self._is_steady(proposal, readings, now_ns) for _, proposal in moves)
        price = sum(self._pause_seconds(job) for job, _ in moves)
        weighted_price = sum(proposal.weight * self._pause_seconds(job) for job, proposal in moves)
        paces = [self._steps_per_second(jobs[index][0], proposal) for index, proposal in better.items()]
        saved = saved_together([*better.values()], paces)
        if allowed and steady and self._seconds_to_break_even(weighted_price, saved, readings, now_ns) == 0:
            placed = [(job, proposal.placement) for job, proposal in moves]
            self._begin(placed, price, now_ns, "a faster placement of all jobs")
            for job, proposal in moves:
                if not proposal.counts:  # it gives way to others, and is at home where it does
                    job.account = MigrationBudget.opened(proposal.placement, now_ns * 1e-9)
