"""HPCC's law, which reads INT (Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019, algorithm 1).

A link's bytes in flight, as a share of what it carries in a base round trip T: u' = min(q, q')/(C·T) + txRate/C, with
its queue q now and q' as it was told last. U follows the largest u' on the way, by the weight τ/T of the time τ between
the two. With U ≥ η, or after five steps of growth, W = W_c/(U/η) + W_AI, else W = W_c + W_AI; W_c is what W was a round
trip ago, and W_AI = (1 − η)·C·T/N. Rounds leave at the pace of W/T: bursts would make queues of their own, and a window
of whole rounds alone may be most of a round too small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from ...wire.control import Pacing
from .law import Feedback

TARGET: Final = 0.95
"""η: the share of a link that is to be used."""
MOST_STEPS: Final = 5
"""maxStage: so often the window grows by W_AI alone."""


@dataclass(frozen=True, slots=True)
class Hop:
    """What INT says of one link on the way."""

    rate_bps: float
    bytes_sent: int
    """Bytes that it has carried since it came up."""
    queue_bytes: int


class Hpcc:
    """Rounds in the network by what links say of themselves."""

    yields = True

    def __init__(self, hops: Callable[[], Mapping[str, Hop]], *, round_bytes: int, flows: int) -> None:
        """`hops` gives the INT that has come with the newest results, by link. `flows` is N: streams
        that are expected to share a link; `round_bytes` a round's frame.
        """
        self._hops = hops
        self._round_bytes = round_bytes
        self._flows = flows
        self.begin(Pacing(), 0)

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._window = self._reference = float(pacing.window)
        self._trip_ns: int | None = None
        self._told: tuple[int, Mapping[str, Hop]] | None = None
        self._utilisation: float | None = None
        self._steps = 0
        self._come = 0  # results, ever
        self._reference_end = 0  # so many have come when all is back that was under way as W_c was set

    def take(self, feedback: Feedback) -> None:
        self._come += feedback.rounds
        if feedback.round_trip_ns is None:  # a tensor begins, with rounds that fill no link, or rounds were repaired
            self._told = None
            return
        self._trip_ns = max(1, min(feedback.round_trip_ns, self._trip_ns or feedback.round_trip_ns))
        if self._told is not None and feedback.now_ns <= self._told[0]:
            return
        hops, told = self._hops(), self._told
        self._told = (feedback.now_ns, hops)
        if told is None or not (both := hops.keys() & told[1].keys()):  # or the job has moved
            return
        pairs = [(told[1][link], hops[link]) for link in both]
        self._measure(pairs, feedback.now_ns - told[0], self._trip_ns)
        product = min(hop.rate_bps for hop in hops.values()) * self._trip_ns / 8e9 / self._round_bytes
        self._adjust(product, feedback.in_flight)

    def _measure(self, pairs: Sequence[tuple[Hop, Hop]], passed_ns: int, trip_ns: int) -> None:
        """U from two readings of each link."""
        most = max(
            8e9 * min(old.queue_bytes, new.queue_bytes) / (new.rate_bps * trip_ns)
            + 8e9 * (new.bytes_sent - old.bytes_sent) / (new.rate_bps * passed_ns)
            for old, new in pairs
        )
        if self._utilisation is None:
            self._utilisation = most
        weight = min(passed_ns, trip_ns) / trip_ns
        self._utilisation += weight * (most - self._utilisation)

    def _adjust(self, product: float, in_flight: int) -> None:
        """W, and a round trip after the last time W_c, from U and C·T in rounds."""
        assert self._utilisation is not None
        growth = (1 - TARGET) * product / self._flows
        cut = self._utilisation >= TARGET or self._steps >= MOST_STEPS
        window = self._reference / (self._utilisation / TARGET) if cut and self._utilisation else self._reference
        window = min(max(window + growth, growth), max(product, 1.0))
        if self._come > self._reference_end:  # what was sent under W_c has begun to come back
            self._steps = 0 if cut else self._steps + 1
            self._reference = window
            self._reference_end = self._come + in_flight
        self._window = window

    def lose(self, rounds: int, now_ns: int) -> None:
        """The links say themselves how full they are."""

    def window(self, now_ns: int) -> int:
        """A round may begin while less than W is in the network; the pace makes it W on mean."""
        return max(1, ceil(self._window))

    @property
    def gap_ns(self) -> int:
        return 0 if self._trip_ns is None else int(self._trip_ns / self._window)
