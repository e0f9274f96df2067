"""Suggestions for misspelt words."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `, did you mean "…"?` for the known word that is most like this one; nothing where none is like it."""
    suggestion = closest(word, known)
    return f', did you mean "{suggestion}"?' if suggestion is not None else ""


def closest(word: str, known: Iterable[str]) -> str | None:
    """That word itself; None where none is like it."""
    return next(iter(get_close_matches(word, list(known), 1)), None)
