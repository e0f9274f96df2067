"""Network calculus: arrival curves, service curves, and one function per theorem. Pure arithmetic.

    flows ────────────────▶ TokenBucket: arrival curve ─┐
    windows ──────────────▶ packets in the network ─────┼─▶ a theorem ─▶ bound of a backlog or a delay
    link, control class ──▶ RateLatency: service curve ─┘

Data are counted in packets or in bytes, the same in all arguments of a call. Rates are per second. The theorems for
windows are Weir's own, and docs/queue-bounds.md proves them. [LBT] is the source of the others:

J.-Y. Le Boudec, P. Thiran, "Network Calculus", Springer LNCS 2050, 2001.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Arrival curve σ + ρ·t: the most that a flow brings in any time t ([LBT] section 1.2.1)."""

    burst: float = 0.0
    """σ."""
    rate: float = 0.0
    """ρ."""

    def per(self, unit: float) -> TokenBucket:
        """Return the same curve, counted in units of so much."""
        return TokenBucket(self.burst / unit, self.rate / unit)

    def __add__(self, other: TokenBucket) -> TokenBucket:
        return TokenBucket(self.burst + other.burst, self.rate + other.rate)


NO_TRAFFIC: Final = TokenBucket()


@dataclass(frozen=True, slots=True)
class RateLatency:
    """Service curve R·(t − T)⁺: the least that a server with data sends in a time t ([LBT] section 1.3.1)."""

    rate: float
    """R."""
    latency_s: float = 0.0
    """T."""

    @property
    def blocked(self) -> float:
        """R·T: data that could have been sent in the latency; 0 without one."""
        return self.rate * self.latency_s


_LEAST_LEFT: Final = 0.01
"""Share of a link taken as left by a class in priority that uses it up; the latency is infinite then."""


def aggregate(flows: Iterable[TokenBucket]) -> TokenBucket:
    """Return the arrival curve of several flows together: the sum of their curves ([LBT] section 1.2)."""
    return sum(flows, NO_TRAFFIC)


def output_curve(arrival: TokenBucket, delay_s: float) -> TokenBucket:
    """Return the arrival curve behind a system that delays by at most D: σ + ρ·D + ρ·t ([LBT] theorem 1.4.3, the
    system's service curve being a pure delay).
    """
    return TokenBucket(arrival.burst + arrival.rate * delay_s, arrival.rate)


def left_by_priority(link_rate: float, priority: TokenBucket, frame: float) -> RateLatency:
    """Return the service curve left by a class in strict priority: rate C − ρ, latency σ/(C − ρ) ([LBT] proposition
    1.3.4).

    A frame that is being sent is not interrupted, so σ grows by what the class brings meanwhile, ρ·`frame`/C.
    """
    if priority.rate >= link_rate:
        return RateLatency(_LEAST_LEFT * link_rate, math.inf)
    left = max(link_rate - priority.rate, _LEAST_LEFT * link_rate)
    return RateLatency(left, (priority.burst + frame * priority.rate / link_rate) / left)


def delay_bound(arrival: TokenBucket, service: RateLatency) -> float:
    """Return T + σ/R, in seconds; infinite if ρ > R ([LBT] theorem 1.4.2)."""
    return service.latency_s + arrival.burst / service.rate if arrival.rate <= service.rate else math.inf


def peak_limited_backlog(arrival: TokenBucket, peak: TokenBucket, service: RateLatency) -> float:
    """Return the backlog of a flow that two curves limit, its token bucket and that of the links by which it comes:
    σ − (R − ρ)·(σ − M)/(p − ρ) + 1, and never more than σ ([LBT] proposition 1.4.1, T = 0).

    The links bring M packets at once, then p, where p counts as R if it is less. One packet is being sent.
    """
    if arrival.burst <= peak.burst or peak.rate <= arrival.rate:
        return arrival.burst
    saved = (service.rate - arrival.rate) / (max(peak.rate, service.rate) - arrival.rate)
    return min(arrival.burst, (1 - saved) * arrival.burst + saved * peak.burst + 1)


def windowed_backlog(windows: float, arrival: TokenBucket, service: RateLatency) -> float:
    """Return the backlog in packets, (ΣW + σ + R·T)/(1 − ρ/R): theorem 2 of docs/queue-bounds.md.

    At most ΣW packets of flows with windows are anywhere, and all that the others sent while the oldest packet waited
    is behind it. Infinite if ρ ≥ R.
    """
    if arrival.rate >= service.rate:
        return math.inf
    return (windows + arrival.burst + service.blocked) / (1 - arrival.rate / service.rate)


def marked_backlog(
    threshold: int, windows: float, congested_windows: float, arrival: TokenBucket, service: RateLatency
) -> float:
    """Return the backlog in packets, K + ΣW + Σw + σ + R·T: theorem 3 of docs/queue-bounds.md.

    Packets that find K or more in the queue carry the window w in place of W, and Σw ≤ `marked_windows`.

    Args:
        threshold: K, the depth in packets from which on packets are marked.
        windows: ΣW, the sum of the windows without marks, in packets.
        congested_windows: Σw, the sum of the windows with marks, in packets.
        arrival: Arrival curve of flows without windows, with the burst σ, in packets.
        service: Service curve of the link, with the rate R and the latency T.
    """
    return threshold + windows + congested_windows + arrival.burst + service.blocked


def marked_windows(threshold: float, share: float, min_product: float = 0.0) -> float:
    """Return (1 − u)·(K + B): the largest Σw of theorem 3, which does not exceed the rate that others leave.

    B is that of the shortest round trip: a packet that finds K in the queue is under way for as long as K + B packets
    take. `share` is u.
    """
    return (1 - share) * (threshold + min_product)
