"""What every window law is told, and answers. A law does no I/O and reads no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...wire.control import Pacing


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the results that have come at one instant say of the network."""

    now_ns: int
    rounds: int
    """How many results have come."""
    marked: int
    """How many of them carry the congestion flag."""
    in_flight: int
    """How many are in the network still."""
    window: int | None
    """What the most loaded queue allows, by the newest of them; None where it says nothing of the queues (it was
    fetched).
    """
    round_trip_ns: int | None
    """The least round trip of those with lanes that were sent once only; None where there is none."""
    int_headers: NDArray[np.uint8] | None = None
    """(rounds, size): the INT that came with each, as `Datagrams.int_headers`; None where there is none."""


class WindowLaw(Protocol):
    """Rounds that one worker may have in the network."""

    yields: bool
    """Whether fewer rounds than the window may be in the network while others are repaired."""
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
        """So many rounds are taken for lost."""
        ...

    def window(self, now_ns: int) -> int:
        """Rounds in the network at most, at least 1."""
        ...
