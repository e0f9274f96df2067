"""Checks of the values that callers hand in, which return the value in Python's own type, or raise an error.

Pure, and without any import of other packages: NumPy's and PyTorch's numbers are read by the protocols of numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from . import PlacedError

LONGEST_S: Final = 9e9
"""Longest time that a lock can be waited for, in s: 285 years (`threading.TIMEOUT_MAX`)."""
_LONGEST_SHOWN: Final = 80
_NOT_A_NUMBER: Final = (TypeError, ValueError, OverflowError, RuntimeError)
"""Exceptions of `float(value)`; PyTorch's tensors of several elements raise RuntimeError."""

T = TypeVar("T")


def shown(value: object) -> str:
    """Return a value as messages show it: one line of at most 80 characters, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (integers of 4,300 digits, and what a user's class raises)
        text = f"<{type(value).__name__}>"
    if "\n" in text:  # NumPy writes an array of several dimensions in several lines
        text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks of the arguments of one call."""

    error: type[PlacedError]
    """Class of the errors."""
    place: str = ""
    """Place of the errors."""

    def refuse(self, name: str, value: object, problem: str, *allowed: object) -> PlacedError:
        """Return the error for a value that is not allowed."""
        return self.error(f"{name} {shown(value)} {problem}", place=self.place, value=value, allowed=allowed or None)

    def integer(self, name: str, value: object, low: int = 0, high: int = (1 << 63) - 1) -> int:
        """Return an integer in low…high. Raises `error`."""
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise self.refuse(name, value, "is not an integer", f"{low}…{high}") from None
        if not low <= number <= high:
            raise self.refuse(name, value, "is out of range", f"{low}…{high}")
        return number

    def number(self, name: str, value: object) -> float:
        """Return a number, which may be infinite or NaN. Raises `error`."""
        try:
            if isinstance(value, str | bytes | bytearray):
                raise TypeError
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise self.refuse(name, value, "is beyond the largest float", "numbers up to 1.8e308") from None
        except _NOT_A_NUMBER:
            raise self.refuse(name, value, "is not a number", "a number") from None

    def seconds(self, name: str, value: object, *, positive: bool = False) -> float:
        """Return a time in s that can be waited for, of at least 0, or above it. Raises `error`."""
        number = self.number(name, value)
        if not 0 <= number <= LONGEST_S or (positive and not number):
            low = "numbers above 0" if positive else "numbers from 0"
            raise self.refuse(name, value, "is not a time in seconds", f"{low} to {LONGEST_S:g}")
        return number

    def text(self, name: str, value: object) -> str:
        """Return a text that can be encoded. Raises `error`."""
        if not isinstance(value, str):
            raise self.refuse(name, value, "is not text", "a str")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.refuse(name, value, "has characters that UTF-8 cannot encode", "a str of UTF-8") from None
        return value

    def texts(self, name: str, value: object) -> list[str]:
        """Return a list of texts; one text is none. Raises `error`."""
        return [self.text(f"{name}[{index}]", item) for index, item in enumerate(self.items(name, value, "texts"))]

    def items(self, name: str, value: object, kind: str) -> list[object]:
        """Return the elements of a collection that is neither text nor bytes. Raises `error`."""
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray):
            try:
                return list(value)
            except TypeError:  # NumPy's arrays without an axis
                pass
        raise self.refuse(name, value, "is not a list", f"a list of {kind}")

    def choice(self, name: str, value: object, allowed: Sequence[str]) -> str:
        """Return one of the allowed names. Raises `error`."""
        if not isinstance(value, str) or value not in allowed:
            raise self.refuse(name, value, "is unknown", *allowed)
        return value

    def flag(self, name: str, value: object) -> bool:
        """Return True or False. Raises `error`."""
        try:
            if value in (0, 1):
                return bool(value)
        except Exception:  # noqa: BLE001 (arrays, whose truth is ambiguous, and users' classes)
            pass
        raise self.refuse(name, value, "is neither true nor false", True, False)

    def instance(self, name: str, value: object, kind: type[T]) -> T:
        """Return an object of a class. Raises `error`."""
        if not isinstance(value, kind):
            raise self.refuse(name, value, f"is no {kind.__name__}", kind.__name__)
        return value
