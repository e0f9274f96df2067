"""System calls from native code, through the addresses of libc's functions, and words that threads share."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..runtime.native import native, view
from .memory import CAPTURE, LOOP, NIC

EINTR: Final = 4
EIO: Final = 5
EAGAIN: Final = 11
EMSGSIZE: Final = 90
ENETDOWN: Final = 100
ENOBUFS: Final = 105

_CLOCK_MONOTONIC: Final = 1
_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)

loop_at = view(LOOP)
nic_at = view(NIC)
capture_at = view(CAPTURE)


@intrinsic
def invoke(typing_context: Any, function: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Call `int function(a, b, c, d, e)` with integers or addresses; a function that takes fewer ignores the rest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I64] * 5)
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        return builder.sext(builder.call(pointer, list(arguments[1:])), _I64)

    return types.int64(*[types.int64] * 6), generate


@intrinsic
def _errno(typing_context: Any, location: Any) -> Any:
    """The int behind `int *location(void)`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_I32.as_pointer(), [])
        where = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return builder.zext(builder.load(where), _I64)

    return types.int64(types.int64), generate


@intrinsic
def load_shared(typing_context: Any, address: Any, index: Any) -> Any:
    """Return the int64 at `address + 8 * index`, and all that another thread wrote before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.add(arguments[0], builder.mul(arguments[1], ir.Constant(_I64, 8)))
        return builder.load_atomic(builder.inttoptr(at, _I64.as_pointer()), "acquire", 8)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def store_shared(typing_context: Any, address: Any, index: Any, value: Any) -> Any:
    """Write an int64 at `address + 8 * index`, after all that was written before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.add(arguments[0], builder.mul(arguments[1], ir.Constant(_I64, 8)))
        builder.store_atomic(arguments[2], builder.inttoptr(at, _I64.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def load_status(typing_context: Any, address: Any) -> Any:
    """Return the uint32 at `address`, and all that the kernel wrote before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load_atomic(builder.inttoptr(arguments[0], _I32.as_pointer()), "acquire", 4), _I64)

    return types.int64(types.int64), generate


@intrinsic
def store_status(typing_context: Any, address: Any, value: Any) -> Any:
    """Write a uint32 at `address`, after all that was read before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _I32.as_pointer())
        builder.store_atomic(builder.trunc(arguments[1], _I32), pointer, "release", 4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _integer(bits: int) -> Any:
    """An intrinsic `load(address)`: the unsigned little-endian integer of that many bits, aligned or not."""
    kind = ir.IntType(bits)

    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.zext(builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1), _I64)

        return types.int64(types.int64), generate

    return load


load_u16 = _integer(16)
load_u32 = _integer(32)


@intrinsic
def store_u16(typing_context: Any, address: Any, value: Any) -> Any:
    """Store the low 16 bits of a value at an address of any alignment."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(16).as_pointer())
        builder.store(builder.trunc(arguments[1], ir.IntType(16)), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy_apart(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy `size` bytes between areas that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_pointer, source_pointer = (builder.inttoptr(a, _I8.as_pointer()) for a in arguments[:2])
        cgutils.raw_memcpy(builder, target_pointer, source_pointer, arguments[2], 1, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@native
def last_error(loop: Any) -> Any:
    """Return `errno` of this thread."""
    return _errno(loop.errno_location)


@native
def read_clock(loop: Any) -> Any:
    """Return CLOCK_MONOTONIC in nanoseconds."""
    invoke(loop.clock_gettime, _CLOCK_MONOTONIC, loop.scratch, 0, 0, 0)
    return load_shared(loop.scratch, 0) * 1_000_000_000 + load_shared(loop.scratch, 1)
