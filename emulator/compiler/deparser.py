"""The deparser: headers from the PHV in front of the payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .frame import I32, I64, Frame, HeaderPlace, IRValue, const, fit, int_type

_RUN: Final = 8
"""Headers, at most, whose validity bytes are looked at together."""
_SHORTEST_RUN: Final = 4


def emit_deparser(frame: Frame) -> None:
    """Append the deparser: valid headers in front of the payload; `start` and `length` follow.

    A packet that would grow out of its headroom is dropped.
    """
    builder = frame.builder
    payload = frame.load_packet("payload", 64)
    end = builder.add(frame.load_packet("start", 64), frame.load_packet("length", 64))
    end = builder.select(builder.icmp_unsigned("<", end, payload), payload, end)  # a clone cut within its headers
    runs = _runs(frame)
    total = const(64, 0)
    for run in runs:
        total = _unless_invalid(frame, run, total, _add_sizes)
    fits, grown, done = frame.block("deparse"), frame.block("too_large"), frame.block("deparsed")
    builder.cbranch(builder.icmp_unsigned("<=", total, payload), fits, grown)
    builder.position_at_end(grown)
    frame.store_packet("egress_spec", frame.load_packet("drop_port", 16))
    builder.branch(done)
    builder.position_at_end(fits)
    position = start = builder.sub(payload, total)
    for run in runs:
        position = _unless_invalid(frame, run, position, _emit_headers)
    frame.store_packet("start", start)
    frame.store_packet("length", builder.sub(end, start))
    builder.branch(done)
    builder.position_at_end(done)


def _runs(frame: Frame) -> list[list[str]]:
    """The headers in the order in which they are sent, in runs whose validity bytes are one native integer."""
    offsets, runs = frame.layout.valid_offset, list[list[str]]()
    for name in frame.document.deparse_order:
        follows = runs and len(runs[-1]) < _RUN and offsets[name] == offsets[runs[-1][-1]] + 1
        if follows:
            runs[-1].append(name)
        else:
            runs.append([name])
    return runs


def _unless_invalid(
    frame: Frame, run: list[str], before: IRValue, body: Callable[[Frame, list[str], IRValue], IRValue]
) -> IRValue:
    """Return `body(before)`, or the i64 `before` itself, by one branch, if no header of a long run is valid.

    A program that adds many headers to few packets thus costs the other packets little.
    """
    if len(run) < _SHORTEST_RUN:
        return body(frame, run, before)
    builder = frame.builder
    some, after = frame.block(f"some.{run[0]}"), frame.block(f"behind.{run[-1]}")
    first = frame.at(frame.phv, frame.layout.valid_offset[run[0]])
    valid = builder.load(first, typ=int_type(8 * len(run)), align=1)
    skipping = builder.block
    builder.cbranch(builder.icmp_unsigned("!=", valid, const(8 * len(run), 0)), some, after)
    builder.position_at_end(some)
    made = body(frame, run, before)
    ended = builder.block
    builder.branch(after)
    builder.position_at_end(after)
    result = builder.phi(I64)
    result.add_incoming(before, skipping)
    result.add_incoming(made, ended)
    return result


def _add_sizes(frame: Frame, run: list[str], total: IRValue) -> IRValue:
    """The total and the bytes of these headers, as far as they are valid."""
    for place in map(frame.place, run):
        size = frame.builder.select(frame.is_valid_at(place), frame.header_bytes(place), const(64, 0))
        total = frame.builder.add(total, size)
    return total


def _emit_headers(frame: Frame, run: list[str], position: IRValue) -> IRValue:
    """Write those of these headers that are valid, from a position in the data on; returns the one behind them."""
    builder = frame.builder
    for name in run:
        place = frame.place(name)
        emit, after = frame.block(f"emit.{name}"), frame.block(f"emitted.{name}")
        before = builder.block
        builder.cbranch(frame.is_valid_at(place), emit, after)
        builder.position_at_end(emit)
        _emit_header(frame, place, frame.at(frame.data, position))
        behind = builder.add(position, frame.header_bytes(place))
        builder.branch(after)
        builder.position_at_end(after)
        joined = builder.phi(I64)
        joined.add_incoming(position, before)
        joined.add_incoming(behind, emit)
        position = joined
    return position


def _emit_header(frame: Frame, place: HeaderPlace, target: IRValue) -> None:
    """Write a header to the frame, its varbit field where it belongs."""
    fixed, front = frame.fixed_bytes(place.header), place.header.varbit_at // 8
    frame.copy(target, place.data, front)
    if place.varbit is not None:
        size = fit(frame.builder, frame.builder.load(place.varbit, typ=I32), 64)
        middle = frame.at(target, front)
        frame.copy(middle, frame.at(place.data, fixed), size)
        if fixed > front:
            frame.copy(frame.at(middle, size), frame.at(place.data, front), fixed - front)
