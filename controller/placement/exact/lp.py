"""The exact linear program: streams to sinks so that the loaded links' times are lexicographically minimal.

Minimise Σ_e F_e(f_e) over the integral flows of a network, F_e convex. In marginal-unit form the i-th unit on arc e is
a variable δ_{e,i} in [0, 1] of its own, with cost F_e(i) − F_e(i − 1). The rows are flow conservation, and every δ's
column is a copy of its arc's in the node-arc incidence matrix, so the matrix is totally unimodular and every vertex is
integral (Meyer 1977; Hochbaum & Shanthikumar, JACM 37(4), 1990). The dual simplex method ends at a vertex; that it is
integral is checked every time.

Min-max: with dense ranks of all times T_e(i), F_e(i) = M^rank(T_e(i)), M above the number of terms, makes the least sum
the lexicographically least sorted vector of times, and F_e is convex because T_e increases strictly. M^rank leaves
double precision after a few ranks, so its digits are taken one LP at a time, highest first. Each LP minimises one
window of ranks, with small integer costs, and then stays on its own optimal face by fixing every δ whose reduced cost
is not 0 (complementary slackness). Fixing bounds does not change the matrix, so all these LPs are integral, and so are
their duals: no tolerance decides anything. A fixed or forbidden δ is priced out rather than bounded, since a program
that cvxpy has compiled takes new costs and right-hand sides, but no new bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, Final

import numpy as np
import scipy  # type: ignore[import-untyped]
from numpy.typing import NDArray

from ..model.network import SINK, StreamNetwork
from ..model.problem import PlacementError

_LARGEST_WEIGHT: Final = 3_000
_INTEGRALITY: Final = 1e-6
_OPTIONS: Final = {"solver": "simplex", "simplex_strategy": 1, "presolve": "off"}
"""HiGHS: dual simplex, and no presolve, which costs more than it saves at these sizes."""


@dataclass(slots=True)
class Effort:
    """Accumulated solving effort."""

    programs: int = 0
    solver_seconds: float = 0.0
    total_seconds: float = 0.0
    """Time of the solver plus cvxpy's overhead."""
    largest_fraction: float = 0.0
    """Farthest that any variable of any vertex was from an integer."""


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Dense ranks of times, lowest first: that of one term of one arc, with one unit. An arc of k directed links has k
    terms.
    """

    variable: NDArray[np.int64]
    """(times,): the variable that each time is of."""
    rank: NDArray[np.int64]
    """(times,): how many different times are less than each."""
    variables: int

    @classmethod
    def of(cls, variable: NDArray[np.int64], rank: NDArray[np.int64], variables: int) -> _Ranks:
        order = np.argsort(rank, kind="stable")
        return cls(variable[order], rank[order], variables)

    def highest(self, among: NDArray[np.bool_]) -> int:
        """Return the largest rank of these variables' times; −1 without variables."""
        return int(self.rank[among[self.variable]].max(initial=-1))

    def digits(self, low: int, high: int, base: int) -> NDArray[np.int64]:
        """Return (variables,): Σ over the times of each with low ≤ rank ≤ high of base^(rank − low)."""
        start, end = np.searchsorted(self.rank, (low, high + 1))
        weights = (base ** np.arange(high - low + 1))[self.rank[start:end] - low]
        digits: NDArray[np.int64] = np.bincount(self.variable[start:end], weights, self.variables).astype(np.int64)
        return digits


@dataclass
class FlowProgram:
    """The compiled program of one network; solved again and again with other loads, capacities and supplies."""

    network: StreamNetwork
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        units = np.array(self.network.units, np.int64)
        self._arc = np.repeat(np.arange(len(units)), units)
        self._first = np.concatenate(([0], np.cumsum(units)[:-1]))
        nodes = list(dict.fromkeys(arc.tail for arc in self.network.arcs))
        self._row = {node: row for row, node in enumerate(nodes)}
        tails = np.array([self._row[arc.tail] for arc in self.network.arcs], np.int64)
        heads = np.array([self._row.get(arc.head, -1) for arc in self.network.arcs], np.int64)
        column = np.arange(len(self._arc))
        inner = heads[self._arc] >= 0
        self._incidence = scipy.sparse.csr_matrix(
            (
                np.concatenate((np.ones(len(column)), -np.ones(inner.sum()))),
                (np.concatenate((tails[self._arc], heads[self._arc][inner])), np.concatenate((column, column[inner]))),
            ),
            shape=(len(nodes), len(column)),
        )

    def proof(self) -> str:
        """Return one sentence saying that the matrix is totally unimodular, after a check of every column.

        Raises:
            PlacementError: A column is not an arc's.
        """
        columns = self._incidence.tocsc()
        for column in range(columns.shape[1]):
            values = sorted(columns.data[columns.indptr[column] : columns.indptr[column + 1]].tolist())
            if values not in ([1.0], [-1.0, 1.0]):
                raise PlacementError(
                    f"its entries {values} are no column of a graph's incidence matrix",
                    place=f"column {column} of the placement LP",
                    value=values,
                )
        rows, count = columns.shape
        return (
            f"each of the {count} columns over {rows} rows has one 1 and at most one -1: the node-arc incidence matrix "
            "of a graph, totally unimodular (Poincaré), so every vertex is integral (Hoffman and Kruskal 1956)"
        )

    @cached_property
    def _compiled(self) -> tuple[Any, Any, Any, Any]:
        import cvxpy  # takes a second: not for those who never solve

        rows, columns = self._incidence.shape
        cost, supply = cvxpy.Parameter(columns), cvxpy.Parameter(rows)
        units = cvxpy.Variable(columns, bounds=[0, 1])
        program = cvxpy.Problem(cvxpy.Minimize(cost @ units), [self._incidence @ units == supply])
        return program, cost, supply, units

    def lexicographic(
        self,
        supply: Mapping[str, int],
        capacity: Mapping[str, int],
        times: Sequence[Sequence[Sequence[float]]],
    ) -> list[int] | None:
        """Return the flow on every arc; None where the supply cannot be placed.

        `capacity` has the number of further streams per sink (0 if it is not in it); `times` is `StreamNetwork.times`.
        """
        forbidden = self._forbidden(capacity)
        vertex = self._solve(np.zeros(len(self._arc)), forbidden, np.zeros(len(self._arc)), supply)
        if vertex is None:
            return None
        known = np.array(self._flows(vertex[0]))
        solution = (np.arange(len(self._arc)) - self._first[self._arc] < known[self._arc]).astype(np.float64)
        ranks, previous = self._ranks(times)
        fixed = forbidden.copy()
        fixed[ranks.variable[ranks.rank > ranks.highest(solution > 0)]] = True
        value = np.zeros(len(self._arc))
        base = max(sum(len(links) for links in times) + 1, 2)
        window = max(1, int(np.log(_LARGEST_WEIGHT) / np.log(base)))
        rank = ranks.highest(~fixed)
        while rank >= 0 and not fixed.all():
            cost = ranks.digits(rank, rank, base) - previous.digits(rank, rank, base)
            if (cost[~fixed] @ solution[~fixed]) <= np.minimum(cost[~fixed], 0).sum():
                settled = ~fixed & (cost != 0)
            else:
                low = max(rank - window + 1, 0)
                cost = ranks.digits(low, rank, base) - previous.digits(low, rank, base)
                rank = low
                solved = self._solve(np.where(fixed, 0, cost), fixed, value, supply)
                assert solved is not None, "the flow at hand is feasible"
                solution = np.where(fixed, value, np.round(solved[0]))
                settled = ~fixed & (np.abs(solved[1]) > 0.5)
            value[settled] = solution[settled]
            fixed |= settled
            rank -= 1
        return self._flows(solution)

    def _flows(self, units: NDArray[np.float64]) -> list[int]:
        return [int(flow) for flow in np.bincount(self._arc, np.round(units), len(self.network.arcs))]

    def _ranks(self, times: Sequence[Sequence[Sequence[float]]]) -> tuple[_Ranks, _Ranks]:
        """The ranks of the times that the terms reach with each unit, and of those that they had before it."""
        variables, seconds = [np.zeros(0, np.int64)], [np.zeros(0)]
        for first, links in zip(self._first, times, strict=True):
            for by_unit in links:
                variables.append(np.arange(first, first + len(by_unit)))
                seconds.append(np.array(by_unit))
        variable, reached = np.concatenate(variables), np.concatenate(seconds)
        # relative to the longest, so that rounding of sums makes no two ranks of one
        known = np.round(reached / max(reached.max(initial=0.0), 1e-300) * 1e12)
        rank = np.searchsorted(np.unique(known), known)
        later = ~np.isin(variable, self._first)
        return _Ranks.of(variable, rank, len(self._arc)), _Ranks.of(
            variable[later], rank[np.flatnonzero(later) - 1], len(self._arc)
        )

    def _forbidden(self, capacity: Mapping[str, int]) -> NDArray[np.bool_]:
        forbidden = np.zeros(len(self._arc), np.bool_)
        for first, units, arc in zip(self._first, self.network.units, self.network.arcs, strict=True):
            if arc.head == SINK:
                forbidden[first + min(capacity.get(arc.tail, 0), units) : first + units] = True
        return forbidden

    def _solve(
        self, cost: NDArray[Any], fixed: NDArray[np.bool_], value: NDArray[np.float64], supply: Mapping[str, int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """One LP over the δ that are not fixed: its vertex and its reduced costs; None: infeasible."""
        program, parameter, right_side, variable = self._compiled
        right = np.zeros(len(self._row))
        for source, count in supply.items():
            right[self._row[source]] = count
        right_side.value = right - self._incidence @ value
        parameter.value = np.where(fixed, 1 + 2 * np.abs(cost).sum(), cost).astype(np.float64)
        started = perf_counter()
        program.solve(solver="HIGHS", warm_start=False, highs_options=dict(_OPTIONS), enforce_dpp=True)
        self.effort.total_seconds += perf_counter() - started
        self.effort.programs += 1
        if program.status == "infeasible":
            return None
        if program.status != "optimal":
            raise PlacementError(f"HiGHS ended the placement LP with status {program.status}; it should be optimal")
        self.effort.solver_seconds += program.solver_stats.solve_time
        vertex: NDArray[np.float64] = variable.value
        fraction = float(np.abs(vertex - np.round(vertex)).max())
        self.effort.largest_fraction = max(self.effort.largest_fraction, fraction)
        if fraction > _INTEGRALITY:
            raise PlacementError(
                f"{fraction:.2g} from integral; the matrix is not TU",
                place="vertex of the placement LP",
                value=fraction,
            )
        if vertex[fixed].any() and vertex[fixed].max() > 0.5:
            return None
        reduced = parameter.value + self._incidence.T @ program.constraints[0].dual_value
        return vertex, reduced
