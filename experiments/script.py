"""User workload: a Python file with a function `worker(rank, workers, seed, **options)`.

The function returns one worker: an object with `weights`, `gradient(step)` and `apply(mean)`, and optionally `samples`
and `accuracy()`. docs/runs.md has an example.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from ..imports import user_files
from ..training.replicated import Floats, ReplicatedJob
from .errors import ExperimentError

_FUNCTION: Final = "worker"


class ScriptWorker(Protocol):
    """One worker of a script, with its share of the data and its replica.

    It may have `samples`, an integer: how many samples a gradient is the sum of (1); and `accuracy()`: of its replica
    on held-out data, 0…1.
    """

    weights: Floats
    """The replica, flat, float32; the same at all workers in the beginning."""

    def gradient(self, step: int) -> Floats:
        """Return the gradient of this step, of the shape and type of `weights`."""

    def apply(self, mean: Floats) -> None:
        """Take the mean gradient, over all workers' samples."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """A script, with the options of its workers."""

    path: str
    digest: str
    """SHA-256 of the file."""
    steps: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """Given to the script's function by name."""


class ScriptWorkload(ReplicatedJob):
    """A script's workers, each of which is made when it is first asked for something."""

    def __init__(self, script: ScriptOptions, workers: int, seed: int) -> None:
        """Raises ExperimentError where the script is not there, was changed, or has not what a workload has."""
        super().__init__(workers, script.steps)
        self._script = script
        self._make = _function(script.path, script.digest)
        try:
            inspect.signature(self._make).bind(0, workers, seed, **script.options)
        except TypeError as error:
            raise ExperimentError(
                f"{script.path}: {_FUNCTION}{inspect.signature(self._make)} does not take a rank, the workers, a seed "
                f"and the options that the run's file has ({', '.join(script.options) or 'none'}): {error}"
            ) from None
        self._seed = seed
        self._made: dict[int, ScriptWorker] = {}

    def gradient(self, worker: int, step: int) -> Floats:
        """Return the script's gradient. Raises ExperimentError for another shape or type than the weights have."""
        made = self._worker(worker)
        gradient: object = made.gradient(step)
        if not _like(gradient, made.weights):
            raise ExperimentError(
                f"{self._script.path}: gradient({step}) of worker {worker} is {_shown(gradient)}; "
                f"return {_shown(made.weights)}, as the weights are"
            )
        return np.asarray(gradient)

    def samples(self, worker: int) -> int:
        """Return the worker's `samples`, by default 1. Raises ExperimentError unless it is an integer of 1 or more."""
        samples = getattr(self._worker(worker), "samples", 1)
        if not isinstance(samples, int) or samples < 1:
            raise ExperimentError(f"{self._script.path}: samples of worker {worker} is {samples!r}; make it 1 or more")
        return samples

    def apply_to(self, worker: int, mean: Floats) -> None:
        """Call the worker's `apply` with the mean gradient."""
        self._worker(worker).apply(mean)

    def weights(self, worker: int) -> Floats:
        """Return the worker's `weights` as an array."""
        return np.asarray(self._worker(worker).weights)

    def accuracy(self, worker: int = 0) -> float | None:
        """Return the worker's `accuracy()`; None: it has no such method."""
        measure = getattr(self._worker(worker), "accuracy", None)
        return None if measure is None else float(measure())

    def _worker(self, rank: int) -> ScriptWorker:
        if rank not in self._made:
            made = self._make(rank, self.workers, self._seed, **self._script.options)
            weights = getattr(made, "weights", None)
            if not isinstance(weights, np.ndarray) or weights.dtype != np.float32 or weights.ndim != 1:
                raise ExperimentError(
                    f"{self._script.path}: weights of worker {rank} is {_shown(weights)}; "
                    "make it a flat array of float32"
                )
            if not weights.size:
                raise ExperimentError(f"{self._script.path}: worker {rank} has no weights, so there is nothing to sum")
            self._made[rank] = made
        return self._made[rank]


def script_digest(path: Path) -> str:
    """Return the SHA-256 of a script. Raises ExperimentError where it cannot be read."""
    try:
        if path.exists() and not path.is_file():  # a device, say, that has no end
            raise ExperimentError(f"{path}: cannot be read as a workload's script (no plain file)")
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read as a workload's script ({error.strerror})") from None


def gradient_values(script: ScriptOptions, workers: int, seed: int) -> int:
    """Return the number of values in a gradient, from the script's first worker. Raises ExperimentError as
    `ScriptWorkload`.
    """
    try:
        return _gradient_values(script.path, script.digest, json.dumps(dict(script.options)), workers, seed)
    except (
        ValueError,
        AssertionError,
    ) as error:  # errors of the script: readers of a run's file would take these for remarks on it
        raise RuntimeError(f"{script.path}: raised {type(error).__name__} when its first worker was made") from error


@cache
def _gradient_values(path: str, digest: str, options: str, workers: int, seed: int) -> int:
    job = ScriptWorkload(ScriptOptions(path, digest, 1, json.loads(options)), workers, seed)
    return job.weights(0).size


@cache
def _function(path: str, digest: str) -> Callable[..., ScriptWorker]:
    """Return the script's function, from the file with this digest. Errors of the script itself are not caught."""
    if (now := script_digest(Path(path))) != digest:
        raise ExperimentError(
            f"not the script that the run was made with: its SHA-256 was {digest[:12]}… and is {now[:12]}…",
            place=path,
            value=now,
        )
    if not path.endswith(user_files.ENDING):
        raise ExperimentError(f"{path}: is no Python file; a workload's script ends in {user_files.ENDING}")
    function = getattr(user_files.run_file(Path(path)), _FUNCTION, None)
    if not callable(function):
        raise ExperimentError(f"{path}: has no function {_FUNCTION}(rank, workers, seed); a workload's script has one")
    made: Callable[..., ScriptWorker] = function
    return made


def _like(gradient: object, weights: Floats) -> bool:
    return isinstance(gradient, np.ndarray) and gradient.dtype == weights.dtype and gradient.shape == weights.shape


def _shown(value: object) -> str:
    return (
        f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else f"of type {type(value).__name__}"
    )
