"""Interface of window laws: their inputs and outputs. A law does no I/O and reads no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...wire.control import Pacing


@dataclass(frozen=True, slots=True)
class Feedback:
    """Network feedback in the results that have come at one instant."""

    now_ns: int
    rounds: int
    """Number of results."""
    marked: int
    """Number of results with the congestion flag."""
    in_flight: int
    """Rounds still in the network."""
    window: int | None
    """Window allowed by the most loaded queue, by the newest result; None if it carries none (it was fetched)."""
    round_trip_ns: int | None
    """Minimum round trip of results with lanes that were sent once only; None without such results."""
    int_headers: NDArray[np.uint8] | None = None
    """(rounds, size): INT of each result, as `Datagrams.int_headers`; None without INT."""


class WindowLaw(Protocol):
    """Rounds that one worker may have in the network."""

    yields: bool
    """True if fewer rounds than the window may be in the network during repairs."""
    int_header: bytes
    """INT's shim and header, which contributions with lanes take along so that results bring what links say; empty:
    they have none.
    """

    @property
    def gap_ns(self) -> int:
        """Between one round and the next, on mean; 0: the window alone says when."""
        ...

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        """A generation begins, with nothing in the network."""
        ...

    def take(self, feedback: Feedback) -> None:
        """Results have come."""
        ...

    def lose(self, rounds: int, now_ns: int) -> None:
        """Handle the presumed loss of this number of rounds."""
        ...

    def window(self, now_ns: int) -> int:
        """Rounds in the network at most, at least 1."""
        ...
