"""An emulated fabric whose time is the wall clock's, for processes of this machine; no root.

::

    a host's process ──Datagrams──▶ FabricSocket ──frames──▶ Fabric (native event loop), brought up to the clock
                     ◀────────────               ◀─────────    │ switches
                                                             P4RuntimeServer ◀──gRPC, unix socket──▶ controller

A host has three paths: for the messages of its jobs, for the transport's, and for heartbeats, which go in the control
class.
Links keep their rates and delays as far as the machine keeps up: where the loop falls behind, the fabric's time stands
still meanwhile, and `behind_s` says for how long in all.
"""

from __future__ import annotations

import itertools
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ...emulator.fabric import Wake
from ...hosts.drivers.fabric_socket import FabricSocket
from ...hosts.drivers.heartbeat_sender import HEARTBEAT_NIC
from ...hosts.drivers.udp_transport import TRANSPORT_NIC
from ...topologies import Topology, mac_number
from ...wire.aggregation import AGGREGATION_PORT
from ...wire.frames import DSCP_BULK, DSCP_CONTROL, IPV4_BYTES, MTU, UDP_BYTES, FrameWriter, decapsulate
from ...wire.heartbeat import HEARTBEAT_PORT
from ...wire.transport import TRANSPORT_PORT
from ..errors import ExperimentError
from .emulated import EmulatedFabric

_BUSY_S: Final = 50e-6
"""Between two looks at the fabric while packets are in it."""
_IDLE_S: Final = 2e-3
"""Between two looks at an empty one, which probes may enter."""
_POLL_NS: Final = 100_000
"""Hosts take what has arrived at multiples of this: fewer and larger batches for their processes."""
_CONTROL_PRIORITY: Final = 7
_LATE_NS: Final = 20_000_000
"""Lag of the fabric's time behind the clock beyond which it is dropped."""


class FabricHeartbeats:
    """A HeartbeatSource in an emulated fabric."""

    def __init__(self, fabric: RealTimeFabric, host: str) -> None:
        """Takes those that are sent to this host. Raises OSError where the fabric does not run."""
        self.address = int(fabric.topology.host(host).address)
        self._socket = FabricSocket.connect(fabric.nic(host) + HEARTBEAT_NIC)

    def fileno(self) -> int:
        """File descriptor; see `HeartbeatSource.fileno`."""
        return self._socket.fileno()

    def receive(self) -> Iterable[tuple[int, bytes]]:
        """Receive heartbeats; see `HeartbeatSource.receive`."""
        for datagrams in self._socket.receive():
            payloads = (row.tobytes() for row in datagrams.payload)
            yield from zip(datagrams.addresses.tolist(), payloads, strict=True)

    def close(self) -> None:
        """May be repeated."""
        self._socket.close()


class _HostLink:
    """One of a host's ways into its link, and the processes at the other end: several, where it takes part in several
    jobs.
    """

    def __init__(self, topology: Topology, name: str, path: str, port: int, dscp: int) -> None:
        host = topology.host(name)
        self.name = name
        self.path = path
        self.port = port
        self.priority = _CONTROL_PRIORITY if dscp == DSCP_CONTROL else 0
        self.address = int(host.address)
        self.connected: list[FabricSocket] = []
        self.writer = FrameWriter(
            source=self.address,
            source_mac=mac_number(host.mac),
            destination_mac=mac_number(topology.attached_switch(name).mac),
            port=port,
            dscp=dscp,
        )
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.listener.bind(path)
        except OSError:
            self.listener.close()
            raise
        self.listener.listen(16)
        self.listener.setblocking(False)

    def close(self) -> None:
        for process in self.connected:
            process.close()
        self.listener.close()
        os.unlink(self.path)


class RealTimeFabric:
    """A topology as an emulated fabric that runs by itself, in a thread; a context manager."""

    def __init__(self, topology: Topology, folder: Path, *, seed: int = 1) -> None:
        """`folder` is where the hosts' sockets are made. Switches begin without a program: a session loads it."""
        self.topology = topology
        self.behind_s = 0.0
        """Seconds that the fabric's time has stood still because the machine did not keep up."""
        self._folder = folder
        self._emulated = EmulatedFabric(topology, seed=seed, start=None, poll_ns=_POLL_NS)
        self._server = self._emulated.serve(folder)
        self._links: dict[str, list[_HostLink]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fabric", daemon=True)

    @property
    def addresses(self) -> Mapping[str, str]:
        """P4Runtime address of each switch."""
        return dict.fromkeys(self._emulated.switches, self._server.address)

    def nic(self, host: str) -> str:
        """The path at which a host's process links to the fabric: WEIR_NIC of `weir.join`."""
        return str(self._folder / self.topology.host(host).name)

    def __enter__(self) -> Self:
        """Raises ExperimentError where the hosts' sockets cannot be made."""
        self._server.start()
        try:
            for host in self.topology.hosts:
                nic = self.nic(host.name)
                self._links[host.name] = [_HostLink(self.topology, host.name, nic, AGGREGATION_PORT, DSCP_BULK)]
                beats = _HostLink(self.topology, host.name, nic + HEARTBEAT_NIC, HEARTBEAT_PORT, DSCP_CONTROL)
                self._links[host.name].append(beats)
                packets = _HostLink(self.topology, host.name, nic + TRANSPORT_NIC, TRANSPORT_PORT, DSCP_BULK)
                self._links[host.name].append(packets)
        except OSError as error:
            self._close()
            raise ExperimentError(
                f"{self._folder}: hosts' sockets cannot be made there: {error}; TMPDIR names another place, whose path "
                "is to be short"
            ) from None
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        for link in self._all_links:
            link.close()
        self._server.stop()

    @property
    def _all_links(self) -> list[_HostLink]:
        return [link for links in self._links.values() for link in links]

    # --- the thread ---

    def _run(self) -> None:
        fabric = self._emulated.fabric
        origin_ns = time.monotonic_ns()
        with selectors.DefaultSelector() as selector:
            for link in self._all_links:
                selector.register(link.listener, selectors.EVENT_READ, link)
            while not self._stopping.is_set():
                late_ns = time.monotonic_ns() - origin_ns - fabric.now_ns - _LATE_NS
                if late_ns > 0:
                    origin_ns += late_ns
                    self.behind_s += late_ns / 1e9
                now_ns = time.monotonic_ns() - origin_ns
                for wake in fabric.wakes_until(now_ns):
                    self._deliver(wake, selector)
                if fabric.packets_in_flight:
                    time.sleep(_BUSY_S)
                for key, _ in selector.select(0 if fabric.packets_in_flight else _IDLE_S):
                    if isinstance(key.fileobj, FabricSocket):
                        self._hear(key.data, key.fileobj, selector)
                    else:
                        self._let_in(key.data, selector)

    def _let_in(self, link: _HostLink, selector: selectors.BaseSelector) -> None:
        """Accept a process's link to the fabric as this host, possibly one of several."""
        try:
            accepted, _ = link.listener.accept()
        except OSError:  # it is gone, or no more files can be opened: it waits, and the fabric goes on
            return
        link.connected.append(FabricSocket(accepted))
        selector.register(link.connected[-1], selectors.EVENT_READ, link)

    def _hear(self, link: _HostLink, process: FabricSocket, selector: selectors.BaseSelector) -> None:
        """A process has sent something, or ended."""
        try:
            batches = process.receive()
        except OSError:
            self._forget(link, process, selector)
            return
        for datagrams in batches:
            if datagrams.payload.shape[1] > MTU - IPV4_BYTES - UDP_BYTES:  # no packet holds that
                continue
            self._emulated.fabric.send(link.name, link.writer.encapsulate(datagrams), priority=link.priority)

    def _deliver(self, wake: Wake, selector: selectors.BaseSelector) -> None:
        """Frames have arrived at a host: for each of its processes, which take what is of their jobs."""
        for link, frames in itertools.product(self._links[wake.host], wake.frames):
            datagrams, _ = decapsulate(frames, link.address, link.port)
            if not len(datagrams):
                continue
            for process in list(link.connected):
                try:
                    process.send(datagrams)
                except OSError:
                    self._forget(link, process, selector)

    def _forget(self, link: _HostLink, process: FabricSocket, selector: selectors.BaseSelector) -> None:
        selector.unregister(process)
        link.connected.remove(process)
        process.close()
