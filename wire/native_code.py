"""Functions that Numba makes native code of, and keeps on disk: never that of other sources.

Numba finds a function's code by its file, its name and the source of the module that it stands in. But what it calls is
made part of it, and so are the constants and the layouts of records that it names, whatever module they come from. So
their digest is in its name here: when any of them changes, so does the name, and the code is made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np
from numba import cfunc, njit

Function = Callable[..., Any]

_HEX_DIGITS: Final = 16


def native(function: Function) -> Any:
    """What one call of native code consists of: it becomes part of its caller, makes no array, and so counts no
    references to any, which costs more than reading a report does.
    """
    kept = njit(cache=True, nogil=True, error_model="numpy", forceinline=True, _nrt=False)
    return kept(named_by_content(function))


def allocating(function: Function) -> Any:
    """What makes arrays, once a call."""
    return njit(cache=True, nogil=True, error_model="numpy")(named_by_content(function))


def entry(signature: Any) -> Callable[[Function], Any]:
    """Where a call of native code begins: it has an address, by which ctypes or other native code calls it."""
    return lambda function: cfunc(signature, cache=True)(named_by_content(function))


def named_by_content(function: Function) -> Function:
    """The function itself, whose qualified name ends with the digest of all that its code is made from: its module's
    source, and what it names of other modules. Raises TypeError for a value that has no digest.
    """
    digest = sha256(Path(function.__code__.co_filename).read_bytes())
    for name in function.__code__.co_names:
        if name in function.__globals__:
            digest.update(f"\n{name} {_content(name, function.__globals__[name])}".encode())
    function.__qualname__ += f"_{digest.hexdigest()[:_HEX_DIGITS]}"
    return function


def _content(name: str, value: Any) -> str:
    if hasattr(value, "py_func"):  # one of ours, whose name tells
        return str(value.py_func.__qualname__)
    if hasattr(value, "__wrapped__"):  # an intrinsic
        return sha256(Path(value.__wrapped__.__code__.co_filename).read_bytes()).hexdigest()
    match value:
        case np.ndarray():
            return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
        case np.dtype():
            return f"{value} {value.itemsize}"
        case bool() | int() | float() | str() | tuple() | np.generic():
            return repr(value)
        case ModuleType() | type() | BuiltinFunctionType() | FunctionType():
            return ""  # Python's, NumPy's or Numba's
    raise TypeError(f"native code uses {name}, a {type(value).__name__}, and nothing tells when it has changed")
