"""Collective calls on their way: of one sum, or of several exchanges one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...errors.values import Checks
from ..errors import AllreduceTimeout, HostError, TransportTimeout
from ..numerics.tensors import Reduced, Tensor
from .operation import PendingExchange, Started, Steps
from .step_meter import StepMeter


class Sums(Protocol):
    """The part of a `Driver` that handles use."""

    def submit(self, tensor: Tensor, /) -> int:
        """Same contract as `WorkerCore.submit`."""

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        """Same contract as `Driver.wait`."""

    def done(self, handle: int) -> bool:
        """Same contract as `WorkerCore.done`."""


class Handle:
    """One collective call on its way."""

    def __init__(
        self,
        driver: Sums,
        number: int,
        timeout_s: float,
        finish: Callable[[Reduced], Any],
        *,
        may_continue: bool = False,
        note: Callable[[], object] = lambda: None,
        meter: StepMeter,
    ) -> None:
        """Wait for sum `number` of the driver.

        `may_continue`: `finish` may start another sum in place of a result; `note` is called before each of those.
        `meter` measures the time that `wait` blocks.
        """
        self._driver = driver
        self._number = number
        self._timeout_s = timeout_s
        self._finish = finish
        self._may_continue = may_continue
        self._note = note
        self._meter = meter
        self._reduced: Reduced | None = None
        """The driver's result, until the caller's result is made of it."""
        self._results: list[Any] = []

    def done(self) -> bool:
        """True if `wait` would return, or raise, at once. Starts the second sum of a call that has two."""
        if self._results or self._reduced is not None:
            return True
        if not self._driver.done(self._number):
            return False
        if not self._may_continue:
            return True
        try:
            return bool(self._advance(0.0))
        except HostError:
            return True

    def wait(self, timeout_s: float | None = None) -> Any:
        """Return the call's result; the same one if asked again. Raises what the call raises."""
        limit_s = self._timeout_s if timeout_s is None else _checked(timeout_s)
        with self._meter.blocked():
            while not self._results:
                self._advance(limit_s)
        return self._results[0]

    def _advance(self, timeout_s: float) -> list[Any]:
        """Wait for the sum on its way, and make the result of it or start the next sum."""
        if self._reduced is None:
            self._reduced = self._driver.wait(self._number, timeout_s)
        made = self._finish(self._reduced)
        self._reduced = None
        if isinstance(made, Started):
            self._note()
            self._number, self._finish = self._driver.submit(made.tensor), made.finish
        else:
            self._results.append(made)
        return self._results


class SteppedHandle(Handle):
    """A call in several exchanges, each begun when the ones before it are done: by `done`, or by `wait`."""

    def __init__(self, steps: Steps, timeout_s: float, finish: Callable[[Any], Any], meter: StepMeter) -> None:
        """Begin the first exchanges.

        Args:
            steps: Generator of lists of exchanges, which is sent their results.
            timeout_s: Time limit of `wait`, for all exchanges together.
            finish: Makes the caller's result.
            meter: Measures the time that `wait` blocks.

        Raises:
            HostError: The first exchanges cannot be.
        """
        self._steps = steps
        self._timeout_s = timeout_s
        self._finish = finish
        self._meter = meter
        self._results: list[Any] = []
        self._error: Exception | None = None
        self.is_taken = False
        """True once `wait` has returned or raised: the same for all workers that make the same calls."""
        self._pending: Sequence[PendingExchange] = next(steps)

    def done(self) -> bool:
        while not self._results and self._error is None:
            if not all(handle.done() for handle in self._pending):
                return False
            self._resume()
        return True

    def wait(self, timeout_s: float | None = None) -> Any:
        until = time.monotonic() + (self._timeout_s if timeout_s is None else _checked(timeout_s))
        with self._meter.blocked():
            while not self._results and self._error is None:
                try:
                    for handle in self._pending:
                        handle.wait(max(0.0, until - time.monotonic()))
                except (AllreduceTimeout, TransportTimeout):
                    raise  # and may be waited for again
                except HostError as error:
                    self._error = error
                else:
                    self._resume()
        self.is_taken = True
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _resume(self) -> None:
        """Begin the next exchanges, or end. All that were begun are done."""
        try:
            self._pending = self._steps.send([handle.wait(0) for handle in self._pending])
        except StopIteration as stop:
            self._results.append(self._finish(stop.value))
        except Exception as error:  # noqa: BLE001 (whoever waits is to have it)
            self._error = error


def _checked(timeout_s: float) -> float:
    return Checks(HostError, "wait").seconds("timeout_s", timeout_s)
