"""Batch sizes as a service to jobs: workers report at a step's end, and all are told the sizes of the next one.

::

    worker ──Balance: step, speed, seconds, limit──▶ BatchSizes ──all reports──▶ SizeRule
           ◀────────── everyone's sizes ─────────────────┘

Nobody is answered before all who take part in the job have reported the same step; who is lost meanwhile is not waited
for any more, and has a size of 0 from then on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...wire import control_pb2 as pb
from ..errors import PlanError

_LOOK_S: Final = 0.5
"""Between two looks at who takes part, while somebody is awaited."""


class SizeRule(Protocol):
    """What sizes go by, of so many workers."""

    def decide(self, reports: NDArray[np.float64], /) -> list[int]:
        """Each worker's samples in the next step, from each one's row: predicted samples per second, seconds of the
        last step, the most samples that it holds; 0 is unknown.
        """


RuleOf = Callable[[int, int, str, int], SizeRule]
"""A rule for a step of so many samples, so many workers, its name, and how many samples it moves at once (0: its own
choice). Raises PlanError where there is none, as the rule itself does where there are no sizes.
"""


@dataclass(slots=True, eq=False)
class StepEnd:
    """One step's end at all of a job's workers."""

    job: _Balanced
    asked: dict[int, pb.BalanceRequest] = field(default_factory=dict)
    """By rank."""
    found: list[int] | None = None
    """By rank of the whole job, once all have asked."""
    wrong: str = ""
    """Why there are none, and will be none."""
    decided: asyncio.Event = field(default_factory=asyncio.Event)

    def sizes(self) -> list[int]:
        """Everyone's in the next step, by rank, once it is decided. Raises PlanError where there are none."""
        if self.found is None:
            raise PlanError(self.wrong)
        return self.found


@dataclass(slots=True, eq=False)
class _Balanced:
    """What is known of one job."""

    step: StepEnd | None = None
    """The one that is not decided; None: nobody has reported since the last was."""
    last: tuple[int, StepEnd] | None = None
    """The step that was decided last."""
    rule: SizeRule | None = None
    of: tuple[frozenset[int], int, str, int] | None = None
    """What the rule is for: workers, samples, name, samples that it moves at once."""


class BatchSizes:
    """The sizes of all jobs that ask for some.

    `report` and `look` are all of it; `decide` is the two for whoever waits on the wall clock.
    """

    def __init__(self, rule_of: RuleOf) -> None:
        self._rule_of = rule_of
        self._jobs: dict[int, _Balanced] = {}

    def keep(self, jobs: Collection[int]) -> None:
        """Forget all but these."""
        self._jobs = {number: each for number, each in self._jobs.items() if number in jobs}

    async def decide(
        self, request: pb.BalanceRequest, rank: int, ranks: int, taking_part: Callable[[], frozenset[int]]
    ) -> list[int]:
        """This rank's report: everyone's sizes, when those who take part have reported, too.

        Raises PlanError for a report that cannot be, or that does not go with the others'; whatever `taking_part`
        raises ends the waiting.
        """
        step = self.report(request, rank)
        try:
            while not step.decided.is_set():
                self.look(step, ranks, taking_part())
                try:
                    async with asyncio.timeout(_LOOK_S):
                        await step.decided.wait()
                except TimeoutError:
                    continue
        finally:
            if not step.decided.is_set() and step.asked.get(rank) is request:
                del step.asked[rank]  # nobody waits for the answer any more
        return step.sizes()

    def report(self, request: pb.BalanceRequest, rank: int) -> StepEnd:
        """This rank's report: the step's end that it is of. Raises PlanError for one that cannot be."""
        _check(request)
        job = self._jobs.setdefault(request.job, _Balanced())
        if job.last is not None and request.step <= job.last[0]:
            if request.step < job.last[0]:
                raise PlanError(f"step {request.step} is over; step {job.last[0]} was decided last")
            return job.last[1]  # an answer that was lost on its way
        if job.step is None:
            job.step = StepEnd(job)
        job.step.asked[rank] = request
        return job.step

    def look(self, step: StepEnd, ranks: int, taking_part: frozenset[int]) -> None:
        """Decide, if all of those who take part have reported; `ranks` is how many the job began with."""
        if step.decided.is_set() or not taking_part <= step.asked.keys():
            return
        present = sorted(taking_part)
        first, *others = (step.asked[rank] for rank in present)
        step.job.step = None
        step.decided.set()
        for rank, other in zip(present[1:], others, strict=True):
            if (other.step, *_asked_for(other)) != (first.step, *_asked_for(first)):
                step.wrong = (
                    f"the workers do not ask for the same: rank {present[0]} for {_words(first)}, rank {rank} for "
                    f"{_words(other)}"
                )
                return
        try:
            step.found = self._sizes(step, first, ranks, present)
        except PlanError as error:
            step.wrong = str(error)
        else:
            step.job.last = first.step, step

    def _sizes(self, step: StepEnd, asked: pb.BalanceRequest, ranks: int, present: list[int]) -> list[int]:
        job = step.job
        if asked.samples < len(present):
            raise PlanError(f"{asked.samples} samples for {len(present)} workers; each has one at least")
        samples, rule, size_step = _asked_for(asked)
        of = frozenset(present), samples, rule, size_step
        if job.rule is None or job.of != of:
            job.rule, job.of = self._rule_of(samples, len(present), rule, size_step), of
        rows = [[step.asked[rank].speed, step.asked[rank].seconds, step.asked[rank].limit] for rank in present]
        given = dict(zip(present, job.rule.decide(np.array(rows, np.float64)), strict=True))
        return [given.get(rank, 0) for rank in range(ranks)]


def _check(request: pb.BalanceRequest) -> None:
    for name, value in (("speed", request.speed), ("seconds", request.seconds)):
        if not (math.isfinite(value) and value >= 0):
            raise PlanError(f"{name} {value} of step {request.step}; it is a number of 0 or more, and 0 is unknown")


def _asked_for(request: pb.BalanceRequest) -> tuple[int, str, int]:
    """What all workers of a job say alike."""
    return request.samples, request.rule, request.size_step


def _words(request: pb.BalanceRequest) -> str:
    moved = f" that moves {request.size_step} at once" if request.size_step else ""
    return f"step {request.step} of {request.samples} samples by the {request.rule} rule{moved}"
