"""Which processes run on this machine, for tests of what is to end with another one."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_END_S: Final = 20.0


def running_with(mark: str) -> list[str]:
    """The command lines that have this word, once there are none any more, or after 20 s."""
    deadline = time.monotonic() + _END_S
    while (found := _found(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _found(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            found += [b" ".join(words).decode()] if mark.encode() in words else []
    return found
