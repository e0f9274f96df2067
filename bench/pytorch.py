"""Collective calls of `torch.distributed` through a switch, paired with Gloo over the same links; and overlap.

Both back ends are in the same processes (`experiments.backends.torch_ranks`) and take turns. A training step has equal
buckets that become ready one after the other. Its compute sleeps, since the processes share few cores, and takes as
long as its communication alone. The last bucket is ready when compute ends, so a step of n buckets takes at least 1 +
1/n times that: 1.125 with 8 buckets, which is above the aim, and 1.0625 with 16.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from weir.bench.measure import Aim, Figure
from weir.bench.mininet import GLOO_AIM
from weir.bench.obstacles import pytorch_missing
from weir.experiments.backends.all_reduce import RATE_BPS, WORKERS
from weir.experiments.backends.torch_ranks import run_torch_ranks
from weir.topologies.mininet import fabric as mininet_fabric

SIZES: Final = (1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20)
BROADCASTS: Final = (1 << 20, 4 << 20)
BROADCAST_AIM: Final = 2.5
"""Minimum speed relative to Gloo's, whose source sends a tensor to three of seven others."""
PARTS: Final = (1 << 20, 4 << 20)
"""Bytes of the result of an all_gather, and of the input of a reduce_scatter."""
PART_RANKS: Final = 4
BUCKETS: Final = (8, 16)
"""Numbers of buckets of a training step; they hold 4 MB together."""
OVERLAP_AIM: Final = 1.1
"""Maximum duration of a step, as a multiple of the larger of compute and communication, if its buckets allow it."""
_SLOTS: Final = 1024


def obstacle() -> str | None:
    """Return the reason why this cannot run here; None if it can."""
    return pytorch_missing() or mininet_fabric.obstacle()


def _measured(*sizes: Sequence[int], ranks: int = WORKERS) -> dict[str, Any]:
    """Return rank 0's figures; `sizes` are the arguments of `torch_rank`. Raises ExperimentError if a rank fails."""
    words = [*map(json.dumps, sizes)]
    printed = asyncio.run(run_torch_ranks("weir.bench.torch_rank", words, {"WEIR_SLOTS": str(_SLOTS)}, ranks))
    measured: dict[str, Any] = json.loads(printed)
    return measured


def _paired(what: str, taken: Mapping[str, Mapping[str, Sequence[float]]], size: int, aim: Aim | None = None) -> Figure:
    """Return the figure of a call beside Gloo's. `taken` has seconds by back end and size in bytes."""
    mine, theirs = (tuple(taken[name][str(size)]) for name in ("weir", "gloo"))
    links = f"links of {RATE_BPS // 1_000_000} Mbit/s"
    return Figure(f"torch {what}, {links}", "s", mine, "Gloo", theirs, less_is_better=True, aim=aim)


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module. Raises TopologyError where Mininet cannot be had."""
    measured = _measured(SIZES, BROADCASTS, (), BUCKETS)
    for size in SIZES:
        aim = Aim(GLOO_AIM, of_ratio=True) if size == SIZES[-1] else None
        yield _paired(f"all_reduce of {_text(size)}, {WORKERS} ranks", measured["taken"], size, aim)
    for size in BROADCASTS:
        aim = Aim(BROADCAST_AIM, of_ratio=True) if size == BROADCASTS[-1] else None
        yield _paired(f"broadcast of {_text(size)} to {WORKERS} ranks", measured["copied"], size, aim)
    divided = _measured((), (), PARTS, (), ranks=PART_RANKS)
    for call in ("all_gather", "reduce_scatter"):
        for size in PARTS:
            yield _paired(f"{call} of {_text(size)}, {PART_RANKS} ranks", divided[call], size)
    for count in BUCKETS:
        least = 1 + 1 / count
        yield Figure(
            f"step of {count} buckets, as a share of the larger of compute and communication",
            "",
            tuple(measured["shares"][str(count)]),
            "the least there is",
            (least,),
            less_is_better=True,
            aim=Aim(OVERLAP_AIM) if least < OVERLAP_AIM else None,
        )


def _text(size: int) -> str:
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"
