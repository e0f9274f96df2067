"""The start of a command that keeps most of what it imports and builds."""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Self


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
        """The start is over. May be repeated."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
