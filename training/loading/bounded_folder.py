"""A folder of files with a bound on their bytes, which processes of one host fill together.

::

    missing ─▶ lock of the key ─▶ made by one process into a temporary file ─▶ renamed: whole, or not there
                                  └─ no room left: handed to the caller, and not stored

The kernel releases the locks of a process that ends, however it does. Nothing is evicted: an epoch reads each sample
once, in random order, so what was stored first is as good as anything else.
"""

from __future__ import annotations

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

_LOCKS: Final = 64
_TOTAL: Final = struct.Struct("=Q")
_OWN: Final = ".weir"
"""Subfolder with locks, the total and files that are being made."""


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
        if limit_bytes < 1:
            raise TrainingError(
                f"limit of {folder}: {limit_bytes} bytes, must be ≥ 1", place="cache", value=limit_bytes
            )
        self.folder = folder
        self._limit = limit_bytes
        self._own = folder / _OWN
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
            make: Writes the file to a path.

        Returns:
            The path, or None where the folder has no room; and True if this call made it.

        Raises:
            TrainingError: The name leads out of the folder. Whatever `make` raises passes through, and nothing is
                stored.
        """
        path = self._path(name)
        with self._locked(str(zlib.crc32(name.encode()) % _LOCKS)):
            if self._is_stored(path):
                return path, False
            handle, made_at = tempfile.mkstemp(prefix=f"made-{os.getpid()}-", dir=self._own)
            os.close(handle)
            made = Path(made_at)
            try:
                make(made)
                size = made.stat().st_size
                if not self._reserve(size):
                    return None, True
                try:
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    made.replace(path)
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
            part.write_bytes(_TOTAL.pack(total))
            part.replace(self._own / "total")
            return True

    @staticmethod
    def _is_stored(path: Path) -> bool:
        """Return whether there is a file of this user. Another user may have made the folder after it was removed."""
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
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
        path = Path(os.path.normpath(self.folder / name))
        if not path.is_relative_to(self.folder) or path.is_relative_to(self._own) or path == self.folder:
            raise TrainingError(f'sample "{name}" is not below its folder', place="cache", value=name)
        return path

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
