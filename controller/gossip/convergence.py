"""Exact rate at which gossip shrinks disagreement: the judge of all policies.

Worker i ends an iteration every t̄_i = Σ_m p_im t_im seconds, so the next iteration to end is worker i's with
probability q_i = (1/t̄_i) / Σ_j (1/t̄_j). It applies D = I + c_im e_i (e_m − e_i)ᵀ with probability q_i p_im. With
J = I − 11ᵀ/n, the disagreement y = Jx becomes JDy, because D1 = 1, so its second moment S = E[yyᵀ] follows

    S  ←  𝓜(S) = Σ_im q_i p_im · J D_im S D_imᵀ J  =  J (S + A S + S Aᵀ + diag(b)) J
    A_im = q_i p_im c_im,   A_ii = −Σ_m A_im,   b_i = Σ_m q_i p_im c_im² (S_ii + S_mm − 2 S_im)

The mean square disagreement shrinks by ρ(𝓜), the spectral radius, with each of R = Σ_i 1/t̄_i iterations a second. The
second eigenvalue of E[DᵀD], which NetMax uses, is the same for equal t̄_i only up to a one-step bound, and wrong for
unequal ones.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import scipy  # type: ignore[import-untyped]

from .policy import Floats, GossipPolicy

_DENSE_WORKERS: Final = 10
"""Up to so many workers all eigenvalues of the operator are computed, which takes less time than Arnoldi's method."""


def iterations_per_second(seconds: Floats, policy: GossipPolicy) -> Floats:
    """Return each worker's iterations per second, (workers,).

    Args:
        seconds: Iteration times of the pairs, as `policy.Compute` takes them.
        policy: Policy that all workers follow.
    """
    times = np.where(policy.probabilities > 0, seconds, 0.0)
    means: Floats = 1 / (policy.probabilities * times).sum(axis=1)
    return means


def spectral_radius(seconds: Floats, policy: GossipPolicy) -> float:
    """Return ρ of the second-moment operator: the factor of the mean square disagreement with each iteration.

    Args:
        seconds: Iteration times of the pairs, as `policy.Compute` takes them.
        policy: Policy that all workers follow.
    """
    n = policy.workers
    rates = iterations_per_second(seconds, policy)
    pulls = (rates / rates.sum())[:, None] * policy.probabilities
    first = pulls * policy.pull_weights
    np.fill_diagonal(first, 0.0)
    second = first * policy.pull_weights
    drift = first - np.diag(first.sum(axis=1))
    centre = np.eye(n) - 1 / n

    def step(flat: Floats) -> Floats:
        moment = centre @ flat.reshape(n, n) @ centre
        variances = np.diagonal(moment)
        noise = second.sum(axis=1) * variances + second @ variances - 2 * (second * moment).sum(axis=1)
        moved: Floats = centre @ (moment + drift @ moment + moment @ drift.T + np.diag(noise)) @ centre
        return moved.ravel()

    if n <= _DENSE_WORKERS:
        matrix = np.stack([step(unit) for unit in np.eye(n * n)], axis=1)
        return float(np.abs(np.linalg.eigvals(matrix)).max())
    operator = scipy.sparse.linalg.LinearOperator((n * n, n * n), matvec=step, dtype=np.float64)
    return float(np.abs(scipy.sparse.linalg.eigs(operator, k=1, v0=centre.ravel(), return_eigenvectors=False)[0]))


def influence(seconds: Floats, policy: GossipPolicy) -> Floats:
    """Return each worker's share of the objective that gossip minimises, (workers,); the sum is 1.

    A worker's gradients count as often as it iterates, and as far as others adopt its weights: q_i π_i, where πᵀA = 0.
    Equal shares are the mean over all workers' data.

    Args:
        seconds: Iteration times of the pairs, as `policy.Compute` takes them.
        policy: Policy that all workers follow.
    """
    rates = iterations_per_second(seconds, policy)
    drift = rates[:, None] * policy.probabilities * policy.pull_weights
    np.fill_diagonal(drift, 0.0)
    drift -= np.diag(drift.sum(axis=1))
    adopted = np.abs(np.linalg.svd(drift.T)[2][-1])
    shares: Floats = adopted * rates
    normalised: Floats = shares / shares.sum()
    return normalised


def decay_per_second(seconds: Floats, policy: GossipPolicy) -> float:
    """Return the rate r of exp(−r·t), by which the mean square disagreement falls; 0 if it does not.

    Args:
        seconds: Iteration times of the pairs, as `policy.Compute` takes them.
        policy: Policy that all workers follow.
    """
    radius = spectral_radius(seconds, policy)
    return float(iterations_per_second(seconds, policy).sum()) * max(0.0, -math.log(radius)) if radius > 0 else math.inf


def seconds_to_shrink(seconds: Floats, policy: GossipPolicy, factor: float = 100.0) -> float:
    """Return the time in which the mean square disagreement becomes `factor` times smaller, in s; inf: never.

    Args:
        seconds: Iteration times of the pairs, as `policy.Compute` takes them.
        policy: Policy that all workers follow.
        factor: Ratio of the disagreement before to that after.
    """
    rate = decay_per_second(seconds, policy)
    return math.log(factor) / rate if rate > 0 else math.inf
