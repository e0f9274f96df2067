"""The runtime as machine code: compiled by Numba once per version and processor, afterwards loaded from disk.

Numba's own cache would need Numba at every start, which costs more than all the rest of a warm start.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm

from .. import cache
from ..compiler.link import host_machine, link
from ..interruption import checked_in_numba

EntryFunction = Callable[[int, int], int]

_HERE: Final = Path(__file__).parent
_MODULES: Final = ("memory", "native", "packets", "events", "link", "hosts", "manager", "loop", "build")
_SYMBOL: Final = "weir_runtime_entry"
_PROTOTYPE: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)

_keep_alive: list[object] = []

# Numba's calling convention: the result and a pointer to exception information go through pointers, the status says
# whether an exception was raised. Nothing in the runtime raises.
_WRAPPER: Final = """
declare i32 @"{entry}"(i64*, i8**, i64, i64)
define i64 @{symbol}(i64 %world, i64 %operation) {{
  %result = alloca i64
  %exception = alloca i8*
  %status = call i32 @"{entry}"(i64* %result, i8** %exception, i64 %world, i64 %operation)
  %value = load i64, i64* %result
  ret i64 %value
}}
"""


@lru_cache(maxsize=1)
def runtime_entry() -> EntryFunction:
    """Return `entry(world_address, operation) -> status`, which runs without the GIL."""
    return native_entry("weir.emulator.runtime.loop", runtime_sources())


def runtime_sources() -> list[Path]:
    """Return the files that the runtime's code is made of."""
    return [_HERE / f"{name}.py" for name in _MODULES]


def native_entry(module: str, sources: Sequence[Path]) -> EntryFunction:
    """Return `entry` of a module written for Numba, which is imported only where its code is not on disk.

    `sources` are all the files that the code depends on, beyond what the cache's keys cover anyway.
    """
    return Native(module, sources).entry


class Native:
    """The code of a module written for Numba, as `native_entry` has it: compiled, but not yet linked."""

    def __init__(self, module: str, sources: Sequence[Path]) -> None:
        digest = hashlib.sha256(f"{module} {version('numba')} {version('numpy')}".encode())
        for source in sources:
            digest.update(source.read_bytes())
        key = cache.key_of(digest.digest())
        code = cache.fetch(key)
        if code is None:
            code = _compile(import_module(module).entry)
            cache.keep(key, code)
        self._code = code

    @cached_property
    def entry(self) -> EntryFunction:
        """The module's `entry`, linked on first use."""
        (address,), keep_alive = link(self._code, [_SYMBOL])
        _keep_alive.append(keep_alive)
        return _PROTOTYPE(address)


def _compile(entry: Any) -> bytes:
    from numba import int64  # heavy, and not needed once the code is on disk

    with checked_in_numba():
        entry.compile((int64, int64))
    (compiled,) = entry.overloads.values()
    # Numba links all that the function calls into one module and optimises it as a whole.
    module = llvm.parse_assembly(str(compiled.library._final_module))
    module.link_in(llvm.parse_assembly(_WRAPPER.format(symbol=_SYMBOL, entry=compiled.fndesc.llvm_func_name)))
    undefined = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    if undefined:
        raise AssertionError(f"the runtime must not call into Numba, but refers to {undefined}")
    return bytes(host_machine().emit_object(module))
