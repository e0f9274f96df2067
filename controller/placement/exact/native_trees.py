"""Native code of trees, which is loaded without Numba once it has been compiled."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from ....machine_code.functions import NativeCode, NativeFunction

_HERE: Final = Path(__file__).parent
_WIRE: Final = ("native_code",)
_OWN: Final = ("cover_native", "spanning_native", "steiner_native", "tree_scratch")
_TREE: Final = "pppipiiipppi"


class NativeTrees(NamedTuple):
    """Functions of `spanning_native`, `cover_native` and `steiner_native` of these names."""

    last_that_connects: NativeFunction
    grown: NativeFunction
    covered: NativeFunction
    ways: NativeFunction
    joined: NativeFunction


@cache
def native_trees() -> NativeTrees:
    """Return the functions. The first call compiles or loads them: a strategy makes it before its first decision."""
    signatures = {
        "last_that_connects": "pipippiipp",
        "grown": _TREE,
        "covered": _TREE,
        "ways": "pppipiipppi",
        "joined": "pipipiippi",
    }
    sources = [*(_HERE.parents[2] / "wire" / f"{name}.py" for name in _WIRE), *(_HERE / f"{name}.py" for name in _OWN)]
    return NativeTrees(*NativeCode("weir.controller.placement.exact.steiner_native", signatures, sources).functions)
