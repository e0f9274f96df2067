"""Time of one sum by the switches in the packet fabric, in virtual time, and of rings by their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...hosts import Compression
from ...topologies.mininet.processes import run_until_ended
from ..backends.virtual_time import Cluster
from ..config import RunConfig

_STEPS: Final = 3


def switch_sum_s(
    config: RunConfig,
    numbers: int,
    codec: str = "",
    options: Mapping[str, Any] | None = None,
    *,
    steps: int = _STEPS,
) -> float:
    """Return the time of a sum of float32 numbers, with all packets, in s: the mean of some steps after a first one.

    Args:
        config: The run, with the fabric and the workers.
        numbers: Length of the array.
        codec: Name of a codec that switches can sum; empty: none.
        options: Options of the codec.
        steps: Number of steps after the first one; 0: the time of the first one, for arrays of many packets.

    Raises:
        ExperimentError: The run cannot be started.
    """
    return run_until_ended(_switch_sum_s(config, numbers, codec, options or {}, steps))


async def _switch_sum_s(config: RunConfig, numbers: int, codec: str, options: Mapping[str, Any], steps: int) -> float:
    async with Cluster(config, config.strategies[-1], values=numbers) as cluster:
        members = cluster.job.communicators
        compressions = [Compression.named(codec, **options) if codec else None for _ in members]
        values = [
            np.random.default_rng(rank).standard_normal(numbers).astype(np.float32) for rank in range(len(members))
        ]
        spans = []
        for _ in range(1 + steps):
            for member, value, compression in zip(members, values, compressions, strict=True):
                member.allreduce_async(value, op="mean", name="gradient", compression=compression)
            spans.append(await cluster.settle())
    return 1e-9 * float(np.mean(spans[1:] or spans))


def ring_sum_s(workers: int, size: float, rate_bps: float, delay_s: float) -> float:
    """Return the time of an all-reduce by a ring that fills its links and has no headers, in s.

    Args:
        workers: Number of workers n.
        size: Bytes of the array.
        rate_bps: Rate of the links.
        delay_s: Delay between neighbours.
    """
    rounds = 2 * (workers - 1)
    return rounds * (size / workers * 8 / rate_bps + delay_s)


def ring_gather_s(workers: int, size: float, rate_bps: float, delay_s: float) -> float:
    """Return the time of an all-gather by a ring, in s.

    Args:
        workers: Number of workers.
        size: Bytes from each worker.
        rate_bps: Rate of the links.
        delay_s: Delay between neighbours.
    """
    return (workers - 1) * (size * 8 / rate_bps + delay_s)
