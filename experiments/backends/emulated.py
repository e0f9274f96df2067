"""A topology as an emulated fabric: switches that run the switch program, hosts and links, in virtual time.

::

    Topology ─▶ Fabric (native event loop) ◀─frames─▶ hosts' agents
                  │ switches, by name
                P4RuntimeServer ◀──gRPC, unix socket──▶ sessions
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...controller.p4runtime.loading import new_owner
from ...controller.p4runtime.session import SwitchSession
from ...emulator.fabric import Fabric
from ...emulator.p4runtime import P4RuntimeServer
from ...emulator.port import MinimumShare
from ...emulator.switch import Switch
from ...machine_code import interruption
from ...p4src import json_of
from ...testing.fabric import build_fabric
from ...topologies import Endpoint, Topology, mac_number
from ...topologies.mininet.processes import is_ending
from ...topologies.mininet.scratch import scratch_folder
from ...topologies.targets import Target
from ...wire.frames import BULK_PRIORITY, JOB_CLASSES, encapsulate
from ...wire.int_shim import Presence
from ..config.background import DISCARD_PORT
from ..config.fabric import refuse_chips
from .sessions import open_sessions

interruption.is_asked_to_end = is_ending


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Traffic of one directed link, named by its sending end."""

    end: Endpoint
    job_bytes: int
    """Bytes of everything except native flows (`EmulatedFabric.add_flow`)."""
    background_bytes: int
    """Bytes of native flows."""
    load: float
    """Share of the link's rate that was used over the run, 0…1."""
    largest_queue_packets: int
    """Maximum depth of the data class's queue over all enqueues; 0 for a host's NIC."""
    lost_packets: int
    oversized_packets: int
    """Beyond the link's MTU."""
    queue_drops: int


def load_program(switch: Switch, target: Target) -> None:
    """Let a switch run its target's program, with empty tables."""
    switch.load(json_of(target.program).read_bytes())


class EmulatedFabric:
    """A topology's switches, hosts and links; `fabric` has them by the topology's names, `switches` the switches."""

    def __init__(
        self,
        topology: Topology,
        *,
        seed: int = 1,
        start: Callable[[Switch, Target], None] | None = load_program,
        poll_ns: int = 0,
        sinks: Collection[str] = (),
        make: Callable[[int, int], Fabric] = Fabric,
        **link: Any,
    ) -> None:
        """Build the switches, hosts and links of a topology.

        Args:
            topology: The fabric, without chips.
            seed: Seed of everything that is drawn.
            start: Called with each switch and its target, to load the program; None: switches begin without one.
            poll_ns: Period at whose multiples hosts receive their frames, in ns; 0: at once.
            sinks: Hosts that only count their frames.
            make: Makes the empty fabric.
            **link: Settings of every link, as `Fabric.add_link` takes them, which take precedence over the topology's.

        Raises:
            ExperimentError: A switch is a chip, which is not emulated.
        """
        refuse_chips(topology, topology.name)
        share = min((switch.target.minimum_share for switch in topology.switches), default=0.0)
        minimum = MinimumShare(BULK_PRIORITY, max(JOB_CLASSES), share) if share else None
        self.topology = topology
        self._longest: dict[Endpoint, int] = {}
        """Maximum depths per port of switches since they were last read."""
        self._class_depths: dict[tuple[Endpoint, int], int] = {}
        self.fabric, self.switches = build_fabric(
            topology,
            seed=seed,
            start=None if start is None else lambda node, switch: start(switch, node.target),
            poll_ns=poll_ns,
            sinks=sinks,
            make=make,
            **{"minimum_share": minimum, **link},
        )

    def serve(self, folder: Path | None = None) -> P4RuntimeServer:
        """Make a P4Runtime server for all switches; enter it, or start it.

        It listens on a unix socket that other users of the machine cannot reach: in `folder`, which must be private, or
        in a folder of its own that goes with this fabric, or with the next one's start if this process is killed.
        """
        if folder is None:
            private = ExitStack()
            folder = private.enter_context(scratch_folder("weir-p4runtime-"))
            weakref.finalize(self, private.close)
        return P4RuntimeServer(self.switches.values(), f"unix:{folder / 'p4runtime'}")

    def sessions(self, server: P4RuntimeServer) -> AbstractAsyncContextManager[dict[str, SwitchSession]]:
        """Return a session with every switch through a running server, by name."""
        return open_sessions(self.topology, dict.fromkeys(self.switches, server.address), new_owner())

    def add_flow(
        self,
        source: str,
        destination: str,
        *,
        payload_bytes: int,
        rate_bps: float,
        source_port: int = DISCARD_PORT,
        start_ns: int = 0,
        stop_ns: int | None = None,
    ) -> int:
        """Send datagrams from a host to a node's discard port, at a steady rate.

        Args:
            source: Name of the host.
            destination: Name of a host or switch.
            payload_bytes: Bytes of each datagram's payload.
            rate_bps: Rate in bit/s, headers included.
            source_port: UDP source port, on which the choice of equal paths depends.
            start_ns: Virtual time of the first datagram, in ns.
            stop_ns: Virtual time of the end, in ns; None: the flow does not end.

        Returns:
            Number of the flow, as `Fabric.add_flow` returns it.
        """
        sender = self.topology.host(source)
        frame = encapsulate(
            np.zeros((1, payload_bytes), np.uint8),
            source=int(sender.address),
            destination=int(self.topology.node(destination).address),
            source_mac=mac_number(sender.mac),
            destination_mac=mac_number(self.topology.attached_switch(source).mac),
            source_port=source_port,
            destination_port=DISCARD_PORT,
        )
        return self.fabric.add_flow(
            source, frame.tobytes(), rate_bps=rate_bps, start_ns=start_ns, stop_ns=stop_ns, priority=BULK_PRIORITY
        )

    def count_int(self, presence: Presence) -> None:
        """Count the INT headers of marked packets on every link from now on (`int_load`)."""
        from ...wire.int_overhead import INT_METER, mark_number  # its code is for Numba, which few runs need

        self.fabric.meter(INT_METER, mark_number(presence))

    def int_load(self) -> dict[Endpoint, tuple[int, int]]:
        """Return packets with INT headers, and these headers' bytes, for links that switches send on."""
        load = {}
        for end in self.topology.directed_links:
            if end.node in self.switches:
                counters = self.switches[end.node].port_counters(end.port)
                load[end] = (counters.metered_packets, counters.metered_bytes)
        return load

    def pop_longest_queues(self) -> dict[Endpoint, int]:
        """Return the maximum packets in each switch port's bulk queue since the last call, over all enqueues."""
        longest = {}
        for end in self.topology.directed_links:
            if end.node in self.switches:
                queues = self.switches[end.node].port_queues(end.port)
                longest[end] = queues[BULK_PRIORITY].max_depth_packets
                for priority in JOB_CLASSES[1:]:
                    if held := queues[priority].max_depth_packets:
                        self._class_depths[end, priority] = max(held, self._class_depths.get((end, priority), 0))
        self.fabric.reset_maxima()
        self._longest = {end: max(held, self._longest.get(end, 0)) for end, held in longest.items()}
        return longest

    def pop_class_depths(self) -> dict[tuple[Endpoint, int], int]:
        """Return the maximum packets in each queue of a class above bulk since the last call.

        Keys are egress port and priority. The figures are those that `pop_longest_queues` has read.
        """
        depths, self._class_depths = self._class_depths, {}
        return depths

    def links(self) -> Iterator[LinkFigures]:
        """Yield every directed link, since time began."""
        for link in self.topology.links:
            for end in link.ends:
                if self.topology.is_host(end.node):
                    counters = self.fabric.nic_counters(end.node, end.port)
                else:
                    counters = self.switches[end.node].port_counters(end.port)
                yield LinkFigures(
                    end=end,
                    job_bytes=counters.tx_bytes - counters.flow_bytes,
                    background_bytes=counters.flow_bytes,
                    load=8e9 * counters.tx_bytes / (link.rate_bps * max(self.fabric.now_ns, 1)),
                    largest_queue_packets=max(counters.max_queue_packets[BULK_PRIORITY], self._longest.get(end, 0))
                    if self.topology.is_switch(end.node)
                    else 0,
                    lost_packets=counters.lost_packets,
                    oversized_packets=counters.oversized_packets,
                    queue_drops=sum(counters.drops),
                )
