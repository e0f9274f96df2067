"""One rank of a timed all-reduce, a process in its host: `python -m weir.experiments.backends.all_reduce_rank RANK`.

The sum is Weir's or Gloo's.

It reads a `Rank` from its command line, says "ready" on its standard output, and for every line on its standard input
sums its tensor with the others' and answers in one line how many seconds that took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from ...hosts.drivers.udp import UdpWorker
from ...hosts.protocol.worker import WorkerCore, WorkerOptions
from ...wire.control import WorkerPlan

OPTIONS: Final = WorkerOptions(initial_timeout_ns=100_000_000, min_timeout_ns=20_000_000)
"""Options for many processes on few cores: late packets are rarely lost."""
_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Rank:
    """Work of one process."""

    rank: int
    ranks: int
    values: int
    """float32 values of the tensor."""
    plan: WorkerPlan | None = None
    """Weir's; None: Gloo."""
    address: int = 0
    """Address of this rank's host, for Weir."""
    port: int = 0
    store: str = ""
    """Rendezvous of Gloo's ranks: HOST:PORT at rank 0."""

    def dump(self) -> str:
        """Return the work as JSON, for `load` in the process."""
        return TypeAdapter(Rank).dump_json(self).decode()

    @classmethod
    def load(cls, text: str) -> Rank:
        """Decode JSON of `dump`."""
        return TypeAdapter(Rank).validate_json(text)


Allreduce = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@contextmanager
def _weir(task: Rank, plan: WorkerPlan) -> Iterator[Allreduce]:
    with UdpWorker(WorkerCore(plan, OPTIONS), task.address, task.port) as worker:
        yield lambda tensor: worker.wait(worker.submit(tensor), _TIMEOUT_S).array


@contextmanager
def _gloo(task: Rank) -> Iterator[Allreduce]:
    import torch
    import torch.distributed

    torch.set_num_threads(1)  # many processes share few cores
    distributed: Any = torch.distributed
    distributed.init_process_group("gloo", init_method=f"tcp://{task.store}", rank=task.rank, world_size=task.ranks)

    def allreduce(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
        total = torch.from_numpy(tensor)
        distributed.all_reduce(total)
        result: NDArray[np.float32] = total.numpy()
        return result

    yield allreduce
    distributed.destroy_process_group()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve the lines of the standard input."""
    task = Rank.load(sys.argv[1])
    tensor = np.full(task.values, task.rank + 1, np.float32)
    expected = task.ranks * (task.ranks + 1) / 2
    with _gloo(task) if task.plan is None else _weir(task, task.plan) as allreduce:
        _print("ready")
        for _ in sys.stdin:
            mine = tensor.copy()
            started = time.perf_counter()
            total = allreduce(mine)
            seconds = time.perf_counter() - started
            if not (total == expected).all():
                raise RuntimeError(f"rank {task.rank}: the sum is wrong")
            _print(str(seconds))


if __name__ == "__main__":
    main()
