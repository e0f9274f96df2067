"""Pending result of a call on the transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ..errors import TransportError

Result = TypeVar("Result")


class Pending(Generic[Result]):
    """One call's outcome, once there is one."""

    def __init__(self, settled: Callable[[], None]) -> None:
        """`settled` is called when the outcome is there."""
        self.done = False
        self._settled = settled
        self._value: Result | None = None
        self._error: Exception | None = None

    def finish(self, value: Result) -> None:
        """Complete the call; the first outcome counts."""
        if not self.done:
            self._value, self.done = value, True
            self._settled()

    def fail(self, error: Exception) -> None:
        """Complete the call with an error; the first outcome counts."""
        if not self.done:
            self._error, self.done = error, True
            self._settled()

    def result(self) -> Result:
        """Return the value. Raises the error, or TransportError while the call is under way."""
        if not self.done:
            raise TransportError("transport: the call is still under way")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
