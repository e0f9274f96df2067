"""Native code that is kept on disk is that of the sources as they are now, whichever module has changed."""

from __future__ import annotations

import ctypes
import sys
from importlib import invalidate_caches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from weir.wire.native_code import named_by_content

BELOW = """
import numpy as np
from weir.wire.native_code import native
RECORD = np.dtype({fields})
WEIGHT = {weight}
TABLE = np.array({table})

@native
def changed(value):
    return value {change}
"""

KERNEL = """
from numba import carray, types
from weir.wire.native_code import entry
from below import RECORD, TABLE, WEIGHT, changed

@entry(types.int64(types.voidptr))
def told(at):
    return changed(carray(at, (1,), RECORD)[0].told) + WEIGHT + TABLE[0]

tell = told.ctypes
"""


def load(folder: Path, name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    file = folder / f"{name}.py"
    if not file.exists() or file.read_text() != source:
        file.write_text(source)
    invalidate_caches()
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(source, str(file), "exec"), module.__dict__)  # no bytecode of the file as it was
    return module


@pytest.mark.parametrize(
    "changed",
    [
        {"fields": [("other", "i8"), ("told", "i8")]},
        {"weight": 7},
        {"table": [9]},
        {"change": "* 3"},
    ],
    ids=["layout", "constant", "table", "function"],
)
def test_a_change_of_what_another_module_has_is_seen(
    changed: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {"fields": [("told", "i8"), ("other", "i8")], "weight": 1, "table": [0], "change": "+ 0"}
    data = np.array([10, 20], np.int64)
    answers = []
    for values in (first, first | changed, first):
        load(tmp_path, "below", BELOW.format(**values), monkeypatch)
        kernel = load(tmp_path, "kernel", KERNEL, monkeypatch)
        answers.append(kernel.tell(ctypes.c_void_p(data.ctypes.data)))
    assert answers == [11, {"fields": 21, "weight": 17, "table": 20, "change": 31}[next(iter(changed))], 11]
    kept = {file.name for file in (tmp_path / "__pycache__").glob("kernel.told_*.nbi")}
    assert len(kept) == 2  # the third time it was found


def test_code_without_a_digest_is_refused() -> None:
    with pytest.raises(TypeError, match=r"native code uses LIST, a list, .*changed"):
        named_by_content(_uses_a_list)


LIST = [1]


def _uses_a_list() -> int:
    return LIST[0]
