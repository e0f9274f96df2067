"""Distinguishes a slow network from a dead worker: telemetry may show that heartbeats cannot arrive in time. Pure.

silent host ─▶ links on its path to the controller ─▶ latency, loss, silence of each ─▶ a reason, or none
"""

from __future__ import annotations

from typing import Final

from ...topologies.model import Endpoint
from ..leases import HEARTBEATS_IN_A_LEASE
from ..planning.planner import Planner
from ..telemetry.link_state import LinkState

NEGLIGIBLE: Final = 1e-6
"""Probability of losing all heartbeats of a lease, below which losses do not explain a host's silence."""


class SlowPaths:
    """The ways that heartbeats take through the fabric."""

    def __init__(self, planner: Planner, links: LinkState, controller_host: str) -> None:
        """`controller_host` is where the controller takes them. Raises TopologyError for one that the fabric lacks."""
        planner.topology.host(controller_host)
        self._planner = planner
        self._links = links
        self._controller_host = controller_host

    def why_slow(self, host: str, lease_ns: int, now_ns: int) -> str:
        """Return the known reason that delays a host's heartbeats; empty if there is none, so that the host is dead."""
        routes = self._planner.routes
        if not routes.reaches(host, self._controller_host):
            return f"no way leads from {host} to {self._controller_host}"
        snapshot = self._links.snapshot(now_ns)
        way = [link for link in routes.shares(host, self._controller_host) if link in snapshot.links]
        if silent := [link for link in way if link in snapshot.stale]:
            return f"nothing was heard of {_names(silent)} of late"
        if lossy := [link for link in way if snapshot.links[link].loss ** HEARTBEATS_IN_A_LEASE > NEGLIGIBLE]:
            return f"{_names(lossy)} may lose {100 * max(snapshot.links[link].loss for link in lossy):.0f} % of packets"
        waits_us = sum(snapshot.links[link].latency_us for link in way)
        if 1e3 * waits_us * HEARTBEATS_IN_A_LEASE >= lease_ns:
            return f"packets wait for {waits_us / 1e3:.3g} ms on the way from {host}"
        return ""


def _names(links: list[Endpoint]) -> str:
    return ", ".join(map(str, sorted(links)))
