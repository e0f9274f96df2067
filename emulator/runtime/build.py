"""The runtime as machine code: compiled by Numba once per version and processor, afterwards loaded from disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from ...machine_code.functions import NativeCode
from ..sources import compiler_sources

EntryFunction = Callable[[int, int], int]

_HERE: Final = Path(__file__).parent
_MODULES: Final = ("memory", "native", "packets", "events", "link", "hosts", "manager", "loop")


@lru_cache(maxsize=1)
def runtime_entry() -> EntryFunction:
    """Return `entry(world_address, operation) -> status`, which runs without the GIL."""
    return native_entry("weir.emulator.runtime.loop", [])


def native_entry(module: str, sources: Sequence[Path]) -> EntryFunction:
    """Return `entry` of a module that is built on the runtime; `sources` are those of its files that are not."""
    (entry,) = native_code(module, sources).functions
    return entry


def native_code(module: str, sources: Sequence[Path]) -> NativeCode:
    """Return the code of such a module, compiled, but not yet linked."""
    runtime = [_HERE / f"{name}.py" for name in _MODULES]
    return NativeCode(module, {"entry": "ii"}, [*compiler_sources(), *runtime, *sources])
