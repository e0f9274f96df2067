"""Object code into this process.

Apart from the compiler, so that a cached program needs little more than LLVM's linker.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.binding as llvm


def link(code: bytes, names: Sequence[str]) -> tuple[tuple[int, ...], object]:
    """Addresses of the named functions, and what must be kept for them to stay."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    empty = llvm.parse_assembly("")
    engine = llvm.create_mcjit_compiler(empty, machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return tuple(engine.get_function_address(name) for name in names), engine
