"""A fabric in virtual time with one's own P4 program in its switches, for tests: `Network`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, SupportsBytes

from ..emulator.entries import EmulatorError
from ..emulator.program import Program
from ..emulator.switch import Switch
from ..topologies.model import Endpoint, Topology
from ..topologies.model import Switch as SwitchNode
from ..topologies.spelling import nearest
from .fabric import build_fabric
from .ports import one_switch
from .switch import SwitchUnderTest
from .trace import Trace

if TYPE_CHECKING:
    from ..emulator.p4runtime import P4RuntimeServer

TopologyLike = Topology | str | PathLike[str]
ProgramLike = Program | bytes | str | PathLike[str]
Programs = ProgramLike | Mapping[str, ProgramLike]
Packet = bytes | SupportsBytes
"""A frame's bytes, or an object that converts to them, such as a packet of scapy."""

_STEP_NS: Final = 100_000
_TRACED_FRAMES: Final = 1000
"""Frames that a report on lost packets looks back at."""
_SHOWN_TRACES: Final = 3
_QUIET_NS: Final = 1_000_000_000
"""Time after which frames still under way are assumed to loop for ever, or to wait in a slow queue."""


class Masked(Protocol):
    """An expected frame with ignored bits, as in PTF's tests: `ptf.mask.Mask`."""

    def pkt_match(self, packet: bytes, /) -> bool:
        """True if a received frame equals the expected one except for the ignored bits."""


class Network:
    """Switches, hosts and links in virtual time. Nothing passes but by `run`, `received` and `verify_…`."""

    def __init__(
        self,
        topology: TopologyLike | None = None,
        program: Programs | None = None,
        *,
        ports: int = 4,
        seed: int = 1,
        folder: Path = Path(),
    ) -> None:
        """Make a fabric with a program in its switches.

        Args:
            topology: File of a fabric, name of one that ships with Weir, or Topology; None: one switch `s1` with hosts.
            program: BMv2 JSON, or P4 source if p4c is installed, for all switches or for each by its name; None: none.
            ports: Number of ports of `s1`, which lead to the hosts `h1` …, if `topology` is None.
            seed: Seed of the fabric's random draws.
            folder: Folder of files that are named without one.

        Raises:
            EmulatorError: The program is unknown, unsupported, or named for a switch that is missing.
            TopologyError: The fabric is invalid.
        """
        self.topology = self._topology(topology, folder, ports)
        self._arrivals: dict[str, list[tuple[int, bytes]]] = {host.name: [] for host in self.topology.hosts}
        self._sent: deque[tuple[str, bytes]] = deque(maxlen=_TRACED_FRAMES)
        self._servers: list[P4RuntimeServer] = []
        if isinstance(program, Mapping):
            names = [switch.name for switch in self.topology.switches]
            for name in program:
                if name not in names:
                    raise EmulatorError(
                        f"{self.topology.name} has no such switch{nearest(str(name), names)}; "
                        f"there are {', '.join(names)}",
                        place=f'program of "{name}"',
                        value=self.topology.name,
                    )

        def start(node: SwitchNode, switch: Switch) -> None:
            own = program.get(node.name) if isinstance(program, Mapping) else program
            if own is not None:
                loaded = _program(own, folder)
                switch.start(loaded, loaded.new_state())

        self._fabric, switches = build_fabric(self.topology, seed=seed, start=start)
        self._switches = {name: SwitchUnderTest(name, switch) for name, switch in switches.items()}

    # --- packets ---

    def send(self, host: str, packet: Packet) -> None:
        """Send a frame from a host, now in virtual time."""
        self._host(host)
        self._sent.append((host, bytes(packet)))
        self._fabric.send(host, bytes(packet))

    def received(self, host: str) -> list[bytes]:
        """Return the frames that have come to a host since it was asked last, in order; time passes until all have
        arrived.
        """
        return [frame for _, frame in self.arrivals(host)]

    def arrivals(self, host: str) -> list[tuple[int, bytes]]:
        """Return frames as in `received`, each with the time (ns) at which its last bit arrived."""
        self._host(host)
        self.settle()
        frames, self._arrivals[host] = self._arrivals[host], []
        return frames

    def verify_packet(self, expected: Packet | Masked, host: str) -> None:
        """Verify, as PTF does, that the next frame at a host is this one, or matches this mask. Raises
        AssertionError.
        """
        self._host(host)
        self.settle()
        if not self._arrivals[host]:
            raise AssertionError(f"{host}: no packet came; expected {_shown(expected)}")
        _, frame = self._arrivals[host].pop(0)
        if not _equal(expected, frame):
            raise AssertionError(f"{host}: {frame.hex()} came; expected {_shown(expected)}")

    def verify_no_other_packets(self) -> None:
        """Verify, as PTF does, that no other frame has arrived at any host. Raises AssertionError."""
        self.settle()
        if left := {host: frames for host, frames in self._arrivals.items() if frames}:
            shown = "; ".join(f"{host}: {frame.hex()}" for host, frames in left.items() for _, frame in frames)
            raise AssertionError(f"nothing more was expected: {shown}")

    # --- traces ---

    def trace(self, host: str, packet: Packet) -> str:
        """Describe a frame's way from a host: parser states, tables, actions, drops and links, hop by hop.

        The frame is not sent. It passes copies of the switches with the present entries and registers; direct counters
        and meters are shared, so they count it. Queues, lossy links and links that are down are left out.
        """
        self._host(host)
        return "\n".join(self._traced(host, bytes(packet)).lines)

    def lost_frames(self) -> str:
        """Return traces of up to 3 different frames sent lately that come to no host, and counts of drops; empty if
        none.
        """
        traces = (self._traced(*sent) for sent in dict.fromkeys(self._sent))
        lost = list(islice(("\n".join(trace.lines) for trace in traces if not trace.reached), _SHOWN_TRACES))
        for name, switch in self._switches.items():
            full = {port: sum(switch.switch.port_counters(port).drops) for port in switch.switch.ports}
            lost += [
                f"{name}, port {port}: {count} packets dropped, queue full" for port, count in full.items() if count
            ]
        return "\n\n".join(lost)

    def _traced(self, host: str, frame: bytes) -> Trace:
        return Trace(self.topology, {name: switch.switch for name, switch in self._switches.items()}, host, frame)

    # --- time ---

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self._fabric.now_ns

    def run(self, duration_ns: int) -> None:
        """Advance virtual time by a duration."""
        for wake in self._fabric.wakes_until(self.now_ns + duration_ns):
            self._arrivals[wake.host] += wake.arrivals()

    def settle(self) -> None:
        """Advance virtual time until no packet is under way.

        Raises:
            AssertionError: Some still are after a second.
        """
        end_ns = self.now_ns + _QUIET_NS
        self.run(1)  # frames sent by the control plane enter now
        while self._fabric.packets_in_flight:
            self.run(_STEP_NS)
            if self.now_ns >= end_ns:
                raise AssertionError(f"{self._fabric.packets_in_flight} packets are under way after a second")

    # --- nodes ---

    def switch(self, name: str = "s1") -> SwitchUnderTest:
        """Return a switch: its tables, counters, registers. Raises TopologyError for a name that the fabric has not."""
        self.topology.node(name)
        if name not in self._switches:
            raise EmulatorError(f"{name} is a host; the switches are {', '.join(self._switches)}", value=name)
        return self._switches[name]

    def set_link(self, end: str, *, up: bool) -> None:
        """Set the link at a port, such as `s1-p3`, down or up."""
        self._fabric.set_link(_endpoint(self.topology, end), up=up)

    def serve(self) -> str:
        """Serve P4Runtime for all switches, told apart by device id, until the end of the test; HOST:PORT."""
        from ..emulator.p4runtime import P4RuntimeServer

        server = P4RuntimeServer([switch.switch for switch in self._switches.values()])
        server.start()
        self._servers.append(server)
        return server.address

    def close(self) -> None:
        """End what `serve` has started. May be repeated."""
        while self._servers:
            self._servers.pop().stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _host(self, name: str) -> None:
        if name not in self._arrivals:
            raise EmulatorError(f'no host "{name}"', value=name, allowed=tuple(self._arrivals))

    @staticmethod
    def _topology(source: TopologyLike | None, folder: Path, ports: int) -> Topology:
        if source is None:
            return one_switch(ports)
        if isinstance(source, Topology):
            return source
        from ..topologies.schema import load_topology  # which needs more packages than switches do

        beside = folder / source
        return load_topology(beside if beside.exists() else str(source))


def _program(source: ProgramLike, folder: Path) -> Program:
    if isinstance(source, Program):
        return source
    if isinstance(source, bytes):
        return Program.load(source)
    from ..emulator.stf.suite import load_program

    return load_program(folder / source)


def _endpoint(topology: Topology, text: str) -> tuple[str, int]:
    end = Endpoint.parse(text)
    topology.node(end.node)
    return end


def _equal(expected: Packet | Masked, frame: bytes) -> bool:
    match = getattr(expected, "pkt_match", None)
    return bool(match(frame)) if match is not None else bytes(expected) == frame  # type: ignore[arg-type]


def _shown(expected: Packet | Masked) -> str:
    return str(expected) if hasattr(expected, "pkt_match") else bytes(expected).hex()
