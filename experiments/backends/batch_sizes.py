"""What the control service goes by when workers ask it for batch sizes: the rules of training."""

from __future__ import annotations

from typing import cast

from ...controller.errors import PlanError
from ...controller.service.batch_sizes import SizeRule
from ...training.batching.manager import BatchSizeManager, RuleName
from ...training.errors import TrainingError


def size_rule(samples: int, workers: int, name: str) -> SizeRule:
    """The rule of that name for steps of so many samples. Raises PlanError where there is none."""
    try:
        return BatchSizeManager(samples, workers, rule=cast(RuleName, name))
    except TrainingError as error:
        raise PlanError(str(error)) from None
