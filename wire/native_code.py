"""Functions compiled to native code by Numba and cached on disk, with a cache key that covers all their sources.

Numba finds a function's code by its file, its name and the source of its module. But the compiled code includes called
functions, constants and record layouts of other modules, too. Here their digest is part of the function's name: if any
of them changes, so does the name, and the code is compiled again.
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
    """Compile a part of a native call: it is inlined into its caller, makes no array, and so counts no references to
    any, which would cost more than reading a report.
    """
    kept = njit(cache=True, nogil=True, error_model="numpy", forceinline=True, _nrt=False)
    return kept(named_by_content(function))


def allocating(function: Function) -> Any:
    """Compile a function that allocates arrays, once per call."""
    return njit(cache=True, nogil=True, error_model="numpy")(named_by_content(function))


def whole(function: Function) -> Any:
    """Compile a function of `machine_code.functions` with everything that it calls; it has no cache of its own."""
    return njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


def entry(signature: Any) -> Callable[[Function], Any]:
    """Compile an entry point of native code: it has an address, by which ctypes or other native code calls it."""
    return lambda function: cfunc(signature, cache=True)(named_by_content(function))


def named_by_content(function: Function) -> Function:
    """Return the function under a qualified name that ends with the digest of all its sources.

    Sources are its module's text and the objects of other modules that it names.

    Raises:
        TypeError: An object has no digest.
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
