"""The runtime as machine code: compiled by Numba once per version and processor, afterwards loaded from disk by
llvmlite alone.

Numba's own cache would need Numba at every start, which costs more than all the rest of a warm start.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import llvmlite.binding as llvm

_SOURCES: Final = ("memory.py", "native.py", "packets.py", "manager.py", "loop.py", "../abi.py")
_SYMBOL: Final = "weir_runtime_entry"

EntryFunction = Callable[[int, int], int]
_PROTOTYPE: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)

_keep_alive: list[llvm.ExecutionEngine] = []
"""Code lives as long as its engine."""

# Numba's calling convention: the result and a pointer to exception information go through pointers, the status
# says whether an exception was raised. Nothing in the runtime raises.
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


def cache_directory() -> Path:
    """Where native code is kept: `$WEIR_CACHE`, else `$XDG_CACHE_HOME/weir`, else `~/.cache/weir`."""
    chosen = os.environ.get("WEIR_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "weir"


@cache
def runtime_entry() -> EntryFunction:
    """`entry(world_address, operation) -> status`, released from the GIL while it runs."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    path = cache_directory() / f"runtime-{_digest()}.o"
    try:
        code = path.read_bytes()
    except FileNotFoundError:
        code = _compile()
        _write(path, code)
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(_SYMBOL)
    _keep_alive.append(engine)
    return _PROTOTYPE(address)


def _digest() -> str:
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((here / name).read_bytes())
    for package in ("numba", "llvmlite"):
        digest.update(importlib.metadata.version(package).encode())
    digest.update(llvm.get_host_cpu_name().encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    return digest.hexdigest()[:32]


def _target_machine() -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )


def _engine() -> llvm.ExecutionEngine:
    empty = llvm.parse_assembly("")
    empty.triple = llvm.get_default_triple()
    return llvm.create_mcjit_compiler(empty, _target_machine())


def _compile() -> bytes:
    from numba import int64

    from emulator.runtime.loop import entry

    entry.compile((int64, int64))
    (compiled,) = entry.overloads.values()
    # Numba links all that the function calls into one module and optimises it as a whole.
    module = llvm.parse_assembly(str(compiled.library._final_module))
    module.link_in(llvm.parse_assembly(_WRAPPER.format(symbol=_SYMBOL, entry=compiled.fndesc.llvm_func_name)))
    undefined = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    if undefined:
        raise AssertionError(f"the runtime must not call into Numba, but refers to {undefined}")
    return bytes(_target_machine().emit_object(module))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)
