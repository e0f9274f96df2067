"""Operations that Numba lacks: records at addresses, raw memory, calls through addresses, counter-based random numbers.

A record is a bare pointer to Numba, so the runtime passes records about, not arrays: no counts, no strides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..abi import PACKET
from . import memory

native = njit(error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)

_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_ODD = np.uint64(0x9FB21C651E98DF25)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I8.as_pointer())


def view(dtype: np.dtype[np.void]) -> Any:
    """Return an intrinsic `at(base, index)`: the record of this dtype at address `base + index * itemsize`."""
    record = from_dtype(dtype)
    size = dtype.itemsize

    @intrinsic
    def at(typing_context: Any, base: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = builder.add(arguments[0], builder.mul(arguments[1], ir.Constant(_I64, size)))
            return builder.inttoptr(address, context.get_value_type(record))

        return record(types.int64, types.int64), generate

    return at


world_at = view(memory.WORLD)
meta_at = view(memory.META)
event_at = view(memory.EVENT)
port_at = view(memory.PORT)
queue_at = view(memory.QUEUE)
switch_at = view(memory.SWITCH)
group_at = view(memory.GROUP)
replica_at = view(memory.REPLICA)
host_at = view(memory.HOST)
tap_at = view(memory.TAP)
due_at = view(memory.DUE)
flow_at = view(memory.FLOW)
trace_at = view(memory.TRACE)
packet_at = view(PACKET)


@intrinsic
def load(typing_context: Any, address: Any, index: Any) -> Any:
    """Return the int64 at `address + 8 * index`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # from a pointer on, for a loop whose addresses are made of integers is not made one of vectors
        words = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.load(builder.gep(words, [arguments[1]]), align=1)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def store(typing_context: Any, address: Any, index: Any, value: Any) -> Any:
    """Write an int64 at `address + 8 * index`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.add(arguments[0], builder.mul(arguments[1], ir.Constant(_I64, 8)))
        builder.store(arguments[2], builder.inttoptr(at, _I64.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def load_byte(typing_context: Any, address: Any) -> Any:
    """Load the unsigned byte at an address as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, arguments[0])), _I64)

    return types.int64(types.int64), generate


@intrinsic
def store_byte(typing_context: Any, address: Any, value: Any) -> Any:
    """Store the low byte of a value at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(builder.trunc(arguments[1], _I8), _pointer(builder, arguments[0]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy `size` bytes; the two areas may overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_pointer, source_pointer = (_pointer(builder, a) for a in arguments[:2])
        cgutils.raw_memmove(builder, target_pointer, source_pointer, arguments[2], 1, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def clear(typing_context: Any, target: Any, size: Any) -> Any:
    """Set `size` bytes from an address on to 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cgutils.memset(builder, _pointer(builder, arguments[0]), arguments[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def call(typing_context: Any, function: Any, state: Any, packet: Any) -> Any:
    """Call `void function(void *state, PACKET *packet)`, all three given as addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I8.as_pointer()])
        function_pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        builder.call(function_pointer, [_pointer(builder, a) for a in arguments[1:]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def measure(typing_context: Any, function: Any, frame: Any, size: Any, argument: Any) -> Any:
    """Call `int64 function(const void *frame, int64 bytes, int64 argument)`, the first two given as addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I8.as_pointer(), _I64, _I64])
        function_pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        return builder.call(function_pointer, [_pointer(builder, arguments[1]), *arguments[2:]])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def highest_bit(typing_context: Any, value: Any) -> Any:
    """Return the index of the highest bit set in a positive int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zeros = builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))
        return builder.sub(ir.Constant(_I64, 63), zeros)

    return types.int64(types.int64), generate


@native
def draw(key: Any, counter: Any) -> Any:
    """Return a uint64 from a key and a counter: SplitMix64's output function (Steele, Lea, Flood; OOPSLA 2014)."""
    z = key + np.uint64(counter) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@native
def fold(digest: Any, word: Any) -> Any:
    """Mix a word into a 64-bit digest (a multiplication and a rotation; not cryptographic)."""
    mixed = (digest ^ np.uint64(word)) * _ODD
    return mixed ^ (mixed >> np.uint64(32))


@native
def _product(word: Any, key: Any) -> Any:
    keyed = np.uint64(word) + key
    return (keyed & np.uint64(0xFFFF_FFFF)) * (keyed >> np.uint64(32))


@native
def fold_bytes(digest: Any, address: Any, size: Any) -> Any:
    """Mix `size` bytes into a digest: Σ of the products of each word's halves, once a key of its place is added (NH:
    Black et al., UMAC, CRYPTO 1999), which native code computes for many words at once. The last eight bytes are a
    word, too; fewer are mixed in one by one.
    """
    words = size >> 3
    total = np.uint64(0)
    key = _ODD
    for i in range(words):
        total += _product(load(address, i), key)
        key += _ODD
    if words > 0:
        return fold(digest, total + _product(load(address + size - 8, 0), key))
    for i in range(size):
        digest = fold(digest, load_byte(address + i))
    return digest
