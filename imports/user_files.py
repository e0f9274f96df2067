"""Python files of the user's own, which are named by their path: a strategy, a workload."""

from __future__ import annotations

import hashlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Final

_PREFIX: Final = "weir_user_"
ENDING: Final = ".py"
"""Suffix of such a file's name."""


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_file(path: Path) -> ModuleType:
    """Run a file whose name ends in `ENDING` as a module with a unique name; it may import its neighbours.

    Raises OSError if it cannot be read; errors of the file itself pass through.
    """
    digest = hashlib.sha256(str(path.resolve()).encode() + b"\0" + path.read_bytes()).hexdigest()
    spec = spec_from_file_location(f"{_PREFIX}{path.stem}_{digest[:12]}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    if (beside := str(path.resolve().parent)) not in sys.path:
        sys.path.append(beside)
    spec.loader.exec_module(module)
    return module


def line_of(error: BaseException) -> str | None:
    """Return file and line of the user's code that an error comes from; None if no such file is involved."""
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        return f"{error.filename}:{error.lineno}"
    lines = [
        f"{frame.f_code.co_filename}:{number}"
        for frame, number in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).startswith(_PREFIX)
    ]
    return lines[-1] if lines else None
