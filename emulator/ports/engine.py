"""The memory and the mailboxes of a packet loop on network interfaces, and the lock under which Python touches them."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ..port import SwitchValueError
from ..runtime.build import EntryFunction, native_entry
from ..runtime.engine import Engine
from ..runtime.memory import NONE, PORT_NUMBERS
from . import memory
from .reasons import REASONS
from .sockets import Interface

_MODULES: Final = ("memory", "calls", "receive", "capture", "batch", "reasons", "trace", "transmit", "loop")
_PACKETS: Final = 1024
_POLL_IN: Final = 1
_PATIENCE_S: Final = 1.0


@lru_cache(maxsize=1)
def _loop_entry() -> EntryFunction:
    folder = Path(__file__).parent
    return native_entry("weir.emulator.ports.loop", [folder / f"{name}.py" for name in _MODULES])


class _Loop(ctypes.Structure):
    _fields_: ClassVar = [(name, ctypes.c_int64) for name in memory.LOOP.names or ()]


class Gate(AbstractContextManager[None]):
    """Lock of an engine whose loop runs on: a thread that takes it interrupts the loop, and goes first."""

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
        """Run the loop's work when no thread waits for the lock."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted == 0)
            self._lock.acquire()
        try:
            work()
        finally:
            self._lock.release()


class WireEngine(Engine):
    """Memory of a packet loop: that of `Engine`, plus interfaces and mailboxes."""

    virtual_time = False

    def __init__(self, max_frame: int) -> None:
        super().__init__(max_frame, _PACKETS)
        self._entry = _loop_entry()
        self.nics: Any = np.zeros(0, memory.NIC)
        self._buffers: list[NDArray[np.int64]] = []
        self._captures: list[NDArray[np.void]] = []
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
        for name in memory.FUNCTIONS:
            setattr(self.loop, name, libc_function(libc, name))
        self.loop.errno_location = libc_function(libc, "__errno_location")
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
        self._nic_of = np.full(PORT_NUMBERS + 2, NONE, np.int64)
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
            nic["longest"] = interface.longest
            nic["packets"] = self._zeros(memory.BATCH * 8)
            nic["vectors"] = self._zeros(memory.BATCH * 16)
            nic["messages"] = self._messages(int(nic["vectors"]), 1)
            if interface.ring is None:
                self._prepare_calls(nic)
        self.loop.switch, self.loop.cpu_port = int(self.ports.data[cpu_port]["node"]), cpu_port
        self.loop.nics, self.loop.nic_count = self.nics.ctypes.data, count
        self.loop.nic_of, self.loop.polls = self._nic_of.ctypes.data, self._polls.ctypes.data

    def begin_capture(self, interface: int, direction: str, descriptor: int, size: int) -> Any:
        """Write the frames of an interface to a file.

        Args:
            interface: Index of the interface.
            direction: "in" for received frames, "out" for sent ones.
            descriptor: Descriptor of the open file.
            size: Present length of the file in bytes.

        Returns:
            Record of the capture, which lasts as long as the engine.
        """
        capture = np.zeros(1, memory.CAPTURE)
        capture[0]["descriptor"], capture[0]["size"] = descriptor, size
        self._captures.append(capture)
        self.nics[interface][f"capture_{direction}"] = capture.ctypes.data
        return capture[0]

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
        """Prepare the structures that recvmmsg fills for an interface without a ring."""
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
        """Put frames (n, size) into the packet-out mailbox. Raises SwitchValueError if it stays full for a second."""
        with self._sending:
            for frame in frames:
                if self.wake_fd < 0:
                    raise SwitchValueError("the switch has been stopped", place="packet-out")
                self._wait_for_room()
                head = self._shared_words[memory.SHARED_OUT_HEAD]
                slot = self._outs[head % memory.MAILBOX_SLOTS]
                slot[: memory.SLOT_HEADER].view(np.int64)[0] = len(frame)
                slot[memory.SLOT_HEADER : memory.SLOT_HEADER + len(frame)] = frame
                self._shared_words[memory.SHARED_OUT_HEAD] = head + 1
                os.eventfd_write(self.wake_fd, 1)

    def packet_ins(self, nic: int) -> list[tuple[int, bytes]]:
        """Return the frames that wait for the controller, and remove them. Only one thread may call it at a time.

        Returns:
            (time in ns, bytes) of each frame, in order.
        """
        tail, head = self._shared_words[memory.SHARED_IN_TAIL], self._shared_words[memory.SHARED_IN_HEAD]
        frames = []
        for i in range(tail, head):
            slot = self._ins[i % memory.MAILBOX_SLOTS]
            length, at = slot[: memory.SLOT_HEADER].view(np.int64).tolist()
            frames.append((at, slot[memory.SLOT_HEADER : memory.SLOT_HEADER + length].tobytes()))
        self._shared_words[memory.SHARED_IN_TAIL] = head
        return frames

    def drop_packet_outs(self, nic: int) -> int:
        """Drop the frames that the loop has not taken out of the mailbox yet. Returns how many."""
        with self.lock:
            tail, head = self._shared_words[memory.SHARED_OUT_TAIL], self._shared_words[memory.SHARED_OUT_HEAD]
            self._shared_words[memory.SHARED_OUT_TAIL] = head
            return int(head - tail)

    def note_packets(self) -> None:
        """Start noting events of packets, for `notes`."""
        self._notes = np.zeros((memory.TRACE_NOTES, memory.TRACE_WORDS), np.int64)
        self.loop.trace_seen = self._zeros(8 * len(REASONS))
        self.loop.trace = self._notes.ctypes.data

    def notes(self) -> list[list[int]]:
        """Return the notes so far, in order, and remove them; `emulator.ports.trace` has their layout."""
        if not self.loop.trace:
            return []
        tail, head = self._shared_words[memory.SHARED_LOG_TAIL], self._shared_words[memory.SHARED_LOG_HEAD]
        notes: list[list[int]] = self._notes[np.arange(tail, head) % memory.TRACE_NOTES].tolist()
        self._shared_words[memory.SHARED_LOG_TAIL] = head
        return notes

    @property
    def now_ns(self) -> int:
        """CLOCK_MONOTONIC, which the loop reads when it has work."""
        return time.monotonic_ns()

    def serve(self) -> None:
        """Move packets until somebody wants the engine."""
        self.world.at = self._loop_address
        self._call(memory.OP_SERVE)

    def close(self) -> None:
        """Free the loop's resources, after it has ended for good."""
        with self._sending:
            os.close(self.wake_fd)
            os.close(self.told_fd)
            self.wake_fd = self.told_fd = NONE

    def _wait_for_room(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        words = self._shared_words
        while words[memory.SHARED_OUT_HEAD] - words[memory.SHARED_OUT_TAIL] >= memory.MAILBOX_SLOTS:
            if time.monotonic() > deadline:
                raise SwitchValueError(
                    f"{memory.MAILBOX_SLOTS} are waiting; the switch takes no more",
                    place="packet-out",
                    value=memory.MAILBOX_SLOTS,
                )
            time.sleep(0.001)

    def _interrupt(self, wanted: bool) -> None:
        self._shared_words[memory.SHARED_INTERRUPT] = wanted
        if wanted and self.wake_fd >= 0:
            os.eventfd_write(self.wake_fd, 1)


def libc_function(libc: ctypes.CDLL, name: str) -> int:
    """Return the address of one of libc's functions."""
    address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
    assert address is not None
    return address
