"""Entry point of the `weir` command. It needs only the bare installation; each command names the extra it lacks."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Final, NoReturn

from .. import __version__
from ..experiments.errors import Interrupted
from ..imports.extras import MissingExtra, explained

_EXTRAS: Final = {
    "controller": "controller",
    "jobs": "controller",
    "topology": "controller",
    "ptf": "emulator",
    "stf": "emulator",
    "place": "controller",
    "schema": "controller",
    "telemetry": "live",
}
"""Extra to install for a single command; the others need the extra `runs`."""

_NO_THREAD: Final = "can't start new thread"
_USAGE: Final = 2
_INTERRUPTED: Final = 130


def main() -> NoReturn:
    """Run the command. Errors that a user can fix go to stderr, with exit status 2 and without a traceback."""
    # before grpc is imported: it would report every closed stream, and every address that cannot be had
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.getLogger("finsy").setLevel(logging.ERROR)
    words = sys.argv[1:]
    threading.excepthook = _end_with_a_thread
    try:
        _run(words)
    except Exception as error:
        told = _with_the_way_to_install(error, words) if isinstance(error, ImportError) else error
        if not isinstance(told, (MissingExtra, *_users_errors())):
            raise
        sys.stderr.write(f"weir: {told}\n")
        sys.exit(_INTERRUPTED if isinstance(error, Interrupted) else _USAGE)
    sys.exit(0)


def _end_with_a_thread(lost: threading.ExceptHookArgs) -> None:
    """End the process if one of its threads died for lack of threads, memory or descriptors.

    Code that waits for that thread would wait for ever.
    """
    error = lost.exc_value
    if isinstance(error, MemoryError) or _NO_THREAD in str(error) or getattr(error, "errno", None) == errno.EMFILE:
        name = "a thread" if lost.thread is None else f"the thread {lost.thread.name}"
        sys.stderr.write(f"weir: {name} has ended: {error or 'no memory'}; this process cannot go on\n")
        sys.stderr.flush()
        os._exit(_USAGE)
    threading.__excepthook__(lost)


def _run(words: Sequence[str]) -> None:
    try:
        from .app import app
    except ModuleNotFoundError:  # typer or rich
        match words:
            case ["--version"]:
                sys.stdout.write(f"weir {__version__}\n")
            case ["doctor"] | ["doctor", "--json"]:
                from .doctor import report

                sys.exit(0 if report(as_json="--json" in words) else 1)
            case _:
                raise
    else:
        app(standalone_mode=True)


def _with_the_way_to_install(error: ImportError, words: Sequence[str]) -> ImportError:
    command = next((word for word in words if not word.startswith("-")), None)
    return explained(error, f"weir {command}" if command else "the weir command", _EXTRAS.get(command or "", "runs"))


def _users_errors() -> tuple[type[Exception], ...]:
    """The roots of the packages' errors."""
    from ..controller.errors import ControllerError
    from ..emulator.entries import EmulatorError
    from ..experiments.errors import ExperimentError
    from ..hosts.errors import HostError
    from ..topologies.errors import TopologyError

    return ExperimentError, TopologyError, ControllerError, EmulatorError, HostError
