"""Steps to an accuracy when the workers' gradients are averaged in a lossy way.

Replicas make the same steps, so one copy of the weights stands for all; gradients are those of every worker. Codecs run
as they do in calls of `allreduce`, with error feedback by worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...hosts.compression.codec import Codec
from ...hosts.compression.codecs import CODECS, make_codec
from ...hosts.compression.feedback import ErrorFeedback
from ...hosts.compression.trial import contributions
from ...hosts.numerics.bfloat16 import BFLOAT16
from ...imports.extras import install_command
from ...training.optimisers import make_optimiser
from ...training.samples import Samples
from ...training.workload import Floats, Workload
from ..errors import ExperimentError

WORKERS: Final = 8
SAMPLES: Final = 16
"""Samples of each worker in a step."""
MOMENTUM: Final = 0.9
POWER_RANK: Final = 4
"""Rank of PowerSGD's matrices."""

Averaging = Callable[[Sequence[Floats]], Floats]


class CodecMean:
    """Mean by a codec, with the state of all workers."""

    def __init__(self, codec: str, **options: Any) -> None:
        """Create it from the codec's name and options, with error feedback if that helps the codec."""
        made = [make_codec(codec, **options) for _ in range(WORKERS)]
        wrapped = CODECS.describe(codec).feedback and not made[0].keeps_residuals
        self._codecs: list[Codec] = [ErrorFeedback(each) for each in made] if wrapped else made
        self._step = 0

    def __call__(self, gradients: Sequence[Floats]) -> Floats:
        """Return the mean that all workers get for one step's gradients: one array (n,) per worker."""
        values = [codec.compensate("g", gradient) for codec, gradient in zip(self._codecs, gradients, strict=True)]
        self._step += 1
        sent = contributions(self._codecs[0], values, seed=self._step)
        for codec, value, own in zip(self._codecs, values, sent, strict=True):
            codec.update("g", value, own)
        mean: Floats = np.asarray(np.mean(sent, axis=0, dtype=np.float64), np.float32)
        return mean


def bfloat16_ring(gradients: Sequence[Floats]) -> Floats:
    """Return the mean as by PyTorch's `bf16_compress_hook` over a ring: divided, rounded, and rounded again at every
    hop.
    """

    def rounded(numbers: Floats) -> Floats:
        widened: Floats = BFLOAT16.widen(BFLOAT16.narrow(numbers.astype(np.float64))).astype(np.float32)
        return widened

    total = rounded(gradients[0] / np.float32(len(gradients)))
    for gradient in gradients[1:]:
        total = rounded(total + rounded(gradient / np.float32(len(gradients))))
    return total


class _Bucket:
    """All gradients of a step, in place of DistributedDataParallel's bucket."""

    def __init__(self, buffer: Any, shapes: Sequence[tuple[int, ...]]) -> None:
        self._buffer, self._shapes = buffer, shapes

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def buffer(self) -> Any:
        return self._buffer

    def gradients(self) -> list[Any]:
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        return [part.view(shape) for part, shape in zip(self._buffer.split(sizes), self._shapes, strict=True)]

    parameters = gradients


class PowerMean:
    """Mean by PyTorch's PowerSGD hook.

    The hook is linear in the gradients and residuals between its sums, so one rank with the mean gradient computes what
    all ranks do with theirs; only the order of float32 additions differs.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Create its state.

        Args:
            shapes: Shapes of the parameters.

        Raises:
            ExperimentError: PyTorch is not installed.
        """
        try:
            import torch
            import torch.distributed as dist
            from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
        except ImportError:
            raise ExperimentError(f"PowerSGD is PyTorch's hook: {install_command('torch')}") from None
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        torch.set_num_threads(1)
        self._shapes = shapes
        self._hook: Callable[..., Any] = powerSGD_hook.powerSGD_hook
        self._state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=POWER_RANK, start_powerSGD_iter=2, min_compression_rate=1
        )

    def __call__(self, gradients: Sequence[Floats]) -> Floats:
        """Return the mean that all workers get for one step's gradients: one array (n,) per worker."""
        import torch

        buffer = torch.from_numpy(np.mean(gradients, axis=0, dtype=np.float32))
        mean: Floats = self._hook(self._state, _Bucket(buffer, self._shapes)).wait().numpy().copy()
        return mean


def shapes_of(layers: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of a perceptron's parameters from the lengths of its layers: weights, bias, and so on."""
    pairs = zip(layers[::2], layers[1::2], strict=True)
    return [shape for weights, bias in pairs for shape in ((weights // bias, bias), (bias,))]


def steps_to_accuracy(
    workload: Workload, accuracy: float, averaging: Averaging, rate: float, momentum: float, seed: int, limit: int
) -> int | None:
    """Train by SGD and return the first step after which the held-out accuracy is reached.

    Args:
        workload: Model and data.
        accuracy: Accuracy to reach, 0…1.
        averaging: Mean of the workers' gradients, possibly compressed.
        rate: Learning rate.
        momentum: Momentum of the optimiser.
        seed: Seed of the order of samples.
        limit: Maximum number of steps.

    Returns:
        Number of steps; None if `limit` steps do not suffice, or the weights are no longer finite.
    """
    samples = Samples(workload.rows, (seed, 0))
    sizes = [SAMPLES] * WORKERS
    optimiser = make_optimiser("sgd", workload.layers, rate, momentum=momentum)
    weights, held_out = workload.initial(), workload.held_out()
    for step in range(limit):
        batches = [workload.fetch(samples.share(step, sizes, rank)) for rank in range(WORKERS)]
        mean = averaging([workload.gradient(weights, batch) for batch in batches])
        weights = optimiser.step(weights, mean)
        if not np.isfinite(weights).all():
            return None
        if workload.batch_accuracy(weights, held_out) >= accuracy:
            return step + 1
    return None


def processor_seconds(work: Callable[[], object], runs: int = 5) -> float:
    """Return the processor time of a call, the least of several."""
    spans = []
    for _ in range(runs):
        started = time.process_time()
        work()
        spans.append(time.process_time() - started)
    return min(spans)
