"""The journal: state that must survive the controller, as lines on disk.

A line is one change: `SEQUENCE LENGTH CRC {"KIND":{KEY:VALUE or null}}`, where null removes a key. Lines are numbered
from 1, LENGTH is the JSON's in bytes and CRC is CRC-32 (zlib's) of the rest of the line, so a line that was changed,
lost, doubled or moved is found. `put` returns once the line is on the disk itself. A last line torn by a crash is
ignored, since its `put` never returned; any other damage is an error. When most lines are obsolete the file is
rewritten under another name and then renamed, so a whole journal exists at any moment.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import stat
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ..errors import ControllerError
from ..own_files import open_own

_log = logging.getLogger(__name__)

_SPARE_LINES: Final = 256
"""Minimum number of obsolete lines before the file is rewritten; they must also outnumber the valid ones."""

_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND
_LOCK: Final = fcntl.LOCK_EX | fcntl.LOCK_NB

_LINE: Final = re.compile(rb"([1-9][0-9]{0,18}) ([1-9][0-9]{0,9}) ([0-9a-f]{8}) (.*)", re.DOTALL)


class JournalError(ControllerError):
    """A journal that cannot be read or written."""


class JournalInUse(JournalError):
    """Another controller has the journal."""


class JournalFile:
    """One controller's journal; a context manager. Only its owner may read it, for it may hold secrets."""

    def __init__(self, path: Path) -> None:
        """Reads it, or begins a new one. Raises JournalError when another process has it, or when it is damaged."""
        self.path = path
        self._kinds: dict[str, dict[str, Any]] = {}
        self._lines: int
        self._rewrite_at = 0
        """Number of lines below which the file is not rewritten: above its length at the last failed attempt."""
        try:
            self._file = open_own(path, _OPEN)
        except OSError as error:
            raise JournalError(
                f"{error.strerror}; name a file in a folder that can be written",
                place=f"journal {path}",
                value=error.errno,
            ) from None
        try:
            fcntl.flock(self._file, _LOCK)
            self._close_to_others()
            self._read()
        except BlockingIOError:
            os.close(self._file)
            raise JournalInUse(
                "another controller has it; give each its own, or stop that one", place=f"journal {path}"
            ) from None
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> JournalFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release its lock."""
        os.close(self._file)

    def all(self, kind: str) -> Mapping[str, Any]:
        """Return everything of a kind that is in force, by key."""
        return dict(self._kinds.get(kind, {}))

    def put(self, kind: str, key: str, value: Any) -> None:
        """Put a value (JSON) in force, or take the key away with None. Does nothing where nothing changes."""
        held = self._kinds.setdefault(kind, {})
        if value == held.get(key):
            return
        self._write(self._file, change_line(self._lines + 1, kind, key, value))
        self._lines += 1
        _set(held, key, value)
        live = sum(map(len, self._kinds.values()))
        if self._lines > max(2 * live + _SPARE_LINES, self._rewrite_at):
            self._compact()

    def _close_to_others(self) -> None:
        """It holds tokens: a file that others may read is made its owner's alone."""
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):
            raise JournalError(
                "no regular file; name one, or a new one", place=f"journal {self.path}", value=status.st_mode
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            try:
                os.fchmod(self._file, 0o600)
            except OSError:
                raise JournalError(
                    f"journal {self.path}: others may read it (mode {stat.S_IMODE(status.st_mode):o}), and it is not "
                    "ours to change; it holds tokens, so its mode must be 600"
                ) from None

    def _read(self) -> None:
        data = self.path.read_bytes()
        changes, whole = read_changes(data, str(self.path))
        for kind, key, value in changes:
            _set(self._kinds.setdefault(kind, {}), key, value)
        self._lines = len(changes)
        if whole < len(data):
            os.ftruncate(self._file, whole)

    def _compact(self) -> None:
        """Rewrite the file. On failure the old one stays in force, and must grow before the next try."""
        held = [(kind, key, value) for kind, of_kind in self._kinds.items() for key, value in of_kind.items()]
        lines = [change_line(number, *change) for number, change in enumerate(held, 1)]
        beside = self.path.with_name(f"{self.path.name}.new")
        new: int | None = None
        try:
            beside.unlink(missing_ok=True)  # left by a crash, or another user's
            new = os.open(beside, _OPEN | os.O_EXCL, 0o600)
            fcntl.flock(new, _LOCK)
            self._write(new, b"".join(lines))
            beside.replace(self.path)
        except (OSError, JournalError) as error:
            if new is not None:
                os.close(new)
            self._rewrite_at = 2 * self._lines
            _log.warning("journal %s: cannot be written anew as %s (%s); it grows meanwhile", self.path, beside, error)
            return
        os.close(self._file)
        self._file, self._lines, self._rewrite_at = new, len(lines), 0
        self._sync_folder()

    def _sync_folder(self) -> None:
        """So that the file's new name outlives a power cut; not all file systems can."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            _log.warning("journal %s: its folder cannot be synced (%s)", self.path, error.strerror)

    def _write(self, file: int, data: bytes) -> None:
        """All of it or nothing: half a line would be damage once another one follows."""
        size = os.fstat(file).st_size
        try:
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(file, size)
            raise JournalError(str(error.strerror), place=f"journal {self.path}", value=error.errno) from None


def read_changes(data: bytes, where: str) -> tuple[list[tuple[str, str, Any]], int]:
    """Return kind, key and value of each line of a journal, and the number of bytes of its whole lines.

    Raises:
        JournalError: With `where` in front, for any damage except a torn last line.
    """
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].split(b"\n")[:-1]
    changes = [_change(number, line, where) for number, line in enumerate(lines, 1)]
    torn = _LINE.fullmatch(data[whole:])
    if torn and len(torn[4]) > int(torn[2]):
        raise _damaged(where, len(lines) + 1, data[whole:])
    return changes, whole


def change_line(number: int, kind: str, key: str, value: Any) -> bytes:
    """Return the line of one change: number, length, CRC-32 and JSON, with its newline.

    Args:
        number: Number of the line in the file, from 1.
        kind: Kind of the changed record.
        key: Key of the record within its kind.
        value: New value, which JSON can represent.
    """
    content = json.dumps({kind: {key: value}}, separators=(",", ":"), ensure_ascii=False).encode()
    return b"%d %d %08x %s\n" % (number, len(content), _crc(number, content), content)


def _crc(number: int, content: bytes) -> int:
    return zlib.crc32(b"%d %d %s" % (number, len(content), content))


def _change(number: int, line: bytes, where: str) -> tuple[str, str, Any]:
    """Kind, key and value of a line. Raises JournalError."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise _damaged(where, number, line)
    content = match[4]
    sound = (number, len(content), _crc(number, content)) == (int(match[1]), int(match[2]), int(match[3], 16))
    try:
        if not sound:
            raise ValueError
        ((kind, change),) = json.loads(content).items()
        ((key, value),) = change.items()
    except (ValueError, AttributeError):
        raise _damaged(where, number, line) from None
    return kind, key, value


def _damaged(where: str, number: int, line: bytes) -> JournalError:
    return JournalError(
        f"{line[:60]!r} is damaged; remove the file to begin without any job (an old copy would lack rounds that "
        "switches may still hold)",
        place=f"journal {where}: line {number}",
        value=line,
    )


def _set(held: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        held.pop(key, None)
    else:
        held[key] = value
