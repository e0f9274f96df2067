"""Modes that unix sockets have from the first moment, before a program sets them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch


@contextmanager
def first_modes() -> Iterator[list[int]]:
    """Set a umask that takes no right away; yield the modes that files have when `os.chmod` is called for them.

    The umask must be the same at the end.
    """
    modes: list[int] = []
    chmod = os.chmod

    def noted(path: str | Path, mode: int) -> None:
        modes.append(stat.S_IMODE(os.stat(path).st_mode))
        chmod(path, mode)

    umask = os.umask(0)
    try:
        with patch("os.chmod", noted):
            yield modes
    finally:
        assert os.umask(umask) == 0
