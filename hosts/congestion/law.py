"""Interface of window laws: their inputs and outputs. A law does no I/O and reads no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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


Link = tuple[int, int]
"""INT's name of a directed link: its switch's node id, and that switch's egress port."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Facts about a job and its fabric that a law may use from the start."""

    window: int
    """The job's window, in rounds."""
    round_bytes: int
    """Bytes of a round's frame without INT."""
    streams: int
    """Maximum number of streams that share a link; at least 1."""
    hops: int
    """Maximum number of switches whose INT fits into a message."""
    rates_bps: Mapping[Link, float]
    """Rates of the links on which switches send."""


@runtime_checkable
class WindowLaw(Protocol):
    """Rounds that one worker may have in the network."""

    yields: bool = True
    """True if fewer rounds than the window may be in the network during repairs."""
    bounded: bool = False
    """True if it keeps to the windows that queue bounds rely on: without losses, one copy at a time is enough."""
    int_header: bytes = b""
    """INT's shim and header that contributions with lanes carry, so that results bring links' readings; empty: none."""
    unread: int = 0
    """Number of results with lanes whose INT was missing or unreadable."""

    @property
    def gap_ns(self) -> int:
        """Mean time between two rounds; 0: the window alone limits them."""
        return 0

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        """Begin a generation, with no rounds in the network."""

    def update(self, feedback: Feedback) -> None:
        """Handle feedback of new results."""

    def on_loss(self, rounds: int, now_ns: int) -> None:
        """Handle the presumed loss of this number of rounds."""

    def window(self, now_ns: int) -> int:
        """Return the maximum number of rounds in the network, at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class LawDescription:
    """A window law as it is registered: one in each module of `laws`, as DESCRIPTION."""

    name: str
    """Name in run files."""
    summary: str
    """Signal that windows follow, in one line."""
    make: Callable[[Setting], WindowLaw]
    """Make one worker's law."""
    bounded: bool = False
    """True if windows never exceed the switches' allowance, so that queues have bounds. With a user's law that says
    so, workers apply the smaller of the two.
    """
    reads_int: bool = False
    """True if the law sets `WindowLaw.int_header`, so that links' INT travels in the job's messages."""
