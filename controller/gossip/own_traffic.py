"""Traffic of a job's own pulls, which telemetry counts with others' traffic: a link that pulls keep busy is not slow.

A state machine without a clock. Averages are exponential, as those of telemetry's rates (`telemetry.link_state`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...topologies.model import Endpoint
from .errors import GossipError
from .rates import Paths

_KEPT: Final = 5
"""Time constants after which an ended pull counts no more; its weight is below 1 % then."""


@dataclass(slots=True)
class _Pull:
    puller: str
    source: str
    began_ns: int
    ended_ns: int | None = None


class OwnTraffic:
    """Pulls of one job, under way and recent."""

    def __init__(self, message_bytes: int, average_ns: int) -> None:
        """Start without a pull.

        Args:
            message_bytes: Bytes of a worker's weights on the wire.
            average_ns: Time constant of telemetry's averages, in ns.
        """
        for name, value in (("message_bytes", message_bytes), ("average_ns", average_ns)):
            if value <= 0:
                raise GossipError(f"{name} must be > 0", place=name, value=value)
        self._bits, self._average_ns = 8 * message_bytes, average_ns
        self._pulls: list[_Pull] = []

    def begin(self, puller: str, source: str, now_ns: int) -> None:
        """Record that the host `puller` begins to pull from the host `source`."""
        self._pulls.append(_Pull(puller, source, now_ns))

    def end(self, puller: str, source: str, now_ns: int) -> None:
        """Record that the pull of these hosts that is under way has come, or has failed."""
        for pull in self._pulls:
            if pull.ended_ns is None and (pull.puller, pull.source) == (puller, source):
                pull.ended_ns = now_ns
                return

    def on_links(self, paths: Paths, rates_bps: Mapping[Endpoint, float], now_ns: int) -> dict[Endpoint, float]:
        """Return the average traffic of pulls on each link, in bit/s.

        A pull under way is taken to have used its path evenly until now, or to go on at the path's rate.

        Args:
            paths: Links from a host to another, with the share of traffic on each if it is a mapping.
            rates_bps: Rates of the links.
            now_ns: The time.
        """
        self._pulls = [
            pull for pull in self._pulls if pull.ended_ns is None or now_ns - pull.ended_ns < _KEPT * self._average_ns
        ]
        traffic: dict[Endpoint, float] = {}
        for pull in self._pulls:
            path = paths(pull.source, pull.puller)
            shares = path if isinstance(path, Mapping) else dict.fromkeys(path, 1.0)
            average_bps = self._average_bps(pull, shares, rates_bps, now_ns)
            for link, share in shares.items():
                traffic[link] = traffic.get(link, 0.0) + share * average_bps
        return traffic

    def _average_bps(
        self, pull: _Pull, path: Iterable[Endpoint], rates_bps: Mapping[Endpoint, float], now_ns: int
    ) -> float:
        if pull.ended_ns is None:
            ended_ns = now_ns
            taken_ns = max(now_ns - pull.began_ns, 1e9 * self._bits / min(rates_bps[link] for link in path))
        else:
            ended_ns = pull.ended_ns
            taken_ns = max(ended_ns - pull.began_ns, 1)
        since_end = math.exp((ended_ns - now_ns) / self._average_ns)
        since_begin = math.exp((pull.began_ns - now_ns) / self._average_ns)
        return 1e9 * self._bits / taken_ns * (since_end - since_begin)
