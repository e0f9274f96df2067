"""Messages as bytes: a head, which fits the first packet, and the bytes of an array or of a bytes object.

::

    kind 8 · dimensions 8 (255: bytes) · type's length 8 · zero 8 · name's length 16 · zero 16
    number 64 · version 64 · length 64
    type (as NumPy's `dtype.str`) · name (UTF-8) · dimensions × 64 · the value's bytes, in C order
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors.values import Checks
from ..errors import InvalidMessage

Value = bytes | NDArray[Any]
"""Contents of a message."""

LARGEST_BYTES: Final = 1 << 34
"""Maximum size of one value."""
_HEAD: Final = struct.Struct(">BBBxHxxQQQ")
_BYTES: Final = 255
_DIMENSION: Final = np.dtype(">u8")
_MAX_DIMENSIONS: Final = 16
_MAX_NAME_BYTES: Final = 64


class MessageKind(IntEnum):
    """Purpose of a message."""

    VALUE = 1
    REQUEST = 2
    REPLY = 3
    PULL = 4
    PULLED = 5
    UNKNOWN_NAME = 6
    WITHDRAWN = 7


_KINDS: Final = frozenset(MessageKind)


@dataclass(frozen=True, slots=True)
class Head:
    """Everything about a message that comes before its value."""

    kind: MessageKind
    name: str
    number: int
    """VALUE: 0; REQUEST and PULL: the asker's count; their answers: the same."""
    version: int
    """PULLED: how often the name had been published; else 0."""
    length: int
    """Bytes of the value."""
    dtype: np.dtype[Any] | None
    """None: the value is a bytes object."""
    shape: tuple[int, ...]
    head_bytes: int


@dataclass(frozen=True, slots=True)
class MessageStream:
    """A message as the payloads of its packets."""

    rows: NDArray[np.uint8]
    """(packets, payload bytes); the last row is filled up with bytes that are not sent."""
    last_bytes: int
    """Bytes of the last row that are sent."""


def as_value(value: object) -> Value:
    """Return the value as it will be received. Raises InvalidMessage for unsupported types."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # rows of several lengths
        raise Checks(InvalidMessage, "message").refuse("value", value, f"is no array: {error}") from None
    if refusal := _refusal(array.dtype, array.shape):
        raise InvalidMessage(refusal, place="message", value=value)
    return array


def encode(
    kind: MessageKind, value: Value, payload_bytes: int, *, name: str = "", number: int = 0, version: int = 0
) -> MessageStream:
    """Divide a message into payloads; the value is copied.

    Args:
        kind: Kind of the message.
        value: Bytes, or an array of a type of fixed size.
        payload_bytes: Bytes of a full payload.
        name: Name of a request or of a published value.
        number: Number of a request.
        version: Version of a published value.

    Raises:
        InvalidMessage: The name is too long.
    """
    checks = Checks(InvalidMessage, "message")
    named = checks.text("name", name).encode()
    if len(named) > _MAX_NAME_BYTES:
        raise checks.refuse("name", name, f"has {len(named)} bytes", f"at most {_MAX_NAME_BYTES}")
    if isinstance(value, bytes):
        typed, dimensions, shape = b"", _BYTES, ()
        data = np.frombuffer(value, np.uint8)
    else:
        typed, dimensions, shape = value.dtype.str.encode(), value.ndim, value.shape
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8) if value.size else np.empty(0, np.uint8)
    head = (
        _HEAD.pack(kind, dimensions, len(typed), len(named), number, version, data.size)
        + typed
        + named
        + np.array(shape, _DIMENSION).tobytes()
    )
    total = len(head) + data.size
    rows = np.empty((-(-total // payload_bytes), payload_bytes), np.uint8)
    flat = rows.reshape(-1)
    flat[: len(head)] = np.frombuffer(head, np.uint8)
    flat[len(head) : total] = data
    return MessageStream(rows, total - (len(rows) - 1) * payload_bytes)


def parse_head(payload: NDArray[np.uint8]) -> Head | None:
    """Return the head of a message, of its first packet's payload (size,); None where it is malformed."""
    raw = payload.tobytes()
    if len(raw) < _HEAD.size:
        return None
    kind, dimensions, typed, named, number, version, length = _HEAD.unpack_from(raw)
    axes = 0 if dimensions == _BYTES else dimensions
    name_at = _HEAD.size + typed
    shape_at = name_at + named
    end = shape_at + _DIMENSION.itemsize * axes
    if end > len(raw) or length > LARGEST_BYTES or kind not in _KINDS:
        return None
    shape = tuple(np.frombuffer(raw[shape_at:end], _DIMENSION).tolist())
    dtype = None
    try:
        name = raw[name_at:shape_at].decode()
        if dimensions != _BYTES:
            dtype = np.dtype(raw[_HEAD.size : name_at].decode("ascii"))
    except (UnicodeDecodeError, TypeError, ValueError, SyntaxError):
        return None
    if dtype is not None and (_refusal(dtype, shape) or dtype.itemsize * math.prod(shape) != length):
        return None
    return Head(MessageKind(kind), name, number, version, length, dtype, shape, end)


def _refusal(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Return why an array of this type and shape is no value; empty if it is one."""
    if dtype.kind not in "biufcmMSU" or not dtype.itemsize or len(shape) > _MAX_DIMENSIONS:
        return (
            f"an array of type {dtype} and {len(shape)} dimensions; allowed are bytes, and arrays of numbers, dates or "
            f"fixed-length strings that are not empty, of up to {_MAX_DIMENSIONS} dimensions"
        )
    extent = dtype.itemsize * math.prod(max(size, 1) for size in shape)  # NumPy has no huge axes in empty arrays, too
    if extent > LARGEST_BYTES:
        return f"{extent} bytes of type {dtype} and shape {shape}, axes of 0 counted as 1; at most {LARGEST_BYTES}"
    return ""


def value_of(head: Head, data: NDArray[np.uint8]) -> Value:
    """Return the value whose bytes have come, (length,)."""
    if head.dtype is None:
        return data.tobytes()
    if not data.size:
        return np.empty(head.shape, head.dtype)
    array: NDArray[Any] = data.view(head.dtype).reshape(head.shape)
    return array
