"""The mixed-integer program of a whole tree, of any depth and with any parents, over the hops that it is given.

A hop goes from a rack or a switch that sums to a switch with room, or to the root; its stream takes the links that
routing gives it. Variables and rows, with F the fan-in and n_r the workers of rack r:

    x_{r,p}   streams of rack r to p                  y_{s,p}   whether switch s sends its sum to p

    Σ_p x_{r,p} = n_r      Σ_p y_{s,p} ≤ 1      into s:  Σ x + Σ y ≤ F · Σ_p y_{s,p},  each y ≤ Σ_p y_{s,p}
    into the server:  Σ x + Σ y ≤ F             without one, a single switch sends to an outside that costs nothing

    f_{s,p} ≤ |S| · y_{s,p}      out of s: Σ f − into s: Σ f = Σ_p y_{s,p}      (no circles: all units reach the root)

    link e:   Σ share · streams + m_e + u_e · others_e / seconds_e  ≤  T / seconds_e
              m_e ≥ (1 − share) of every hashed stream on e      u_e = 1 where a stream takes e that others use

which is the load L_e of `cost`, and other jobs' streams. T is either given, so that any tree that keeps to it will do
and a link allows a whole number of streams (or of the parts that hashing makes of them), or the objective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import Final

import numpy as np
import scipy  # type: ignore[import-untyped]
from numpy.typing import NDArray

from ..model.cost import PlacementCosts
from ..model.problem import Placement, PlacementError, Problem
from .milp_result import is_infeasible, is_stopped

OUTSIDE: Final = ""
"""Destination of a root that is a switch."""
_FINEST_SHARE: Final = 10_000
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True)
class TreeHop:
    """Hop from a rack's workers, or from an aggregating switch."""

    source: str
    sink: str
    """A switch, the server, or OUTSIDE."""
    summed: bool
    """True if the stream is a switch's sum."""


def all_hops(problem: Problem) -> list[TreeHop]:
    """Return every hop that routing allows: by the only shortest path, to a neighbour, or to the server."""
    switches = [switch.name for switch in problem.topology.switches if problem.takes(switch.name)]
    sinks = [*switches, *([] if problem.server is None else [problem.server])]
    hops = [TreeHop(rack, sink, False) for rack in problem.racks for sink in sinks if problem.may_send(rack, sink)]
    hops += [TreeHop(a, b, True) for a in switches for b in sinks if a != b and problem.may_send(a, b)]
    return hops if problem.server is not None else hops + [TreeHop(name, OUTSIDE, True) for name in switches]


@dataclass
class _Rows:
    """A sparse system of rows with lower and upper ends, as it grows."""

    columns: int
    cells: list[tuple[int, int, float]] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(self, terms: Iterable[tuple[int, float]], lower: float, upper: float) -> int:
        row = len(self.lower)
        self.cells += [(row, column, factor) for column, factor in terms]
        self.lower.append(lower)
        self.upper.append(upper)
        return row

    @property
    def matrix(self) -> scipy.sparse.csr_array:
        rows, columns, factors = zip(*self.cells, strict=True)
        return scipy.sparse.csr_array((factors, (rows, columns)), shape=(len(self.lower), self.columns))


class TreeProgram:
    """One problem's program over some hops."""

    def __init__(
        self,
        problem: Problem,
        costs: PlacementCosts,
        hops: Sequence[TreeHop],
        most: Mapping[str, int] | None = None,
        sums: int | None = None,
    ) -> None:
        """Make the rows.

        Args:
            problem: The job.
            costs: Its times.
            hops: The hops that its tree may have.
            most: Maximum number of children of a switch, up to its fan-in, which is that of a switch not in it.
            sums: Maximum number of switches that sum; None: no limit.
        """
        self._problem, self._costs, self._hops = problem, costs, hops
        self._most = most or {}
        self.nodes = 0
        """Branches of the last search; its limit if it stopped there."""
        self._sums = [index for index, hop in enumerate(hops) if hop.summed]
        self._floor = costs.access_seconds(problem.workers)
        """Time of the workers' own links, which no hop includes."""
        flow_of = {at: len(hops) + place for place, at in enumerate(self._sums)}
        self._time = len(hops) + len(self._sums)
        self._uppers = [1.0 if hop.summed else float(len(problem.racks[hop.source])) for hop in hops]
        self._uppers += [float(len(self._sums))] * len(self._sums) + [np.inf]
        self._integral = [1] * len(hops) + [0] * (len(self._sums) + 1)
        self._rows = _Rows(0)
        self._add_tree(flow_of)
        if sums is not None:
            self._rows.add([(at, 1.0) for at in self._sums], 0, sums)
        self._links: list[tuple[int, float, float]] = []
        """Every link of some hop: its row, the seconds of the part of a stream that the row counts in, and those of
        other jobs' streams.
        """
        self._shared: list[tuple[int, int, float]] = []
        """Cells of the rows of links that others use: whether this job does, times what theirs take."""
        self._add_links()
        self._rows.columns = len(self._uppers)

    def within(self, seconds: float, nodes: int) -> tuple[Placement | None, bool]:
        """Return a tree in which no link takes longer; and whether that is proven, there being none too.

        `nodes` limits the branches of the search.
        """
        if self._floor > seconds * (1 + _ROUNDING):
            return None, True
        placement, proven, _ = self._solve(np.zeros(len(self._uppers)), seconds, {"node_limit": nodes})
        return placement, proven

    def fewest(self, seconds: float, nodes: int) -> Placement | None:
        """Return such a tree of few switches, which takes three times as long to find."""
        objective = np.zeros(len(self._uppers))
        objective[self._sums] = 1
        return self._solve(objective, seconds, {"node_limit": nodes, "mip_rel_gap": 0.5})[0]

    def fastest(self, nodes: int, below: float = np.inf) -> tuple[Placement | None, float]:
        """Return the tree with the fastest slowest link, and a lower bound on what that can take.

        Args:
            nodes: Maximum number of branches of the search; then the best tree so far is returned.
            below: Seconds that its slowest link takes at most.

        Returns:
            None and an infinite bound: there is no such tree. None and another bound: none was found.
        """
        objective = np.zeros(len(self._uppers))
        objective[self._time] = 1
        placement, _, bound = self._solve(objective, None, {"node_limit": nodes, "mip_rel_gap": 0.0}, below)
        return placement, max(bound, self._floor)

    def _add_tree(self, flow_of: dict[int, int]) -> None:
        problem, rows, hops = self._problem, self._rows, self._hops
        leaving: dict[tuple[str, bool], list[int]] = {(rack, False): [] for rack in problem.racks}
        entering: dict[str, list[int]] = {}
        for at, hop in enumerate(hops):
            leaving.setdefault((hop.source, hop.summed), []).append(at)
            entering.setdefault(hop.sink, []).append(at)
        for rack, workers in problem.racks.items():
            rows.add([(at, 1.0) for at in leaving[rack, False]], len(workers), len(workers))
        for sink, into in entering.items():
            if sink == OUTSIDE:
                rows.add([(at, 1.0) for at in into], 1, 1)
                continue
            if sink == problem.server:
                rows.add([(at, 1.0) for at in into], 1, problem.fan_in)
                continue
            out = leaving.get((sink, True), [])
            most = self._most.get(sink, problem.fan_in)
            rows.add([*((at, 1.0) for at in into), *((at, -float(most)) for at in out)], -np.inf, 0)
            for at in into:
                rows.add([(at, 1.0), *((other, -self._uppers[at]) for other in out)], -np.inf, 0)
        for (source, summed), out in leaving.items():
            if summed:
                rows.add([(at, 1.0) for at in out], 0, 1)
                balance = [(flow_of[at], 1.0) for at in out] + [(at, -1.0) for at in out]
                balance += [(flow_of[at], -1.0) for at in entering.get(source, ()) if hops[at].summed]
                rows.add(balance, 0, 0)
        for at, flow in flow_of.items():
            rows.add([(flow, 1.0), (at, -float(len(self._sums)))], -np.inf, 0)

    def _add_links(self) -> None:
        costs, rows = self._costs, self._rows
        loads: dict[int, list[tuple[int, float]]] = {}
        for at, hop in enumerate(self._hops):
            if hop.sink not in (OUTSIDE, hop.source):
                for link, share in costs.steps(hop.source, hop.sink):
                    loads.setdefault(link, []).append((at, share))
        used: dict[int, int] = {}
        for link, terms in loads.items():
            # in whole parts of a stream, for the solver's presolve does not bear thirds
            parts = lcm(*(Fraction(share).limit_denominator(_FINEST_SHARE).denominator for _, share in terms))
            row = [(at, float(round(share * parts))) for at, share in terms]
            if hashed := [(at, share) for at, share in row if share < parts]:
                more = self._column(float(parts), 0)
                row.append((more, 1.0))
                for at, share in hashed:
                    if at not in used:
                        used[at] = at if self._hops[at].summed else self._column(1.0, 1)
                        if used[at] != at:
                            rows.add([(at, 1.0), (used[at], -self._uppers[at])], -np.inf, 0)
                    rows.add([(used[at], parts - share), (more, -1.0)], -np.inf, 0)
            part_seconds = float(costs.seconds[link]) / parts
            row.append((self._time, -1 / part_seconds))
            others = float(costs.others[link])
            self._links.append((rows.add(row, -np.inf, 0), part_seconds, others))
            if others:
                taken = self._column(1.0, 1)
                for at, _ in terms:
                    rows.add([(at, 1.0), (taken, -self._uppers[at])], -np.inf, 0)
                self._shared.append((self._links[-1][0], taken, others / part_seconds))

    def _column(self, upper: float, integral: int) -> int:
        self._uppers.append(upper)
        self._integral.append(integral)
        return len(self._uppers) - 1

    def _solve(
        self,
        objective: NDArray[np.float64],
        seconds: float | None,
        options: dict[str, float],
        below: float = np.inf,
    ) -> tuple[Placement | None, bool, float]:
        if self._problem.racks.keys() - {hop.source for hop in self._hops if not hop.summed}:
            return None, True, np.inf
        lowers, uppers = np.zeros(len(self._uppers)), np.array(self._uppers)
        matrix, most = self._rows.matrix, np.array(self._rows.upper)
        # the time in units of the slowest link, so that tolerances mean the same for every job
        scale = float(self._costs.seconds.max())
        if seconds is None:
            columns = np.ones(len(uppers))
            columns[self._time] = scale
            if self._shared:
                at, places, factors = zip(*self._shared, strict=True)
                matrix = matrix + scipy.sparse.csr_array((factors, (at, places)), shape=matrix.shape)
            matrix = matrix @ scipy.sparse.diags_array(columns)
            lowers[self._time], uppers[self._time] = self._floor / scale, below * (1 + _ROUNDING) / scale
            if lowers[self._time] > uppers[self._time]:
                return None, True, np.inf
        else:
            uppers[self._time] = 0
            for row, each, others in self._links:
                left = max(seconds * (1 + _ROUNDING) - others, 0.0)
                most[row] = min(np.floor(left / each), 1e6)
        solved = scipy.optimize.milp(
            objective,
            integrality=np.array(self._integral),
            bounds=scipy.optimize.Bounds(lowers, uppers),
            constraints=scipy.optimize.LinearConstraint(matrix, np.array(self._rows.lower), most),
            options=dict(options),  # which it takes entries from
        )
        stopped = is_stopped(solved)
        self.nodes = int(options["node_limit"] if stopped else solved.mip_node_count or 1)
        if solved.x is None:
            if not is_infeasible(solved) and not stopped:
                raise PlacementError(f"HiGHS ended the tree's program with: {solved.message}; it should be optimal")
            return None, is_infeasible(solved), np.inf if is_infeasible(solved) else 0.0
        bound = 0.0 if solved.mip_dual_bound is None else float(solved.mip_dual_bound) * scale
        return self._placement(np.round(solved.x[: len(self._hops)]).astype(np.int64)), True, bound

    def _placement(self, counts: NDArray[np.int64]) -> Placement:
        problem = self._problem
        waiting = {rack: iter(workers) for rack, workers in problem.racks.items()}
        aggregators: dict[str, str] = {}
        parents: dict[str, str] = {}
        root = problem.server or ""
        for hop, count in zip(self._hops, counts.tolist(), strict=True):
            if not count:
                continue
            if not hop.summed:
                aggregators.update((next(waiting[hop.source]), hop.sink) for _ in range(count))
            elif hop.sink == OUTSIDE:
                root = hop.source
            else:
                parents[hop.source] = hop.sink
        return Placement.trimmed({worker: aggregators[worker] for worker in problem.workers}, parents, root)
