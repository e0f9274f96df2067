"""One rank of the back end's benchmark: `python -m weir.bench.torch_rank SIZES BROADCASTS BUCKETS`, in its host.

torchrun's variables and the back end's are in the environment. Both back ends are in the same process and take turns.
Rank 0 prints one JSON line: seconds of sums and of broadcasts by size and back end, and the duration of a training step
by its number of buckets, as a multiple of its communication alone, which takes as long as its compute.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist

RUNS: Final = 3
SMALL_RUNS: Final = 20
_SMALL: Final = 1 << 20
_OVERLAP_BYTES: Final = 4 << 20
_STEPS: Final = 5


def _timed(call: Callable[[], object], group: Any) -> float:
    """Seconds of the slowest rank."""
    dist.barrier(group=group)
    started = time.perf_counter()
    call()
    taken = torch.tensor([time.perf_counter() - started])
    dist.all_reduce(taken, dist.ReduceOp.MAX, group=group)
    return float(taken)


def _compute(seconds: float) -> None:
    """Stand-in for a layer's backward pass on a dedicated processor: it sleeps, since cores are shared."""
    time.sleep(seconds)


def _step(buckets: list[torch.Tensor], seconds: float, group: Any) -> None:
    """A backward pass that has its buckets ready one after the other, and sums each when it is."""
    works = []
    for bucket in buckets:
        _compute(seconds / len(buckets))
        works.append(dist.all_reduce(bucket, group=group, async_op=True))
    for work in works:
        work.wait()


def _broadcasts(sizes: list[int], groups: dict[str, Any], gloo: Any) -> dict[str, dict[str, list[float]]]:
    """Return seconds of broadcasts of these sizes in bytes, by back end and size."""
    taken: dict[str, dict[str, list[float]]] = {name: {str(size): [] for size in sizes} for name in groups}
    for size in sizes:
        tensor = torch.empty(size // 4)
        for turn in range(RUNS):
            for name, group in groups.items():
                tensor.fill_(dist.get_rank() + turn)
                taken[name][str(size)].append(_timed(partial(dist.broadcast, tensor, 0, group=group), gloo))
                if not tensor.eq(turn).all():
                    raise RuntimeError(f"rank {dist.get_rank()}: the broadcast of {size} bytes by {name} is wrong")
    return taken


def main() -> None:
    sizes, broadcasts, counts = map(json.loads, sys.argv[1:])
    torch.set_num_threads(1)
    dist.init_process_group("weir")
    gloo = dist.new_group(backend="gloo")
    groups: dict[str, Any] = {"weir": dist.group.WORLD, "gloo": gloo}
    taken: dict[str, dict[str, list[float]]] = {name: {} for name in groups}
    expected = sum(range(1, dist.get_world_size() + 1))
    for size in [sizes[0], *sizes]:  # the first one twice: it takes the seats
        tensor = torch.empty(size // 4)
        for name in groups:
            taken[name][str(size)] = []
        for _ in range(SMALL_RUNS if size < _SMALL else RUNS):
            for name, group in groups.items():
                tensor.fill_(dist.get_rank() + 1)
                seconds = _timed(partial(dist.all_reduce, tensor, group=group), gloo)
                if not tensor.eq(expected).all():
                    raise RuntimeError(f"rank {dist.get_rank()}: the sum of {size} bytes by {name} is wrong")
                taken[name][str(size)].append(seconds)
    copied = _broadcasts(broadcasts, groups, gloo)
    shares: dict[str, list[float]] = {str(count): [] for count in counts}
    for _ in range(_STEPS):
        for count in counts:
            buckets = [torch.ones(_OVERLAP_BYTES // 4 // count) for _ in range(count)]
            communication = _timed(partial(_step, buckets, 0.0, groups["weir"]), gloo)
            step = _timed(partial(_step, buckets, communication, groups["weir"]), gloo)
            shares[str(count)].append(step / communication)
    if dist.get_rank() == 0:
        said = {"taken": taken, "copied": copied, "shares": shares}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    dist.barrier(group=gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("WEIR_MIN_BYTES", "0")
    main()
