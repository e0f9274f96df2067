"""The start of a command that keeps most of what it imports and builds."""

from __future__ import annotations

import gc
import os
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .console import NOTES

_NATIVE: Final = Path(__file__).parent.parent / "controller" / "telemetry" / "__pycache__"
"""Folder in which Numba keeps what it compiled of one of the packages that every run imports."""


def announce_compilation() -> None:
    """Print a note if Weir's native code has not been compiled in this checkout or installation yet.

    Nothing is printed without Numba, nor if it keeps its code in another folder, whose state is not known.
    """
    if find_spec("numba") is None or "NUMBA_CACHE_DIR" in os.environ or not os.access(_NATIVE.parent, os.W_OK):
        return
    if next(_NATIVE.glob("*.nbi"), None) is None:
        NOTES.print("compiling native code, which later runs find ready: this takes up to a minute")


class StartUp:
    """Python's collector of reference cycles waits until the start is over, and then leaves out what the start has
    made: modules, tables and programs stay, and each look at them takes a tenth of a second. A context manager.
    """

    def __enter__(self) -> Self:
        gc.disable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Collect garbage again, after the start. May be repeated."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
