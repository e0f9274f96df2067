"""Native code on disk, by content.

The name of a file is the digest of everything that its code depends on: the program, this compiler's sources,
llvmlite and the processor. So nothing is ever stale, and the directory may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from .entries import EmulatorError

_HERE: Final = Path(__file__).parent
_DIGEST_BYTES: Final = 32
_SOURCES: Final = ("abi.py", "bmv2", "cache.py", "compiler", "tables/rows.py")


class CacheError(EmulatorError):
    """The directory of the cache cannot be used."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"{path} cannot hold compiled programs: {error.strerror}; set WEIR_CACHE to a directory that can be written"
        )


def directory() -> Path:
    """`$WEIR_CACHE`, or `weir` in the user's cache directory."""
    chosen = os.environ.get("WEIR_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "weir"


@cache
def _environment() -> bytes:
    """Digest of what the code depends on besides the program."""
    digest = hashlib.sha256(f"{version('llvmlite')} {platform.machine()} {_processor()}".encode())
    for name in _SOURCES:
        path = _HERE / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.digest()


def _processor() -> str:
    """The processor's model and features, where the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor()
    return "|".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def key_of(program: bytes) -> str:
    """The digest under which a program's native code is kept."""
    return hashlib.sha256(_environment() + program).hexdigest()


def fetch(key: str, suffix: str = "o") -> bytes | None:
    """What is kept under `key`; None if there is nothing, or if the file is damaged (LLVM would crash on it).

    Raises `CacheError`.
    """
    path = directory() / f"{key}.{suffix}"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CacheError(path.parent, error) from None
    digest, kept = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return kept if hashlib.sha256(kept).digest() == digest else None


def keep(key: str, content: bytes, suffix: str = "o") -> None:
    """Store object code, or what `suffix` says; another process that reads meanwhile sees all of it or nothing.

    Raises `CacheError`.
    """
    target = directory()
    try:
        target.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(name, target / f"{key}.{suffix}")
    except OSError as error:
        raise CacheError(target, error) from None
