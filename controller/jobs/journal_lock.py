"""Exclusive use of a journal: one process at a time, acquired before any message to a switch.

The lock is the kernel's, on a file that is never replaced, and names its owner's process. It ends only with that
process: a controller that hangs keeps it, since it may continue at any moment with its old state. So a successor must
first end the process that hangs.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from ..own_files import open_own
from .journal_file import JournalError

_FLOCK: Final = "@hhlli"
"""struct flock: type, whence, start, length, process."""
_GRACE_S: Final = 5.0
"""A process that was asked to end is ended by force after this."""


class JournalLock:
    """The lock of one journal; a context manager, which lets go of it. One per process: the kernel's locks are."""

    def __init__(self, journal: Path) -> None:
        """Raises JournalError for a folder that cannot be written."""
        self.path = journal.with_name(f"{journal.name}.lock")
        try:
            self._file = open_own(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise JournalError(
                f"journal {journal}: {self.path}: {error.strerror}; name a file in a folder that can be written"
            ) from None

    def __enter__(self) -> JournalLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def acquire(self) -> bool:
        """Try to acquire the lock; return True if this process has it now."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    @property
    def holder(self) -> int | None:
        """Process id of another owner; None if there is none."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else int(process)

    def end_holder(self, grace_s: float = _GRACE_S) -> None:
        """End the process that has it: SIGTERM, and SIGKILL where it does not heed that, as one that was stopped. The
        next to `acquire` has the lock. Raises JournalError for a process that cannot be ended from here.
        """
        if (process := self.holder) is None:
            return
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            return
        except OSError as error:
            raise self._cannot_end(process, error) from None
        try:
            if self.holder != process:  # its number may be another's by now
                return
            for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, grace_s)):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
                if select.select([handle], [], [], wait_s)[0]:
                    return
        except OSError as error:
            raise self._cannot_end(process, error) from None
        finally:
            os.close(handle)

    def _cannot_end(self, process: int, error: OSError) -> JournalError:
        return JournalError(f"{self.path}: process {process} has it and cannot be ended: {error.strerror}")
