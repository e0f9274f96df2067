"""The arrays that users hand in and get back: NumPy's, ml_dtypes' bfloat16, and PyTorch's tensors on the CPU.

None of those packages but NumPy need be there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidTensor

Restore = Callable[[NDArray[Any]], Any]
"""Turns a result, in the type's storage, into an array of the kind that was handed in."""

_BFLOAT16 = "bfloat16"


def opened(array: Any, name: str, dtype: str | None = None) -> tuple[NDArray[Any], str | None, Restore]:
    """Any array as NumPy's, without a copy, the name of its type where that cannot tell it, and the way back.

    Raises `InvalidTensor` for a tensor that is not in the CPU's memory.
    """
    if type(array).__module__.partition(".")[0] == "torch":
        return _opened_torch(array, name, dtype)
    values = np.asarray(array)
    if values.dtype.name != _BFLOAT16:
        return values, dtype, lambda result: result
    own = values.dtype
    return values.view(np.uint16), _BFLOAT16 if dtype is None else dtype, lambda result: result.view(own)


def _opened_torch(tensor: Any, name: str, dtype: str | None) -> tuple[NDArray[Any], str | None, Restore]:
    import torch

    tensor = tensor.detach()
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise InvalidTensor(
            f"tensor {name!r}: it is {tensor.layout} on {tensor.device}; make it a dense one on the CPU with "
            ".to_dense().cpu()"
        )
    if tensor.dtype != torch.bfloat16:
        return tensor.resolve_neg().numpy(), dtype, torch.from_numpy
    bits = tensor.view(torch.int16).numpy().view(np.uint16)
    return (
        bits,
        _BFLOAT16 if dtype is None else dtype,
        lambda result: torch.from_numpy(result.view(np.int16)).view(torch.bfloat16),
    )
