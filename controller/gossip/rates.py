"""Iteration time of each pair of workers: from INT at once, or from averages of what workers measured.

A pull overlaps with computing, so an iteration of worker i that pulls from worker m takes max(C_i, N_im). From INT,

    N_im  =  8 · bytes / min over links e from m to i of (c_e − b_e)  +  latency there and back

with c the rate of a link and b others' traffic. The end-to-end averages of the NetMax paper need a pull over a slow
link before they know of it, and more of them before they believe it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ..telemetry.snapshot import Snapshot
from .errors import GossipError
from .policy import Floats

MIN_FREE_SHARE: Final = 0.001
"""Share of a link's rate that is taken to be free at the least, so that a full link is slow and not infinitely so."""

Paths = Callable[[str, str], Iterable[Endpoint]]
"""Directed links from a host to another."""


def transfer_seconds(
    topology: Topology, snapshot: Snapshot, hosts: Sequence[str], message_bytes: int, paths: Paths | None = None
) -> Floats:
    """Return how long a pull of each pair takes, from the newest telemetry.

    Args:
        topology: Fabric with the rates and delays of its links.
        snapshot: Others' traffic on every link; links that are not in it count as idle.
        hosts: Hosts of the workers, by rank.
        message_bytes: Bytes of a worker's weights on the wire, headers included.
        paths: Links that traffic takes; None: any shortest path, so the slowest link of them all counts.

    Returns:
        (workers, workers) seconds; entry (i, m) is a pull of worker i from worker m, the diagonal is 0.
    """
    if message_bytes <= 0:
        raise GossipError("bytes of a message must be > 0", place="message_bytes", value=message_bytes)
    path_of: Paths = Routes(topology).shares if paths is None else paths
    seconds = np.zeros((len(hosts), len(hosts)))
    for i, puller in enumerate(hosts):
        for m, source in enumerate(hosts):
            if i != m:
                data, request = tuple(path_of(source, puller)), tuple(path_of(puller, source))
                free = min(_free_bps(topology, snapshot, link) for link in data)
                delay = _delay_seconds(topology, snapshot, data) + _delay_seconds(topology, snapshot, request)
                seconds[i, m] = 8 * message_bytes / free + delay
    return seconds


def pair_seconds(compute_s: Floats, transfers_s: Floats) -> Floats:
    """Return the iteration times max(C_i, N_im) as policies take them, (workers, workers) s; the diagonal is C.

    Args:
        compute_s: (workers,) seconds that each worker computes.
        transfers_s: (workers, workers) seconds of a pull; inf: the pair may not exchange.
    """
    if compute_s.ndim != 1 or transfers_s.shape != (len(compute_s), len(compute_s)):
        raise GossipError(
            f"computing times of shape {compute_s.shape} and transfers of shape {transfers_s.shape}; allowed: (n,) and "
            "(n, n)"
        )
    seconds: Floats = np.maximum(compute_s[:, None], transfers_s)
    np.fill_diagonal(seconds, compute_s)
    return seconds


class EndToEndAverages:
    """Moving averages of measured pulls, one for each ordered pair: T ← β·T + (1 − β)·t."""

    def __init__(self, workers: int, keep: float = 0.5) -> None:
        """Start without a measurement.

        Args:
            workers: Number of workers.
            keep: β, the weight of the old average, in [0, 1).
        """
        if not 0 <= keep < 1:
            raise GossipError("the weight of the old average must be >= 0 and < 1", place="keep", value=keep)
        self._keep = keep
        self._seconds = np.full((workers, workers), np.nan)

    def observe(self, worker: int, source: int, seconds: float) -> None:
        """Record that a pull of `worker` from `source` took so long, in s."""
        before = self._seconds[worker, source]
        self._seconds[worker, source] = (
            seconds if np.isnan(before) else self._keep * before + (1 - self._keep) * seconds
        )

    @property
    def transfers_s(self) -> Floats:
        """Averages by ordered pair, (workers, workers) s; a pair without a measurement has the mean of the others."""
        known = self._seconds[~np.isnan(self._seconds)]
        filled: Floats = np.where(np.isnan(self._seconds), known.mean() if len(known) else 0.0, self._seconds)
        np.fill_diagonal(filled, 0.0)
        return filled


def _free_bps(topology: Topology, snapshot: Snapshot, link: Endpoint) -> float:
    rate_bps, view = topology.link_at(link).rate_bps, snapshot.links.get(link)
    return max(rate_bps - (0.0 if view is None else view.background_bps), MIN_FREE_SHARE * rate_bps)


def _delay_seconds(topology: Topology, snapshot: Snapshot, path: Iterable[Endpoint]) -> float:
    views = ((topology.link_at(link).delay_ns, snapshot.links.get(link)) for link in path)
    return sum(delay_ns * 1e-9 + (0.0 if view is None else view.latency_us * 1e-6) for delay_ns, view in views)
