"""Relax and round, as GRID does (Fang et al., IEEE/ACM Transactions on Networking, 2023): a linear program shares each
worker's stream among switches, then every worker draws one by its shares.

    minimise T      Σ_s x_{r,s} = 1      x_{r,s} ≤ z_s ≤ 1      link e:  Σ n_r · x_{r,s} + Σ z_s  ≤  T / seconds_e

with x_{r,s} the share of rack r's workers that go to s, and z_s the sum that s sends to the server.
"""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import scipy.optimize  # type: ignore[import-untyped]
import scipy.sparse  # type: ignore[import-untyped]

from ..cost import Costs
from ..problem import Placement, PlacementError, Problem
from ..strategy import Description, Need
from ..wishes import nearest


class Rounded:
    """One level of switches below the server; workers draw theirs from the run's seed."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        server = problem.server
        if server is None:
            raise PlacementError("strategy grid needs a parameter server and the job has none; name one, or use widest")
        switches = [switch.name for switch in problem.topology.switches if problem.takes(switch.name)]
        usable = [name for name in switches if problem.routes.reaches(name, server)]
        pairs = [(rack, sink) for rack in problem.racks for sink in (*usable, server) if problem.may_send(rack, sink)]
        shares = _shares(problem, server, usable, pairs)
        wanted: dict[str, str] = {}
        for worker, rack in ((w, r) for r, workers in problem.racks.items() for w in workers):
            offers = [(sink, share) for (start, sink), share in zip(pairs, shares, strict=True) if start == rack]
            sink = rng.choices([name for name, _ in offers], [share for _, share in offers])[0]
            if sink != server:
                wanted[worker] = sink
        return nearest(problem, wanted)


def _shares(problem: Problem, server: str, switches: list[str], pairs: list[tuple[str, str]]) -> list[float]:
    """The linear program's, for each rack and node that its workers may send to."""
    costs = Costs(problem)
    sum_of = {name: len(pairs) + at for at, name in enumerate(switches)}
    time = len(pairs) + len(switches)
    cells: list[tuple[int, int, float]] = []
    row_of: dict[int, int] = {}
    streams = [(at, rack, sink, float(len(problem.racks[rack]))) for at, (rack, sink) in enumerate(pairs)]
    streams += [(column, name, server, 1.0) for name, column in sum_of.items()]
    for column, source, sink, count in streams:
        for link, share in costs.steps(source, sink) if source != sink else ():
            cells.append((row_of.setdefault(link, len(row_of)), column, count * share * float(costs.seconds[link])))
    scale = float(costs.seconds.max())
    cells += [(row, time, -scale) for row in row_of.values()]
    rows = len(row_of)
    for at, (_, sink) in enumerate(pairs):
        if sink != server:
            cells += [(rows, at, 1.0), (rows, sum_of[sink], -1.0)]
            rows += 1
    racks = {rack: at for at, rack in enumerate(problem.racks)}
    whole = [(racks[rack], at, 1.0) for at, (rack, _) in enumerate(pairs)]

    def matrix(entries: list[tuple[int, int, float]], height: int) -> scipy.sparse.csr_array:
        at, columns, factors = zip(*entries, strict=True)
        return scipy.sparse.csr_array((factors, (at, columns)), shape=(height, time + 1))

    solved = scipy.optimize.linprog(
        np.eye(time + 1)[time],
        A_ub=matrix(cells, rows),
        b_ub=np.zeros(rows),
        A_eq=matrix(whole, len(racks)),
        b_eq=np.ones(len(racks)),
        bounds=[(0, 1)] * time + [(0, None)],
    )
    if not solved.success:
        raise PlacementError(f"HiGHS ended the program of strategy grid with: {solved.message}; it should be optimal")
    return [max(float(share), 0.0) for share in solved.x[: len(pairs)]]


DESCRIPTION: Final = Description(
    "grid",
    "GRID-like",
    "a linear program shares workers among switches, then each draws one by its shares",
    Rounded,
    frozenset({Need.SERVER, Need.ROOM, Need.TELEMETRY}),
)
