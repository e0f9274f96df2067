"""Probes under way: selection, timing, and their readings of the links."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from ...topologies.model import Topology
from ...topologies.routing import Routes
from ..errors import ControllerError
from ..p4runtime.session import SwitchSession
from .link_state import LinkState
from .link_watch import Evidence, LinkWatch, no_evidence
from .probe_reports import ProbeReports
from .probes import ProbeFrames, link_probes, plan_probes

_log = logging.getLogger(__name__)


class Prober:
    """Sends a plan's probes through the sessions, and brings what comes back into the state of the links.

    Attributes:
        probes: The plan; probes of single links replace some of it while these are lost (`ProbeReports`).
    """

    def __init__(
        self,
        topology: Topology,
        routes: Routes,
        sessions: Mapping[str, SwitchSession],
        links: LinkState,
        lease_ns: int | None,
        now_ns: int,
    ) -> None:
        """Plan probes over all links of the routes; the first are due now.

        Args:
            topology: The fabric.
            routes: Its routes.
            sessions: Open session of each switch, by name.
            links: State of the links, which receives the readings, with the period of probes.
            lease_ns: Lease of links whose probes do not return, in ns; None: links are never lost.
            now_ns: Present time, in ns.
        """
        self.period_ns = links.period_ns
        self.link_watch = LinkWatch(topology, lease_ns, now_ns)
        self._due_ns = now_ns
        self._without: set[str] = set()
        """Switches that the last probes could not be sent to."""
        self._topology = topology
        self._sessions = sessions
        self.probes = plan_probes(topology, routes)
        parts = link_probes(topology, self.probes)
        self._sent = (*self.probes, *parts)
        self.reports = ProbeReports(links, self.probes, parts)
        self._frames = ProbeFrames(topology, self._sent)

    def update_routes(self, routes: Routes) -> None:
        """Probe the links of these routes from now on."""
        self.probes = plan_probes(self._topology, routes)
        parts = link_probes(self._topology, self.probes)
        self._sent = (*self.probes, *parts)
        self._frames = ProbeFrames(self._topology, self._sent)
        self.reports.expect(self.probes, parts)

    def receive(self, frames: Iterable[bytes], now_ns: int) -> None:
        """Use frames that arrived at the switches' CPU ports."""
        finished = []
        for frame in frames:
            if self.link_watch.owns(frame):
                self.link_watch.receive(frame, now_ns)
            else:
                finished.append(frame)
        if finished:
            self.reports.receive(finished, now_ns)

    def update(self, now_ns: int, carried: Evidence = no_evidence) -> bool:
        """Update which links are down; return True if that has changed. `carried`: further evidence of links in use."""
        return self.link_watch.update(now_ns, lambda since_ns: self.reports.crossed(since_ns) | {*carried(since_ns)})

    @property
    def deadline_ns(self) -> int:
        """When the next probes are due."""
        return self._due_ns if self.link_watch.deadline_ns is None else min(self._due_ns, self.link_watch.deadline_ns)

    async def send(self, now_ns: int, lost: Collection[str]) -> None:
        """Send the probes that are due, except those that start at a lost switch."""
        by_switch: dict[str, list[tuple[int, bytes]]] = {}
        silent = {name for name, session in self._sessions.items() if not session.is_up}
        for switch, port, frame in self.link_watch.send(now_ns, silent | set(lost)):
            by_switch.setdefault(switch, []).append((port, frame))
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + self.period_ns
            sequence = self.reports.send_all(now_ns)
            for index in self.reports.due.tolist():
                probe = self._sent[index]
                if probe.switch not in lost:
                    frame = self._frames.frame(probe.index, sequence)
                    by_switch.setdefault(probe.switch, []).append((probe.port, frame))
        sending = (self._sessions[name].send_packets(packets) for name, packets in by_switch.items())
        for name, result in zip(by_switch, await asyncio.gather(*sending, return_exceptions=True), strict=True):
            if isinstance(result, ControllerError):  # its probes count as lost, its links become stale
                if name not in self._without:
                    _log.warning("no probes: %s", result)
                self._without.add(name)
            elif isinstance(result, BaseException):
                raise result
            else:
                self._without.discard(name)
