"""The arrays that users hand in and get back: NumPy's, with ml_dtypes' types, and PyTorch's tensors on the CPU.

None of those packages but NumPy need be there.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors.values import shown
from ..errors import InvalidTensor
from ..numerics.datatypes import find_data_type
from ..numerics.tensors import Restore


def opened(array: Any, name: str, dtype: str | None = None) -> tuple[NDArray[Any], str | None, Restore]:
    """Return an array as NumPy's in this machine's byte order, the name of its type if NumPy cannot express it, and the
    function that converts back.

    Only arrays in another byte order are copied.

    Raises:
        InvalidTensor: The array is masked, not in the CPU memory, or composed of other tensors, as DTensor is.
    """
    torch = sys.modules.get("torch")  # a caller with a tensor has imported it
    if torch is not None and isinstance(array, torch.Tensor):
        return _opened_torch(array, name, dtype)
    if _holds_masked(array):
        raise InvalidTensor(
            "masked elements cannot be summed; fill them, with .filled(0) for a sum",
            place=f"tensor {name!r}",
            value=array,
        )
    try:
        values = np.asarray(array)
    except (TypeError, ValueError) as error:  # rows of several lengths
        raise InvalidTensor(
            f"{shown(array)} is no array: {error}",
            place=f"tensor {name!r}",
            value=array,
            allowed=("an array of numbers",),
        ) from None
    stored = values.dtype
    kind = find_data_type(stored.name)
    if kind is not None and kind.stored_as_bits:
        return values.view(kind.storage), dtype or kind.name, lambda result: result.view(stored)
    if stored.isnative:
        return values, dtype, lambda result: result
    return values.astype(stored.newbyteorder("=")), dtype, lambda result: result.astype(stored)


def _holds_masked(array: Any) -> bool:
    """Return True for a masked array, and for lists and tuples with one, whose mask NumPy would drop."""
    if isinstance(array, list | tuple):
        return any(map(_holds_masked, array))
    return isinstance(array, np.ma.MaskedArray)


def is_composed(tensor: Any) -> bool:
    """Return True if a PyTorch tensor holds its numbers in other tensors, as DTensor and MaskedTensor do."""
    import torch

    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def composed(tensor: Any, place: str) -> InvalidTensor:
    """Return the error for a tensor that is composed of others."""
    kind = type(tensor).__name__
    return InvalidTensor(
        f"{kind} holds its numbers in other tensors; hand in a plain one, such as a DTensor's .to_local()",
        place=place,
        value=kind,
    )


def _opened_torch(tensor: Any, name: str, dtype: str | None) -> tuple[NDArray[Any], str | None, Restore]:
    import torch

    if is_composed(tensor):
        raise composed(tensor, f"tensor {name!r}")
    tensor = tensor.detach()
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise InvalidTensor(
            f"it is {tensor.layout} on {tensor.device}; make it a dense one on the CPU with .to_dense().cpu()",
            place=f"tensor {name!r}",
            value=str(tensor.layout),
        )
    tensor = tensor.as_subclass(torch.Tensor)
    stored = tensor.dtype
    kind = find_data_type(str(stored).removeprefix("torch."))
    if kind is None or not kind.stored_as_bits:
        try:
            return tensor.resolve_conj().resolve_neg().numpy(), dtype, torch.from_numpy
        except TypeError:
            raise InvalidTensor(
                f"NumPy has no {stored}; view it as integers of as many bits, such as torch.uint8",
                place=f"tensor {name!r}",
                value=str(stored),
            ) from None
    bits = np.dtype(f"i{kind.storage.itemsize}")  # PyTorch has signed integers of every size
    return (
        tensor.view(getattr(torch, bits.name)).numpy().view(kind.storage),
        dtype or kind.name,
        lambda result: torch.from_numpy(result.view(bits)).view(stored),
    )
