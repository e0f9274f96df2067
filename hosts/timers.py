"""The retransmission time-out: smoothed round-trip time with Karn's rule and exponential back-off (RFC 6298)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_GAIN: Final = 1 / 8
_VARIATION_GAIN: Final = 1 / 4
_VARIATIONS: Final = 4
MAX_DOUBLINGS: Final = 16
MAX_SHARED_DOUBLINGS: Final = 3
"""Of the back-off that new rounds take over: a lost packet must not cost later rounds more than this."""


@dataclass(slots=True)
class RetransmissionTimeout:
    """Time-out for a round's first sending, in ns, within [`least_ns`, `most_ns`].

    A round-trip here ends with the slowest worker, so it varies more than a network's; and when it grows beyond the
    time-out, every round is resent and no sample is valid. Hence RFC 6298's rule: a back-off stays for new rounds until
    a valid sample comes. A round that any worker has resent is no sample either: its time is that worker's time-out,
    and taking it as a round-trip would let the workers' time-outs drive each other up.
    """

    base_ns: int
    """Time-out before the first sample, and SRTT + 4·RTTVAR from then on."""
    least_ns: int
    most_ns: int
    smoothed_ns: float | None = None
    variation_ns: float = 0.0
    doublings: int = 0

    def sample(self, round_trip_ns: float) -> None:
        """Take the round-trip time of rounds that every worker sent once only (Karn's rule is the caller's)."""
        if self.smoothed_ns is None:
            self.smoothed_ns, self.variation_ns = round_trip_ns, round_trip_ns / 2
        else:
            error = round_trip_ns - self.smoothed_ns
            self.variation_ns += _VARIATION_GAIN * (abs(error) - self.variation_ns)
            self.smoothed_ns += _GAIN * error
        self.base_ns = int(self.smoothed_ns + _VARIATIONS * self.variation_ns)
        self.doublings = 0

    def expired(self, attempts: int) -> None:
        """A timer of a round that had been sent `attempts` times expired."""
        self.doublings = min(max(self.doublings, attempts), MAX_SHARED_DOUBLINGS)

    @property
    def first_ns(self) -> int:
        """Time-out of a round that is sent for the first time."""
        return min(max(self.base_ns, self.least_ns) << self.doublings, self.most_ns)

    @property
    def unscaled_ns(self) -> int:
        """Time-out without back-off, which a round doubles for each of its own resends."""
        return min(max(self.base_ns, self.least_ns), self.most_ns)
