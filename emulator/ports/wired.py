"""One switch on network interfaces: its packet loop, and the threads between the loop and the control plane."""

from __future__ import annotations

import ctypes
import logging
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.ports import memory
from emulator.ports.sockets import Interface, PortError, open_interface
from emulator.runtime.build import EntryFunction, native_entry, runtime_sources
from emulator.runtime.engine import MAX_FRAME, Engine
from emulator.runtime.memory import NONE, PORT_NUMBERS
from emulator.switch import PortCounters, Switch, SwitchError

_MODULES: Final = ("memory", "calls", "receive", "capture", "batch", "transmit", "loop")
_FUNCTIONS: Final = ("clock_gettime", "ppoll", "send", "sendmmsg", "recvmmsg", "getsockopt", "read", "write", "writev")
_PACKETS: Final = 1024
_HEADER: Final = 14
_TAGGED_HEADER: Final = 18
_PR_SET_TIMERSLACK: Final = 29
_POLL_IN: Final = 1
_DIGEST_INTERVAL_MS: Final = 20
_IDLE_INTERVAL_MS: Final = 500
_PATIENCE_S: Final = 1.0
_PCAP_MAGIC: Final = 0xA1B2C3D4
_PCAP_SNAPLEN: Final = 65535
_PCAP_ETHERNET: Final = 1

log = logging.getLogger(__name__)


class InterfaceCounters(NamedTuple):
    """What happened at one port's interface; `port` counts what passed between it and the switch."""

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


@lru_cache(maxsize=1)
def _loop_entry() -> EntryFunction:
    folder = Path(__file__).parent
    return native_entry("emulator.ports.loop", [*runtime_sources(), *(folder / f"{name}.py" for name in _MODULES)])


class _Loop(ctypes.Structure):
    _fields_: ClassVar = [(name, ctypes.c_int64) for name in memory.LOOP.names or ()]


class Gate(AbstractContextManager[None]):
    """The lock of an engine whose loop runs on: whoever takes it calls the loop back, and goes first."""

    def __init__(self, interrupt: Callable[[bool], None]) -> None:
        self._interrupt = interrupt
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._wanted = 0
        """Threads that want the lock or have it, the loop's not among them."""

    def __enter__(self) -> None:
        with self._changed:
            self._wanted += 1
            self._interrupt(True)
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        with self._changed:
            self._wanted -= 1
            if self._wanted == 0:
                self._interrupt(False)
                self._changed.notify_all()

    def pass_when_free(self, work: Callable[[], None]) -> None:
        """Do the loop's work when nobody wants the lock."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted == 0)
            self._lock.acquire()
        try:
            work()
        finally:
            self._lock.release()


class WireEngine(Engine):
    """The memory of a packet loop: what `Engine` holds, and interfaces and mailboxes."""

    virtual_time = False

    def __init__(self, max_frame: int) -> None:
        super().__init__(max_frame, _PACKETS)
        self._entry = _loop_entry()
        self.nics: Any = np.zeros(0, memory.NIC)
        self._buffers: list[NDArray[np.int64]] = []
        self._scratch = np.zeros(memory.SCRATCH_BYTES // 8, np.int64)
        self._shared = np.zeros(memory.SHARED_WORDS, np.int64)
        self._shared_words = (ctypes.c_int64 * memory.SHARED_WORDS).from_buffer(self._shared.data)
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.told_fd = os.eventfd(0, os.EFD_CLOEXEC)
        slot_bytes = -(-(memory.SLOT_HEADER + max_frame) // 64) * 64
        self._outs = np.zeros((memory.MAILBOX_SLOTS, slot_bytes), np.uint8)
        self._ins = np.zeros((memory.MAILBOX_SLOTS, slot_bytes), np.uint8)
        self._sending = threading.Lock()
        self.loop: Any = _Loop()
        self._loop_address = ctypes.addressof(self.loop)
        libc = ctypes.CDLL(None)
        for name in _FUNCTIONS:
            setattr(self.loop, name, _function(libc, name))
        self.loop.errno_location = _function(libc, "__errno_location")
        self.loop.world = self._world_address
        self.loop.shared = self._shared.ctypes.data
        self.loop.scratch = self._scratch.ctypes.data
        self.loop.wake_fd, self.loop.told_fd = self.wake_fd, self.told_fd
        self.loop.packet_outs, self.loop.packet_ins = self._outs.ctypes.data, self._ins.ctypes.data
        self.loop.slot_bytes = slot_bytes
        self.world.now = time.monotonic_ns()
        self.loop.realtime_ns = time.time_ns() - time.monotonic_ns()
        self.gate = Gate(self._interrupt)
        self.lock = self.gate

    def attach(self, cpu_port: int, interfaces: Mapping[int, Interface]) -> None:
        """Tie the engine's ports (by index) to open interfaces; the CPU port's frames go to the mailbox."""
        count = len(interfaces)
        self.nics = np.zeros(count, memory.NIC)
        self._nic_of = np.full(PORT_NUMBERS + 1, NONE, np.int64)
        self._polls = np.zeros(1 + 2 * count, np.int64)
        self._polls[0] = self.wake_fd | _POLL_IN << 32
        for i, (port, interface) in enumerate(interfaces.items()):
            self._nic_of[port] = i
            self._polls[1 + 2 * i] = interface.receiver.fileno() | _POLL_IN << 32
            nic = self.nics[i]
            nic["port"] = port
            nic["receive_fd"], nic["send_fd"] = interface.receiver.fileno(), interface.sender.fileno()
            nic["ring"] = interface.ring_address
            nic["ring_frames"], nic["ring_frame_bytes"] = interface.frames, interface.frame_bytes
            nic["send_ring"], nic["send_frames"] = interface.send_ring_address, interface.send_frames
            nic["longest"] = interface.mtu + _HEADER
            nic["packets"] = self._zeros(memory.BATCH * 8)
            nic["vectors"] = self._zeros(memory.BATCH * 16)
            nic["messages"] = self._messages(int(nic["vectors"]), 1)
            if interface.ring is None:
                self._prepare_calls(nic)
            nic["capture_in"] = nic["capture_out"] = NONE
        self.loop.switch, self.loop.cpu_port = int(self.ports.data[cpu_port]["node"]), cpu_port
        self.loop.nics, self.loop.nic_count = self.nics.ctypes.data, count
        self.loop.nic_of, self.loop.polls = self._nic_of.ctypes.data, self._polls.ctypes.data

    def _zeros(self, size: int) -> int:
        """The address of zeroed memory that lasts as long as the engine."""
        buffer = np.zeros(size // 8, np.int64)
        self._buffers.append(buffer)
        return int(buffer.ctypes.data)

    def _messages(self, vectors: int, vectors_each: int) -> int:
        """The address of mmsghdr[BATCH], with their iovecs."""
        address = self._zeros(memory.BATCH * memory.MESSAGE_BYTES)
        words = self._buffers[-1].reshape(memory.BATCH, -1)
        words[:, 2] = vectors + 16 * vectors_each * np.arange(memory.BATCH)
        words[:, 3] = vectors_each
        return address

    def _prepare_calls(self, nic: Any) -> None:
        """What recvmmsg fills for an interface without a ring."""
        headers = self._zeros(memory.BATCH * memory.HEADER_BYTES)
        controls = self._zeros(memory.BATCH * memory.CONTROL_BYTES)
        vectors = self._zeros(memory.BATCH * 32)
        words = self._buffers[-1].reshape(memory.BATCH, 4)
        words[:, 0] = headers + memory.HEADER_BYTES * np.arange(memory.BATCH)
        words[:, 1] = memory.VIRTIO_HEADER_BYTES
        messages = self._messages(vectors, 2)
        words = self._buffers[-1].reshape(memory.BATCH, -1)
        words[:, 0] = headers + 16 + memory.HEADER_BYTES * np.arange(memory.BATCH)
        words[:, 4] = controls + memory.CONTROL_BYTES * np.arange(memory.BATCH)
        nic["receive_headers"], nic["receive_controls"] = headers, controls
        nic["receive_vectors"], nic["receive_messages"] = vectors, messages
        nic["receive_packets"] = self._zeros(memory.BATCH * 8)

    def send(self, port: int, frames: NDArray[np.uint8], priority: int) -> None:
        """Put frames (n, size) into the mailbox of packet-outs. Raises SwitchError when it stays full for a second."""
        with self._sending:
            for frame in frames:
                if self.wake_fd < 0:
                    raise SwitchError("packet-out: the switch has been stopped")
                self._wait_for_room()
                head = self._shared_words[memory.SHARED_OUT_HEAD]
                slot = self._outs[head % memory.MAILBOX_SLOTS]
                slot[: memory.SLOT_HEADER].view(np.int64)[0] = len(frame)
                slot[memory.SLOT_HEADER : memory.SLOT_HEADER + len(frame)] = frame
                self._shared_words[memory.SHARED_OUT_HEAD] = head + 1
                os.eventfd_write(self.wake_fd, 1)

    def packet_ins(self) -> list[tuple[int, bytes]]:
        """Take the frames that wait for the controller: (time in ns, bytes) in order."""
        tail, head = self._shared_words[memory.SHARED_IN_TAIL], self._shared_words[memory.SHARED_IN_HEAD]
        frames = []
        for i in range(tail, head):
            slot = self._ins[i % memory.MAILBOX_SLOTS]
            length, at = slot[: memory.SLOT_HEADER].view(np.int64).tolist()
            frames.append((at, slot[memory.SLOT_HEADER : memory.SLOT_HEADER + length].tobytes()))
        self._shared_words[memory.SHARED_IN_TAIL] = head
        return frames

    @property
    def now_ns(self) -> int:
        """CLOCK_MONOTONIC, which the loop reads when it has work."""
        return time.monotonic_ns()

    def serve(self) -> None:
        """Move packets until somebody wants the engine."""
        self.world.at = self._loop_address
        self._call(memory.OP_SERVE)

    def close(self) -> None:
        """After the loop has ended for good."""
        with self._sending:
            os.close(self.wake_fd)
            os.close(self.told_fd)
            self.wake_fd = self.told_fd = NONE

    def _wait_for_room(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        words = self._shared_words
        while words[memory.SHARED_OUT_HEAD] - words[memory.SHARED_OUT_TAIL] >= memory.MAILBOX_SLOTS:
            if time.monotonic() > deadline:
                raise SwitchError(f"packet-out: {memory.MAILBOX_SLOTS} are waiting; the switch takes no more")
            time.sleep(0.001)

    def _interrupt(self, wanted: bool) -> None:
        self._shared_words[memory.SHARED_INTERRUPT] = wanted
        if wanted and self.wake_fd >= 0:
            os.eventfd_write(self.wake_fd, 1)


class WiredSwitch:
    """A switch whose ports are network interfaces. A context manager: started on entry, stopped on exit.

    The switch keeps its face (`emulator.datapath.Datapath`), so a P4Runtime server drives it as ever.
    """

    def __init__(
        self, switch: Switch, interfaces: Mapping[int, str], capture: Path | None = None, *, ring: bool = True
    ) -> None:
        """`interfaces` are names by port; ports that the switch lacks are added. With `capture`, what each interface
        receives and sends is written to `NAME_in.pcap` and `NAME_out.pcap` in that folder. `ring=False` receives and
        sends by system calls alone, as where memory for the rings cannot be had.

        Raises PortError for an interface that is not there, is named twice, or may not be opened.
        """
        self.switch = switch
        self.on_failure: Callable[[], None] | None = None
        """Called if the packet loop breaks down, for want of memory say; the log has the reason."""
        self._interfaces: dict[int, Interface] = {}
        self._resources = ExitStack()
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._last_counters: dict[int, InterfaceCounters] | None = None
        try:
            taken: dict[str, int] = {}
            for port, name in interfaces.items():
                if name in taken:
                    raise PortError(
                        f"interface {name} is given to port {taken[name]} and to port {port}; give it to one"
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
                        descriptor = _open_capture(capture / f"{one.name}_{direction}.pcap")
                        self._resources.callback(os.close, descriptor)
                        self._engine.nics[i][f"capture_{direction}"] = descriptor
        except BaseException:
            self._resources.close()
            raise

    def __enter__(self) -> WiredSwitch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to move packets, on a thread of native code."""
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
        self._last_counters = self.counters()
        self._resources.close()

    def counters(self) -> dict[int, InterfaceCounters]:
        """Counters of every interface, by port."""
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
        return tuple(port for port, one in self._interfaces.items() if one.ring is None or one.send_ring is None)

    @property
    def packet_in_drops(self) -> int:
        """Packet-ins that found their mailbox full, for the control plane was too slow."""
        return int(self._engine.loop.packet_in_drops)

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
        """The thread that gives packet-ins and digests to the control plane; without one packet-ins are dropped."""
        told = select.poll()
        told.register(self._engine.told_fd, select.POLLIN)
        while not self._stopping:
            if told.poll(_DIGEST_INTERVAL_MS if self.switch.on_digest is not None else _IDLE_INTERVAL_MS):
                os.eventfd_read(self._engine.told_fd)
            for at, frame in self._engine.packet_ins():
                self.switch.packet_in_ns = at
                receiver = self.switch.on_packet_in
                if receiver is not None:
                    self._tell(receiver, frame)
            self._tell(self.switch.poll_digests)

    def _tell(self, work: Callable[..., object], *arguments: object) -> None:
        """Call the control plane, whose failures are its own."""
        try:
            work(*arguments)
        except Exception:
            log.exception("the control plane of switch %d has failed on what the switch told it", self.switch.device_id)


def _open_capture(path: Path) -> int:
    """A new capture file with pcap's header (microseconds, Ethernet)."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PortError(f"capture file {path} cannot be written: {os.strerror(error.errno or 0)}") from error
    os.write(descriptor, struct.pack("=IHHiIII", _PCAP_MAGIC, 2, 4, 0, 0, _PCAP_SNAPLEN, _PCAP_ETHERNET))
    return descriptor


def _function(libc: ctypes.CDLL, name: str) -> int:
    """The address of one of libc's functions."""
    address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
    assert address is not None
    return address
