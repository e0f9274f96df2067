"""Probabilities and pull weights of all pairs from one semidefinite program.

Every pair {i, m} has its own mixing mass a = p_im c_im = p_mi c_mi, and every worker the same mean iteration time t̄. So
all workers count equally in the objective, and the mean of all weights is preserved in expectation. For y without its
mean, one iteration then has

    E‖JDy‖² = yᵀ (I − L(w)) y,      w_im = (2a − (1 − 1/n)(a²/p_im + a²/p_mi)) / n

with L(w) the weighted Laplacian. Its smallest eigenvalue besides 0 bounds the rate. In place of a search over t̄ the
program counts per second, with r = p/t̄, a/t̄ in the place of a, n/t̄ iterations a second and the time shares
u_im = t_im r_im. All constraints are then homogeneous, and t̄ is eliminated:

    max λ   subject to   L(w) ⪰ λ J,   w_im ≤ 2a_im − (1 − 1/n)(q_im + q_mi),   a_im² ≤ q_im r_im,   a_im ≤ r_im,
                         Σ_m u_im = 1,   Σ_m r_im = f for all i

If no t̄ suits all workers, since a slow one computes longer than a fast one pulls, the last row is left out: then fast
workers iterate more often, and their data counts by as much more. All of it is jointly concave, so the solver's answer
is the global optimum. NetMax is the special case of equal a_im.

A floor φ adds Σ_m r_im ≥ φ / t_ii for all i: workers pull so rarely over slow pairs that they keep the share φ of the
iterations that they would make alone. A limit β adds Σ_i u_im ≤ β for all m, over the workers i whose pulls from m take
longer than computing: pulls from one worker share its link, so it is busy for a share β of the time at the most.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import GossipError
from .policy import Floats, GossipPolicy, check_seconds, neighbours

Booleans = NDArray[np.bool_]
Indices = NDArray[np.int64]

_PRECISION: Final = {"tol_gap_abs": 1e-6, "tol_gap_rel": 1e-6, "tol_feas": 1e-7, "direct_solve_method": "faer"}
MAX_WAITING: Final = 0.2
"""Largest share of time that a worker may be planned to wait, so that all of nearly equal machines iterate alike."""
_MIN_RATE: Final = 1e-7
"""Pulls that are rarer than this share of iterations are rounding errors of the solver."""


def largest_bound(seconds: Floats, *, floor: float = 0.0, busy: float = math.inf) -> GossipPolicy:
    """Return the policy with the largest bound of the rate at which disagreement falls.

    Args:
        seconds: (workers, workers) as `policy.Compute` takes it.
        floor: Least share of the iterations without pulls that every worker makes, in [0, 1).
        busy: Largest share of time in which others pull from a worker, counting pulls that are longer than computing;
            above 0.

    Raises:
        GossipError: The times or the floor cannot be, or the solver finds no optimum.
    """
    check_seconds(seconds)
    if not 0 <= floor < 1:
        raise GossipError("the floor must be >= 0 and < 1", place="floor", value=floor)
    if not busy > 0:
        raise GossipError("the share must be > 0", place="busy", value=busy)
    n, allowed = len(seconds), neighbours(seconds)
    usable = allowed | np.eye(n, dtype=np.bool_)
    first, second = np.nonzero(np.triu(allowed))
    scale = float(np.exp(np.mean(np.log(seconds[allowed]))))
    per_share = np.divide(scale, seconds, out=np.zeros((n, n)), where=usable)
    used = np.where(usable, seconds, np.nan)
    alone = np.diagonal(seconds)
    least_s, longest_s = np.nanmin(used, axis=1).max(), np.nanmax(used, axis=1).min()
    waiting = math.isfinite(busy)  # pulls over slow links are no way to iterate as rarely as the others
    equal = bool(alone.min() >= (1 - MAX_WAITING) * least_s if waiting else least_s < longest_s)
    network = _Network(per_share, usable, allowed & (seconds > alone[:, None]), first, second)
    shares, masses = _solve(network, _Limits(equal, waiting and equal, floor * scale / alone, busy))
    rates = np.maximum(shares, 0) * per_share
    probabilities = rates / rates.sum(axis=1, keepdims=True)
    probabilities[probabilities < _MIN_RATE] = 0
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    mass = np.zeros((n, n))
    mass[first, second] = mass[second, first] = np.maximum(masses, 0)
    pulled = allowed & (probabilities > 0)
    weights = np.divide(mass, rates, out=np.zeros((n, n)), where=pulled)
    return GossipPolicy(probabilities, np.minimum(weights, 1.0))


class _Network(NamedTuple):
    per_share: Floats
    """Iterations of a time share of 1, (n, n); 0: this pair may not exchange."""
    usable: Booleans
    longer: Booleans
    """Pulls that take longer than computing, (n, n)."""
    first: Indices
    second: Indices
    """Workers of the pairs that may exchange, (pairs,) each."""


class _Limits(NamedTuple):
    equal: bool
    """All workers iterate equally often."""
    waiting: bool
    """Time shares may sum to less than 1, by `MAX_WAITING`. Workers then iterate more often than f. Masses per
    iteration stay symmetric, so all data still counts alike.
    """
    least: Floats
    """Least rate of each worker's iterations, (n,)."""
    busy: float


def _solve(network: _Network, limits: _Limits) -> tuple[Floats, Floats]:
    """Return the time shares u, (n, n), and the mixing masses of the pairs, (pairs,)."""
    import cvxpy  # takes a second: not for those who never solve

    per_share, usable, longer, first, second = network
    n, pairs = len(per_share), len(first)
    shares = cvxpy.Variable((n, n), nonneg=True)
    mass = cvxpy.Variable(pairs, nonneg=True)
    weight = cvxpy.Variable(pairs)
    cost = cvxpy.Variable(2 * pairs)
    rate = cvxpy.Variable()
    pulling, pulled = np.concatenate([first, second]), np.concatenate([second, first])
    rates = cvxpy.multiply(per_share[pulling, pulled], shares[pulling, pulled])
    both = cvxpy.hstack([mass, mass])
    edges = np.zeros((n, pairs))
    edges[first, np.arange(pairs)], edges[second, np.arange(pairs)] = 1, -1
    basis = np.linalg.svd(np.ones((1, n)))[2][1:] @ edges  # on the complement of the mean, where λJ is λI
    constraints = [
        basis @ cvxpy.diag(weight) @ basis.T >> rate * np.eye(n - 1),
        weight <= 2 * mass - (1 - 1 / n) * (cost[:pairs] + cost[pairs:]),
        cvxpy.SOC(cost + rates, cvxpy.vstack([2 * both, cost - rates])),
        both <= rates,
        cvxpy.sum(shares, axis=1) <= 1,
        cvxpy.sum(shares, axis=1) >= (1 - MAX_WAITING if limits.waiting else 1),
    ]
    iterating = cvxpy.sum(cvxpy.multiply(per_share, shares), axis=1)
    if limits.equal:
        constraints.append(iterating == cvxpy.Variable())
    if limits.least.any():
        constraints.append(iterating >= limits.least)
    if math.isfinite(limits.busy) and longer.any():
        constraints.append(cvxpy.sum(cvxpy.multiply(longer, shares), axis=0) <= limits.busy)
    forbidden = ~usable
    if forbidden.any():
        constraints.append(cvxpy.multiply(forbidden, shares) == 0)
    program = cvxpy.Problem(cvxpy.Maximize(rate), constraints)
    try:
        program.solve(solver=cvxpy.CLARABEL, **_PRECISION)
    except cvxpy.SolverError as error:
        raise GossipError(f"the semidefinite program of {n} workers has no answer: {error}") from None
    if shares.value is None or mass.value is None:
        raise GossipError(f"the semidefinite program of {n} workers is {program.status}")
    return shares.value, mass.value
