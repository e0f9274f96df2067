"""An emulated switch whose ports are PTF's: the platform on which `weir ptf` runs p4lang's Packet Test Framework.

::

    PTF's tests ──send_packet──▶ PtfPort ──frames──▶ Fabric: one switch, a host at each port, no root
                ◀─verify_packet─         ◀────────      ▲
                ─────────────P4Runtime─────────▶ P4RuntimeServer
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from ..emulator.entries import EmulatorError
from ..emulator.fabric import Fabric
from ..emulator.p4runtime import P4RuntimeServer
from ..emulator.runtime.engine import JUMBO_FRAME
from ..emulator.switch import Switch
from .switch import SwitchUnderTest

DEVICE: Final = 0
"""Device number of PTF's ports, and P4Runtime's device id."""
PLATFORM: Final = "emulated"
"""Name of the platform in PTF."""
_SWITCH: Final = "s1"
_PAUSE_S: Final = 1e-3
"""Between two looks at what the control plane may have sent."""
_LONGEST_FRAME: Final = 1 << 16


class PtfSwitch:
    """A switch with a port for each number, and a P4Runtime server for it; a context manager.

    When `send` returns, the frame has passed and all resulting frames have been delivered. Apart from that the switch's
    time follows the wall clock.
    """

    def __init__(self, ports: Iterable[int], address: str = "127.0.0.1:0", program: bytes | None = None) -> None:
        """Create the switch.

        Args:
            ports: Port numbers.
            address: Address of the P4Runtime server.
            program: BMv2 JSON; without it a controller has to set one.

        Raises:
            EmulatorError: A switch cannot have these ports, or `program` is not a program.
        """
        self.switch = Switch(DEVICE)
        if program is not None:
            self.switch.load(program)
        self.under_test = SwitchUnderTest(_SWITCH, self.switch)
        self._fabric = Fabric(max_frame=JUMBO_FRAME)
        self._fabric.add_switch(_SWITCH, self.switch)
        self._ends: dict[int, tuple[socket.socket, socket.socket]] = {}
        for port in ports:
            self._fabric.add_host(_host(port))
            self._fabric.add_link((_host(port), 0), (_SWITCH, port))
            self._ends[port] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server = P4RuntimeServer([self.switch], address)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._origin_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._keep_time, name="switch under PTF", daemon=True)

    @property
    def address(self) -> str:
        """Address of the P4Runtime server."""
        return self._server.address

    def __enter__(self) -> Self:
        self._server.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._server.stop()
        for ends in self._ends.values():
            for end in ends:
                end.close()

    def end(self, port: int) -> socket.socket:
        """Return the socket from which frames that leave through a port can be read, one at a time."""
        return self._ends[port][0]

    def send(self, port: int, frame: bytes) -> None:
        """Send a frame into a port; return when all frames that result have left."""
        with self._lock:
            self._fabric.send(_host(port), frame)
            self._run_until(self._fabric.now_ns + 1)
            while self._fabric.packets_in_flight and not self._stopping.is_set():
                self._run_until(self._fabric.now_ns + 1_000_000)

    def set_link(self, port: int, *, up: bool) -> None:
        """Set the link at a port down or up."""
        with self._lock:
            self._fabric.set_link((_SWITCH, port), up=up)

    def offer(self, config: MutableMapping[str, Any]) -> None:
        """Enter the ports into PTF's configuration, as PTF expects of its platform."""
        config["port_map"] = {(DEVICE, port): _host(port) for port in self._ends}
        config["dataplane"] = {"portclass": PtfPort}

    def _keep_time(self) -> None:
        while not self._stopping.wait(_PAUSE_S):
            with self._lock:
                self._run_until(max(time.monotonic_ns() - self._origin_ns, self._fabric.now_ns))

    def _run_until(self, end_ns: int) -> None:
        for wake in self._fabric.wakes_until(end_ns):
            _, inner = self._ends[int(wake.host.removeprefix("port"))]
            for _, frame in wake.arrivals():
                inner.send(frame)


class PtfPort:
    """One port, as PTF's data plane has them: a `DataPlanePortIface` and its packet source."""

    def __init__(self, interface_name: str, device_number: int, port_number: int, config: object = None) -> None:
        self._switch = running()
        self._port = port_number

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with a frame, for `select`."""
        return self._switch.end(self._port).fileno()

    def recv(self) -> tuple[int, int, bytes, float]:
        """Return the device, port, frame, and when it was received by the wall clock."""
        return DEVICE, self._port, self._switch.end(self._port).recv(_LONGEST_FRAME), time.time()

    def get_packet_source(self) -> PtfPort:
        """Return the object that PTF polls: the port itself."""
        return self

    def send(self, packet: bytes) -> int:
        """Send a frame; return its length."""
        self._switch.send(self._port, bytes(packet))
        return len(packet)

    def down(self) -> None:
        """Take the port's link down."""
        self._switch.set_link(self._port, up=False)

    def up(self) -> None:
        """Take the port's link up."""
        self._switch.set_link(self._port, up=True)

    def mac(self) -> str:
        """Return the port's MAC address, 02:00:00:00 and its number."""
        return f"02:00:00:00:{self._port >> 8:02x}:{self._port & 255:02x}"


_running: list[PtfSwitch] = []


@contextmanager
def under_ptf(switch: PtfSwitch) -> Iterator[PtfSwitch]:
    """Run a switch that PTF's tests of this process find."""
    with switch:
        _running.append(switch)
        try:
            yield switch
        finally:
            _running.remove(switch)


def running() -> PtfSwitch:
    """Return the switch that PTF's tests run on.

    Raises:
        EmulatorError: `weir ptf` has started none.
    """
    if not _running:
        raise EmulatorError("no emulated switch runs under PTF; start the tests by weir ptf")
    return _running[-1]


def switch_under_test() -> SwitchUnderTest:
    """Return the switch's tables, counters and registers by name, for a PTF test.

    Raises:
        EmulatorError: Called outside `weir ptf`.
    """
    return running().under_test


def platform_config_update(config: MutableMapping[str, Any]) -> None:
    """Update PTF's configuration; PTF calls this function of its platform."""
    running().offer(config)


def _host(port: int) -> str:
    return f"port{port}"
