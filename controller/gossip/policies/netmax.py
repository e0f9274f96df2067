"""NetMax's published policy: a nested search over the mixing mass and the mean iteration time, with an LP per point.

Zhou et al., "Communication-efficient Decentralized Machine Learning over Heterogeneous Networks" (ICDE 2021). All pairs
share one mixing mass s = p_im · c_im (α·ρ in the paper), every worker has the same mean iteration time t̄, and

    min Σ_i p_ii    subject to    Σ_m p_im = 1,   Σ_m t_im p_im = t̄,   p_im ≥ 2s for every neighbour m

gives the probabilities of a grid point (s, t̄). The point with the least t̄ / −ln λ₂ wins, with λ₂ the second largest
eigenvalue of E[DᵀD]. The grid's size is not in the parts of the paper that could be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # type: ignore[import-untyped]

from ..errors import GossipError
from ..policy import Floats, GossipPolicy, PolicyDescription, check_seconds, neighbours

MASSES: Final = 20
"""Values of s."""
MEANS: Final = 15
"""Values of t̄ for each s."""


@dataclass(slots=True)
class _Found:
    seconds: float
    """The paper's measure of the time to converge, without the factor of the precision."""
    policy: GossipPolicy


def compute(seconds: Floats) -> GossipPolicy:
    """Return the policy of the best grid point.

    Args:
        seconds: (workers, workers) as `policy.Compute` takes it.

    Raises:
        GossipError: No grid point has a policy.
    """
    check_seconds(seconds)
    allowed = neighbours(seconds)
    program = _Program(seconds, allowed)
    largest = 0.5 / int(allowed.sum(axis=1).max())
    best: _Found | None = None
    for mass in np.linspace(largest / MASSES, largest * 0.999, MASSES):
        low, high = program.means(float(mass))
        for mean in np.linspace(low, high, MEANS + 2)[1:-1] if low < high else ():
            probabilities = program.solve(float(mass), float(mean))
            if probabilities is None:
                continue
            policy = _judged(probabilities, float(mass), float(mean), allowed)
            if best is None or policy.seconds < best.seconds:
                best = policy
    if best is None:
        raise GossipError("NetMax's search finds no mean iteration time that all workers can have", value=seconds)
    return best.policy


class _Program:
    """The linear program of one network; variables are p_im of neighbours and p_ii, row by row."""

    def __init__(self, seconds: Floats, allowed: np.typing.NDArray[np.bool_]) -> None:
        self._seconds = seconds
        self._allowed = allowed
        self._used = allowed | np.eye(len(seconds), dtype=np.bool_)
        rows, columns = np.nonzero(self._used)
        count, ones = len(rows), np.ones(len(rows))
        shape = (len(seconds), count)
        sums = scipy.sparse.csr_array((ones, (rows, np.arange(count))), shape=shape)
        times = scipy.sparse.csr_array((seconds[rows, columns], (rows, np.arange(count))), shape=shape)
        self._equalities = scipy.sparse.vstack([sums, times])
        self._alone = (rows == columns).astype(np.float64)

    def means(self, mass: float) -> tuple[float, float]:
        """Return the least and the largest t̄ that every worker can have, in s."""
        times = np.where(self._used, self._seconds, np.nan)
        forced = 2 * mass * np.where(self._allowed, self._seconds, 0.0).sum(axis=1)
        free = 1 - 2 * mass * self._allowed.sum(axis=1)
        low = float((forced + free * np.nanmin(times, axis=1)).max())
        high = float((forced + free * np.nanmax(times, axis=1)).min())
        return low, high

    def solve(self, mass: float, mean: float) -> Floats | None:
        """Return the probabilities of a grid point; None if there are none."""
        n = len(self._seconds)
        lower = np.where(self._alone > 0, 0.0, 2 * mass)
        solved = scipy.optimize.linprog(
            self._alone,
            A_eq=self._equalities,
            b_eq=np.concatenate([np.ones(n), np.full(n, mean)]),
            bounds=np.stack([lower, np.ones_like(lower)], axis=1),
            method="highs",
        )
        if not solved.success:
            return None
        probabilities = np.zeros((n, n))
        probabilities[self._used] = np.clip(solved.x, 0, 1)
        scaled: Floats = probabilities / probabilities.sum(axis=1, keepdims=True)
        return scaled


def _judged(probabilities: Floats, mass: float, mean: float, allowed: np.typing.NDArray[np.bool_]) -> _Found:
    n = len(probabilities)
    inverse = np.divide(1.0, probabilities, out=np.zeros((n, n)), where=allowed)
    laplacian = -np.where(allowed, 2 * mass - mass**2 * (inverse + inverse.T), 0.0) / n
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    second = 1 - float(np.linalg.eigvalsh(laplacian)[1])
    took = mean / -math.log(second) if 0 < second < 1 else math.inf
    return _Found(took, GossipPolicy(probabilities, np.minimum(mass * inverse, 1.0)))


DESCRIPTION: Final = PolicyDescription(
    "netmax", "NetMax", "published search over one common mixing mass and mean time, a linear program a point", compute
)
