"""A plugin of pytest by which its run imports a mutant instead of a module: `-p weir.tests.mutation.plugin`.

The environment's WEIR_MUTANT is a file: the mutant's path from the repository's root, and from the second line on its
content.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import sys
from collections.abc import Generator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from weir import p4src
from weir.tests.paths import ROOT

VARIABLE: Final = "WEIR_MUTANT"
_GRACE_S: Final = 10
"""Seconds after a test's time limit until the process ends, if the thread that should have ended it does not run."""


class _Mutated(MetaPathFinder, Loader):
    """Finds one module, and runs other source for it."""

    def __init__(self, name: str, content: str) -> None:
        self._name = name
        self._content = content

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        found = PathFinder.find_spec(fullname, path)
        assert found is not None
        assert found.origin is not None
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=self)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        exec(compile(self._content, module.__file__, "exec"), module.__dict__)


def install(mutant: Path) -> None:
    """Import the mutant in place of its module from now on."""
    path, _, content = mutant.read_text().partition("\n")
    if path.endswith(".json"):
        broken = mutant.with_suffix(".json")
        broken.write_text(content)
        assert ROOT / path == p4src.FABRIC_JSON
        p4src.FABRIC_JSON = broken  # type: ignore[misc]
        return
    name = ".".join(("weir", *Path(path).with_suffix("").parts))
    assert name not in sys.modules, f"{name} is imported already"
    sys.meta_path.insert(0, _Mutated(name, content))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A number that takes for ever to be computed keeps all threads waiting, but not this watchdog."""
    if patience_s := item.config.getoption("timeout"):
        faulthandler.dump_traceback_later(patience_s + _GRACE_S, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


if VARIABLE in os.environ:
    install(Path(os.environ[VARIABLE]))
