"""The batch size manager: from everyone's reports to everyone's sizes.

The controller has one for each job that asks it (`Balance` of the control service). Where there is no controller every
worker has one: all compute the same sizes from the same reports, by plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import TrainingError
from .analytic import equal_shares, proportional_shares
from .numeric import NumericRule

RuleName = Literal["analytic", "numeric"]
RULES: Final[tuple[RuleName, ...]] = get_args(RuleName)

SIZE_STEP: Final = 5
"""Samples that the numeric rule moves at once, where nothing else is said."""

MAX_APART: Final = 5
"""Iterations from one decision of the analytic rule to the next, at most."""

_PERSISTENT: Final = 14
_STAYED_FOR_MORE: Final = 10


class BatchSizeManager:
    """One job's: `decide` between two iterations, when `Turns` has it, from the reports of all workers."""

    def __init__(
        self,
        total: int,
        workers: int,
        *,
        rule: RuleName = "analytic",
        step: int = SIZE_STEP,
        gain: float = 0.05,
        at_once: float = 0.15,
    ) -> None:
        """Create the manager with equal sizes.

        Args:
            total: Samples of an iteration, which the workers share.
            workers: Number of workers.
            rule: Rule for sizes, "analytic" or "numeric".
            step: Samples that the numeric rule moves at once (`NumericRule`).
            gain: Share of the iteration that other sizes must save, several times in a row, before the analytic rule
                changes.
            at_once: Share of the iteration for which it changes immediately.

        Raises:
            TrainingError: The rule is unknown.
        """
        if rule not in RULES:
            raise TrainingError(f'unknown rule "{rule}" for batch sizes', value=rule, allowed=tuple(RULES))
        self._total = total
        self._gain = gain
        self._at_once = at_once
        self._turns = Turns(rule)
        self._uneven = 0
        """Number of consecutive iterations that other sizes would have shortened, as far as decisions show."""
        self._numeric = NumericRule(total, workers, step=step) if rule == "numeric" else None
        self._sizes = equal_shares(total, workers)

    @property
    def sizes(self) -> list[int]:
        """Sizes of the last decision, by rank; equal at the start."""
        return list(self._sizes)

    def decide(self, reports: NDArray[np.float64]) -> list[int]:
        """Return everyone's sizes from now on, by rank, from each one's report: shape (workers, REPORT_VALUES)."""
        rows: list[Any] = reports.tolist()
        limits = [int(limit) or None for _, _, limit in rows]
        speeds, times = [speed for speed, _, _ in rows], [time for _, time, _ in rows]
        if self._numeric is not None:
            self._numeric.learn_limits(limits)
            if all(times):
                self._numeric.observe(times)
            self._sizes = self._numeric.sizes
        elif all(speeds):
            self._sizes = self._proportional(speeds, limits)
        return self.sizes

    def _proportional(self, speeds: Sequence[float], limits: Sequence[int | None]) -> list[int]:
        wanted = proportional_shares(self._total, speeds, limits)
        fits = all(limit is None or size <= limit for size, limit in zip(self._sizes, limits, strict=True))
        longer = _longest(self._sizes, speeds) / _longest(wanted, speeds) - 1
        self._uneven = self._uneven + self._turns.apart if longer > self._gain else 0
        if fits and longer <= self._at_once and self._uneven < _PERSISTENT:
            wanted = self._sizes
        else:
            self._uneven = 0
        self._turns.decided(changed=wanted != self._sizes)
        return wanted


class Turns:
    """Schedule of decisions, the same at all workers, as they have the same sizes.

    By the analytic rule one iteration passes without a decision after a decision that changed nothing, two after ten
    such decisions in a row, and so on up to four. The cost of a decision is thus spread over five iterations while
    sizes stay, and speeds that change often are queried often. The numeric rule learns only from reported times, so it
    receives all of them.
    """

    def __init__(self, rule: RuleName) -> None:
        self._rule = rule
        self._stayed = 0
        """Decisions on end that have changed nothing."""
        self._rests = 0
        """Iterations that go without behind the last one."""
        self._left = 0
        """Number of those iterations that remain."""

    @property
    def apart(self) -> int:
        """Iterations from the last decision to the next."""
        return self._rests + 1

    def due(self) -> bool:
        """Return whether sizes are decided before the next iteration; call once per iteration."""
        if not self._left:
            return True
        self._left -= 1
        return False

    def decided(self, *, changed: bool) -> None:
        """Record a decision, and whether it changed the sizes."""
        self._stayed = self._stayed + 1 if self._rule == "analytic" and not changed else 0
        more = self._stayed // _STAYED_FOR_MORE
        self._rests = self._left = min(1 + more, MAX_APART - 1) if self._stayed else 0


def _longest(sizes: Sequence[int], speeds: Sequence[float]) -> float:
    return max(size / speed for size, speed in zip(sizes, speeds, strict=True))
