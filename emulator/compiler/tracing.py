"""Code that leaves the notes of `emulator.compiler.steps`, in traced programs alone."""

from __future__ import annotations

from collections.abc import Sequence

from ..bmv2.document import Primitive, Table
from .expressions import Expressions
from .frame import I64, Frame, IRValue, const, fit
from .steps import (
    HIT_BIT,
    NUMBER_BIT,
    STEP_WORDS,
    first_state,
    logged_values,
    logged_width,
    logs,
    max_notes,
    parser_error,
    traced_tables,
)


def note_table(frame: Frame, table: Table, code: int, hit: IRValue, values: Sequence[IRValue]) -> None:
    """Note a table's result, if the program is traced.

    Args:
        frame: Function under construction.
        table: The table.
        code: Number of the executed action, from 1; 0: none was executed.
        hit: True if an entry matched, an integer of 1 bit.
        values: Words of the key, and then the action's parameters.
    """
    if frame.layout.steps is not None:
        number = [traced_table.name for traced_table in traced_tables(frame.document)].index(table.name)
        hit_bit = frame.builder.shl(frame.builder.zext(hit, I64), const(64, HIT_BIT))
        _note(frame, frame.builder.or_(hit_bit, const(64, number << NUMBER_BIT | code)), values)


def note_log(frame: Frame, primitive: Primitive, expressions: Expressions) -> None:
    """Note the text and values of a `log_msg`."""
    if frame.layout.steps is not None:
        number = len(traced_tables(frame.document)) + logs(frame.document).index(primitive)
        values = [
            expressions.modulo(value, logged_width(frame.document, value)[0]) for value in logged_values(primitive)
        ]
        _note(frame, const(64, number << NUMBER_BIT), values)


def note_state(frame: Frame, state: str) -> None:
    """Note that the parser has entered a state."""
    if frame.layout.steps is not None:
        number = first_state(frame.document) + list(frame.document.parser.states).index(state)
        _note(frame, const(64, number << NUMBER_BIT), [])


def note_parser_error(frame: Frame, error: IRValue) -> None:
    """Note the 32-bit error that stops the parser."""
    if frame.layout.steps is not None:
        _note(frame, const(64, parser_error(frame.document) << NUMBER_BIT), [error])


def _note(frame: Frame, head: IRValue, values: Sequence[IRValue]) -> None:
    """Put a note behind the others, if there is room; of the values those that fit."""
    builder = frame.builder
    notes = frame.at(frame.state, frame.layout.steps or 0)
    count = builder.load(notes, typ=I64)
    room, after = frame.block("note"), frame.block("noted")
    builder.cbranch(builder.icmp_unsigned("<", count, const(64, max_notes(frame.document))), room, after)
    builder.position_at_end(room)
    builder.store(builder.add(count, const(64, 1)), notes)
    place = frame.at(notes, builder.add(builder.mul(count, const(64, 8 * STEP_WORDS)), const(64, 8)))
    builder.store(head, place)
    at = 8
    for value in values:
        stored = (value.type.width + 63) // 64 * 64
        if at + stored // 8 <= 8 * STEP_WORDS:
            builder.store(fit(builder, value, stored), frame.at(place, at), align=8)
        at += stored // 8
    builder.branch(after)
    builder.position_at_end(after)
