"""Meanings of the notes of `emulator.ports.trace`, apart from its native code, which a start from the cache skips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..compiler.steps import Steps
from .memory import NOTE_WORDS

RECEIVED: Final = 0
SENT: Final = 1
DROPPED: Final = 2
STEPPED: Final = 3
"""A note of the program's own (`emulator.compiler.steps`)."""

REASONS: Final = (
    "the program's wish, in ingress",
    "the program's wish, in egress",
    "a full queue",
    "want of a program",
    "want of a port with that number",
    "want of a multicast group",
    "want of a clone session, so no clone was made",
    "being longer than any frame may be",
    "having passed too often",
    "having been cloned too often, so no clone was made",
)
"""Drop reasons, in the order of `emulator.ports.trace.note_drops`."""


def describe(note: Sequence[int], steps: Steps | None) -> str:
    """Return a note without its time, in words. `steps` are those of the program that runs now, if it is traced."""
    _, what, first, second = note[:NOTE_WORDS]
    if what == STEPPED:
        if steps is None or steps.address != first:
            return "a note of a program that has been replaced"
        return steps.describe(note[NOTE_WORDS:])
    if what == RECEIVED:
        return f"packet of {second} bytes received on port {first}"
    if what == SENT:
        return f"packet of {second} bytes leaves through port {first}"
    return f"{'packet' if second == 1 else f'{second} packets'} dropped for {REASONS[first]}"
