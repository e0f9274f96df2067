"""P4Runtime's byte strings: integers of any width as the shortest big-endian bytes (specification, "Bytestrings").

A server accepts leading zeros (or sign bytes) of any number, refuses the empty string and values that do not fit the
type, and answers in the canonical, shortest form.
"""

from __future__ import annotations

from .refusal import Refusal, invalid


def decode(data: bytes, width: int, label: str) -> int:
    """Return the value of a `bit<width>` byte string. `label` names the field in the refusal's message."""
    value = int.from_bytes(data, "big")
    if value >> width or not data:
        raise refuse(data, width, label)
    return value


def encode(value: int) -> bytes:
    """Return the canonical byte string of an unsigned integer."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def decode_signed(data: bytes, width: int, label: str) -> int:
    """Return the value of an `int<width>` byte string (two's complement)."""
    value = int.from_bytes(data, "big", signed=True)
    if not data or not -(1 << (width - 1)) <= value < 1 << (width - 1):
        raise refuse(data, width, label, "int")
    return value


def encode_signed(value: int) -> bytes:
    """Return the canonical byte string of a signed integer."""
    bits = (value if value >= 0 else ~value).bit_length() + 1
    return value.to_bytes((bits + 7) // 8, "big", signed=True)


def refuse(data: bytes, width: int, label: str, kind: str = "bit") -> Refusal:
    """Return the refusal of a byte string that is no value of its type.

    Args:
        data: The byte string.
        width: Width of the type in bits.
        label: Name of the value, for the message.
        kind: Type in P4, "bit" or "int".
    """
    if not data:
        return invalid(f"{label}: the byte string is empty; zero is written \\x00")
    return invalid(f"{label}: value 0x{data[:64].hex()} does not fit {kind}<{width}>")
