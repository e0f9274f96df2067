"""Relax and round, as GRID does (Fang et al., IEEE/ACM Transactions on Networking, 2023): a linear program shares each
worker's stream among switches, then every worker draws one by its shares.

    minimise T      Σ_s x_{r,s} = 1      x_{r,s} ≤ z_s ≤ 1      link e:  Σ n_r · x_{r,s} + Σ z_s  ≤  T / seconds_e

with x_{r,s} the share of rack r's workers that go to s, and z_s the sum that s sends to the server. If that takes too
many iterations, racks sum. While the links' times stay the same, so do the shares, and workers draw again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..baseline_trees import closest_feasible_tree, rack_sums
from ..exact.min_max_lp import LimitReached, Sharing
from ..model.cost import PlacementCosts
from ..model.links import Floats
from ..model.problem import Placement, PlacementError, Problem
from ..model.strategy import Need, StrategyDescription

_SAME: Final = 1e-6
"""Links' times that differ by this share or less are the same."""


@dataclass
class Rounded:
    """One level of switches below the server; workers draw theirs from the run's seed."""

    iterations: int = 200_000
    """Limit of the program, in simplex iterations; if it takes more, racks sum, and the placement's note says so."""
    _solved: tuple[object, Floats, list[float]] | None = None
    """The last job's racks and nodes, the links' times, and the shares."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`. Raises PlacementError for a job without a server."""
        server = problem.server
        if server is None:
            raise PlacementError(
                "is missing; the strategy needs one: name a host, or use widest", place="strategy grid: server"
            )
        problem.check_ways()
        switches = [switch.name for switch in problem.topology.switches if problem.takes(switch.name)]
        usable = [name for name in switches if problem.routes.reaches(name, server)]
        pairs = [(rack, sink) for rack in problem.racks for sink in (*usable, server) if problem.may_send(rack, sink)]
        try:
            shares = self._shares(problem, server, usable, pairs)
        except LimitReached as stopped:
            near = closest_feasible_tree(problem, rack_sums(problem))
            return replace(near, note="; ".join(filter(None, (f"{stopped}: racks sum", near.note))))
        wanted: dict[str, str] = {}
        offers: dict[str, list[tuple[str, float]]] = {}
        for (rack, sink), share in zip(pairs, shares, strict=True):
            offers.setdefault(rack, []).append((sink, share))
        for worker, rack in ((w, r) for r, workers in problem.racks.items() for w in workers):
            sink = rng.choices([name for name, _ in offers[rack]], [share for _, share in offers[rack]])[0]
            if sink != server:
                wanted[worker] = sink
        return closest_feasible_tree(problem, wanted)

    def _shares(self, problem: Problem, server: str, switches: list[str], pairs: list[tuple[str, str]]) -> list[float]:
        """Shares for each rack and node that its workers may send to: the last ones if they still hold.

        Raises LimitReached.
        """
        costs = PlacementCosts(problem)
        seconds = costs.with_one  # others' traffic makes each stream slower
        job = (problem.routes, problem.racks, server, pairs)
        if self._solved is not None:
            solved_job, solved_seconds, shares = self._solved
            if solved_job == job and np.allclose(seconds, solved_seconds, rtol=_SAME, atol=0.0):
                return shares
        shares = _solve(problem, costs, seconds, server, switches, pairs, self.iterations)
        self._solved = (job, seconds, shares)
        return shares


def _solve(
    problem: Problem,
    costs: PlacementCosts,
    seconds: Floats,
    server: str,
    switches: list[str],
    pairs: list[tuple[str, str]],
    iterations: int,
) -> list[float]:
    """The linear program's shares, for each rack and node that its workers may send to. Raises LimitReached."""
    row_of: dict[int, int] = {}
    program = Sharing(np.zeros(0))
    columns = [program.column() for _ in pairs]
    sum_of = {name: program.column() for name in switches}
    streams = [
        (columns[index], rack, sink, float(len(problem.racks[rack]))) for index, (rack, sink) in enumerate(pairs)
    ]
    streams += [(column, name, server, 1.0) for name, column in sum_of.items()]
    for column, source, sink, count in streams:
        for link, share in costs.steps(source, sink) if source != sink else ():
            row = row_of.setdefault(link, len(row_of))
            program.timed.append((row, column, count * share * float(seconds[link])))
    program.others = np.zeros(len(row_of))
    summed = [(column, sink) for column, (_, sink) in zip(columns, pairs, strict=True) if sink != server]
    for row, (column, sink) in enumerate(summed):
        program.limits += [(row, column, 1.0), (row, sum_of[sink], -1.0)]
    for rack in problem.racks:
        program.groups.append([column for column, (start, _) in zip(columns, pairs, strict=True) if start == rack])
    return [float(share) for share in program.solve("strategy grid", iterations=iterations).of_columns[: len(pairs)]]


DESCRIPTION: Final = StrategyDescription(
    "grid",
    "GRID-like",
    "a linear program shares workers among switches, then each draws one by its shares",
    Rounded,
    frozenset({Need.SERVER, Need.ROOM, Need.TELEMETRY}),
    resolves=True,
    advice="a baseline with a server",
)
