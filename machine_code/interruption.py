"""Interruption of compilation, which takes seconds and looks at nothing else: between its steps it asks a question.

A program that ends by signals sets `is_asked_to_end`, and what is being compiled is given up at the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import PlacedError

is_asked_to_end: Callable[[], bool] = lambda: False  # noqa: E731
"""Returns whether this process has been asked to end; set by the program that it is part of."""


class CompilationGivenUp(PlacedError):
    """The process was asked to end while a program was being compiled."""


def check() -> None:
    """Go on with a compilation. Raises CompilationGivenUp once the process was asked to end."""
    if is_asked_to_end():
        raise CompilationGivenUp("the compilation was given up, for this process has been asked to end")


@contextmanager
def checked_in_numba() -> Iterator[None]:
    """Context in which Numba calls `check` before each of its passes, which take less than a second each."""
    from numba.core import event

    class Check(event.Listener):
        def on_start(self, event: event.Event) -> None:
            check()

        def on_end(self, event: event.Event) -> None:
            pass

    with event.install_listener("numba:run_pass", Check()):
        yield
