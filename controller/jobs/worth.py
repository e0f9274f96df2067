"""Whether a move is worth what it costs: by how long readings have spoken for it, and by what moves have won so far.

Nobody knows how long traffic stays as it is. Two rules keep a job that moves from faring worse than one that stays:

* *A move is earned.* Since another place has been better, reading after reading, the job must have lost as much time as
  a move takes. What has lasted so long is likely to last as long again; and whatever comes, no more is spent on a move
  than staying had already cost (Karlin et al., Competitive snoopy caching, Algorithmica 3, 1988).
* *Moves pay for themselves.* The time that moves win is counted against staying at *home*, where the job was before
  them, what they take off. A move is made only while the account is above zero, or below by no more than a fiftieth of
  the time since the job is looked at. Else the job stays, or goes home once that is earned.

So, by what readings say, a job is never behind one that stays at home by more than a fiftieth of the time, three moves
and what is lost until the next look. Home is where a move leaves from while the account is not below zero. Pure, and in
seconds.
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


def earned_in(price: float, saved: Sequence[float], ages: Sequence[float], span: float) -> float:
    """Seconds until a move that takes so long is earned, if readings go on as the last one; 0: it is, ∞: it never will.

    `saved`: by reading, from the last one back, seconds that each second would have saved elsewhere; those from the
    first on that says that nothing would be saved do not count. `ages`: how old each is. A reading speaks for the
    `span` before it, and the lesser of two for what is between them besides.
    """
    readings = list(zip(ages, itertools.takewhile(lambda seconds: seconds > 0, saved), strict=False))
    if not readings:
        return math.inf
    lost = span * readings[-1][1]
    for (age, later), (before, earlier) in itertools.pairwise(readings):
        gap = before - age
        lost += min(gap, span) * later + max(gap - span, 0.0) * min(earlier, later)
    return max(price - lost, 0.0) / readings[0][1]


@dataclass(slots=True)
class Account:
    """What the moves of one job have won."""

    at: Placement
    """Where the job is, or is going to."""
    home: Placement
    began: float
    """When the job was first looked at."""
    looked: float
    """When it was looked at last."""
    balance: float = 0.0
    """Won against staying at home."""
    behind: float = 0.0
    """Lost against home since the last move, or since readings last said that home is no better."""

    @classmethod
    def opened(cls, at: Placement, now: float) -> Account:
        return cls(at, at, now, now)

    @property
    def is_home(self) -> bool:
        return self.at == self.home

    def look(self, now: float, saved: float) -> None:
        """In each second since the last look, being here and not at home has saved so many."""
        won = saved * (now - self.looked)
        self.balance += won
        self.behind = self.behind - won if won < 0 else 0.0
        self.looked = now

    def allows_a_move(self, now: float) -> bool:
        """Whether one may be made, if it is earned."""
        return self.balance >= -RISK * (now - self.began)

    def wants_home(self, now: float, price: float) -> bool:
        """Whether it may only go home, and that is earned."""
        return not self.allows_a_move(now) and self.behind >= price and self.behind > 0

    def move(self, to: Placement, price: float) -> None:
        if self.balance >= 0:
            self.home, self.balance = self.at, 0.0
        self.balance -= price
        self.at, self.behind = to, 0.0
