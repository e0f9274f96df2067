"""Entry point of the `weir` command. It needs only the bare installation; each command names the extra it lacks."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NoReturn

from ..experiments.errors import Interrupted
from ..imports import user_files
from ..imports.extras import MissingExtra, explained

_EXTRAS: Final = {
    "controller": "controller",
    "jobs": "controller",
    "model": "controller",
    "infer": "controller",
    "topology": "controller",
    "ptf": "emulator",
    "stf": "emulator",
    "strategies": "controller",
    "place": "controller",
    "schema": "controller",
    "telemetry": "live",
}
"""Extra to install for a single command; the others need the extra `runs`."""

_GLOBAL: Final = frozenset({"-q", "--quiet", "-v", "--verbose"})
_HANDS_ON: Final = frozenset({"launch", "torchrun", "ptf", "mininet"})
_NO_THREAD: Final = "can't start new thread"
_USAGE: Final = 2
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of an output that takes no more."""
_INTERRUPTED: Final = 130


def main() -> NoReturn:
    """Run the command. Errors that a user can fix go to stderr, with exit status 2 and without a traceback."""
    # before grpc is imported: it would report every closed stream, and every address that cannot be had
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.getLogger("finsy").setLevel(logging.ERROR)
    words = sys.argv[1:]
    threading.excepthook = _end_with_a_thread
    try:
        try:
            _run(words)
        finally:
            sys.stdout.flush()
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else its rest fails again at the end
        told = _with_the_way_to_install(error, words) if isinstance(error, ImportError) else error
        text = str(told)
        if isinstance(error, OSError) and error.errno in _FULL:
            text = f"the output cannot be written: {error.strerror}"
        elif not isinstance(told, (MissingExtra, *_users_errors())):
            line = user_files.line_of(error)
            if line is None or logging.getLogger().isEnabledFor(logging.INFO):
                raise
            text = f"{line}: {type(error).__name__}: {error} (weir -v prints the traceback)"
        sys.stderr.write(f"weir: {text}\n")
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


def with_global_options_first(words: Sequence[str], valued: Mapping[str, Collection[str]]) -> list[str]:
    """Move `-q` and `-v` from behind a command to its front, where they are options of `weir`.

    Of a command that hands words on to a program, words from the program's name on stay as they are.

    Args:
        words: The command line without `weir` itself.
        valued: Options of each command that take a value.
    """
    command = next((word for word in words if not word.startswith("-")), "")
    end = _weir_words(words, valued.get(command, ())) if command in _HANDS_ON else len(words)
    own = words[:end]
    return [
        *(word for word in own if word in _GLOBAL),
        *(word for word in own if word not in _GLOBAL),
        *words[end:],
    ]


def _weir_words(words: Sequence[str], valued: Collection[str]) -> int:
    """Number of words up to the first argument of a command, which names the program or file."""
    index, commands = 0, 0
    while index < len(words):
        if not words[index].startswith("-"):
            commands += 1
            if commands == 2:
                return index
        elif words[index] == "--":
            return index
        elif words[index] in valued:
            index += 1
        index += 1
    return len(words)


def _run(words: Sequence[str]) -> None:
    import typer

    from ..topologies.mininet.processes import orderly_end
    from .app import app

    group = typer.main.get_command(app)  # `app(…)` would build all commands once more
    options = {
        name: {word for option in command.params if not getattr(option, "is_flag", True) for word in option.opts}
        for name, command in getattr(group, "commands", {}).items()
    }
    with orderly_end():  # one way to end by a signal, for every command
        group(with_global_options_first(words, options), prog_name="weir", standalone_mode=True)


def _with_the_way_to_install(error: ImportError, words: Sequence[str]) -> ImportError:
    command = next((word for word in words if not word.startswith("-")), None)
    return explained(error, f"weir {command}" if command else "the weir command", _EXTRAS.get(command or "", "runs"))


def _users_errors() -> tuple[type[Exception], ...]:
    """The roots of the packages' errors."""
    from ..controller.errors import ControllerError
    from ..emulator.entries import EmulatorError
    from ..experiments.errors import ExperimentError
    from ..hosts.errors import HostError
    from ..machine_code.interruption import CompilationGivenUp
    from ..topologies.errors import TopologyError

    return ExperimentError, TopologyError, ControllerError, EmulatorError, HostError, CompilationGivenUp
