"""Batch sizes at the controller: the rules of training that it goes by, and its answers in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ...controller.controller import Controller
from ...controller.errors import ControllerError, PlanError
from ...controller.service.batch_sizes import JobBatchSizes, ReportMissing, SizeRule
from ...hosts import ControlAbsent
from ...training.batching.manager import SIZE_STEP, BatchSizeManager, RuleName
from ...training.errors import TrainingError
from ...wire import control_pb2 as pb
from ...wire.control_messages import balance_request
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
    """Return a new rule for batch sizes.

    Args:
        samples: Samples of a step, of all workers.
        workers: Number of workers.
        name: Name of the rule, "analytic" or "numeric".
        size_step: Samples that the numeric rule moves at once; 0: its default.

    Raises:
        PlanError: The name is unknown.
    """
    try:
        return _Rule(BatchSizeManager(samples, workers, rule=cast(RuleName, name), step=size_step or SIZE_STEP))
    except TrainingError as error:
        raise PlanError(str(error)) from None


class VirtualBatchSizes:
    """Queries of a job's leading worker in virtual time: question and answer each take the control latency."""

    def __init__(
        self, controller: Controller, control: VirtualControl, job: int, workers: Sequence[str], batch: int
    ) -> None:
        """Create the queries of one job.

        Args:
            controller: The controller.
            control: Messages to the controller, with their latency.
            job: Number of the job.
            workers: Its hosts, by rank.
            batch: Samples of a step, of all workers.
        """
        self._controller = controller
        self._control = control
        self._job = job
        self._workers = workers
        self._batch = batch
        self._sizes = JobBatchSizes(size_rule)

    def request(
        self, reports: NDArray[np.float64], present: NDArray[np.bool_], *, rule: RuleName, size_step: int
    ) -> _Answer:
        """Same contract as `training.mode.BatchSizeService.request`."""
        answer = _Answer()
        request = balance_request(self._job, self._batch, rule, reports, present, size_step=size_step)
        self._control.after_latency(partial(self._on_request, request, answer))
        return answer

    def _on_request(self, request: pb.BalanceRequest, answer: _Answer) -> None:
        """A question has reached the controller; the answer sets out."""
        part = self._controller.jobs[self._job].plan.workers
        taking_part = frozenset(rank for rank, host in enumerate(self._workers) if host in part)
        try:
            decision: list[int] | ControllerError = self._sizes.decide(request, len(self._workers), taking_part)
        except ControllerError as error:
            decision = error
        self._control.after_latency(partial(answer.comes, decision))


class _Answer:
    """Answer on its way to the leader."""

    def __init__(self) -> None:
        self._found: list[int] | ControllerError | None = None

    def comes(self, found: list[int] | ControllerError) -> None:
        self._found = found

    def done(self) -> bool:
        return self._found is not None

    def wait(self, timeout_s: float, /) -> list[int]:
        """Wait for all workers' sizes. Raises PlanError if there are none, ControlAbsent if there may be some later."""
        assert self._found is not None
        if isinstance(self._found, ReportMissing):
            raise ControlAbsent(str(self._found))
        if isinstance(self._found, ControllerError):
            raise self._found
        return self._found
