"""The start of a command that keeps most of what it imports and builds."""

from __future__ import annotations

import gc
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from .console import NOTES


def announce_compilation() -> None:
    """Print a note if the user's cache has no native code yet. Nothing is printed without Numba."""
    if find_spec("numba") is None:
        return
    from ..machine_code.cache import directory

    if next(directory().glob("*.o"), None) is None:
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
