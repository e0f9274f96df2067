"""The journal: what a controller must still know after it has died, as JSON lines on disk.

A line is one change, {"KIND": {KEY: VALUE or null}}; null takes a key away. `put` returns once the line is on the disk
itself. A last line that was torn by a crash is left out; any other damage is an error. When most lines are out of
date the file is written anew beside the old one and put in its place, so there is a whole journal at any moment.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ..errors import ControllerError

_SPARE_LINES: Final = 256
"""So many lines may be out of date before the file is written anew, and as many as are in force."""


class JournalError(ControllerError):
    """A journal that cannot be read, written or had."""


class JournalFile:
    """One controller's journal; a context manager. Only its owner may read it, for it may hold secrets."""

    def __init__(self, path: Path) -> None:
        """Reads it, or begins a new one. Raises JournalError when another process has it, or when it is damaged."""
        self.path = path
        self._kinds: dict[str, dict[str, Any]] = {}
        self._lines = 0
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(
                f"journal {path}: {error.strerror}; name a file in a folder that can be written"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError:
            os.close(self._file)
            raise JournalError(
                f"journal {path}: another controller has it; give each its own, or stop that one"
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
        os.close(self._file)

    def all(self, kind: str) -> Mapping[str, Any]:
        """Everything of a kind that is in force, by key."""
        return dict(self._kinds.get(kind, {}))

    def put(self, kind: str, key: str, value: Any) -> None:
        """Put a value (JSON) in force, or take the key away with None. Does nothing where nothing changes."""
        held = self._kinds.setdefault(kind, {})
        if value == held.get(key):
            return
        self._write(self._file, _line(kind, key, value))
        self._lines += 1
        _set(held, key, value)
        live = sum(map(len, self._kinds.values()))
        if self._lines > 2 * live + _SPARE_LINES:
            self._compact()

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                ((kind, change),) = json.loads(line).items()
                ((key, value),) = change.items()
            except (ValueError, AttributeError):
                raise JournalError(
                    f"journal {self.path}: line {number} is damaged: {line[:60]!r}; put a copy in its place, or remove "
                    "the file to begin without any job"
                ) from None
            _set(self._kinds.setdefault(kind, {}), key, value)
            self._lines += 1
        if whole < len(data):
            os.ftruncate(self._file, whole)

    def _compact(self) -> None:
        lines = [_line(kind, key, value) for kind, held in self._kinds.items() for key, value in held.items()]
        beside = self.path.with_name(f"{self.path.name}.new")
        new = -1
        try:
            new = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(new, b"".join(lines))
            beside.replace(self.path)
        except (OSError, JournalError) as error:  # the old one stays in force
            if new >= 0:
                os.close(new)
            raise JournalError(f"journal {self.path}: cannot be written anew as {beside}: {error}") from None
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        os.close(self._file)
        self._file, self._lines = new, len(lines)

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
            raise JournalError(f"journal {self.path}: {error.strerror}") from None


def _line(kind: str, key: str, value: Any) -> bytes:
    return json.dumps({kind: {key: value}}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _set(held: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        held.pop(key, None)
    else:
        held[key] = value
