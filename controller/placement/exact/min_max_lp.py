"""The linear program that shares wholes out so that the slowest of all rows is as fast as can be.

    minimise T      Σ of a group's columns = 1
                    timed row:  others + Σ seconds · x  ≤  T      limiting row:  Σ factor · x  ≤  0

Jobs share themselves out among trees by it (`multi_tree`), racks' workers among switches (strategy `grid`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import scipy  # type: ignore[import-untyped]

from ..model.links import Floats
from ..model.problem import PlacementError

Cell = tuple[int, int, float]
"""An entry of the program's matrix: its row, its column, and the factor there."""
_STOPPED: Final = 1
"""`scipy.optimize.linprog`'s status."""


class LimitReached(PlacementError):
    """The program's limit of iterations ended it."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The optimum."""

    seconds: float
    """T: time of the slowest of the timed rows."""
    prices: Floats
    """(timed rows,): dual prices, the cost of one second more in each; they sum to 1 if T is above 0."""
    of_columns: Floats
    """(columns,): the share that each one has of its group."""
    iterations: int
    """Iterations of the simplex method."""


@dataclass(slots=True)
class Sharing:
    """The program as it grows."""

    others: Floats
    """(timed rows,): seconds that each takes in any case."""
    columns: int = 0
    groups: list[Sequence[int]] = field(default_factory=list)
    """The columns that make a whole each."""
    timed: list[Cell] = field(default_factory=list)
    limits: list[Cell] = field(default_factory=list)
    """Their rows are numbered from 0 on, and none is left out."""

    def column(self) -> int:
        """Return a new column."""
        self.columns += 1
        return self.columns - 1

    def solve(self, what: str, iterations: int | None = None) -> Shares:
        """Solve the program; `what` names it in an error.

        Times are in units of the slowest cell, so that tolerances mean the same for every job.

        Raises:
            LimitReached: It takes more `iterations` of the simplex method.
            PlacementError: HiGHS does not find the optimum.
        """
        scale = max((seconds for _, _, seconds in self.timed), default=1.0)
        time, width, rows = self.columns, self.columns + 1, len(self.others)
        cells = [(row, column, seconds / scale) for row, column, seconds in self.timed]
        cells += [(row, time, -1.0) for row in range(rows)]
        cells += [(rows + row, column, factor) for row, column, factor in self.limits]
        bounds = np.zeros(rows + len({row for row, _, _ in self.limits}))
        bounds[:rows] = -self.others / scale
        wholes = [(row, column, 1.0) for row, columns in enumerate(self.groups) for column in columns]
        solved = scipy.optimize.linprog(
            np.append(np.zeros(time), 1.0),
            A_ub=_matrix(cells, len(bounds), width),
            b_ub=bounds,
            A_eq=_matrix(wholes, len(self.groups), width),
            b_eq=np.ones(len(self.groups)),
            method="highs-ds",
            options={} if iterations is None else {"maxiter": iterations},
        )
        if solved.status == _STOPPED:
            raise LimitReached(f"the program of {what} was not solved in {iterations} iterations")
        if not solved.success:
            raise PlacementError(
                f"HiGHS ended with: {solved.message}; it should be optimal",
                place=f"program of {what}",
                value=solved.status,
            )
        prices: Floats = np.maximum(-solved.ineqlin.marginals[:rows], 0.0)
        shares: Floats = np.maximum(solved.x[:time], 0.0)
        return Shares(float(solved.fun) * scale, prices, shares, int(solved.nit))


def _matrix(cells: Sequence[Cell], rows: int, columns: int) -> scipy.sparse.csr_array:
    at, places, factors = zip(*cells, strict=True) if cells else ((), (), ())
    return scipy.sparse.csr_array((factors, (at, places)), shape=(rows, columns))
