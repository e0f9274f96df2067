"""Notes of parser states, table lookups and `log_msg` calls, for a switch's packet log.

A program is compiled without notes, or a second time with them (`traced`): then each pass through ingress or egress
leaves notes in the switch's state, one for each parser state, each table that it applies and each `log_msg`, in order.
The reader resets their number to 0. Words of 64 bits::

    | number of notes | then STEP_WORDS for each: code (below) | values |

The code holds the hit bit (63), a number (bits 32 … 47), and a table's action plus 1 (bits 0 … 15; 0: none). Numbers
are those of the tables, behind them of the `log_msg`, behind these of the parser states, and last one for a parser
error. The values are the words of the key and the parameters, as `emulator.tables.rows` has them, the fields of the
`log_msg`, or the error; values that do not fit the note are left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ..bmv2.document import Document, Expr, Field, Op, Primitive, Table, Text
from ..tables.rows import action_codes, param_bytes, row_layout
from .layout import Layout, is_static

STEP_WORDS: Final = 12
HIT_BIT: Final = 63
NUMBER_BIT: Final = 32
_MASK: Final = (1 << 16) - 1
_WORD: Final = (1 << 64) - 1
_MAX_LOGS: Final = 64
"""Notes of `log_msg` that one pass has room for, if it applies all tables; an action may leave them in a loop."""
_MAX_STATES: Final = 64
"""Notes of parser states that one pass has room for, beside those; a parser may enter states in a loop."""


def traced_tables(document: Document) -> list[Table]:
    """Return the tables that notes are left of, by their number."""
    return [
        node
        for pipeline in (document.ingress, document.egress)
        for node in pipeline.nodes.values()
        if isinstance(node, Table) and not is_static(node)
    ]


def logs(document: Document) -> list[Primitive]:
    """Return every `log_msg` of the program, by its number."""
    places = (
        *(action.body for action in document.actions.values()),
        *(state.ops for state in document.parser.states.values()),
        document.deparser_calls,
    )
    return [primitive for primitives in places for primitive in primitives if primitive.op == "log_msg"]


def logged_values(primitive: Primitive) -> tuple[Expr, ...]:
    """Return the values of the `{}` of a `log_msg`."""
    match primitive.args:
        case (Text(), Op("vector", values)):
            return values
    return ()


def logged_width(document: Document, value: Expr) -> tuple[int, bool]:
    """Return the number of bits that the packet log has of a value, and whether it is signed."""
    if isinstance(value, Field):
        for name, width, signed in document.headers[value.header].fields:
            if name == value.name:
                return width, signed
    return 64, False


def max_notes(document: Document) -> int:
    """Return the largest number of notes that one pass of a pipeline can make."""
    return len(traced_tables(document)) + _MAX_LOGS + _MAX_STATES


def first_state(document: Document) -> int:
    """Return the number of the first parser state in notes."""
    return len(traced_tables(document)) + len(logs(document))


def parser_error(document: Document) -> int:
    """Return the number of a parser error in notes."""
    return first_state(document) + len(document.parser.states)


def with_steps(layout: Layout, document: Document) -> Layout:
    """Return the layout of the same program, traced."""
    start = (layout.state_bytes + 63) // 64 * 64
    return replace(layout, steps=start, state_bytes=start + 8 + 8 * STEP_WORDS * max_notes(document))


class Steps:
    """The notes of one switch's state."""

    def __init__(self, document: Document, address: int) -> None:
        self.address = address
        """Address of the notes, beginning with their number."""
        self._document = document
        self._tables = traced_tables(document)
        self._logs = logs(document)
        self._states = list(document.parser.states)
        self._first_state = first_state(document)
        self._parser_error = parser_error(document)

    def drain(self) -> list[str]:
        """Return the notes since the last call, in words."""
        memory = (ctypes.c_int64 * (1 + STEP_WORDS * max_notes(self._document))).from_address(self.address)
        count, memory[0] = memory[0], 0
        return [self.describe(memory[1 + index * STEP_WORDS : 1 + (index + 1) * STEP_WORDS]) for index in range(count)]

    def describe(self, words: Sequence[int]) -> str:
        """Describe one note of the trace in words."""
        head = words[0] & _WORD
        number = head >> NUMBER_BIT & _MASK
        if number == self._parser_error:
            names = {code: name for name, code in self._document.errors.items()}
            return f"parser error {names.get(words[1], words[1])}"
        if number >= self._first_state:
            return f"parser state {self._states[number - self._first_state]}"
        if number >= len(self._tables):
            return self._describe_log(self._logs[number - len(self._tables)], words[1:])
        table = self._tables[number]
        layout = row_layout(self._document, table)
        key, room = _number(words[1 : 1 + layout.words]), 64 * (len(words) - 1)
        matched = ", ".join(
            f"{field.name}={_hex(key >> place.position, place.width, place.position + place.width <= room)}"
            for field, place in zip(table.key, layout.keys, strict=True)
        )
        code, ran = head & _MASK, "no action"
        if code:
            action = self._document.actions[action_codes(table)[code - 1]]
            widths = [width for _, width in action.params]
            values = zip(action.params, _split(widths, words[1 + layout.words :]), strict=True)
            ran = f"{action.name}({', '.join(f'{name}={_hex(*value)}' for (name, _), value in values)})"
        return f"table {table.name}: {'hit' if head >> HIT_BIT else 'miss'}{' for ' * bool(matched)}{matched}: {ran}"

    def _describe_log(self, primitive: Primitive, words: Sequence[int]) -> str:
        text = primitive.args[0].value if isinstance(primitive.args[0], Text) else ""
        kinds = [logged_width(self._document, value) for value in logged_values(primitive)]
        for (_, signed), (value, width, known) in zip(kinds, _split([width for width, _ in kinds], words), strict=True):
            if signed and value >> width - 1:
                value -= 1 << width
            text = text.replace("{}", str(value) if known else "…", 1)
        return f"log_msg: {text}"


def _split(widths: Sequence[int], words: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    """Values of these widths, one behind the other: (value, width, whether it is there as a whole)."""
    for width in widths:
        count = param_bytes(width) // 8
        yield _number(words[:count]), width, count <= len(words)
        words = words[count:]


def _number(words: Sequence[int]) -> int:
    return sum((word & _WORD) << 64 * i for i, word in enumerate(words))


def _hex(value: int, width: int, known: bool) -> str:
    return f"0x{value & (1 << width) - 1:x}" if known else "…"
