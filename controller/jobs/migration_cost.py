"""Cost and benefit of a move: how long readings have favoured it, and the net gain of earlier moves.

It is unknown how long traffic stays as it is. Two rules keep a job that moves from faring worse than one that stays:

* *A move is earned.* Since another placement has been better, reading after reading, the job must have lost as much
  time as a move takes. A condition that has lasted so long is likely to last as long again. In any case, no more is
  spent on a move than staying had already cost (Karlin et al., Competitive snoopy caching, Algorithmica 3, 1988).
* *Moves pay for themselves.* The time that moves win is counted against staying at the *baseline*, the job's placement
  before them, minus their cost. A move is made only while the balance is above zero, or below by no more than a
  fiftieth of the time since the job was first evaluated. Otherwise the job stays, or returns to it once that is
  earned.

So, by the readings, a job is never behind one that stays there by more than a fiftieth of the time, three moves and
the loss until the next evaluation. The baseline is the placement that a move leaves while the balance is not below
zero. Pure, and in seconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..placement import Placement

RISK: Final = 0.02
"""The share of its time that a job may lose by moves that turn out not to have paid."""


def seconds_to_break_even(cost_s: float, saved: Sequence[float], ages: Sequence[float], span: float) -> float:
    """Return the seconds until a move of this cost is earned, if readings stay as the last one; 0: it is, ∞: it
    never will be.

    Args:
        cost_s: Cost of the move in seconds.
        saved: Seconds saved elsewhere per second, by reading from the last one back; readings from the first
            non-positive one on do not count.
        ages: Age of each reading in seconds.
        span: Time before a reading that it covers; between two readings the smaller value counts.
    """
    readings = list(zip(ages, itertools.takewhile(lambda seconds: seconds > 0, saved), strict=False))
    if not readings:
        return math.inf
    lost = span * readings[-1][1]
    for (age, later), (before, earlier) in itertools.pairwise(readings):
        gap = before - age
        lost += min(gap, span) * later + max(gap - span, 0.0) * min(earlier, later)
    return max(cost_s - lost, 0.0) / readings[0][1]


@dataclass(slots=True)
class MigrationBudget:
    """Net gain of one job's moves."""

    current: Placement
    """Present placement of the job, or the target of its move."""
    baseline: Placement
    began: float
    """Time of the first evaluation, in seconds."""
    looked: float
    """Time of the last one."""
    balance: float = 0.0
    """Seconds won against staying at the baseline."""
    behind: float = 0.0
    """Seconds lost against the baseline since the last move, or since readings last said that it is no better."""

    @classmethod
    def opened(cls, placement: Placement, now: float) -> MigrationBudget:
        """Return the budget of a job that starts with a placement, at a time in seconds."""
        return cls(placement, placement, now, now)

    @property
    def at_baseline(self) -> bool:
        """True if the job has its baseline placement."""
        return self.current == self.baseline

    def update(self, now: float, saved: float) -> None:
        """Record the seconds saved per second since the last call by not being at the baseline."""
        won = saved * (now - self.looked)
        self.balance += won
        self.behind = self.behind - won if won < 0 else 0.0
        self.looked = now

    def allows_a_move(self, now: float) -> bool:
        """Return True if an earned move may be made."""
        return self.balance >= -RISK * (now - self.began)

    def should_revert(self, now: float, cost_s: float) -> bool:
        """Return True if the only allowed move is the one back to the baseline, and that is earned."""
        return not self.allows_a_move(now) and self.behind >= cost_s and self.behind > 0

    def move(self, to: Placement, cost_s: float) -> None:
        """Charge a move. The placement before it becomes the baseline unless earlier moves are still to be earned.

        Args:
            to: Placement to which the job moves.
            cost_s: Time in seconds for which the job pauses.
        """
        if self.balance >= 0:
            self.baseline, self.balance = self.current, 0.0
        self.balance -= cost_s
        self.current, self.behind = to, 0.0
