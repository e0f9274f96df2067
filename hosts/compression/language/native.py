"""The back end by Numba: loops over elements, and sums in the order that NumPy's back end has."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numba import njit

from ...numerics.lane_native import draw


@njit(nogil=True)
def uniform(keys: Any, out: Any) -> None:
    """Write random numbers (sites, n) by their keys (sites,): those of `Draws.own_uniform`."""
    for site in range(keys.size):
        key = keys[site]
        for i in range(out.shape[1]):
            word = draw(i, key)
            out[site, i] = np.float32(word >> np.uint32(8)) * np.float32(2.0**-24)


@njit(nogil=True)
def _at(vector: Any, index: Any) -> Any:
    if vector.size == 0:
        return np.zeros(1, vector.dtype)[0]
    return vector[min(max(index, 0), vector.size - 1)]


@njit(nogil=True)
def _to_uint(value: Any, top: Any) -> Any:
    if value > 0:
        return np.uint8(value) if value < top else np.uint8(top)
    return np.uint8(0)


@njit(nogil=True)
def _least(a: Any, b: Any) -> Any:
    return a if a < b else b


@njit(nogil=True)
def _greatest(a: Any, b: Any) -> Any:
    return a if a > b else b


@njit(nogil=True)
def _floor(value: Any) -> Any:
    return np.floor(value)


@njit(nogil=True)
def _root(value: Any) -> Any:
    return np.sqrt(value)


_NAMES: Final[dict[str, Any]] = {
    "np": np,
    "f32": np.float32,
    "i64": np.int64,
    "at": _at,
    "to_uint": _to_uint,
    "abs_": abs,
    "floor_": _floor,
    "sqrt_": _root,
    "min_": _least,
    "max_": _greatest,
}


@lru_cache(maxsize=256)
def compiled(text: str) -> Any:
    """Compile the source of a function `kernel` that `kernels` has written."""
    space = dict(_NAMES)
    exec(text, space)
    return njit(nogil=True, error_model="numpy")(space["kernel"])
