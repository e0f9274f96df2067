"""Actions on whole headers, stacks, unions and varbit fields."""

from __future__ import annotations

from collections.abc import Sequence

from ..bmv2.document import Expr, Field, Member
from ..bmv2.schema import UnsupportedProgram
from .expressions import Expressions
from .frame import I8, I32, Frame, HeaderPlace, const, fit
from .layout import header_storage


def add_header(frame: Frame, place: HeaderPlace) -> None:
    """Make a header valid; one that was invalid has all fields 0."""
    fresh, after = frame.block("fresh_header"), frame.block("has_header")
    frame.builder.cbranch(frame.is_valid_at(place), after, fresh)
    frame.builder.position_at_end(fresh)
    frame.zero(place.data, header_storage(place.header))
    frame.set_valid(place, const(1, 1))
    frame.add_to_length(fit(frame.builder, frame.header_bytes(place), 32))
    frame.builder.branch(after)
    frame.builder.position_at_end(after)


def remove_header(frame: Frame, place: HeaderPlace) -> None:
    """Make a header invalid and subtract its bytes from the packet's length if it was valid."""
    builder = frame.builder
    gone = builder.neg(fit(builder, frame.header_bytes(place), 32))
    frame.add_to_length(builder.select(frame.is_valid_at(place), gone, const(32, 0)))
    frame.set_valid(place, const(1, 0))


def assign_header(frame: Frame, target: HeaderPlace, source: HeaderPlace) -> None:
    """Copy a header with its validity. Raises UnsupportedProgram for headers of different sizes."""
    if frame.fixed_bytes(target.header) != frame.fixed_bytes(source.header):
        raise UnsupportedProgram(
            f"assignment of header {source.header.name} to {target.header.name}, which is of another size",
            value=source.header.name,
        )
    valid = frame.is_valid_at(source)
    frame.copy_header(target, source)
    frame.set_valid(target, valid)


def assign_all(frame: Frame, targets: Sequence[str], sources: Sequence[str]) -> None:
    """Copy a union or a stack header by header; of a union the members that become invalid come first."""
    pairs = [(frame.place(target), frame.place(source)) for target, source in zip(targets, sources, strict=True)]
    valid = [frame.is_valid_at(source) for _, source in pairs]
    for target, source in pairs:
        frame.copy_header(target, source)
    for (target, _), is_valid in zip(pairs, valid, strict=True):
        frame.builder.store(fit(frame.builder, is_valid, 8), target.valid)


def assign_stack(frame: Frame, target: str, source: str) -> None:
    """Copy a stack of headers or unions: all elements, and the count of filled ones."""
    document = frame.document
    columns = zip(columns_of(frame, target), columns_of(frame, source), strict=True)
    for to, of in columns:
        assign_all(frame, document.stacks[to].headers, document.stacks[of].headers)
    frame.builder.store(frame.builder.load(frame.filled(source), typ=I8), frame.filled(target))


def columns_of(frame: Frame, stack: str) -> tuple[str, ...]:
    """Return the header stacks that make up a stack: one per member of a union, or itself."""
    return frame.document.union_stacks.get(stack, (stack,))


def shift_stack(frame: Frame, stack: str, count: int) -> None:
    """Apply P4's push_front (count > 0) and pop_front (count < 0): every element moves, new ones are invalid."""
    builder = frame.builder
    depth = 0
    for column in columns_of(frame, stack):
        places = [frame.place(name) for name in frame.document.stacks[column].headers]
        depth = len(places)
        for index in range(depth) if count < 0 else reversed(range(depth)):
            if 0 <= index - count < depth:
                frame.copy_header(places[index], places[index - count])
                builder.store(builder.load(places[index - count].valid, typ=I8), places[index].valid)
            else:
                builder.store(const(8, 0), places[index].valid)
    filled = builder.add(fit(builder, builder.load(frame.filled(stack), typ=I8), 32), const(32, count))
    low, high = const(32, 0), const(32, depth)
    filled = builder.select(builder.icmp_signed("<", filled, low), low, filled)
    filled = builder.select(builder.icmp_signed(">", filled, high), high, filled)
    builder.store(fit(builder, filled, 8), frame.filled(stack))


def assign_varbit(frame: Frame, expressions: Expressions, target: Expr, source: Expr) -> None:
    """Copy a varbit field: its bytes and their number.

    Args:
        frame: Function under construction.
        expressions: Compiler of expressions in it.
        target: Field that is written.
        source: Field that is read.
    """
    places = []
    for side in (target, source):
        if isinstance(side, Field):
            places.append(frame.place(side.header))
        else:
            assert isinstance(side, Member)
            places.append(expressions.place(side.header))
    to, of = places
    size = fit(frame.builder, frame.builder.load(of.varbit, typ=I32), 64)
    most = min(to.header.varbit_bytes, of.header.varbit_bytes)
    size = frame.builder.select(frame.builder.icmp_unsigned("<", size, const(64, most)), size, const(64, most))
    behind = (frame.at(place.data, frame.fixed_bytes(place.header)) for place in places)
    frame.copy(next(behind), next(behind), size)
    frame.builder.store(fit(frame.builder, size, 32), to.varbit)


def assign_fields(frame: Frame, target: str, source: str) -> None:
    """Copy a struct of metadata, whose fields are not contiguous."""
    headers = frame.document.headers
    pairs = zip(headers[target].fields, headers[source].fields, strict=True)
    for (name, width, _), (source_name, _, _) in pairs:
        if width == 0:
            continue
        value = frame.load(Field(source, source_name))
        frame.store(Field(target, name), fit(frame.builder, value, width))
    if target not in frame.metadata:
        frame.set_valid(frame.place(target), frame.is_valid(source))
