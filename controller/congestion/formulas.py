"""Queue bounds, and the thresholds and windows that they require. Packets of one size; C in packets/s, B = C·T with the
round trip T in empty queues; N flows. Pure arithmetic.

* DCTCP: Alizadeh et al., "Analysis of DCTCP", SIGMETRICS 2011; all flows in step, a packet per step of growth.
* Leaky buckets and strict priority: Le Boudec, Thiran, "Network Calculus", 2001, section 1.4.
* `marked_window_queue` is Weir's own; docs/queue-bounds.md has the proof.
"""

from __future__ import annotations

import math

# --- DCTCP ---


def dctcp_largest_queue(threshold: float, flows: int) -> float:
    """K + N: every flow adds its packet before the mark of the K-th comes back."""
    return threshold + flows


def dctcp_amplitude(product: float, threshold: float, flows: int) -> float:
    """½·√(2N(B + K)): how far the queue falls after its top."""
    return math.sqrt(2 * flows * (product + threshold)) / 2


def dctcp_least_queue(product: float, threshold: float, flows: int) -> float:
    """Below 0 the link falls idle."""
    return dctcp_largest_queue(threshold, flows) - dctcp_amplitude(product, threshold, flows)


def dctcp_least_threshold(product: float) -> float:
    """B/7: above it the link is never idle, however many flows there are."""
    return product / 7


def dctcp_thresholds(bound: int, product: float, flows: int) -> range:
    """Thresholds K that keep N flows at or below the bound and the link busy: B/7 < K ≤ Q* − N; empty if there are
    none.
    """
    return range(math.floor(dctcp_least_threshold(product)) + 1, bound - flows + 1)


# --- bounds for any arrival times ---


def population_queue(windows: float, share: float = 0.0, burst: float = 0.0) -> float:
    """(ΣW + σ)/(1 − u): at most ΣW packets of windows, lent or not, are anywhere, and all that others sent while the
    oldest waited is behind it. `share` u and `burst` σ are the others' leaky bucket, in shares of the link's rate and
    packets. Infinite where u ≥ 1.
    """
    return (windows + burst) / (1 - share) if share < 1 else math.inf


def marked_window_queue(threshold: int, windows: float, congested_windows: float, burst: float = 0.0) -> float:
    """K + ΣW + Σw + σ, where packets that find K or more carry the window w in place of W, and Σw ≤
    `marked_windows`.
    """
    return threshold + windows + congested_windows + burst


def marked_windows(threshold: float, share: float, min_product: float = 0.0) -> float:
    """(1 − u)·(K + B): largest sum of windows after marks that does not exceed the rate left by others.

    B is that of the shortest round trip; a packet that finds K in the queue is under way for as long as K + B packets
    take.
    """
    return (1 - share) * (threshold + min_product)


def inlet_queue(burst: float, share: float, links: int, packets: float) -> float:
    """σ − (1 − u)·(σ − L)/(R − u) + 1, and never more than σ: a leaky bucket that meets nothing else comes by L links,
    which bring L packets at once and R in the time of one. The last packet is the one that is being sent.
    """
    if burst <= links or packets <= share:
        return burst
    return min(burst, burst - (1 - share) * (burst - links) / max(packets - share, 1 - share) + 1)


def burst_behind(burst: float, packets_per_second: float, delay_s: float) -> float:
    """σ + ρ·D: the burst of a leaky bucket behind queues that hold a packet for at most D."""
    return burst + packets_per_second * delay_s


def pacing_gap_ns(flows: int, frame_bytes: int, rate_bps: float, share: float = 0.0) -> int:
    """Between two packets of each of N flows that share what others leave of a link."""
    return math.ceil(flows * 8e9 * frame_bytes / (rate_bps * max(1 - share, 0.01)))


def priority_delay_ns(burst_bytes: int, largest_bytes: int, rate_bps: float) -> int:
    """(σ + Lmax)/C: at one hop, of a class in strict priority that keeps to its leaky bucket."""
    return math.ceil(8e9 * (burst_bytes + largest_bytes) / rate_bps)
