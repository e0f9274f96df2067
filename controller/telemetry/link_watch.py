"""Detection of links between switches that are down: one probe over each, separate from telemetry's by its index. Pure.

Telemetry's probes cross several links each, so that a lost one implicates them all. These cross one link, from a
packet-out through its port to the loopback address behind it, whatever the routes are; so a link that is down is seen
coming back. They use the control class, so that no flood in the bulk class delays them.

Their absence alone takes no link down: other evidence that packets crossed it since overrides it. Time in which probes
were due and not sent, while the controller wrote to slow switches, does not count as silence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...wire.frames import DSCP_CONTROL
from .probe_format import PAYLOAD_BYTES, SEQUENCES
from .probes import Probe, ProbeFrames, payload_of

FIRST_INDEX: Final = 1 << 31
"""The first index of these probes; telemetry's have lower ones."""
_PROBES_IN_A_LEASE: Final = 4
_BACK_AFTER: Final = 4
"""Number of successive answers after which a link that was down is up again."""
Evidence = Callable[[int], Collection[Endpoint]]
"""The links that something surely came over which was sent at or after an instant."""


def no_evidence(since_ns: int) -> Collection[Endpoint]:
    """Default: no evidence of any link."""
    return ()


class LinkWatch:
    """Every link from switch to switch, each direction by itself."""

    def __init__(self, topology: Topology, lease_ns: int | None, now_ns: int) -> None:
        """None: no link is ever taken for down."""
        self.down: frozenset[Endpoint] = frozenset()
        """Both ends of every link that is down, in one direction at least."""
        self.deadline_ns: int | None = None if lease_ns is None else now_ns
        """When the next probes are due."""
        self._topology = topology
        self._lease_ns = lease_ns or 0
        self._period_ns = max(self._lease_ns // _PROBES_IN_A_LEASE, 1)
        self._probes = [
            Probe(index, link.node, link.port, topology.peer(link).node, (link,))
            for index, link in enumerate(
                link
                for link in topology.directed_links
                if topology.is_switch(link.node) and topology.is_switch(topology.peer(link).node)
            )
        ]
        self._frames = ProbeFrames(topology, self._probes, DSCP_CONTROL)
        self._sequence = 0
        self._heard_ns = [now_ns] * len(self._probes)
        self._in_a_row = [_BACK_AFTER] * len(self._probes)

    def mark_down(self, links: Collection[Endpoint], now_ns: int) -> None:
        """Mark links as down until they answer, as they were when the controller died."""
        for probe in self._probes if self.deadline_ns is not None else ():
            if probe.certain[0] in links:
                self._heard_ns[probe.index], self._in_a_row[probe.index] = now_ns - self._lease_ns, 0
        self.update(now_ns)

    @staticmethod
    def owns(frame: bytes) -> bool:
        """Return True if a packet-in is one of these probes."""
        return len(frame) >= PAYLOAD_BYTES and payload_of(frame)[0] >= FIRST_INDEX

    def receive(self, frame: bytes, now_ns: int) -> None:
        """Handle a returned probe; other frames are ignored."""
        index, sequence = payload_of(frame)
        at = index - FIRST_INDEX
        before = (self._sequence - sequence) % SEQUENCES
        if at < len(self._probes) and sequence < SEQUENCES and 0 < before <= 2 * _PROBES_IN_A_LEASE:
            gap = self._silence_ns(at, now_ns) > 2 * self._period_ns
            self._in_a_row[at] = 1 if gap else self._in_a_row[at] + 1
            self._heard_ns[at] = now_ns

    def send(self, now_ns: int, without: Collection[str]) -> Iterator[tuple[str, int, bytes]]:
        """Yield (switch, egress port, frame) of all probes, if they are due. `without`: switches that cannot be
        spoken to, so that nothing is known of their links, which stay as they are.
        """
        if self.deadline_ns is None or now_ns < self.deadline_ns:
            return
        late_ns, self.deadline_ns = now_ns - self.deadline_ns, now_ns + self._period_ns
        self._heard_ns = [min(heard_ns + late_ns, now_ns) for heard_ns in self._heard_ns]
        sequence, self._sequence = self._sequence, (self._sequence + 1) % SEQUENCES
        for probe in self._probes:
            if probe.switch in without or probe.destination in without:
                self._heard_ns[probe.index] = now_ns
            else:
                frame = self._frames.frame(probe.index, sequence, FIRST_INDEX)
                yield probe.switch, probe.port, frame

    def update(self, now_ns: int, evidence: Evidence = no_evidence) -> bool:
        """Find out what is down; whether that has changed. A link that is up stays up as long as there is evidence of
        the last lease for it.
        """
        if self.deadline_ns is None:
            return False
        down, alive = set(), None
        for probe in self._probes:
            (link,) = probe.certain
            silent = self._silence_ns(probe.index, now_ns) >= self._lease_ns
            if silent and link not in self.down:
                alive = evidence(now_ns - self._lease_ns) if alive is None else alive
                silent = link not in alive
            if silent or (link in self.down and self._in_a_row[probe.index] < _BACK_AFTER):
                down |= {link, self._topology.peer(link)}
            if silent:
                self._in_a_row[probe.index] = 0
        changed = self.down != down
        self.down = frozenset(down)
        return changed

    def _silence_ns(self, index: int, now_ns: int) -> int:
        """Time for which one of these probes has not come back, minus the time for which the next are overdue."""
        assert self.deadline_ns is not None
        return now_ns - self._heard_ns[index] - max(now_ns - self.deadline_ns, 0)
