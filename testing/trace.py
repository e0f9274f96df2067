"""The way of one packet through a test's fabric: parser states, tables, drops and links, hop by hop."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from ..emulator.replication import ReplicationEngine
from ..emulator.switch import Switch
from ..topologies.model import Endpoint, Topology

MAX_HOPS: Final = 64
"""Switches that a trace follows a packet and its copies through."""
_DROPS: Final = {
    "ingress_drops": "the program dropped it in ingress",
    "egress_drops": "the program dropped it in egress",
    "no_program": "the switch has no program",
    "no_port": "the switch has no such port",
    "no_group": "its multicast group does not exist or is empty",
    "no_session": "its clone session does not exist or is empty, so no clone was made",
    "oversize": "it is longer than the longest frame",
    "too_many_passes": "it has passed too often",
    "clones_refused": "it has been cloned too often, so no clone was made",
    "loopback_full": "too many packets recirculate",
}
"""Counters of `SwitchCounters` that a lost packet raises, in words."""


class Trace:
    """Replay of a frame in copies of the fabric's switches, as their tables and registers are now.

    Queues, losses of links and the packet's own time are not replayed. Direct counters and meters of the switches count
    the replayed packet too.
    """

    def __init__(self, topology: Topology, switches: Mapping[str, Switch], host: str, frame: bytes) -> None:
        self.lines: list[str] = [f"{host} sends {len(frame)} bytes: {frame[:64].hex()}{'…' * (len(frame) > 64)}"]
        self.reached: set[str] = set()
        """Hosts that the frame or a copy of it comes to."""
        self._topology = topology
        self._copies: dict[str, Switch] = {}
        self._switches = switches
        under_way = deque([(topology.peer(Endpoint(host, 0)), frame)])
        for _ in range(MAX_HOPS):
            if not under_way:
                return
            at, frame = under_way.popleft()
            under_way += self._pass(at, frame)
        if under_way:
            self.lines.append(f"and so on: more than {MAX_HOPS} passes through switches")

    def _pass(self, end: Endpoint, frame: bytes) -> list[tuple[Endpoint, bytes]]:
        """Pass through one switch; return the ends of links where frames arrive at other switches."""
        self.lines.append(f"{end.node}, port {end.port}:")
        switch = self._copy(end.node)
        before = switch.counters
        leaving = switch.forward(frame, end.port)
        if switch.state is not None and switch.state.steps is not None:
            self.lines += [f"  {note}" for note in switch.state.steps.drain()]
        for field, reason in _DROPS.items():
            if getattr(switch.counters, field) > getattr(before, field):
                self.lines.append(f"  dropped: {reason}")
        onward = []
        for port, sent in leaving:
            out = Endpoint(end.node, port)
            if port == switch.cpu_port:
                self.lines.append(f"  {len(sent)} bytes leave to the controller")
            elif out not in self._topology.directed_links:
                self.lines.append(f"  {len(sent)} bytes leave through port {port}, which has no link")
            else:
                far = self._topology.peer(out)
                self.lines.append(f"  {len(sent)} bytes leave through port {port} to {far.node}")
                if self._topology.is_host(far.node):
                    self.reached.add(far.node)
                else:
                    onward.append((far, sent))
        return onward

    def _copy(self, name: str) -> Switch:
        """A traced switch outside the fabric with the original's entries, registers, groups and ports."""
        if name not in self._copies:
            original = self._switches[name]
            copy = Switch(
                original.device_id, ports=original.ports, cpu_port=original.cpu_port, drop_port=original.drop_port
            )
            if original.program is not None and original.state is not None:
                traced = original.program.traced()
                state = traced.new_state()
                state.mirror(original.state)
                copy.start(traced, state)
                _copy_replication(original.replication, copy.replication)
            self._copies[name] = copy
        return self._copies[name]


def _copy_replication(source: ReplicationEngine, target: ReplicationEngine) -> None:
    for number, replicas in source.groups.items():
        target.set_group(number, replicas)
    for number, session in source.sessions.items():
        target.set_session(number, session)
