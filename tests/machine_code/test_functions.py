"""Functions written for Numba: compiled once, loaded without it, and compiled again when any of their files changes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from weir.controller.placement.exact import native_trees
from weir.emulator.live import engine as live_engine
from weir.emulator.p4runtime.bulk.batch import bulk_parser
from weir.emulator.ports import engine as ports_engine
from weir.emulator.runtime import build
from weir.machine_code import functions
from weir.machine_code.functions import NativeCode
from weir.tests.paths import ROOT
from weir.tests.test_architecture import INSIDE, imported_modules

WRITTEN = """
import numpy as np
from numba import carray
from weir.wire.native_code import whole

@whole
def added(numbers, count, more):
    total = 0
    for number in carray(numbers, (count,), np.int64):
        total += number {change}
    return total + more

@whole
def allocated(count):
    return np.arange(count).sum()

@whole
def halved(number):
    return number / 2
"""

NO_CODE = {"weir.errors", "weir.errors.texts", "weir.emulator.entries", "weir.wire.errors"}
"""Modules of errors and of values for Python, from which native code takes nothing."""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / f"written_{tmp_path.name}.py"
    file.write_text(WRITTEN.format(change="+ 0"))
    return file


def test_functions_are_compiled_once_and_again_after_a_change(written: Path) -> None:
    numbers = np.array([1, 2, 3])
    answers, files = [], []
    # another length, by which Python notices a change within a second
    for text in (WRITTEN.format(change="+ 0"), WRITTEN.format(change="+ 0"), WRITTEN.format(change="* 20 // 10")):
        written.write_text(text)
        sys.modules.pop(written.stem, None)
        (added,) = NativeCode(written.stem, {"added": "pii"}, [written]).functions
        answers.append(added(numbers.ctypes.data, 3, -7))
        files.append(written.stem in sys.modules)
    assert answers == [-1, -1, 5]
    assert files == [True, False, True]


def test_a_function_takes_bytes_by_address(written: Path) -> None:
    (added,) = NativeCode(written.stem, {"added": "pii"}, [written]).functions
    assert added(bytes(ctypes.c_int64(1 << 40)), 1, 0) == 1 << 40


@pytest.mark.parametrize("name", ["allocated", "halved"])
def test_a_function_that_allocates_or_returns_no_integer_is_refused(name: str, written: Path) -> None:
    with pytest.raises(AssertionError):
        NativeCode(written.stem, {name: "i"}, [written])
    assert not list(written.parent.rglob("*.o"))


def closure(module: str) -> set[str]:
    """All our modules that one imports, and those that they import."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += imported_modules(name, INSIDE[name])
    return {name for name in found - NO_CODE if INSIDE[name].name != "__init__.py"}


def asked_for(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[Path]]:
    """Sources that each user of `NativeCode` names, by the module whose functions it asks for."""
    sources_of: dict[str, set[Path]] = {}

    class Asked:
        def __init__(self, module: str, signatures: Mapping[str, str], sources: Sequence[Path]) -> None:
            sources_of[module] = {*sources}
            self.functions = (len,) * len(signatures)

    for user in (functions, build, native_trees):
        monkeypatch.setattr(user, "NativeCode", Asked)
    native_trees.native_trees.__wrapped__()
    build.runtime_entry.__wrapped__()
    live_engine._live_entry.__wrapped__()
    ports_engine._loop_entry.__wrapped__()
    bulk_parser.__wrapped__()
    spec = spec_from_file_location(
        "weir.controller.telemetry.native_code", ROOT / "controller" / "telemetry" / "native_code.py"
    )
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module_from_spec(spec))
    return sources_of


def test_the_sources_are_all_that_the_code_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    sources_of = asked_for(monkeypatch)
    assert len(sources_of) == 6
    for module, sources in sources_of.items():
        missing = {INSIDE[name] for name in closure(module)} - sources
        assert missing == set(), module
        assert all(source.exists() for source in sources)


def test_a_controller_needs_no_numba() -> None:
    script = (
        "import sys; from weir.cli import ranks; from weir.controller.placement.exact.native_trees import native_trees;"
        "native_trees(); print('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)  # which may compile
    second = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert second.stdout.strip() == "False"
