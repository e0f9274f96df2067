"""Damage to packets, from a seed."""

from __future__ import annotations

import random


def mutate(rng: random.Random, frame: bytes, rate: float = 0.2) -> bytes:
    """With probability `rate` the frame cut short, with bits flipped, or with bytes after it; never empty."""
    if rng.random() >= rate:
        return frame
    match rng.randrange(3):
        case 0:
            return frame[: rng.randrange(1, len(frame) + 1)]
        case 1:
            damaged = bytearray(frame)
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            return bytes(damaged)
        case _:
            return frame + rng.randbytes(rng.randrange(1, 40))


def internet_checksum(data: bytes) -> bytes:
    """RFC 1071, over an even number of bytes."""
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (0xFFFF - total).to_bytes(2, "big")
