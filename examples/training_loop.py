"""A custom training loop on an emulated fabric, without root: `python examples/training_loop.py`.

Four workers, each with its own share of points, fit a line through them. Their gradients cross a fabric of six switches
in virtual time: one controller places the job from telemetry, the switches sum. A worker makes the same calls with
`weir.join` on a real fabric (examples/train.py). Since all workers live in this one process, each call is made in its
`…_async` form, and `settle` lets time pass until the sums are there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig

STEPS = 60
LEARNING_RATE = 0.5
TRUE_WEIGHTS = np.array([3.0, -1.5], np.float32)


class Worker:
    """One worker's share of the points, and its copy of the weights."""

    def __init__(self, rank: int) -> None:
        rng = np.random.default_rng(rank)
        self.inputs = rng.uniform(-1, 1, (50 + 10 * rank, 2)).astype(np.float32)
        self.outputs = self.inputs @ TRUE_WEIGHTS
        self.weights = np.zeros(2, np.float32)

    def gradient(self) -> NDArray[np.float32]:
        """Gradient of the mean squared error over this worker's points."""
        error = self.inputs @ self.weights - self.outputs
        return np.float32(2 / len(error)) * (error @ self.inputs)


async def train(config: RunConfig, strategy: str) -> list[Worker]:
    """Train under one strategy; prints what the communication took."""
    async with Cluster(config, strategy) as cluster:
        workers = [Worker(communicator.rank) for communicator in cluster.job.communicators]
        communicating_ns = 0
        for step in range(STEPS):
            handles = [
                communicator.allreduce_async(
                    worker.gradient(), op="mean", weight=len(worker.inputs), name=f"step {step}"
                )
                for communicator, worker in zip(cluster.job.communicators, workers, strict=True)
            ]
            communicating_ns += await cluster.settle()
            for worker, handle in zip(workers, handles, strict=True):
                worker.weights -= LEARNING_RATE * handle.wait()
        print(f"{strategy:4} {communicating_ns / STEPS / 1e6:.3f} ms per step, summed along {cluster.job.trees[0]}")
        return workers


if __name__ == "__main__":
    config = RunConfig.load(Path(__file__).with_suffix(".yaml"))
    for strategy in ("ps", "agg"):
        workers = asyncio.run(train(config, strategy))
        assert len({worker.weights.tobytes() for worker in workers}) == 1, "every worker has the same bits"
        print(f"     weights {workers[0].weights}, which were {TRUE_WEIGHTS}")
