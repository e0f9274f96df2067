"""Texts of peers: printable, in one line, of limited length."""

from __future__ import annotations

import sys

import pytest

from weir.errors.texts import LONGEST, printable

HOSTILE = {
    "an escape sequence": ("\x1b]0;title\x07\x1b[2J", r"\x1b]0;title\x07\x1b[2J"),
    "a forged line": ("gone\r\n12:00 all is well", r"gone\r\n12:00 all is well"),
    "bidirectional controls": ("\u202eevil\u2066", r"\u202eevil\u2066"),
    "line separators": ("one\u2028two\x85three", r"one\u2028two\x85three"),
    "a lone surrogate": ("\ud800", r"\ud800"),
    "words": ("Größe 名 🙂 [/bold]", "Größe 名 🙂 [/bold]"),
    "1 MB": ("\x1b" * (1 << 20), r"\x1b" * LONGEST + f"… ({1 << 20} characters)"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_become_one_printable_line(name: str) -> None:
    text, expected = HOSTILE[name]
    assert printable(text) == expected


def test_every_character_is_printable_afterwards() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert printable(everything, len(everything)).isprintable()
