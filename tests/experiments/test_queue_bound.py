"""The promise of a run's queues, over every enqueue of the emulated fabric, and that it costs no throughput: at least
97 % of what others leave of the bottleneck is the job's.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import numpy as np
import pytest

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.wire.aggregation import LANES, MESSAGE_BYTES
from weir.wire.frames import FRAME_HEADER_BYTES

WORKERS: Final = ["h1", "h2", "h4", "h5", "h7", "h8", "h10", "h11"]
FRAME_NS: Final = 8 * (FRAME_HEADER_BYTES + MESSAGE_BYTES)
"""On a link of 1 Gbit/s."""
# source ports that put each of these flows on the spine which the fixed hierarchy goes over
CROSSING: Final = (("h3", "h6", 2), ("h6", "h9", 1), ("h9", "h3", 2))


def run_of(strategy: str, rate: str | None, delay: str, bound: int, window: int) -> RunConfig:
    """Eight workers over four leaves and two spines, and flows beside them that never yield."""
    flows: list[dict[str, Any]] = [
        {"source": source, "destination": destination, "rate": rate, "port": port}
        for source, destination, port in CROSSING
        if rate is not None
    ]
    leaf_spine = {"kind": "leaf-spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 3, "rate": "1Gbit", "delay": delay}
    return RunConfig.model_validate(
        {
            "name": "bound",
            "fabric": {"name": "bound", "generate": leaf_spine},
            "job": {"workers": WORKERS, "server": "h12", "window": window, "slots": 2 * window},
            "background": flows,
            "congestion": {"bound": bound},
            "control": {"interval": "2ms", "warm_up": "10ms"},
            "strategies": [strategy],
        }
    )


@pytest.mark.parametrize(
    ("strategy", "streams", "rate", "share", "delay", "bound", "window", "rounds"),
    [
        ("hierarchy", 1, None, 0.0, "2us", 96, 32, 150),
        ("hierarchy", 1, "700Mbit", 0.7, "2us", 96, 32, 400),
        ("hierarchy", 1, "300Mbit", 0.3, "50us", 160, 64, 250),
        ("rack", 4, "300Mbit", 0.0, "2us", 96, 32, 100),  # the bottleneck is the server's link, which no others cross
    ],
)
def test_the_bound_is_kept_and_the_bottleneck_is_used(
    strategy: str, streams: int, rate: str | None, share: float, delay: str, bound: int, window: int, rounds: int
) -> None:
    config = run_of(strategy, rate, delay, bound, window)

    async def run() -> int:
        """How much longer a transfer of three times the rounds takes: what begins and ends it is in both."""
        gradients = [np.full(LANES * rounds, rank, np.float32) for rank in range(len(WORKERS))]
        async with Cluster(config, strategy) as cluster:
            _, once_ns = await cluster.allreduce(gradients, 1)
            _, thrice_ns = await cluster.allreduce([np.tile(g, 3) for g in gradients], 1)
            assert not cluster.refusals
            assert not cluster.broken_promises
            assert len(cluster.promised) == len([e for e in cluster.topology.directed_links if e.node[0] == "s"])
            assert all(kept is not None and kept <= bound for kept in cluster.promised.values())
            assert not await cluster.drops()
            assert not cluster.resends
        return thrice_ns - once_ns

    achievable_ns = 2 * rounds * streams * FRAME_NS / (1 - share)
    assert asyncio.run(run()) <= achievable_ns / 0.97
