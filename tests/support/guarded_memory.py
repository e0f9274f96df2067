"""Guarded memory for NumPy arrays: native code that leaves an array, or uses a freed one, ends the process (SIGSEGV).

Native code of the emulator, of wire and of the controller works on the data of NumPy arrays, by address. `install` puts
an inaccessible page directly behind every array (up to the alignment of 8 bytes), or directly before it, for indices
below 0. Memory that is freed becomes inaccessible, until `_KEPT` further blocks of its length were freed. As a pytest
plugin it does so for a whole run, and prints the stacks of a process that ends (WEIR_GUARD=before: pages before the
arrays)::

    python -X faulthandler -m pytest -p weir.tests.support.guarded_memory -n0 tests/emulator

The folder `guarded_processes` does so for every Python process that a command starts.

An index that stays within its array is not noticed (one packet's place in the pool, say). Threads that run already
allocate as usual. The kernel's limit of mappings (vm.max_map_count, 65,530) allows some 30,000 arrays at
once.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
from importlib import import_module
from typing import Any, ClassVar, Final

from numba import cfunc, njit, types

_PAGE: Final = resource.getpagesize()
_ALIGNMENT: Final = 8
_KEPT: Final = 256
"""Freed blocks of each length that stay inaccessible before one is used again; each takes memory."""
_LENGTHS: Final = 64
"""Pages of blocks from which they are not used again: their memory is given back, their addresses are not."""
_QUEUE_BYTES: Final = 16 + 16 * _KEPT
"""Queue of freed blocks: index of the oldest, count; of each its address and length."""
_SET_HANDLER: Final = 304
"""PyDataMem_SetHandler in the table of NumPy's C interface (numpy/_core/code_generators/numpy_api.py)."""
_READ_WRITE: Final = 3
_PRIVATE_ANONYMOUS: Final = 0x22
_IN_ITS_PLACE: Final = 0x32
"""The same at a fixed address, which gives the memory there back."""

_map = types.ExternalFunction(
    "mmap", types.intp(types.intp, types.intp, types.int32, types.int32, types.int32, types.int64)
)
_protect = types.ExternalFunction("mprotect", types.int32(types.intp, types.intp, types.int32))
_unmap = types.ExternalFunction("munmap", types.int32(types.intp, types.intp))
_move = types.ExternalFunction("memmove", types.intp(types.intp, types.intp, types.intp))
_set = types.ExternalFunction("memset", types.intp(types.intp, types.int32, types.intp))


class _Allocator(ctypes.Structure):
    _fields_: ClassVar = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


class _Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_: ClassVar = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator)]


_alive: list[object] = []
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_alive))  # arrays are freed after this module at a process's end


def install(*, before: bool = False) -> None:
    """Guard all arrays that this thread, and those that are started later, make from now on.

    Args:
        before: guard the beginnings of arrays in place of their ends.
    """
    queues = ctypes.create_string_buffer(_LENGTHS * _QUEUE_BYTES)
    functions = _allocator(before=before)
    addresses = [ctypes.addressof(queues), *(function.address for function in functions)]
    handler = _Handler(b"guarded", 1, _Allocator(*addresses))
    _alive.extend((queues, handler, functions, _set_handler(handler)))

    def begin(*event: object) -> None:
        sys.setprofile(None)
        _alive.append(_set_handler(handler))

    threading.setprofile(begin)


def _set_handler(handler: _Handler) -> tuple[object, object]:
    """Have NumPy allocate by the handler in this thread; return its capsule and the one that it replaces."""
    umath = import_module("numpy._core._multiarray_umath")
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new_capsule(ctypes.addressof(handler), b"mem_handler", None)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = (ctypes.c_size_t * (_SET_HANDLER + 1)).from_address(pointer(umath._ARRAY_API, None))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
    return capsule, set_handler(capsule)


def _allocator(*, before: bool) -> tuple[Any, Any, Any, Any]:
    """Compile malloc, calloc, realloc and free; the first argument of each is the address of the queues of freed
    blocks.
    """
    load, store = _words()
    length_of, offset_of = _layout(before=before)
    push, pop = _queue_operations(load, store)
    back = _distance_of_size(before=before)
    first, last = (2 * _PAGE, 0) if before else (0, _PAGE)  # pages of a block that hold no data

    @njit  # type: ignore[untyped-decorator]
    def allocated(queues: Any, size: Any) -> Any:
        length = length_of(size)
        block = pop(queues, length)
        if block != 0:
            _protect(block + first, length - first - last, _READ_WRITE)
        else:
            block = _map(0, length, _READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0)
            if block == -1:
                return 0
            _protect(block + (_PAGE if before else length - _PAGE), _PAGE, 0)
        data = block + offset_of(size)
        store(data - back, size)
        return data

    @njit  # type: ignore[untyped-decorator]
    def freed(queues: Any, data: Any) -> Any:
        size = load(data - back)
        length = length_of(size)
        block = data - offset_of(size)
        if length < _LENGTHS * _PAGE:
            _protect(block + first, length - first - last, 0)
        else:
            _map(block, length, 0, _IN_ITS_PLACE, -1, 0)
        push(queues, block, length)

    @cfunc(types.intp(types.intp, types.intp))  # type: ignore[untyped-decorator]
    def malloc(queues: Any, size: Any) -> Any:
        return allocated(queues, size)

    @cfunc(types.intp(types.intp, types.intp, types.intp))  # type: ignore[untyped-decorator]
    def calloc(queues: Any, count: Any, size: Any) -> Any:
        data = allocated(queues, count * size)
        if data != 0 and length_of(count * size) < _LENGTHS * _PAGE:  # longer ones are new
            _set(data, 0, count * size)
        return data

    @cfunc(types.void(types.intp, types.intp, types.intp))  # type: ignore[untyped-decorator]
    def free(queues: Any, data: Any, size: Any) -> Any:
        if data != 0:
            freed(queues, data)

    @cfunc(types.intp(types.intp, types.intp, types.intp))  # type: ignore[untyped-decorator]
    def realloc(queues: Any, data: Any, size: Any) -> Any:
        new = allocated(queues, size)
        if data != 0 and new != 0:
            _move(new, data, min(load(data - back), size))
            freed(queues, data)
        return new

    return malloc, calloc, realloc, free


def _queue_operations(load: Any, store: Any) -> tuple[Any, Any]:
    """Compile the operations of the queues, one for each length of blocks and the first for all long ones: keep a freed
    block; and take the oldest one of a length, if `_KEPT` are there, or else 0.
    """

    @njit  # type: ignore[untyped-decorator]
    def push(queues: Any, block: Any, length: Any) -> Any:
        queue = queues + (length // _PAGE if length < _LENGTHS * _PAGE else 0) * _QUEUE_BYTES
        oldest, count = load(queue), load(queue + 8)
        slot = queue + 16 + 16 * ((oldest + count) % _KEPT)
        if count == _KEPT:
            _unmap(load(slot), load(slot + 8))
            store(queue, (oldest + 1) % _KEPT)
        else:
            store(queue + 8, count + 1)
        store(slot, block)
        store(slot + 8, length)

    @njit  # type: ignore[untyped-decorator]
    def pop(queues: Any, length: Any) -> Any:
        queue = queues + length // _PAGE * _QUEUE_BYTES
        if length >= _LENGTHS * _PAGE or load(queue + 8) < _KEPT:
            return 0
        oldest = load(queue)
        store(queue, (oldest + 1) % _KEPT)
        store(queue + 8, _KEPT - 1)
        return load(queue + 16 + 16 * oldest)

    return push, pop


def _distance_of_size(*, before: bool) -> int:
    """Bytes from the word with a block's size to its data."""
    return 2 * _PAGE if before else 8


def _layout(*, before: bool) -> tuple[Any, Any]:
    """Compile the length of a block, and the offset of its data, from the size of the data.

    - guarded behind: … | size of the data | data | inaccessible page
    - guarded before: page with the size of the data | inaccessible page | data | …
    """
    back = _distance_of_size(before=before)
    tail = 0 if before else _PAGE

    @njit  # type: ignore[untyped-decorator]
    def rounded(size: Any) -> Any:
        return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT

    @njit  # type: ignore[untyped-decorator]
    def length_of(size: Any) -> Any:
        return (back + rounded(size) + _PAGE - 1) // _PAGE * _PAGE + tail

    @njit  # type: ignore[untyped-decorator]
    def offset_of(size: Any) -> Any:
        return back if before else length_of(size) - _PAGE - rounded(size)

    return length_of, offset_of


def _words() -> tuple[Any, Any]:
    """Intrinsics that read and write an int64 at an address."""
    from llvmlite import ir
    from numba.extending import intrinsic

    word = ir.IntType(64)

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(builder.inttoptr(arguments[0], word.as_pointer()))

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store(arguments[1], builder.inttoptr(arguments[0], word.as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return load, store


def pytest_configure() -> None:
    """Guard a whole run of pytest that has this module as a plugin."""
    install(before=os.environ.get("WEIR_GUARD") == "before")
