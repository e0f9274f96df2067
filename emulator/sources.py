"""Files on which a program's native code depends."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_COMPILER: Final = ("abi.py", "bmv2", "compiler", "tables/rows.py")


def compiler_sources() -> list[Path]:
    """Return the files that turn a program into native code, and those of the records that it shares with others."""
    places = [_HERE / name for name in _COMPILER]
    return [file for place in places for file in (sorted(place.glob("*.py")) if place.is_dir() else [place])]


@cache
def compiler_digest() -> bytes:
    """Return the digest of the compiler's sources."""
    digest = sha256()
    for file in compiler_sources():
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.digest()
