"""The face for training loops: all-reduce of NumPy arrays, over whatever drives the worker's core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hosts.tensors import Reduced


class Driver(Protocol):
    """What moves a worker's packets and time: `udp.UdpWorker`, or the emulated fabric."""

    def submit(self, array: ArrayLike, *, name: str, weight: int) -> int:
        """As `WorkerCore.submit`."""

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        """The sum, once it is complete. Raises `AllreduceTimeout`, saying what it waits for, after `timeout_s`."""


class Communicator:
    """One worker's way to sum arrays with all others; every worker makes the same calls in the same order.

    Sums are exact in the fixed-point numbers of docs/design.md §3.3: the same bits at every worker, always.
    """

    def __init__(self, driver: Driver, *, timeout_s: float = 60.0) -> None:
        """`timeout_s`: how long one call may take before it raises `AllreduceTimeout`."""
        self._driver = driver
        self.timeout_s = timeout_s

    def allreduce(self, array: ArrayLike, *, name: str = "tensor", weight: int = 1) -> NDArray[np.float32]:
        """The sum over all workers of a float32 array, in its shape.

        Raises `InvalidTensor` for another dtype, NaN or infinity, and `AllreduceTimeout`.
        """
        return self.reduce({name: array}, weight=weight)[name].array

    def reduce(self, arrays: Mapping[str, ArrayLike], *, weight: int = 1) -> dict[str, Reduced]:
        """Sum many named arrays, all in flight together; with their summed weights, for means (`Reduced.mean`)."""
        handles = {name: self._driver.submit(array, name=name, weight=weight) for name, array in arrays.items()}
        return {name: self._driver.wait(handle, self.timeout_s) for name, handle in handles.items()}
