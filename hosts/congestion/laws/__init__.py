"""Window laws by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of the user's
that ends in one, whose path is its name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ....imports import user_files
from ....imports.registry import Registry
from ....wire.control import Pacing
from ...errors import InvalidLaw
from ..law import Feedback, LawDescription, Setting, WindowLaw
from .explicit import ExplicitWindow

__all__ = ["LAWS", "LawDescription", "Setting"]


class _UserLaw(WindowLaw):
    """A law of a user's file: its answers are checked, and limited to the switches' allowance if it is bounded."""

    def __init__(self, path: str, description: LawDescription, setting: Setting) -> None:
        try:
            law = description.make(setting)
        except TypeError as error:
            if user_files.line_of(error) is not None:
                raise
            raise InvalidLaw(
                f"make(setting) cannot be called: {error}", place=f"{path}: DESCRIPTION", value=description.make
            ) from None
        if not isinstance(law, WindowLaw):
            raise InvalidLaw(
                f"make() returned {law!r}; a description makes a WindowLaw", place=f"{path}: DESCRIPTION", value=law
            )
        if not isinstance(law.int_header, bytes) or (law.int_header and not description.reads_int):
            raise InvalidLaw(
                "int_header is set; a description with reads_int=True allows bytes, any other none",
                place=path,
                value=law.int_header,
            )
        self._path, self._law = path, law
        self._allowed = ExplicitWindow() if description.bounded else None
        self.yields, self.int_header = law.yields or description.bounded, law.int_header
        self.bounded = description.bounded

    @property
    def gap_ns(self) -> int:
        return self._checked("gap_ns", self._law.gap_ns, 0)

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._law.begin(pacing, now_ns)
        if self._allowed is not None:
            self._allowed.begin(pacing, now_ns)

    def update(self, feedback: Feedback) -> None:
        self._law.update(feedback)
        self.unread = self._law.unread
        if self._allowed is not None:
            self._allowed.update(feedback)

    def on_loss(self, rounds: int, now_ns: int) -> None:
        self._law.on_loss(rounds, now_ns)

    def window(self, now_ns: int) -> int:
        window = self._checked("window()", self._law.window(now_ns), 1)
        return window if self._allowed is None else min(window, self._allowed.window(now_ns))

    def _checked(self, part: str, value: object, smallest: int) -> int:
        if not isinstance(value, int) or value < smallest:
            raise InvalidLaw(f"{part} is {value!r}; allowed: an int from {smallest}", place=self._path, value=value)
        return value


def _checked(description: LawDescription, path: str) -> LawDescription:
    """Description of a user's file, whose law is checked."""
    return replace(description, make=lambda setting: _UserLaw(path, description, setting))


LAWS: Final = Registry(__name__, __path__, LawDescription, "window law", InvalidLaw, first="explicit", adopt=_checked)
