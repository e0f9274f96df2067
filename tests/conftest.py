"""Settings of all tests: an interrupted run ends, and a slow machine is no failure."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("any machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # like a shell's background processes
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else what tests start would ignore Ctrl-C, too

_LAST_S: Final = 60.0
"""Time in seconds that threads and processes of tests may take to end."""


_WORKER: Final = os.environ.get("PYTEST_XDIST_WORKER", "")
"""Name of this process, such as gw1, if several share the tests; else empty."""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have every second worker read the files from the last to the first.

    The first run in a clone compiles each file with its assertions rewritten. Workers that read in the same order all
    compile the same file at the same time; from both ends, each finds the other half compiled.
    """
    report = yield
    if _WORKER and int(_WORKER.removeprefix("gw")) % 2 and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector of garbage away from the tests' own objects.

    Millions of them are made while files are read and stay until the end. Looking through them took a third of the time
    of reading the files, and each later full collection would look through them again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests say by their marks that they take minutes come first, the longest of them before the others:
    processes that take one file after another then end at about the same time.
    """
    if _WORKER:  # all workers have to name the tests in the same order
        items.sort(key=lambda item: item.path.parts)
    minutes = Counter[Path]()
    for item in items:
        for mark in (*item.iter_markers("long"), *item.iter_markers("document")):
            minutes[item.path] += mark.kwargs.get("minutes", 0)
    items.sort(key=lambda item: -minutes[item.path])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Python waits for the threads of every pool before it exits: one that never ends is shown, and the run fails.

    A worker that shares the tests has nothing to show: it waits here for the others, however long they take, and is
    killed 10 s after the last of them.
    """
    if not _WORKER:
        faulthandler.dump_traceback_later(_LAST_S, exit=True, file=os.dup(2))


@pytest.fixture(autouse=True)
def _reset_logging() -> Iterator[None]:
    """Undo what a test does to logging: commands that tests call set levels and handlers for the whole process."""
    root = logging.getLogger()
    levels = {logger.name: logger.level for logger in _loggers()}
    handlers, disabled = root.handlers[:], root.manager.disable
    yield
    root.handlers[:] = handlers
    logging.disable(disabled)
    for logger in _loggers():
        if logger.level != (level := levels.get(logger.name, logging.NOTSET)):
            logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    named = logging.Logger.manager.loggerDict.values()
    return [logging.getLogger(), *(logger for logger in list(named) if isinstance(logger, logging.Logger))]
