"""Processes on this machine, for tests of processes that end with another one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

_END_S: Final = 60.0


def processes_with(mark: str) -> list[str]:
    """Command lines of the processes that have inherited an environment with `mark` in it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended meanwhile
            continue
    return found


def left_with(mark: str) -> list[str]:
    """Processes with the mark, once there are none any more, or after a minute."""
    deadline = time.monotonic() + _END_S
    while (found := processes_with(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for this signal."""
    words = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(words.get("SigCgt", "0"), 16) >> (number - 1) & 1)


def tcp_listeners(pid: int) -> set[str]:
    """Inodes of a process's TCP sockets that listen, as /proc has them."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(descriptor))
        except OSError:  # closed meanwhile
            continue
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {f"socket:[{words[9]}]" for words in lines if words[3] == "0A"} & own
