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

_HERE: Final = Path(__file__).parent
_DIGEST_BYTES: Final = 32
_SOURCES: Final = ("abi.py", "bmv2json.py", "bmv2names.py", "bmv2reader.py", "cache.py", "compiler", "tables/rows.py")


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


def fetch(key: str) -> bytes | None:
    """The object code kept under `key`; None if there is none, or if the file is damaged (LLVM would crash on it)."""
    try:
        content = (directory() / f"{key}.o").read_bytes()
    except FileNotFoundError:
        return None
    digest, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def keep(key: str, code: bytes) -> None:
    """Store object code; another process that reads meanwhile sees all of it or nothing."""
    target = directory()
    target.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target, suffix=".tmp")
    with os.fdopen(handle, "wb") as file:
        file.write(hashlib.sha256(code).digest() + code)
    os.replace(name, target / f"{key}.o")
