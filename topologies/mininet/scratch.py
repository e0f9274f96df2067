"""Temporary folders that are removed at their maker's end or, if it was killed, when the next one starts.

The maker holds the kernel's lock on a file in the folder, which ends with its process. A folder whose lock file is not
locked therefore belongs to a dead process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

_LOCK: Final = ".alive"


@contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Context with a new folder, which is removed at the end unless it was moved.

    Folders with the same prefix that dead processes left are removed first.

    Args:
        prefix: Start of the folder's name.
        parent: Folder to make it in; None: the system's folder for temporary files.
    """
    parent = parent or Path(tempfile.gettempdir())
    _remove_dead(parent, prefix)
    while (made := _locked_folder(parent, prefix)) is None:
        pass
    folder, lock = made
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def keep_as(folder: Path, kept: Path) -> None:
    """Give a complete scratch folder a name under which it stays. Raises OSError."""
    (folder / _LOCK).unlink(missing_ok=True)
    folder.chmod(0o755)
    folder.rename(kept)


def _locked_folder(parent: Path, prefix: str) -> tuple[Path, int] | None:
    """A new folder and the lock on it; None where another maker took it for a dead one's before it was locked."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    fcntl.flock(lock, fcntl.LOCK_EX)
    if (folder / _LOCK).exists():
        return folder, lock
    os.close(lock)
    return None


def _remove_dead(parent: Path, prefix: str) -> None:
    """Remove this user's folders whose maker is dead. Nothing of another user's is opened, and no link is followed."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError), ExitStack() as stack:
            if folder.lstat().st_uid != os.geteuid():
                continue
            inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, inside)
            if os.fstat(inside).st_uid != os.geteuid():
                continue
            lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
            stack.callback(os.close, lock)
            status = os.fstat(lock)
            if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
