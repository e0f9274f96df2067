"""The `weir` command within the test's process: a process of its own takes seconds of processor time to start."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from weir.cli.console import NOTES
from weir.cli.main import main

WEIR: Final = Path(sys.executable).with_name("weir")
"""The installed command, for tests of a process: its signals, its imports, or its environment."""


class Ended(NamedTuple):
    """A command's end."""

    status: int
    out: str
    err: str


def weir(*words: object, folder: Path | None = None) -> Ended:
    """Run `weir` with these words, in a folder if one is given; not a terminal, whose tables have 80 columns."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("GRPC_VERBOSITY", "NONE")  # main() sets this and the next two for the whole process
        patch.setattr(threading, "excepthook", threading.excepthook)
        patch.setattr(NOTES, "quiet", NOTES.quiet)
        patch.setattr(sys, "argv", ["weir", *map(str, words)])
        if folder is not None:
            patch.chdir(folder)
        with pytest.raises(SystemExit) as ended:
            main()
    code = ended.value.code
    return Ended(code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue())


async def weir_beside(*words: object) -> Ended:
    """Run `weir` in a thread, while this event loop serves what the command talks to."""
    return await asyncio.to_thread(weir, *words)
