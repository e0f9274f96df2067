"""One rank of the benchmark of `weir launch`: `launch_rank.py PORT SIZES`, started by it.

Rank 0 prints one JSON line: by back end the seconds of sums and the processor time of this process for them, by size.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import torch
import torch.distributed as dist

import weir

RUNS: Final = 3
SMALL_RUNS: Final = 20
_SMALL: Final = 1 << 20


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the slowest rank, and this rank's processor time."""
    dist.barrier()
    used, started = time.process_time(), time.perf_counter()
    call()
    taken = torch.tensor([time.perf_counter() - started])
    used = time.process_time() - used
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken), used


def main(port: str, sizes: list[int]) -> None:
    """Measure, and print rank 0's figures."""
    kinds = ("wall", "processor")
    times_by_case: dict[str, dict[str, dict[int, list[float]]]] = {
        name: {kind: {size: [] for size in sizes} for kind in kinds} for name in ("weir", "gloo")
    }
    with weir.join() as communicator:
        rank, ranks = communicator.rank, communicator.size
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
        for size in sizes:
            numbers = np.full(size // 4, rank + 1, np.float32)
            tensor = torch.from_numpy(numbers.copy())
            calls: dict[str, Callable[[], object]] = {
                "weir": partial(communicator.allreduce, numbers),
                "gloo": partial(dist.all_reduce, tensor),
            }
            for turn in range(1 + (SMALL_RUNS if size < _SMALL else RUNS)):
                for name, call in calls.items():
                    for kind, seconds in zip(kinds, _timed(call), strict=True):
                        if turn:  # the first one is for warmth
                            times_by_case[name][kind][size].append(seconds)
        dist.destroy_process_group()
    if rank == 0:
        print(json.dumps(times_by_case))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
