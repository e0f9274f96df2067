"""Threads and file descriptors that a fabric in this process needs: a lack of them is found before it is started."""

from __future__ import annotations

import resource
import threading
from typing import Final

from .errors import ExperimentError

_THREADS: Final = 24
"""gRPC's, the switches' and the fabric's, with some to spare."""
_DESCRIPTORS: Final = 128
_DESCRIPTORS_PER_HOST: Final = 4


def check_resources(hosts: int) -> None:
    """Raise ExperimentError if this process cannot have the resources for a fabric with this many hosts.

    The soft limit of file descriptors is raised as far as the hard one lets it.
    """
    needed = _DESCRIPTORS + _DESCRIPTORS_PER_HOST * hosts
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ExperimentError(
                f"this process may open {hard} files, and a fabric of {hosts} hosts needs {needed}; raise the limit "
                f"(ulimit -n {needed})"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    _check_threads()


def _check_threads() -> None:
    release, started = threading.Event(), list[threading.Thread]()
    try:
        while len(started) < _THREADS:
            thread = threading.Thread(target=release.wait, name="a probe for threads", daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError):
        raise ExperimentError(
            f"this process can start {len(started)} more threads, and {_THREADS} are needed; raise the limit (ulimit "
            "-u, or the container's pids limit) or that of memory"
        ) from None
    finally:
        release.set()
        for thread in started:
            thread.join()
