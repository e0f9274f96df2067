"""Native code on disk, by content.

The name of a file is the digest of everything that its code depends on: its sources, llvmlite and the processor. So no
file is ever stale, and the directory may be deleted at any time. A file that other users could have written is not
loaded; the code is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_DIGEST_BYTES: Final = 32
_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_SOURCES: Final = ("cache.py", "link.py")


def directory() -> Path:
    """Return `$WEIR_CACHE`, or `weir` in the user's cache directory."""
    chosen = os.environ.get("WEIR_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "weir"


@cache
def _environment() -> bytes:
    """Digest of what the code depends on besides its sources."""
    digest = hashlib.sha256(f"{version('llvmlite')} {platform.machine()} {_processor()}".encode())
    for name in _SOURCES:
        digest.update(name.encode() + b"\0" + (_HERE / name).read_bytes())
    return digest.digest()


def _processor() -> str:
    """The processor's model and features, where the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor()
    return "|".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def key_of(sources: bytes) -> str:
    """Return the digest under which the native code of these sources, or of their digest, is kept."""
    return hashlib.sha256(_environment() + sources).hexdigest()


def fetch(key: str, suffix: str = "o") -> bytes | None:
    """Return the content stored under `key`; None if there is none, or if it cannot be trusted.

    The content is run as machine code. It must therefore belong to this user or root, lie in a folder that no other
    user may write to, and be whole: LLVM would crash on damaged code.
    """
    for folder in _folders():
        content = _read(folder / f"{key}.{suffix}")
        if content is not None:
            digest, kept = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if _digest(key, kept) == digest:
                return kept
    return None


def keep(key: str, content: bytes, suffix: str = "o") -> None:
    """Store object code, or the kind that `suffix` names. A concurrent reader sees all of it or nothing.

    If it cannot be stored, one line on standard error reports it, once per process.
    """
    for target in _folders():
        name = ""
        try:
            handle, name = tempfile.mkstemp(dir=target, suffix=".tmp")
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, content) + content)
            os.replace(name, target / f"{key}.{suffix}")
        except OSError as error:
            if name:
                Path(name).unlink(missing_ok=True)
            _warn(target, error.strerror or str(error))
        else:
            return


def _digest(key: str, content: bytes) -> bytes:
    """Digest of a file's content and of the name that it must have."""
    return hashlib.sha256(key.encode() + content).digest()


def _folders() -> list[Path]:
    """Folders to search: the chosen directory, and this user's own in the folder for temporary files.

    Untrusted folders are left out.
    """
    usable = []
    for folder in (directory(), Path(tempfile.gettempdir()) / f"weir-cache-{os.geteuid()}"):
        reason = _make_folder(str(folder))
        if reason is None:
            usable.append(folder)
        elif not usable:
            _warn(folder, reason)
    return usable


@cache
def _make_folder(path: str) -> str | None:
    """Create a folder that only its owner may write to; return the reason if an existing one cannot be trusted."""
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (reason := _distrust_owner(folder.lstat())) is not None:  # of a link, whose target is left alone
            return reason
        status = folder.stat()
        if status.st_uid == os.geteuid() and status.st_mode & _BY_OTHERS and not status.st_mode & stat.S_ISVTX:
            folder.chmod(stat.S_IMODE(status.st_mode) & ~_BY_OTHERS)
        for place in (folder, *folder.resolve().parents):
            reason = _distrust(place.stat())
            if reason is not None:
                return reason if place == folder else f"{place} {reason}"
    except OSError as error:
        return error.strerror or str(error)
    return None


def _distrust(status: os.stat_result) -> str | None:
    """Return the reason why other users (root apart) may change a file or folder; None if they may not."""
    if (reason := _distrust_owner(status)) is not None:
        return reason
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # there each may change his own files alone
    if status.st_mode & _BY_OTHERS and not sticky:
        return "can be written to by other users"
    return None


def _distrust_owner(status: os.stat_result) -> str | None:
    """Return the reason if a file, folder or link belongs to neither this user nor root."""
    return None if status.st_uid in (os.geteuid(), 0) else f"belongs to the user {status.st_uid}"


def _read(path: Path) -> bytes | None:
    """Return a file's content; None if there is no file, or if other users may have written it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(path, error.strerror or str(error))
        return None
    with os.fdopen(handle, "rb") as file:
        reason = _distrust(os.fstat(handle))
        if reason is not None:
            _warn(path, reason)
            return None
        return file.read()


@cache
def _warn(path: Path, reason: str) -> None:
    """Say once in a process what is not used."""
    sys.stderr.write(
        f"weir: {path} is not used for compiled programs: {reason}; set WEIR_CACHE to a directory of your own\n"
    )
