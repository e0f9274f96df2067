"""Texts from peers and strangers' files, as they are logged, shown and written. Pure."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 1_000
"""Maximum length of a text from a peer, in characters; the rest is cut."""


def printable(text: str, longest: int = LONGEST) -> str:
    r"""Return a text as one line of limited length, in which each character is visible.

    Args:
        text: Any text: with control characters, line ends, bidirectional controls, lone surrogates.
        longest: Number of its characters that are kept.

    Returns:
        The text with everything that `str.isprintable` refuses as an escape, such as `\x1b` or `\u202e`. If it was
        longer, it ends in its length.
    """
    kept = text[:longest]
    if not kept.isprintable():
        kept = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
            for character in kept
        )
    return kept if len(text) <= longest else f"{kept}… ({len(text)} characters)"
