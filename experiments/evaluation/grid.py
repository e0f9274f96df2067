"""All points of a suite: in local processes, or on a Dask cluster by its address. A point is kept once it is done.

After an interruption of any kind, the next evaluation of the same suite into the same folder continues: strategies
with a record at a point are not run there again.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from threadpoolctl import threadpool_limits

from ..errors import ExperimentError
from .points import run_point
from .records import PointRecord
from .suite import Point, Suite

_AHEAD: Final = 4
"""Points that are given out, for each process: so that none waits, and those of one fabric stay together."""
_CONNECT_SECONDS: Final = 10
_DASKS_LOGGERS: Final = ("distributed", "distributed.client", "distributed.gc")
"""Those with a level of their own, which goes before the root's."""


def evaluate(
    suite: Suite, folder: Path, processes: int, cluster: str | None, done: Callable[[int, int], object]
) -> list[PointRecord]:
    """Run all strategies without a record at a point.

    Args:
        suite: the suite.
        folder: folder of the records.
        processes: number of local processes.
        cluster: address of a Dask cluster; None for local processes.
        done: called with the number of finished points and the total.

    Returns:
        The records of all points, in the suite's order.

    Raises:
        ExperimentError: the cluster cannot be reached, or a point fails.
    """
    points = list(suite.points())
    missing = [rest for point in points if (rest := _missing(folder, point)).strategies]
    done(len(points) - len(missing), len(points))
    if missing:
        with ExitStack() as stack:
            if cluster is None:
                executor = stack.enter_context(_local(processes))
            else:
                executor, processes = stack.enter_context(_cluster(cluster))
            results = _results(executor, processes, missing)
            for count, record in enumerate(results, len(points) - len(missing) + 1):
                record.save(folder)
                done(count, len(points))
    return records_of(suite, folder)


def _missing(folder: Path, point: Point) -> Point:
    """The point with its strategies that have no record."""
    done = set(PointRecord.load(folder, point).point.strategies)
    return point.model_copy(update={"strategies": tuple(name for name in point.strategies if name not in done)})


def records_of(suite: Suite, folder: Path) -> list[PointRecord]:
    """Return all points' records. Raises ExperimentError where one is missing."""
    records = []
    for point in suite.points():
        record = PointRecord.load(folder, point)
        if record.point != point:
            raise ExperimentError(f"{folder}: has no whole record of {point.conditions}, seed {point.seed}")
        records.append(record)
    return records


@contextmanager
def _local(processes: int) -> Iterator[Executor]:
    """Processes of this one, which exchange points and records with it by pipes: no other user can reach them."""
    level = logging.getLogger().getEffectiveLevel()
    executor = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (level,))
    before = set(multiprocessing.active_children())
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()


def _begin(level: int) -> None:
    """Prepare a process: one core, no answer to Ctrl-C, which the parent handles, and an end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger().setLevel(level)
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """A Dask cluster as an executor, and its number of processes."""
    from distributed import Client

    for name in _DASKS_LOGGERS:
        logging.getLogger(name).setLevel(_dasks_level())
    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ExperimentError(
            f"no Dask scheduler answers there ({error}); it is an address such as tcp://host:8786",
            place=f"--cluster {address}",
        ) from None
    with client, client.get_executor(pure=False) as executor:
        yield executor, len(client.scheduler_info()["workers"])


def _dasks_level() -> int:
    """Level of Dask's log messages: the root's, and none if only errors are shown.

    Errors of a point are raised; Dask often logs an error for a worker that ends during a request.
    """
    level = logging.getLogger().getEffectiveLevel()
    return level if level < logging.ERROR else logging.CRITICAL


def _results(executor: Executor, processes: int, points: Sequence[Point]) -> Iterator[PointRecord]:
    """Yield records as they are done; only a few points are submitted at a time."""
    waiting = iter(points)
    running: dict[Future[PointRecord], Point] = {}
    while True:
        for point in islice(waiting, _AHEAD * max(processes, 1) - len(running)):
            running[executor.submit(run_point, point)] = point
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            point = running.pop(future)
            try:
                record = future.result()
            except Exception as error:
                raise ExperimentError(
                    f"grid {point.grid}, {point.conditions}, seed {point.seed}: {type(error).__name__}: {error}"
                ) from error
            yield record
