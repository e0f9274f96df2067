"""The exact linear program: streams to sinks so that the loaded links' times are lexicographically least.

Minimise Σ_e F_e(f_e) over the integral flows of a network, F_e convex. In marginal-unit form the i-th unit on arc e is
a variable δ_{e,i} in [0, 1] of its own, with cost F_e(i) − F_e(i − 1). The rows are flow conservation, and every δ's
column is a copy of its arc's in the node-arc incidence matrix, so the matrix is totally unimodular and every vertex is
integral (Meyer 1977; Hochbaum & Shanthikumar, JACM 37(4), 1990). The dual simplex method ends at a vertex; that it is
integral is checked every time.

Min-max: with dense ranks of all times T_e(i), F_e(i) = M^rank(T_e(i)), M above the number of terms, makes the least sum
the lexicographically least sorted vector of times, and F_e is convex because T_e increases strictly. M^rank leaves
double precision after a handful of ranks, so its digits are taken one LP at a time, highest first: each minimises one
window of ranks, with small integer costs, and then keeps to its own optimal face by fixing every δ whose reduced cost
is not 0 (complementary slackness). Fixing bounds leaves the matrix as it was, so all these LPs are integral, and so are
their duals: no tolerance decides anything. A δ that is fixed or forbidden is priced out rather than bounded, for a
program that cvxpy has compiled takes new costs and right-hand sides, but no new bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, Final

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
from numpy.typing import NDArray

from controller.placement.network import SINK, Network
from controller.placement.problem import PlacementError

_LARGEST_WEIGHT: Final = 3_000
_INTEGRALITY: Final = 1e-6
_OPTIONS: Final = {"solver": "simplex", "simplex_strategy": 1, "presolve": "off"}
"""HiGHS: dual simplex, and no presolve, which costs more than it saves at these sizes."""


@dataclass(slots=True)
class Effort:
    """What solving has taken so far."""

    programs: int = 0
    solver_seconds: float = 0.0
    total_seconds: float = 0.0
    """With cvxpy's share."""
    largest_fraction: float = 0.0
    """Farthest that any variable of any vertex was from an integer."""


@dataclass
class FlowProgram:
    """The compiled program of one network; solved again and again with other loads, capacities and supplies."""

    network: Network
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        units = np.array(self.network.units)
        self._arc = np.repeat(np.arange(len(units)), units)
        self._first = np.concatenate(([0], np.cumsum(units)[:-1]))
        nodes = list(dict.fromkeys(arc.tail for arc in self.network.arcs))
        self._row = {node: row for row, node in enumerate(nodes)}
        tails = np.array([self._row[arc.tail] for arc in self.network.arcs])
        heads = np.array([self._row.get(arc.head, -1) for arc in self.network.arcs])
        column = np.arange(len(self._arc))
        inner = heads[self._arc] >= 0
        self._incidence = scipy.sparse.csr_matrix(
            (
                np.concatenate((np.ones(len(column)), -np.ones(inner.sum()))),
                (np.concatenate((tails[self._arc], heads[self._arc][inner])), np.concatenate((column, column[inner]))),
            ),
            shape=(len(nodes), len(column)),
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
        bound: float = np.inf,
    ) -> list[int] | None:
        """Flow on every arc; None where the supply cannot be placed.

        `capacity` is how many streams each sink still takes (one not in it takes none), `times` is `Network.times`.
        `bound`: some flow is known whose largest time is not above this; what is above it need not be considered.
        """
        ranks, levels = self._ranks(times, bound)
        forbidden = self._forbidden(capacity) | (ranks == levels).any(axis=0)
        terms = len(ranks)
        window = max(1, int(np.log(_LARGEST_WEIGHT) / np.log(terms + 1)))
        fixed = forbidden.copy()
        value = np.zeros(len(self._arc))
        solution: NDArray[np.float64] | None = None
        previous = np.where(np.arange(len(self._arc)) == self._first[self._arc], -1, np.roll(ranks, 1, axis=1))
        high = levels - 1
        while True:
            free = ~fixed
            waiting = ranks[:, free][(ranks[:, free] >= 0) & (ranks[:, free] <= high)]
            if not waiting.size:
                break
            high = int(waiting.max())
            low = max(high - window + 1, 0)
            cost = _digits(ranks, low, high, terms + 1) - _digits(previous, low, high, terms + 1)
            high = low - 1
            if not cost[free].any():
                continue
            solved = self._solve(np.where(free, cost, 0), fixed, value, supply)
            if solved is None:
                return None
            solution, reduced = solved
            at_bound = free & (np.abs(reduced) > 0.5)
            value[at_bound] = np.round(solution[at_bound])
            fixed |= at_bound
        if solution is None:
            solved = self._solve(np.zeros(len(fixed)), fixed, value, supply)
            if solved is None:
                return None
            solution = solved[0]
        whole = np.where(fixed, value, np.round(solution))
        return [int(flow) for flow in np.bincount(self._arc, whole, len(self.network.arcs))]

    def _ranks(self, times: Sequence[Sequence[Sequence[float]]], bound: float) -> tuple[NDArray[np.int64], int]:
        """(terms, variables): the dense rank of the time that a term reaches with this unit; −1: no such term here.

        Times above the bound get the one rank above all others, the second value returned. An arc of k directed links
        has terms 0 … k − 1 of its own; terms of different arcs share a row, for they share no variable.
        """
        terms = max((len(links) for links in times), default=0)
        seconds = np.full((terms, len(self._arc)), -1.0)
        for first, links in zip(self._first, times, strict=True):
            for term, by_unit in enumerate(links):
                seconds[term, first : first + len(by_unit)] = by_unit
        top = seconds.max(initial=0.0)
        known = np.round(seconds[seconds >= 0] / top * 1e12) if top else seconds[seconds >= 0]
        limit = np.round(bound / top * 1e12) if top and np.isfinite(bound) else np.inf
        distinct = np.unique(known)
        levels = int(np.searchsorted(distinct, limit, side="right"))
        ranks = np.full(seconds.shape, -1)
        ranks[seconds >= 0] = np.minimum(np.searchsorted(distinct, known), levels)
        return ranks, levels

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
            raise PlacementError(f"a vertex of the placement LP is {fraction:.2g} from integral; its matrix is not TU")
        if vertex[fixed].any() and vertex[fixed].max() > 0.5:
            return None
        reduced = parameter.value + self._incidence.T @ program.constraints[0].dual_value
        return vertex, reduced


def _digits(ranks: NDArray[np.int64], low: int, high: int, base: int) -> NDArray[np.int64]:
    """(variables,): Σ over terms of base^(rank − low) where low ≤ rank ≤ high."""
    within = (ranks >= low) & (ranks <= high)
    digits: NDArray[np.int64] = np.where(within, base ** np.where(within, ranks - low, 0), 0).sum(axis=0)
    return digits
