"""Functions written for Numba, compiled once per version and processor, and afterwards loaded from disk without Numba.

Numba's own cache would need Numba at every start, which costs more than all the rest of a warm start. The functions
allocate nothing and raise nothing: their callers pass all memory in. So they need nothing of Numba's runtime.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm

from . import cache
from .interruption import checked_in_numba
from .link import host_machine, link

NativeFunction = Callable[..., int]

_SYMBOL: Final = "weir_"
_C_TYPES: Final = {"p": ctypes.c_void_p, "i": ctypes.c_int64}
_LLVM_TYPES: Final = {"p": "i8*", "i": "i64"}
_keep_alive: list[object] = []

# Numba's calling convention: the result and a pointer to exception information go through pointers, the status says
# whether an exception was raised. Nothing here raises.
_WRAPPER: Final = """
declare i32 @"{entry}"(i64*, i8**, {types})
define i64 @{symbol}({typed}) {{
  %result = alloca i64
  %exception = alloca i8*
  %status = call i32 @"{entry}"(i64* %result, i8** %exception, {typed})
  %value = load i64, i64* %result
  ret i64 %value
}}
"""


class NativeCode:
    """Functions of a module written for Numba: compiled, but not yet linked."""

    def __init__(self, module: str, signatures: Mapping[str, str], sources: Sequence[Path]) -> None:
        """Load the code from disk. The module is imported and compiled only where its code is not there.

        Args:
            module: Full name of the module.
            signatures: Arguments of each function, by its name: `p` for an address, `i` for a signed integer of 64
                bits. Each returns a signed integer of 64 bits, allocates nothing and raises nothing.
            sources: All files that the code depends on, beyond this package's.
        """
        self._signatures = {**signatures}
        digest = hashlib.sha256(f"{module} {self._signatures} {version('numba')} {version('numpy')}".encode())
        for source in (Path(__file__), *sources):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        key = cache.key_of(digest.digest())
        code = cache.fetch(key)
        if code is None:
            written = import_module(module)
            code = _compile({name: getattr(written, name) for name in signatures}, signatures)
            cache.keep(key, code)
        self._code = code

    @cached_property
    def functions(self) -> tuple[NativeFunction, ...]:
        """The functions in the order of `signatures`, linked on first use. They run without the GIL."""
        addresses, keep_alive = link(self._code, [_SYMBOL + name for name in self._signatures])
        _keep_alive.append(keep_alive)
        return tuple(
            ctypes.CFUNCTYPE(ctypes.c_int64, *(_C_TYPES[kind] for kind in kinds))(address)
            for address, kinds in zip(addresses, self._signatures.values(), strict=True)
        )


def _compile(functions: Mapping[str, Any], signatures: Mapping[str, str]) -> bytes:
    from numba import int64, types  # heavy, and not needed once the code is on disk

    numba_types = {"p": types.voidptr, "i": int64}
    module = llvm.parse_assembly("")
    for name, function in functions.items():
        kinds = signatures[name]
        with checked_in_numba():
            function.compile(tuple(numba_types[kind] for kind in kinds))
        (compiled,) = function.overloads.values()
        if types.unliteral(compiled.signature.return_type) != int64:
            raise AssertionError(f"{name} must return an int64, but returns {compiled.signature.return_type}")
        # Numba links all that the function calls into one module and optimises it as a whole.
        module.link_in(llvm.parse_assembly(str(compiled.library._final_module)))
        wrapper = _WRAPPER.format(
            symbol=_SYMBOL + name,
            entry=compiled.fndesc.llvm_func_name,
            types=", ".join(_LLVM_TYPES[kind] for kind in kinds),
            typed=", ".join(f"{_LLVM_TYPES[kind]} %argument{place}" for place, kind in enumerate(kinds)),
        )
        module.link_in(llvm.parse_assembly(wrapper))
    undefined = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    if undefined:
        raise AssertionError(f"native code must not call into Numba, but refers to {undefined}")
    return bytes(host_machine().emit_object(module))
