"""One rank of the back end's benchmark: `python -m weir.bench.torch_rank SIZES BROADCASTS PARTS BUCKETS`, in its host.

torchrun's variables and the back end's are in the environment. Both back ends are in the same process and take turns.
Rank 0 prints one JSON line: seconds of sums, broadcasts, all_gathers and reduce_scatters by size and back end, and the
duration of a training step by its number of buckets, as a multiple of its communication alone, which takes as long as
its compute.
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


def _parts(sizes: list[int], groups: dict[str, Any], gloo: Any) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return seconds of calls whose result or input is divided among the ranks, by call, back end and size.

    `sizes` are bytes of a whole all_gather's result, and of a reduce_scatter's input.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    taken: dict[str, dict[str, dict[str, list[float]]]] = {
        call: {name: {str(size): [] for size in sizes} for name in groups} for call in ("all_gather", "reduce_scatter")
    }
    for size in sizes:
        whole, part = torch.empty(size // 4), torch.empty(size // 4 // ranks)
        gathered = torch.arange(ranks).repeat_interleave(len(part))
        for turn in range(-1, RUNS):  # the first one connects the ranks
            for name, group in groups.items():
                part.fill_(rank + turn)
                gather = partial(dist.all_gather_into_tensor, whole, part, group=group)
                seconds = {"all_gather": _timed(gather, gloo)}
                right = bool(whole.eq(gathered + turn).all())
                whole.copy_(gathered)
                scatter = partial(dist.reduce_scatter_tensor, part, whole, group=group)
                seconds["reduce_scatter"] = _timed(scatter, gloo)
                if not (right and part.eq(ranks * rank).all()):
                    raise RuntimeError(
                        f"rank {rank}: the all_gather or reduce_scatter of {size} bytes by {name} is wrong"
                    )
                for call, took in seconds.items() if turn >= 0 else ():
                    taken[call][name][str(size)].append(took)
    if missed := [call for call in taken if sizes and not groups["weir"].carried[f"fabric {call}"]]:
        raise RuntimeError(f"rank {rank}: {' and '.join(missed)} of {sizes} bytes went over Gloo, not the switch")
    return taken


def main() -> None:
    sizes, broadcasts, parts, counts = map(json.loads, sys.argv[1:])
    torch.set_num_threads(1)
    dist.init_process_group("weir")
    gloo = dist.new_group(backend="gloo")
    groups: dict[str, Any] = {"weir": dist.group.WORLD, "gloo": gloo}
    taken: dict[str, dict[str, list[float]]] = {name: {} for name in groups}
    expected = sum(range(1, dist.get_world_size() + 1))
    for size in [*sizes[:1], *sizes]:  # the first one twice: it takes the seats
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
    divided = _parts(parts, groups, gloo)
    shares: dict[str, list[float]] = {str(count): [] for count in counts}
    for _ in range(_STEPS):
        for count in counts:
            buckets = [torch.ones(_OVERLAP_BYTES // 4 // count) for _ in range(count)]
            communication = _timed(partial(_step, buckets, 0.0, groups["weir"]), gloo)
            step = _timed(partial(_step, buckets, communication, groups["weir"]), gloo)
            shares[str(count)].append(step / communication)
    if dist.get_rank() == 0:
        said = {"taken": taken, "copied": copied, **divided, "shares": shares}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    dist.barrier(group=gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("WEIR_MIN_BYTES", "0")
    main()
