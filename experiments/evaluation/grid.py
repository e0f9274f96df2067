"""All points of a suite on Dask: local processes, or a cluster by its address. A point is kept once it is done.

After an interruption of any kind, the next evaluation of the same suite into the same folder continues: strategies
with a record at a point are not run there again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import ExperimentError
from .points import run_point
from .records import PointRecord
from .suite import Point, Suite

if TYPE_CHECKING:
    from distributed import Client

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
        with _client(processes, cluster) as client:
            for count, record in enumerate(_results(client, missing), len(points) - len(missing) + 1):
                record.save(folder)
                done(count, len(points))
    return records_of(suite, folder)


def _missing(folder: Path, point: Point) -> Point:
    """The point with its strategies that have no record."""
    done = set(PointRecord.load(folder, point).point.strategies)
    return point.model_copy(update={"strategies": tuple(name for name in point.strategies if name not in done)})


def records_of(suite: Suite, folder: Path) -> list[PointRecord]:
    """All points' records. Raises ExperimentError where one is missing."""
    records = []
    for point in suite.points():
        record = PointRecord.load(folder, point)
        if record.point != point:
            raise ExperimentError(f"{folder}: has no whole record of {point.conditions}, seed {point.seed}")
        records.append(record)
    return records


@contextmanager
def _client(processes: int, cluster: str | None) -> Iterator[Client]:
    from distributed import Client, LocalCluster

    level = _dasks_level()
    for name in _DASKS_LOGGERS:
        logging.getLogger(name).setLevel(level)
    if cluster is not None:
        try:
            client = Client(cluster, timeout=_CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise ExperimentError(
                f"no Dask scheduler answers there ({error}); it is an address such as tcp://host:8786",
                place=f"--cluster {cluster}",
            ) from None
        with client:
            yield client
        return
    with (
        LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            silence_logs=level,
        ) as local,
        Client(local) as client,
    ):
        yield client


def _dasks_level() -> int:
    """Level of Dask's log messages: the root's, and none if only errors are shown.

    Errors of a point are raised; Dask often logs an error for a worker that ends during a request.
    """
    level = logging.getLogger().getEffectiveLevel()
    return level if level < logging.ERROR else logging.CRITICAL


def _results(client: Client, points: Sequence[Point]) -> Iterator[PointRecord]:
    """Yield records as they are done; only a few points are submitted at a time."""
    from distributed import as_completed

    waiting = iter(points)
    workers = max(len(client.scheduler_info()["workers"]), 1)
    of: dict[Any, Point] = {}

    def give() -> Any:
        point = next(waiting, None)
        if point is None:
            return None
        future = client.submit(run_point, point, pure=False)
        of[future.key] = point
        return future

    first = [future for _ in range(_AHEAD * workers) if (future := give()) is not None]
    running = as_completed(first)
    for future in running:
        point = of.pop(future.key)
        try:
            record: PointRecord = future.result()
        except Exception as error:
            raise ExperimentError(
                f"grid {point.grid}, {point.conditions}, seed {point.seed}: {type(error).__name__}: {error}"
            ) from error
        yield record
        if (another := give()) is not None:
            running.add(another)
