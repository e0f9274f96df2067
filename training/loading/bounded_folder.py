"""A folder of files with a bound on their bytes, which processes of one host fill together.

::

    missing ─▶ lock of the key ─▶ made by one process into a temporary file ─▶ renamed: whole, or not there
                                  └─ no room left: handed to the caller, and not stored

The kernel releases the locks of a process that ends, however it does. Nothing is evicted: an epoch reads each sample
once, in random order, so what was stored first is as good as anything else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..errors import TrainingError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_LOCKS: Final = 64
_TOTAL: Final = struct.Struct("=Q")
_OWN: Final = ".weir"
"""Subfolder with locks, the total and files that are being made."""


class DiskFull(Exception):
    """The file system has no room, whatever the bound of the folder is."""


@contextmanager
def writing() -> Iterator[None]:
    """Raise DiskFull in place of an error of a full file system or an exhausted quota."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull from error
        raise


class BoundedFolder:
    """Files by relative name. All processes that share a folder give it the same bound."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Open a folder, or make it.

        Args:
            folder: Path, for this user alone.
            limit_bytes: Maximum bytes of all its files together, at least 1.

        Raises:
            TrainingError: The bound is below 1, or the folder cannot be made, is another user's link or folder, or
                can be written to by all users.
        """
        if not limit_bytes >= 1:
            raise TrainingError(
                f"limit of {folder}: {limit_bytes} bytes, must be ≥ 1", place="cache", value=limit_bytes
            )
        self.folder = folder.absolute()
        self._limit = limit_bytes
        self._own = self.folder / _OWN
        with self._locked("start"):
            for left_over in self._own.glob("made-*"):
                self._remove_if_left(left_over)

    @property
    def used_bytes(self) -> int:
        """Bytes of all files, of all processes."""
        try:
            return int(_TOTAL.unpack((self._own / "total").read_bytes())[0])
        except (OSError, struct.error):
            return 0

    def has_room(self, size: int) -> bool:
        """Return True if a file of so many bytes fits now."""
        return self.used_bytes + size <= self._limit

    def find(self, name: str) -> Path | None:
        """Return the path of a stored file; None if it is not stored.

        Raises:
            TrainingError: The name leads out of the folder.
        """
        path = self._path(name)
        return path if self._is_stored(path) else None

    def fill(self, name: str, make: Callable[[Path], None]) -> tuple[Path | None, bool]:
        """Have a file made by one process while others wait for it.

        Args:
            name: Name of the file.
            make: Writes the file to a path, within `writing`.

        Returns:
            The path, or None where the folder or its file system has no room; and True if this call made it.

        Raises:
            TrainingError: The name leads out of the folder. Whatever `make` raises passes through, and nothing is
                stored.
        """
        path = self._path(name)
        try:
            return self._filled(name, path, make)
        except DiskFull:
            return None, True

    def _filled(self, name: str, path: Path, make: Callable[[Path], None]) -> tuple[Path | None, bool]:
        with self._locked(str(zlib.crc32(name.encode()) % _LOCKS)):
            if self._is_stored(path):
                return path, False
            with writing():
                handle, made_at = tempfile.mkstemp(prefix=f"made-{os.getpid()}-", dir=self._own)
            os.close(handle)
            made = Path(made_at)
            try:
                make(made)
                size = made.stat().st_size
                if not self._reserve(size):
                    return None, True
                try:
                    with writing():
                        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                        made.replace(path)
                except DiskFull:
                    self._reserve(-size)
                    raise
                except OSError as error:
                    self._reserve(-size)
                    raise TrainingError(f"{path}: cannot be stored ({error.strerror})", place="cache") from None
                return path, True
            finally:
                made.unlink(missing_ok=True)

    def _reserve(self, size: int) -> bool:
        """Count bytes, if there is room for them."""
        with self._locked("total"):
            total = self.used_bytes + size
            if total > self._limit:
                return False
            part = self._own / "total.part"
            with writing():
                part.write_bytes(_TOTAL.pack(total))
                part.replace(self._own / "total")
            return True

    @staticmethod
    def _is_stored(path: Path) -> bool:
        """Return whether there is a file of this user. Another user may have made the folder after it was removed."""
        try:
            status = path.lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()

    def _make(self) -> None:
        """Make the folder, or check the one that is there."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.stat()
            for owner in (status.st_uid, self.folder.lstat().st_uid):  # of the folder, and of a link to it
                if owner != os.getuid():
                    raise TrainingError(f"{self.folder}: belongs to another user ({owner})", place="cache", value=owner)
            if by_others := status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise TrainingError(
                    f"{self.folder}: other users can write to it (mode {stat.S_IMODE(status.st_mode):o}); "
                    "a cache must be writable by its owner alone, as after chmod go-w",
                    place="cache",
                    value=by_others,
                )
            self._own.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise TrainingError(f"{self.folder}: cannot be a cache ({error.strerror})", place="cache") from None

    def _path(self, name: str) -> Path:
        inside = Path(os.path.normpath(name)) if isinstance(name, str) and "\0" not in name else Path("..")
        if inside.is_absolute() or inside.parts[:1] in ((), ("..",), (_OWN,)):
            raise TrainingError(f"sample {name!r} is not below its folder", place="cache", value=name)
        return self.folder / inside

    @staticmethod
    def _remove_if_left(made: Path) -> None:
        """Remove a file that a process left behind which has ended."""
        process = made.name.split("-")[1]
        if not Path("/proc", process).exists():
            made.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self._make()  # another process may have removed the folder
        with (self._own / f"lock-{name}").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
