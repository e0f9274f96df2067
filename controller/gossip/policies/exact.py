"""The exact policy: probabilities and pull weights of all pairs from one semidefinite program.

Every pair {i, m} has a mixing mass of its own, a = p_im c_im = p_mi c_mi, and every worker the same mean iteration time
t̄, so all weigh alike in the objective and the mean of all weights is preserved in expectation. One iteration then has

    E‖JDy‖² = yᵀ (I − L(w)) y,      w_im = (2a − (1 − 1/n)(a²/p_im + a²/p_mi)) / n

for y without its mean, with L(w) the weighted Laplacian, so its smallest eigenvalue besides 0 bounds the rate. In place
of a search over t̄ the program counts per second: with r = p/t̄, a/t̄ in the place of a, n/t̄ iterations a second and the
time shares u_im = t_im r_im, all constraints are homogeneous, and t̄ drops out:

    max λ   subject to   L(w) ⪰ λ J,   w_im ≤ 2a_im − (1 − 1/n)(q_im + q_mi),   a_im² ≤ q_im r_im,   a_im ≤ r_im,
                         Σ_m u_im = 1,   Σ_m r_im = f for all i

If no t̄ suits all workers, since a slow one computes longer than a fast one pulls, the last row is left out: then fast
workers iterate more often, and their data counts by as much more. All of it is jointly concave, so the solver's answer
is the global optimum. NetMax is the special case of equal a_im.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import GossipError
from ..policy import Floats, GossipPolicy, PolicyDescription, check_seconds, neighbours

_PRECISION: Final = {"tol_gap_abs": 1e-6, "tol_gap_rel": 1e-6, "tol_feas": 1e-7, "direct_solve_method": "faer"}
_MIN_RATE: Final = 1e-7
"""Pulls that are rarer than this share of iterations are rounding errors of the solver."""


def compute(seconds: Floats) -> GossipPolicy:
    """Return the policy with the largest bound of the rate.

    Args:
        seconds: (workers, workers) as `policy.Compute` takes it.

    Raises:
        GossipError: The solver finds no optimum.
    """
    check_seconds(seconds)
    n, allowed = len(seconds), neighbours(seconds)
    usable = allowed | np.eye(n, dtype=np.bool_)
    first, second = np.nonzero(np.triu(allowed))
    scale = float(np.mean(seconds[allowed]))
    per_share = np.divide(scale, seconds, out=np.zeros((n, n)), where=usable)
    used = np.where(usable, seconds, np.nan)
    equal = bool(np.nanmin(used, axis=1).max() < np.nanmax(used, axis=1).min())
    shares, masses = _solve(per_share, usable, first, second, equal=equal)
    rates = np.maximum(shares, 0) * per_share
    probabilities = rates / rates.sum(axis=1, keepdims=True)
    probabilities[probabilities < _MIN_RATE] = 0
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    mass = np.zeros((n, n))
    mass[first, second] = mass[second, first] = np.maximum(masses, 0)
    pulled = allowed & (probabilities > 0)
    weights = np.divide(mass, rates, out=np.zeros((n, n)), where=pulled)
    return GossipPolicy(probabilities, np.minimum(weights, 1.0))


def _solve(per_share: Floats, usable: Any, first: Any, second: Any, *, equal: bool) -> tuple[Floats, Floats]:
    """Return the time shares u, (n, n), and the mixing masses of the pairs, (pairs,); `equal`: rates of iterations."""
    import cvxpy  # takes a second: not for those who never solve

    n, pairs = len(per_share), len(first)
    shares = cvxpy.Variable((n, n), nonneg=True)
    mass = cvxpy.Variable(pairs, nonneg=True)
    weight = cvxpy.Variable(pairs)
    cost = cvxpy.Variable(2 * pairs)
    rate, common = cvxpy.Variable(), cvxpy.Variable()
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
        cvxpy.sum(shares, axis=1) == 1,
    ]
    if equal:
        constraints.append(cvxpy.sum(cvxpy.multiply(per_share, shares), axis=1) == common)
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


DESCRIPTION: Final = PolicyDescription(
    "exact", "exact gossip", "probabilities and weights of every pair from one semidefinite program", compute
)
