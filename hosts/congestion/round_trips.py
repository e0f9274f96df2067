"""The retransmission time-out of a flow of packets, from the round trips of its packets (RFC 6298)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_TIMEOUT_NS: Final = 100_000_000
MIN_TIMEOUT_NS: Final = 10_000_000
"""RFC 6298 has a second, which is for the Internet."""
MAX_TIMEOUT_NS: Final = 60_000_000_000
_MAX_DOUBLINGS: Final = 16


@dataclass(slots=True)
class RoundTripTimeout:
    """RTO, with back-off by doubling."""

    first_ns: int = FIRST_TIMEOUT_NS
    """Before the first sample."""
    min_ns: int = MIN_TIMEOUT_NS
    max_ns: int = MAX_TIMEOUT_NS
    doublings: int = 0
    """Time-outs since the last sample."""
    smoothed_ns: float | None = None
    """SRTT; None before the first sample."""
    variation_ns: float = 0.0
    """RTTVAR."""

    def sample(self, round_trip_ns: int) -> None:
        """Record the round trip of a packet whose acknowledgement identifies its transmission (section 2)."""
        if self.smoothed_ns is None:
            self.smoothed_ns, self.variation_ns = float(round_trip_ns), round_trip_ns / 2
        else:
            self.variation_ns += (abs(self.smoothed_ns - round_trip_ns) - self.variation_ns) / 4
            self.smoothed_ns += (round_trip_ns - self.smoothed_ns) / 8
        self.doublings = 0

    def expire(self) -> None:
        """Double the time-out until the next sample (section 5.5)."""
        self.doublings += 1

    @property
    def ns(self) -> int:
        """Time-out in ns: smoothed round trip and 4 variations, at least `min_ns`, doubled `doublings` times, at most
        `max_ns` (RFC 6298).
        """
        base = self.first_ns
        if self.smoothed_ns is not None:
            base = max(self.min_ns, int(self.smoothed_ns + 4 * self.variation_ns))
        return min(base << min(self.doublings, _MAX_DOUBLINGS), self.max_ns)
