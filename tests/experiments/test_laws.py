"""Laws that workers may follow, side by side in an incast: only obeyed windows are promised a bound, and keep it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.wire.aggregation import LANES

WORKERS = 8
BOUND = 64
BUFFER = 128


@dataclass(frozen=True)
class Incast:
    longest_queue: int
    drops: int
    refusals: list[str]
    broken: list[str]


def incast(law: str) -> Incast:
    """A rack's workers send to one server, with a window of four times what fits into the buffer for all of them."""
    rack = {"kind": "leaf-spine", "leaves": 1, "spines": 1, "hosts_per_leaf": WORKERS + 1, "queue": BUFFER}
    config = RunConfig.model_validate(
        {
            "name": "incast",
            "fabric": {"name": "rack", "generate": {**rack, "rate": "1Gbit", "delay": "2us"}},
            "job": {
                "workers": [f"h{number + 1}" for number in range(WORKERS)],
                "server": f"h{WORKERS + 1}",
                "window": 32,
                "slots": 64,
            },
            "congestion": {"bound": BOUND, "law": law},
            "strategies": ["ps"],
        }
    )

    async def run() -> Incast:
        async with Cluster(config, "ps") as cluster:
            refusals = cluster.refusals
            await cluster.allreduce([np.full(100 * LANES, rank, np.float32) for rank in range(WORKERS)], 1)
            longest = max(link.largest_queue_packets for link in cluster.links())
            return Incast(longest, (await cluster.drops()).get("queue full", 0), refusals, cluster.broken_promises)

    return asyncio.run(run())


@pytest.mark.parametrize("law", ["explicit", "dctcp", "hpcc", "delay", "fixed"])
def test_only_who_obeys_is_promised_a_bound(law: str) -> None:
    seen = incast(law)
    assert not seen.broken
    if law == "explicit":
        assert not seen.refusals
        assert seen.longest_queue <= BOUND
        assert not seen.drops
    else:
        assert any(f"{WORKERS} streams obey no window" in line for line in seen.refusals)
    if law == "fixed":
        assert seen.longest_queue == BUFFER
        assert seen.drops
    elif law != "explicit":
        assert seen.longest_queue < BUFFER, "marks and round trips tell before the buffer is full"
