"""What tables do to a packet, for whoever reads a switch's log.

A program is compiled without this, or once more with it (`traced`): then each pass through ingress or egress leaves
notes in the switch's state, one for each table that it applies, in order. Words of 64 bits::

    | notes | then STEP_WORDS for each: what (below) | key words | parameters |

The word says whether it was a hit (bit 63), which table it was (bits 32 … 47), and which of its actions runs, plus 1
(bits 0 … 15; 0: none). Key words and parameters are those of `emulator.tables.rows`; what does not fit the note is left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from emulator.bmv2json import Action, Document, Table
from emulator.compiler.layout import Layout, is_static
from emulator.tables.rows import action_codes, param_bytes, row_layout

STEP_WORDS: Final = 12
HIT_BIT: Final = 63
TABLE_BIT: Final = 32
_MASK: Final = (1 << 16) - 1
_WORD: Final = (1 << 64) - 1


def traced_tables(document: Document) -> list[Table]:
    """The tables that notes are left of, by their number."""
    return [
        node
        for pipeline in (document.ingress, document.egress)
        for node in pipeline.nodes.values()
        if isinstance(node, Table) and not is_static(node)
    ]


def with_steps(layout: Layout, document: Document) -> Layout:
    """The layout of the same program, traced."""
    start = (layout.state_bytes + 63) // 64 * 64
    return replace(layout, steps=start, state_bytes=start + 8 + 8 * STEP_WORDS * len(traced_tables(document)))


class Steps:
    """The notes of one switch's state."""

    def __init__(self, document: Document, address: int) -> None:
        self.address = address
        """Where they begin, with their number."""
        self._document = document
        self._tables = traced_tables(document)

    def tell(self, words: Sequence[int]) -> str:
        """One note in words."""
        head = words[0] & _WORD
        table = self._tables[head >> TABLE_BIT & _MASK]
        layout = row_layout(self._document, table)
        key = _number(words[1 : 1 + layout.words])
        room = 64 * (len(words) - 1)
        matched = ", ".join(
            f"{field.name}={_shown(key >> place.position, place.width, place.position + place.width <= room)}"
            for field, place in zip(table.key, layout.keys, strict=True)
        )
        found = "hit" if head >> HIT_BIT else "miss"
        code = head & _MASK
        ran = "no action"
        if code:
            action = self._document.actions[action_codes(table)[code - 1]]
            values = ", ".join(self._params(action, words[1 + layout.words :]))
            ran = f"{action.name}({values})"
        return f"table {table.name}: {found}{' for ' if matched else ''}{matched}: {ran}"

    def _params(self, action: Action, words: Sequence[int]) -> Iterator[str]:
        for name, width in action.params:
            count = param_bytes(width) // 8
            yield f"{name}={_shown(_number(words[:count]), width, count <= len(words))}"
            words = words[count:]


def _number(words: Sequence[int]) -> int:
    return sum((word & _WORD) << 64 * i for i, word in enumerate(words))


def _shown(value: int, width: int, known: bool) -> str:
    return f"0x{value & (1 << width) - 1:x}" if known else "…"
