"""One switch on network interfaces: its packet loop, and the threads between the loop and the control plane."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..port import PortCounters
from ..runtime.engine import MAX_FRAME
from ..runtime.memory import NONE
from ..switch import Switch
from .engine import WireEngine
from .links import InterfaceWatch
from .options import PACKET_LOG
from .reasons import describe
from .sockets import Interface, PortError, open_interface

_TAGGED_HEADER: Final = 18
_PR_SET_TIMERSLACK: Final = 29
_DIGEST_INTERVAL_MS: Final = 20
_IDLE_INTERVAL_MS: Final = 500
_PCAP_HEADER: Final = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
"""Version 2.4 with microseconds, of whole frames, Ethernet."""

log = logging.getLogger(__name__)
packets = logging.getLogger(PACKET_LOG)
"""Its level decides whether each packet is logged: DEBUG when a switch is made, and it is."""


class InterfaceCounters(NamedTuple):
    """Counters of one port's interface; `port` counts the packets between it and the switch."""

    port: PortCounters
    missed: int
    """Frames that found the receive ring full: the switch was too slow."""
    oversize: int
    """Received frames longer than the MTU: the sender leaves segmentation to its hardware."""
    too_long: int
    """Sent frames longer than the MTU."""
    refused: int
    """Sent frames that the interface's own queue had no room for."""
    unreachable: int
    """Sent while the interface was down or gone."""
    waits: int
    """Times that the kernel took no more and the port's queue had to wait."""
    outages: int
    """Times that the interface went down."""
    tags_restored: int
    checksums_completed: int


class WiredSwitch:
    """A switch whose ports are network interfaces. A context manager: started on entry, stopped on exit.

    Its control-plane interface is unchanged (`emulator.datapath.Datapath`), so that a P4Runtime server can drive it.
    """

    def __init__(
        self, switch: Switch, interfaces: Mapping[int, str], capture: Path | None = None, *, ring: bool = True
    ) -> None:
        """Open the interfaces and join the switch to them; the packet loop starts on entry.

        Args:
            switch: The switch.
            interfaces: Name of each port's network interface; ports that the switch lacks are added.
            capture: Folder for `NAME_in.pcap` and `NAME_out.pcap`, which receive the frames of each interface; None: no
                capture.
            ring: False to receive and send by system calls alone, for example without memory for the rings.

        Raises:
            PortError: An interface does not exist, is named twice, or may not be opened.
        """
        self.switch = switch
        self.on_failure: Callable[[], None] | None = None
        """Called if the packet loop breaks down, for want of memory say; the log has the reason."""
        self.links_down: frozenset[int] = frozenset()
        """Ports whose interface is down, has no carrier, or is gone."""
        self._interfaces: dict[int, Interface] = {}
        self._resources = ExitStack()
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._notes_lost = 0
        self._captures: dict[Path, Any] = {}
        """Their records, which native code keeps, by file."""
        self._captures_told: set[str] = set()
        self._last_counters: dict[int, InterfaceCounters] | None = None
        try:
            taken: dict[str, int] = {}
            for port, name in interfaces.items():
                if name in taken:
                    raise PortError(
                        f"interface {name} is given to port {taken[name]} and to port {port}; give it to one",
                        value=name,
                    )
                taken[name] = port
                if port not in switch.ports:
                    switch.add_port(port)
                self._interfaces[port] = interface = open_interface(name, port, ring)
                self._resources.callback(interface.close)
            largest = max((one.mtu for one in self._interfaces.values()), default=0)
            self._engine = WireEngine(max(MAX_FRAME, largest + _TAGGED_HEADER))
            self._resources.callback(self._engine.close)
            switch.join(self._engine, switch.device_id, NONE)
            self._engine.attach(
                switch.port_index(switch.cpu_port),
                {switch.port_index(port): one for port, one in self._interfaces.items()},
            )
            if capture is not None:
                for i, one in enumerate(self._interfaces.values()):
                    for direction in ("in", "out"):
                        path = capture / f"{one.name}_{direction}.pcap"
                        descriptor = _open_capture(path)
                        self._resources.callback(os.close, descriptor)
                        self._captures[path] = self._engine.begin_capture(i, direction, descriptor, len(_PCAP_HEADER))
            if packets.isEnabledFor(logging.DEBUG):
                self._engine.note_packets()
            self._links = InterfaceWatch({port: one.name for port, one in self._interfaces.items()})
            self._resources.callback(self._links.close)
            self._note_links()
        except BaseException:
            self._resources.close()
            raise

    def __enter__(self) -> WiredSwitch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the thread of native code that moves packets."""
        for work in (self._serve, self._deliver):
            thread = threading.Thread(target=work, name=f"switch-{self.switch.device_id}{work.__name__}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop moving packets and close the interfaces; the counters stay. Does nothing on one that is stopped."""
        if self._stopping:
            return
        self._stopping = True
        with self._engine.gate:
            os.eventfd_write(self._engine.told_fd, 1)
        for thread in self._threads:
            thread.join()
        self._log_packets()
        self._log_captures()
        self._last_counters = self.counters()
        self._resources.close()

    def counters(self) -> dict[int, InterfaceCounters]:
        """Return counters of every interface, by port."""
        if self._last_counters is not None:
            return self._last_counters
        result = {}
        for (port, interface), nic in zip(self._interfaces.items(), self._engine.nics, strict=True):
            values = {name: int(nic[name]) for name in InterfaceCounters._fields if name not in ("port", "missed")}
            result[port] = InterfaceCounters(
                port=self.switch.port_counters(port), missed=interface.count_missed(), **values
            )
        return result

    @property
    def without_ring(self) -> tuple[int, ...]:
        """Ports whose frames are received or sent by system calls alone, which is slower."""
        return tuple(
            port
            for port, interface in self._interfaces.items()
            if interface.ring is None or interface.send_ring is None
        )

    @property
    def packet_in_drops(self) -> int:
        """Packet-ins that found their mailbox full, for the control plane was too slow."""
        return int(self._engine.loop.packet_in_drops)

    @property
    def ended_captures(self) -> tuple[str, ...]:
        """Error and frame count of each capture that ended because the disk was full."""
        return tuple(
            f"capture {path} ended after {record['frames']} frames: {os.strerror(int(record['error']))}"
            for path, record in self._captures.items()
            if record["error"]
        )

    def _serve(self) -> None:
        """The thread of the packet loop."""
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        try:
            while not self._stopping:
                self._engine.gate.pass_when_free(self._serve_until_wanted)
        except Exception:
            log.exception("the packet loop of switch %d has failed", self.switch.device_id)
            if self.on_failure is not None:
                self.on_failure()

    def _serve_until_wanted(self) -> None:
        if not self._stopping:  # it may have been stopped while the loop waited for the lock
            self._engine.serve()

    def _deliver(self) -> None:
        """The thread that gives packet-ins and digests to the control plane, and the state of links to the switch.

        Without a control plane packet-ins are dropped.
        """
        told = select.poll()
        told.register(self._engine.told_fd, select.POLLIN)
        told.register(self._links, select.POLLIN)
        while not self._stopping:
            interval = _DIGEST_INTERVAL_MS if self.switch.on_digest is not None else _IDLE_INTERVAL_MS
            ready = [descriptor for descriptor, _ in told.poll(interval)]
            if self._engine.told_fd in ready:
                os.eventfd_read(self._engine.told_fd)
            if self._links.fileno() in ready:
                self._links.drain()
                self._call_guarded(self._note_links)
            self._log_packets()
            self._log_captures()
            self.switch.deliver_packet_ins(self._call_guarded)
            self._call_guarded(self.switch.poll_digests)

    def _note_links(self) -> None:
        before, self.links_down = self.links_down, self._links.down()
        self.switch.set_ports_down(self.links_down)
        for port in sorted(before ^ self.links_down):
            state = "is down, without carrier, or gone" if port in self.links_down else "is up"
            log.warning("port %d: interface %s %s", port, self._interfaces[port].name, state)
        for nic, (port, interface) in zip(self._engine.nics, self._interfaces.items(), strict=True):
            if interface.update_mtu():
                with self._engine.lock:
                    nic["longest"] = interface.longest
                log.info(
                    "port %d: interface %s has an MTU of %d now; frames of up to %d bytes can be sent",
                    *(port, interface.name, interface.mtu, interface.longest),
                )

    def _log_packets(self) -> None:
        state = self.switch.state
        steps = None if state is None else state.steps
        for note in self._engine.notes():
            packets.debug("[%d.%06d] %s", note[0] // 10**9, note[0] // 1000 % 10**6, describe(note, steps))
        lost = int(self._engine.loop.trace_lost)
        if lost > self._notes_lost:
            packets.warning(
                "%d lines about packets are missing: they came faster than the log", lost - self._notes_lost
            )
            self._notes_lost = lost

    def _log_captures(self) -> None:
        for line in self.ended_captures:
            if line not in self._captures_told:
                self._captures_told.add(line)
                log.warning("%s", line)

    def _call_guarded(self, work: Callable[..., object], *arguments: object) -> None:
        """Call the control plane, whose failures are its own."""
        try:
            work(*arguments)
        except Exception:
            log.exception("the control plane of switch %d has failed on what the switch told it", self.switch.device_id)


def _open_capture(path: Path) -> int:
    """A new capture file with pcap's header."""
    descriptor = -1
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        if os.write(descriptor, _PCAP_HEADER) < len(_PCAP_HEADER):
            raise OSError(errno.ENOSPC, "")
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise PortError(
            f"cannot be written: {os.strerror(error.errno or 0)}", place=f"capture file {path}", value=error.errno
        ) from error
    return descriptor
