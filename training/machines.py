"""Model of workers' computation times: speeds that differ, drift and jitter, so that there are stragglers.

A machine's state changes with time (another tenant comes, the clock is throttled); a worker can read the free shares of
processor and memory. Events of a single iteration (a page fault, a garbage collection) cannot be read beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import TrainingError

Floats64 = NDArray[np.float64]

SLOWEST: Final = 1e-3
"""Lowest speed of a machine in samples per second: a sample takes a quarter of an hour."""
FASTEST: Final = 1e9
"""Highest speed of a machine in samples per second: a sample takes 1 ns, the unit of virtual time."""
LEAST_JITTER: Final = 0.5
"""Smallest factor that `jitter` draws."""
_FOREVER_NS: Final = 1 << 62


def _always_free() -> Floats64:
    return np.ones(1)


@dataclass(frozen=True, slots=True)
class Readings:
    """A worker's readings of its machine at an instant."""

    cpu: float
    """Share of the processor that is free for training, 0…1."""
    memory: float
    """Share of the memory that is free, 0…1."""


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A worker's machine: `samples` take `launch_ns` and then max(samples, saturation) / speed."""

    samples_per_s: float
    """Its speed when all of it is free."""
    launch_ns: int = 0
    """Time of every iteration apart from its samples, in ns."""
    saturation: int = 0
    """Number of samples up to which time is constant, as on a GPU that they do not fill."""
    memory_samples: int | None = None
    """More samples than this do not fit into its memory and are computed in parts, one after the other; None: no
    limit.
    """
    span_ns: int = _FOREVER_NS
    """Duration of each share, in ns."""
    cpu: Floats64 = field(default_factory=_always_free)
    """Share of the processor that is free, span by span; from the last one the first follows again."""
    memory: Floats64 = field(default_factory=_always_free)
    """Share of the memory that is free, span by span."""
    jitter: Floats64 = field(default_factory=_always_free)
    """Factor on each iteration's time, by iteration; the sequence repeats."""

    def __post_init__(self) -> None:
        if not SLOWEST <= self.samples_per_s <= FASTEST:
            raise TrainingError(
                f"a machine of {self.samples_per_s} samples a second; allowed: {SLOWEST:g} to {FASTEST:g}",
                value=self.samples_per_s,
            )
        for name, values in (("cpu", self.cpu), ("memory", self.memory), ("jitter", self.jitter)):
            if not len(values) or not (np.isfinite(values) & (values > 0)).all():
                raise TrainingError(f"a machine's {name}: {values}; there is at least one value, and all are above 0")

    def readings(self, now_ns: int) -> Readings:
        """Return the machine's readings at an instant."""
        span = now_ns // self.span_ns
        return Readings(float(self.cpu[span % len(self.cpu)]), float(self.memory[span % len(self.memory)]))

    def speed(self, iteration: int, now_ns: int) -> float:
        """Return samples per second, beyond launch and saturation, of an iteration that begins now."""
        return self.samples_per_s * self.readings(now_ns).cpu / float(self.jitter[iteration % len(self.jitter)])

    def compute_ns(self, samples: int, iteration: int, now_ns: int) -> int:
        """Return the duration in ns of an iteration over this many samples that begins now, at least 1."""
        most = self.memory_samples or samples
        parts = [min(most, samples - first) for first in range(0, samples, most)]
        busy = sum(max(part, self.saturation) for part in parts) / self.speed(iteration, now_ns)
        return max(1, len(parts) * self.launch_ns + round(1e9 * busy))


def stepping(rng: np.random.Generator, spans: int, levels: Sequence[float] = (1, 0.75, 0.5, 0.25)) -> Floats64:
    """Return shares that jump from one level to another, each drawn independently: a tenant comes or goes."""
    return rng.choice(np.asarray(levels, np.float64), spans)


def drifting(rng: np.random.Generator, spans: int, step: float = 0.05, least: float = 0.2) -> Floats64:
    """Draw shares that wander between `least` and 1, by normal steps, and turn back at both ends.

    Args:
        rng: Source of the draws.
        spans: Number of shares.
        step: Standard deviation of a step.
        least: Smallest share.

    Returns:
        Shares, (spans,).
    """
    wide = 1 - least
    walked = np.cumsum(rng.normal(0, step, spans)) % (2 * wide)
    return 1 - np.minimum(walked, 2 * wide - walked)


def jitter(
    rng: np.random.Generator, iterations: int, noise: float = 0.03, spikes: float = 0.03, spike: float = 2.0
) -> Floats64:
    """Draw factors of the times of single iterations.

    Args:
        rng: Source of the draws.
        iterations: Number of factors.
        noise: Standard deviation of normal noise around 1; factors are `LEAST_JITTER` or more.
        spikes: Probability of a further factor `spike`.
        spike: That factor.

    Returns:
        Factors, (iterations,).
    """
    factors = np.maximum(1 + rng.normal(0, noise, iterations), LEAST_JITTER)
    return np.where(rng.random(iterations) < spikes, spike * factors, factors)
