"""The retransmission time-out of a worker's rounds: a multiple of the least recent round trip, with back-off."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

REMEMBERED: Final = 16
"""Number of past round trips of which the minimum is taken."""
MULTIPLE: Final = 3
"""Queues on the way make a round trip longer than the least one; marking bounds them."""
ROUND_TRIPS: Final = 2
"""A time-out that has doubled is halved again while half of it still holds this many of the newest round trip."""
MAX_DOUBLINGS: Final = 16
MAX_SHARED_DOUBLINGS: Final = 6
"""Maximum number of doublings of the time-out that apply to new rounds: bounds the cost of a lost packet to later
rounds.
"""


@dataclass(slots=True)
class RetransmissionTimeout:
    """Time-out for a round's first sending, in ns, within [`min_ns`, `max_ns`].

    A round trip here ends with the slowest worker: when that one waits for its own time-out in an earlier round, all
    others see a long round trip in this one. An average of them (RFC 6298) would let the workers' time-outs drive each
    other up without end; the minimum of the last few is the network's own. A worker that waits for a slow one resends
    in vain, less and less often. As in RFC 6298, each expiry doubles the time-out for new rounds too, until a valid
    sample comes, and here until that one fits: if round trips vary much, a time-out from the minimum alone would expire
    again and again.
    """

    initial_ns: int
    """Time-out before the first sample of a round with lanes."""
    min_ns: int
    max_ns: int
    doublings: int = 0
    shortest_ns: int = 0
    """The least round trip of a round with lanes since `begin`; 0 before the first."""
    _min_sample_ns: int | None = None
    """Minimum of `_samples`; None if there are no samples."""
    _samples: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _without_lanes: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def begin(self) -> None:
        """Begin with other paths, on which no round has expired yet."""
        self.doublings = 0
        self.shortest_ns = 0

    def sample(self, round_trip_ns: int, *, has_lanes: bool = True) -> None:
        """Add the round-trip time of rounds that every worker sent only once (Karn's rule is up to the caller).

        A round without lanes has a fifteenth of the size of one with lanes, and on slow links it is that much faster: a
        time-out of three times its round trip would expire before the first round with lanes can be back. Its sample
        only shows that rounds come through again, as long as there is no other sample.
        """
        (self._samples if has_lanes else self._without_lanes).append(round_trip_ns)
        if has_lanes:
            self._min_sample_ns = min(self._samples)
            self.shortest_ns = min(self.shortest_ns or round_trip_ns, round_trip_ns)
        if self._samples and not has_lanes:
            return
        while self.doublings and self.unscaled_ns << self.doublings - 1 >= ROUND_TRIPS * round_trip_ns:
            self.doublings -= 1

    @property
    def round_trip_ns(self) -> int:
        """The least of the last round trips, of rounds with lanes if there were any; 0 before the first sample."""
        min_ns = self._min_sample_ns
        return min(self._without_lanes, default=0) if min_ns is None else min_ns

    def expired(self) -> None:
        """Note that timers of rounds expired."""
        self.doublings = min(self.doublings + 1, MAX_SHARED_DOUBLINGS)

    @property
    def first_ns(self) -> int:
        """Time-out of a round that is sent for the first time."""
        return min(self.unscaled_ns << self.doublings, self.max_ns)

    @property
    def unscaled_ns(self) -> int:
        """Time-out without back-off, which a round doubles for each of its own resends."""
        min_ns = self._min_sample_ns
        base = self.initial_ns if min_ns is None else MULTIPLE * min_ns
        return min(max(base, self.min_ns), self.max_ns)
