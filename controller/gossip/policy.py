"""A gossip policy, and what every way to compute one starts from: the iteration time of each pair of workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import GossipError

Floats = NDArray[np.float64]

_SUM_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class GossipPolicy:
    """Worker i pulls from worker m with probability `probabilities[i, m]`, and then moves to it by a weight.

    The move is x_i ← x_i − c_im · (x_i − x_m) with c = `pull_weights`. `probabilities[i, i]` is the share of
    iterations in which worker i pulls from nobody.

    Raises:
        GossipError: A row of probabilities does not sum to 1, or an entry is outside [0, 1].
    """

    probabilities: Floats
    """(workers, workers); rows sum to 1."""
    pull_weights: Floats
    """(workers, workers), each in [0, 1]; the diagonal is 0."""
    version: int = 0
    """Number of the policy in the order of publication, from 1; 0: not published."""

    def __post_init__(self) -> None:
        shape = self.probabilities.shape
        if len(shape) != 2 or shape[0] != shape[1] or self.pull_weights.shape != shape:
            raise GossipError(
                f"probabilities of shape {shape} and weights of shape {self.pull_weights.shape}; allowed: two square "
                "matrices of the same size"
            )
        for name, values in (("probabilities", self.probabilities), ("pull_weights", self.pull_weights)):
            if not ((values >= 0) & (values <= 1 + _SUM_TOLERANCE)).all():
                raise GossipError("has entries outside [0, 1]", place=name, value=values)
        if np.abs(self.probabilities.sum(axis=1) - 1).max() > _SUM_TOLERANCE:
            raise GossipError("rows must sum to 1", place="probabilities", value=self.probabilities)

    def damped(self) -> GossipPolicy:
        """Return the policy with pull weights whose sum is at most 1 in each pair.

        Policies take pulls one after another. Two workers that pull from each other at once turn their difference d
        into (1 − c_im − c_mi) d, and swap weights where the sum is 2. A step of rate η and curvature H then makes it
        −(1 + ηH) d, which grows. Both weights of a pair are divided alike, so p_im c_im = p_mi c_mi stays.
        """
        together = self.pull_weights + self.pull_weights.T
        return replace(self, pull_weights=self.pull_weights / np.maximum(1.0, together))

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.probabilities)


def check_seconds(seconds: Floats) -> None:
    """Raise GossipError for a matrix that cannot be iteration times.

    Args:
        seconds: (workers, workers) as `Compute` takes it.
    """
    shape = seconds.shape
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        raise GossipError(f"iteration times of shape {shape}; allowed: a square matrix of two workers or more")
    if not (seconds > 0).all():
        raise GossipError("iteration times must be > 0 s", value=seconds)
    if not np.isfinite(np.diagonal(seconds)).all():
        raise GossipError("the time of an iteration without a pull must be finite", value=np.diagonal(seconds))
    reached = np.linalg.matrix_power(np.isfinite(seconds) | np.isfinite(seconds).T, len(seconds))
    if not reached.all():
        raise GossipError("workers fall into groups without any pair that may exchange", value=seconds)


def neighbours(seconds: Floats) -> NDArray[np.bool_]:
    """Return the pairs that may exchange: finite times in both directions, and two different workers."""
    allowed: NDArray[np.bool_] = np.isfinite(seconds) & np.isfinite(seconds).T
    np.fill_diagonal(allowed, False)
    return allowed


Compute = Callable[[Floats], GossipPolicy]
"""Compute a policy from iteration times in s, (workers, workers): entry (i, m) is an iteration of worker i that pulls
from worker m, entry (i, i) one without a pull; inf: this pair may not exchange.
"""


@dataclass(frozen=True, slots=True)
class PolicyDescription:
    """A policy as it is registered: one in each module of `policies`, as DESCRIPTION."""

    name: str
    """Name in run files and commands."""
    label: str
    """Name in tables and plots."""
    summary: str
    compute: Compute
