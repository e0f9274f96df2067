"""Butterflies of the Hadamard transform on vectors of 16 float32 numbers, as LLVM instructions for Numba.

LLVM's own vectoriser does not find them, as the loops' distances change. A vector of 16 becomes one, two or four
registers of the machine. Additions have the order of `rotation`, so the bits are the same.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .lane_codes import SQUARE_PARTS, SUM_PARTS

WIDTH: Final = 16
"""Numbers of a vector."""
_STEPS: Final = 4
"""Steps that take place within a vector."""
_FLOATS: Final = ir.VectorType(ir.FloatType(), WIDTH)
_DOUBLES: Final = ir.VectorType(ir.DoubleType(), WIDTH)
_WORDS: Final = ir.VectorType(ir.IntType(32), WIDTH)
_INDEX: Final = ir.IntType(64)
_SIGN: Final = 1 << 31


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any = _FLOATS) -> Any:
    """Return a pointer to the vector that begins at an index of a contiguous array."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def transform_within(typing_context: Any, chunk: Any, start: Any) -> Any:
    """Transform the numbers start … start + 15 of a chunk in place: the steps of widths 1, 2, 4 and 8."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        vector = builder.load(pointer, align=4)
        for width in (1 << step for step in range(_STEPS)):
            partners = ir.Constant(_WORDS, [place ^ width for place in range(WIDTH)])
            signs = ir.Constant(_WORDS, [_SIGN if place & width else 0 for place in range(WIDTH)])
            other = builder.shuffle_vector(vector, ir.Constant(_FLOATS, ir.Undefined), partners)
            signed = builder.bitcast(builder.xor(builder.bitcast(vector, _WORDS), signs), _FLOATS)
            vector = builder.fadd(other, signed)
        builder.store(vector, pointer, align=4)
        return context.get_dummy_value()

    return types.void(chunk, types.int64), generate


def _across(steps: int) -> Any:
    @intrinsic
    def transform_across(typing_context: Any, chunk: Any, start: Any, width: Any) -> Any:
        """Transform 2^steps vectors, `width` numbers apart, in place: the steps of widths `width` · 1, 2, …"""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array, first, apart = arguments
            places = (builder.mul(apart, ir.Constant(_INDEX, number)) for number in range(1 << steps))
            pointers = [
                _pointer(context, builder, signature.args[0], array, builder.add(first, place)) for place in places
            ]
            vectors = [builder.load(pointer, align=4) for pointer in pointers]
            for distance in (1 << step for step in range(steps)):
                for place in range(1 << steps):
                    if not place & distance:
                        one, other = vectors[place], vectors[place + distance]
                        vectors[place] = builder.fadd(one, other)
                        vectors[place + distance] = builder.fsub(one, other)
            for vector, pointer in zip(vectors, pointers, strict=True):
                builder.store(vector, pointer, align=4)
            return context.get_dummy_value()

        return types.void(chunk, types.int64, types.int64), generate

    return transform_across


transform_pairs, transform_fours, transform_eights = (_across(steps) for steps in (1, 2, 3))
"""One, two and three steps at once: in few passes over a chunk, as its loads and stores take longer than additions."""


def _adding(parts_count: int, squared: bool) -> Any:
    @intrinsic
    def add(typing_context: Any, chunk: Any, start: Any, parts: Any) -> Any:
        """Add the numbers from `start` on, or their squares, to as many float64 parts as there are."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            chunk_type, _, parts_type = signature.args
            array, first, sums = arguments
            for place in range(0, parts_count, WIDTH):
                offset = ir.Constant(_INDEX, place)
                source = _pointer(context, builder, chunk_type, array, builder.add(first, offset))
                target = _pointer(context, builder, parts_type, sums, offset, _DOUBLES)
                numbers = builder.fpext(builder.load(source, align=4), _DOUBLES)
                if squared:
                    numbers = builder.fmul(numbers, numbers)
                builder.store(builder.fadd(builder.load(target, align=8), numbers), target, align=8)
            return context.get_dummy_value()

        return types.void(chunk, types.int64, parts), generate

    return add


add_squares = _adding(SQUARE_PARTS, squared=True)
add_numbers = _adding(SUM_PARTS, squared=False)
