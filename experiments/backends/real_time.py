"""An emulated fabric whose time is the wall clock's, for processes of this machine; no root.

::

    a host's process ──frames in shared memory──▶ WallClockFabric (native event loop)
                     ◀───────────────────────────   │ switches
                                                  P4RuntimeServer ◀──gRPC, unix socket──▶ controller

A host has three paths: for the messages of its jobs, for the transport's, and for heartbeats, which go in the control
class. A process connects to a path's unix socket and receives the memory by it (`wire/frame_rings.py`). A thread here
lets processes in and forgets those that have ended; frames pass it by.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ...emulator.live.engine import TapRings
from ...emulator.live.fabric import WallClockFabric
from ...hosts.drivers.fabric_link import FabricLink
from ...hosts.drivers.heartbeat_sender import HEARTBEAT_NIC
from ...hosts.drivers.udp_transport import TRANSPORT_NIC
from ...topologies import Endpoint, Topology, mac_number
from ...wire.aggregation import AGGREGATION_PORT
from ...wire.frame_rings import FRAME_AT, HELLO, ROW_BYTES, ROWS, FrameRings
from ...wire.frames import DSCP_BULK, DSCP_CONTROL, ETHERNET_BYTES, IPV4_BYTES, traffic_class
from ...wire.heartbeat import HEARTBEAT_PORT
from ...wire.transport import TRANSPORT_PORT
from ..errors import ExperimentError
from .emulated import EmulatedFabric

_POLL_NS: Final = 100_000
"""The controller takes packet-ins at multiples of this: fewer and larger batches for its thread."""
_DESTINATION_PORT_AT: Final = ETHERNET_BYTES + IPV4_BYTES + 2
"""Place of the UDP destination port in a frame: a link receives its own port's frames."""


class FabricHeartbeats:
    """A HeartbeatSource in an emulated fabric."""

    def __init__(self, fabric: RealTimeFabric, host: str) -> None:
        """Takes those that are sent to this host. Raises OSError where the fabric does not run."""
        self.address = int(fabric.topology.host(host).address)
        self._socket = FabricLink.connect(fabric.nic(host) + HEARTBEAT_NIC)

    def fileno(self) -> int:
        """Return the file descriptor; see `HeartbeatSource.fileno`."""
        return self._socket.fileno()

    def receive(self) -> Iterable[tuple[int, bytes]]:
        """Receive heartbeats; see `HeartbeatSource.receive`."""
        for datagrams in self._socket.receive():
            payloads = (row.tobytes() for row in datagrams.payload)
            yield from zip(datagrams.addresses.tolist(), payloads, strict=True)

    def close(self) -> None:
        """May be repeated."""
        self._socket.close()


@dataclass(frozen=True, slots=True)
class _Process:
    """A process at the other end of a link."""

    connected: socket.socket
    rings: FrameRings
    bell: int
    tap: int


class _HostLink:
    """One of a host's ways into its link, and the processes at the other end: several, where it takes part in several
    jobs.
    """

    def __init__(self, topology: Topology, name: str, path: str, port: int, dscp: int) -> None:
        host = topology.host(name)
        self.name = name
        self.port = port
        self.priority = traffic_class(dscp)
        gateway = mac_number(topology.attached_switch(name).mac)
        self.hello = HELLO.pack(int(host.address), port, dscp, mac_number(host.mac), gateway)
        self.processes: dict[int, _Process] = {}
        """Processes by the descriptor of their socket."""
        self._path = path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.listener.bind(path)
        except OSError:
            self.listener.close()
            raise
        self.listener.listen(16)
        self.listener.setblocking(False)

    def let_in(self, fabric: WallClockFabric) -> socket.socket | None:
        """Accept a process's link to the fabric as this host; return its socket, or None if that cannot be."""
        opened: list[int] = []
        try:
            connected, _ = self.listener.accept()
            opened.append(connected.detach())
            rings = FrameRings()
            opened.append(rings.descriptor)
            opened.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        except OSError:  # it is gone, or no more files can be opened: it waits, and the fabric goes on
            for descriptor in opened:
                os.close(descriptor)
            return None
        connected, bell = socket.socket(fileno=opened[0]), opened[2]
        connected.setblocking(False)
        shared, inbound, outbound = (ring.ctypes.data for ring in (rings.words, rings.inbound, rings.outbound))
        memory = TapRings(shared, inbound, outbound, ROWS, ROW_BYTES, FRAME_AT)
        tap = fabric.open_tap(
            self.name, memory, bell=bell, priority=self.priority, key_at=_DESTINATION_PORT_AT, key=self.port
        )
        self.processes[connected.fileno()] = _Process(connected, rings, bell, tap)
        with suppress(OSError):  # its end is noticed as that of any other
            socket.send_fds(connected, [self.hello], [rings.descriptor, fabric.bell, bell])
        rings.close_descriptor()
        return connected

    def remove(self, descriptor: int, fabric: WallClockFabric) -> None:
        """Forget a process that has ended, given the descriptor of its socket."""
        process = self.processes.pop(descriptor)
        fabric.close_tap(self.name, process.tap)
        process.connected.close()
        os.close(process.bell)

    def close(self, fabric: WallClockFabric) -> None:
        """Forget all processes, and listen no more."""
        for descriptor in list(self.processes):
            self.remove(descriptor, fabric)
        self.listener.close()
        os.unlink(self._path)


class RealTimeFabric:
    """A topology as an emulated fabric that runs by itself, in a thread; a context manager."""

    def __init__(self, topology: Topology, folder: Path, *, seed: int = 1) -> None:
        """`folder` is where the hosts' sockets are made. Switches begin without a program: a session loads it."""
        self.topology = topology
        self._folder = folder
        self._emulated = EmulatedFabric(topology, seed=seed, start=None, poll_ns=_POLL_NS, make=WallClockFabric)
        assert isinstance(self._emulated.fabric, WallClockFabric)
        self._fabric = self._emulated.fabric
        self._server = self._emulated.serve(folder)
        self._links: list[_HostLink] = []
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="links of hosts", daemon=True)

    @property
    def addresses(self) -> Mapping[str, str]:
        """P4Runtime address of each switch."""
        return dict.fromkeys(self._emulated.switches, self._server.address)

    @property
    def behind_s(self) -> float:
        """Seconds that the fabric's time has stood still because the machine did not keep up."""
        return self._fabric.behind_s

    def link_bytes(self) -> Mapping[Endpoint, int]:
        """Return bytes that each directed link has carried, by its sending end."""
        return {link.end: link.job_bytes for link in self._emulated.links()}

    def nic(self, host: str) -> str:
        """Return the path at which a host's process links to the fabric: WEIR_NIC of `weir.join`."""
        return str(self._folder / self.topology.host(host).name)

    def __enter__(self) -> Self:
        """Raises ExperimentError where the hosts' sockets cannot be made."""
        self._server.start()
        try:
            for host in self.topology.hosts:
                nic = self.nic(host.name)
                for path, port, dscp in (
                    (nic, AGGREGATION_PORT, DSCP_BULK),
                    (nic + HEARTBEAT_NIC, HEARTBEAT_PORT, DSCP_CONTROL),
                    (nic + TRANSPORT_NIC, TRANSPORT_PORT, DSCP_BULK),
                ):
                    self._links.append(_HostLink(self.topology, host.name, path, port, dscp))
        except OSError as error:
            self._close()
            raise ExperimentError(
                f"{self._folder}: hosts' sockets cannot be made there: {error}; TMPDIR names another place, whose path "
                "is to be short"
            ) from None
        self._fabric.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_writer.send(b"!")
        self._thread.join()
        self._fabric.stop()
        self._close()

    def _close(self) -> None:
        for link in self._links:
            link.close(self._fabric)
        self._server.stop()
        self._stop_reader.close()
        self._stop_writer.close()

    # --- the thread of links ---

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stop_reader, selectors.EVENT_READ)
            for link in self._links:
                selector.register(link.listener, selectors.EVENT_READ, link)
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        return
                    if key.fileobj is key.data.listener:
                        if (connected := key.data.let_in(self._fabric)) is not None:
                            selector.register(connected, selectors.EVENT_READ, key.data)
                    else:  # nothing is sent on it: it has ended
                        selector.unregister(key.fileobj)
                        key.data.remove(key.fd, self._fabric)
