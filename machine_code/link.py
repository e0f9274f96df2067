"""Object code for this processor, and into this process.

Apart from the compiler, so that a cached program needs little more than LLVM's linker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm


def host_machine() -> Any:
    """Return LLVM's target machine that makes object code for this processor, to be linked by `link`."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="default",
        jit=True,
    )


def link(code: bytes, names: Sequence[str]) -> tuple[tuple[int, ...], object]:
    """Return the addresses of the named functions, and the object that must be kept alive for them."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    empty = llvm.parse_assembly("")
    engine = llvm.create_mcjit_compiler(empty, machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return tuple(engine.get_function_address(name) for name in names), engine
