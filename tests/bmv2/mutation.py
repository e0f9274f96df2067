"""Damage to packets, from a seed."""

from __future__ import annotations

import random


def mutate(rng: random.Random, frame: bytes, rate: float = 0.2) -> bytes:
    """Cut the frame short, flip bits or append bytes, with probability `rate`; the result is never empty."""
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
