"""All-reduce of 64 MB among eight processes in Mininet, summed in a switch, beside Gloo's ring over the same links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weir.bench.goodput import NET_SHARE
from weir.bench.measure import Aim, Figure
from weir.experiments.backends.all_reduce import RATE_BPS, VALUES, WORKERS, turns
from weir.topologies.mininet import fabric as mininet_fabric

RUNS: Final = 3
LINE_AIM: Final = 0.9
GLOO_AIM: Final = 1.6


def obstacle() -> str | None:
    """Return the reason why this cannot run here; None if it can."""
    return mininet_fabric.obstacle()


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module. Raises TopologyError where Mininet cannot be had."""
    taken = list(turns(RUNS))
    rates = tuple(4 * VALUES / mine for mine, _ in taken)
    yield Figure(
        f"goodput of each of {WORKERS} processes in Mininet, links of {RATE_BPS // 1_000_000} Mbit/s",
        "B/s",
        rates,
        "line rate net of headers",
        (RATE_BPS * NET_SHARE / 8,) * RUNS,
        aim=Aim(LINE_AIM, of_ratio=True),
    )
    theirs = tuple(4 * VALUES / seconds for _, seconds in taken if seconds is not None)
    if theirs:
        yield Figure(
            "all-reduce of 64 MB among 8 processes",
            "B/s",
            rates,
            "Gloo's ring",
            theirs,
            aim=Aim(GLOO_AIM, of_ratio=True),
        )
