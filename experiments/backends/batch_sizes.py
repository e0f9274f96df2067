"""Batch sizes at the controller: the rules of training that it goes by, and its answers in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ...controller.controller import Controller
from ...controller.errors import PlanError
from ...controller.service.batch_sizes import BatchSizes, SizeRule, StepEnd
from ...training import TrainingPlan
from ...training.batching.manager import SIZE_STEP, BatchSizeManager, RuleName
from ...training.errors import TrainingError
from ...wire import control_pb2 as pb
from .virtual_control import VirtualControl


class _Rule:
    """A manager of training, whose refusals are the controller's."""

    def __init__(self, manager: BatchSizeManager) -> None:
        self._manager = manager

    def decide(self, reports: NDArray[np.float64], /) -> list[int]:
        try:
            return self._manager.decide(reports)
        except TrainingError as error:
            raise PlanError(str(error)) from None


def size_rule(samples: int, workers: int, name: str, size_step: int) -> SizeRule:
    """The rule of that name for steps of so many samples. Raises PlanError where there is none."""
    try:
        return _Rule(BatchSizeManager(samples, workers, rule=cast(RuleName, name), step=size_step or SIZE_STEP))
    except TrainingError as error:
        raise PlanError(str(error)) from None


def balance_request(plan: TrainingPlan, job: int, step: int, report: NDArray[np.float64]) -> pb.BalanceRequest:
    """What a worker that trains by this plan asks the controller before a step; `report` is `SpeedReporter`'s."""
    speed, seconds, limit = report.tolist()
    return pb.BalanceRequest(
        job=job,
        step=step,
        samples=plan.batch,
        rule=plan.mode.sizes,
        speed=speed,
        seconds=seconds,
        limit=int(limit),
        size_step=plan.mode.size_step,
    )


class VirtualBatchSizes:
    """What the workers of a job ask in virtual time: reports and answers travel the control latency each."""

    def __init__(
        self, controller: Controller, control: VirtualControl, job: int, workers: Sequence[str], plan: TrainingPlan
    ) -> None:
        """`workers` are the job's hosts, by rank."""
        self._controller = controller
        self._control = control
        self._job = job
        self._workers = workers
        self._plan = plan
        self._sizes = BatchSizes(size_rule)
        self._waiting: list[tuple[StepEnd, _Answer]] = []

    def report(self, rank: int, step: int, report: NDArray[np.float64]) -> _Answer:
        """As `training.job.BatchSizeService` has it."""
        request, answer = balance_request(self._plan, self._job, step, report), _Answer()
        self._control.after_latency(partial(self._take, rank, request, answer))
        return answer

    def _take(self, rank: int, request: pb.BalanceRequest, answer: _Answer) -> None:
        """A report has reached the controller; where it is the last one, the answers to all set out."""
        step = self._sizes.report(request, rank)
        self._waiting.append((step, answer))
        present = self._controller.jobs[self._job].plan.workers
        taking_part = frozenset(rank for rank, host in enumerate(self._workers) if host in present)
        self._sizes.look(step, len(self._workers), taking_part)
        if step.decided.is_set():
            for of, waiting in self._waiting:
                self._control.after_latency(partial(waiting.comes, of))
            self._waiting.clear()


class _Answer:
    """One worker's, on its way."""

    def __init__(self) -> None:
        self._step: StepEnd | None = None

    def comes(self, step: StepEnd) -> None:
        self._step = step

    def done(self) -> bool:
        return self._step is not None

    def wait(self, timeout_s: float, /) -> list[int]:
        """Everyone's sizes. Raises PlanError where there are none."""
        assert self._step is not None
        return self._step.sizes()
