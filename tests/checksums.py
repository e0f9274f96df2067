"""Checksums and hashes in plain Python, which switches and interpreters of tests are held to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import xor


def words(data: bytes) -> Iterator[int]:
    """Words of 16 bits, the last one filled up with zeros."""
    data += bytes(len(data) % 2)
    return (int.from_bytes(data[index : index + 2], "big") for index in range(0, len(data), 2))


def internet_checksum(data: bytes) -> int:
    """RFC 1071."""
    total = sum(words(data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ total


def xor16(data: bytes) -> int:
    return reduce(xor, words(data), 0)


def crc16(data: bytes) -> int:
    """CRC-16/ARC, bit by bit: x¹⁶ + x¹⁵ + x² + 1, reflected, from 0."""
    crc = 0
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc
