"""Adaptive consensus of all workers' gradients: a mean that counts those more which agree with the sum.

Two sums in the switches and two numbers of each worker: with g = Σ gᵢ over n workers, αᵢ = g·gᵢ / (n |gᵢ|). The sorted
αᵢ have a running mean, whose places go back to the workers in the order of their αᵢ. The result is Σ cᵢ gᵢ with
cᵢ ∝ αᵢ / |gᵢ| and Σ cᵢ = 1, so that equal gradients keep their length. (Choukroun et al., "Adaptive Consensus Gradients
Aggregation for Scaled Distributed Training", 2024; their sample code scales the αᵢ to a sum of 1 in place of the cᵢ,
which makes every result about as long as a unit vector.)
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..operation import Members, OperationCall, OperationDescription, Stepped, Steps, narrowed

MOMENTUM: Final = 0.99
"""Decay rate of the running mean of sorted coefficients, as in the paper."""


def coefficients(alphas: NDArray[np.float64], norms: NDArray[np.float64], memory: dict[str, Any]) -> Any:
    """Return factors of the workers' gradients, (n,), with a sum of 1.

    Args:
        alphas: αᵢ by rank, (n,).
        norms: |gᵢ| by rank, (n,).
        memory: Running mean of the sorted αᵢ, which is brought up to date.

    Returns:
        cᵢ by rank; 1 / n each, where the gradients cancel each other.
    """
    order = np.argsort(alphas, kind="stable")
    before = memory.get("sorted", alphas[order])
    memory["sorted"] = MOMENTUM * before + (1 - MOMENTUM) * alphas[order]
    smooth = np.empty_like(alphas)
    smooth[order] = memory["sorted"]
    factors = np.divide(smooth, norms, out=np.zeros_like(smooth), where=norms > 0)
    total = factors.sum()
    if not total > 1e-12 * np.abs(factors).sum():
        return np.full(len(alphas), 1 / len(alphas))
    return factors / total


def _start(call: OperationCall) -> Stepped:
    numbers, kind = call.floats("adacons")
    wide = np.array(kind.widen(numbers)).reshape(-1)
    result = partial(narrowed, kind=kind, shape=numbers.shape)
    return Stepped(partial(_steps, call=call, wide=wide, result=result))


def _steps(members: Members, *, call: OperationCall, wide: NDArray[Any], result: Any) -> Steps:
    name = f"{call.name}: adacons {call.signature:x}"
    sums = partial(members.allreduce_async, name=name, nonfinite=call.nonfinite, cuts=call.cuts)
    [total] = yield [sums(wide)]
    own = wide.astype(np.float64)
    norm = float(np.sqrt(own @ own))
    alpha = float(total.astype(np.float64) @ own) / (members.size * norm) if norm > 0 else 0.0
    [told] = yield [members.all_gather_async(np.array([alpha, norm]), name=name)]
    factor = coefficients(told[:, 0].copy(), told[:, 1].copy(), call.memory)[members.rank]
    [values] = yield [sums((factor * own).astype(wide.dtype))]
    return np.asarray(result(values))


DESCRIPTION: Final = OperationDescription(
    "adacons", "Σ c · x with Σ c = 1, larger c for x that agree with Σ x", _start, keeps=True
)
