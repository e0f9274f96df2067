"""The memory of a fabric on the wall clock, and its taps: the rings by which processes send and receive frames."""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from ..ports.engine import Gate, libc_function
from ..runtime import memory as runtime_memory
from ..runtime.build import EntryFunction, native_entry
from ..runtime.engine import DueHost, Engine
from ..runtime.memory import NONE
from . import memory

_LATE_NS: Final = 20_000_000
"""Lag of the earliest event behind the clock beyond which it is dropped."""
_TURN_NS: Final = 50_000
"""Shortest sleep while frames are under way: the frames of that time are one batch."""
_EMULATOR: Final = Path(__file__).parents[1]


@lru_cache(maxsize=1)
def _live_entry() -> EntryFunction:
    ports, live = _EMULATOR / "ports", _EMULATOR / "live"
    own = [ports / "calls.py", ports / "memory.py", live / "memory.py", live / "loop.py"]
    return native_entry("weir.emulator.live.loop", own)


class _Live(ctypes.Structure):
    _fields_: ClassVar = [(name, ctypes.c_int64) for name in memory.LIVE.names or ()]


@dataclass(frozen=True, slots=True)
class TapRings:
    """Memory that a process shares with the fabric: two rings of frames, and words of `emulator.live.memory`.

    A row begins with the frame's length, a 64-bit integer.
    """

    shared: int
    """Address of the words."""
    inbound: int
    """Address of the ring that the process writes."""
    outbound: int
    """Address of the ring that the fabric writes."""
    rows: int
    """Rows of either ring, a power of two."""
    row_bytes: int
    frame_at: int
    """Place of the frame in its row."""


class LiveEngine(Engine):
    """Memory of an event loop on the wall clock. A thread that takes `lock` interrupts the loop."""

    def __init__(self, max_frame: int) -> None:
        super().__init__(max_frame)
        self._entry = _live_entry()
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._shared = np.zeros(memory.SHARED_WORDS, np.int64)
        self._words = (ctypes.c_int64 * memory.SHARED_WORDS).from_buffer(self._shared.data)
        self._scratch = np.zeros(memory.SCRATCH_WORDS, np.int64)
        self.live: Any = _Live()
        self._live_address = ctypes.addressof(self.live)
        libc = ctypes.CDLL(None)
        for name in memory.FUNCTIONS:
            setattr(self.live, name, libc_function(libc, name))
        self.live.shared, self.live.scratch = self._shared.ctypes.data, self._scratch.ctypes.data
        self.live.wake_fd = self.wake_fd
        self.live.late_ns, self.live.turn_ns = _LATE_NS, _TURN_NS
        self.gate = Gate(self._interrupt)
        self.lock = self.gate
        self._closed_taps: list[int] = []

    def begin(self) -> None:
        """Start the fabric's clock."""
        self.live.origin_ns = time.monotonic_ns() - self.world.now

    def serve(self) -> list[DueHost]:
        """Keep up with the clock until Python is needed; return the hosts that are due. The caller has the lock."""
        self.world.at = self._live_address
        self._call(memory.OP_LIVE)
        return self._pop_due()

    def wake(self) -> None:
        """Make `serve` return soon, or at once when it is called next."""
        self._words[memory.SHARED_ATTENTION] = 1
        self._ring()

    def attend(self) -> None:
        """Clear what `wake` asks for; what comes after this call makes `serve` return again."""
        self._words[memory.SHARED_ATTENTION] = 0

    def tap_host(self, host: int) -> None:
        """Hand a host's frames to its taps alone, from now on."""
        with self.lock:
            self.hosts.data[host]["tapped"] = 1

    def open_tap(
        self, host: int, port: int, rings: TapRings, *, bell: int, priority: int, key_at: int, key: int
    ) -> int:
        """Let a process send by a host's NIC, and receive the frames that match a key.

        Args:
            host: Index of the host.
            port: Index of the NIC's port.
            rings: Memory shared with the process.
            bell: File descriptor of an eventfd that is written when frames have arrived.
            priority: Priority of the frames that the process sends.
            key_at: Place in the frame of the 16 bits that select received frames.
            key: Value of these bits.

        Returns:
            Number of the tap, for `close_tap`.
        """
        fields = {
            "open": 1,
            "port": port,
            "priority": priority,
            "key_at": key_at,
            "key": key,
            "rows": rings.rows,
            "row_bytes": rings.row_bytes,
            "frame_at": rings.frame_at,
            "inbound": rings.inbound,
            "outbound": rings.outbound,
            "shared": rings.shared,
            "bell": bell,
        }
        with self.lock:
            index = self._closed_taps.pop() if self._closed_taps else self.taps.append()
            self.taps.data[index] = np.zeros((), runtime_memory.TAP)
            for name, value in fields.items():
                self.taps.data[index][name] = value
            self.taps.data[index]["next"] = self.hosts.data[host]["tap"]
            self.hosts.data[host]["tap"] = index
            self._refresh()
        return index

    def close_tap(self, host: int, index: int) -> None:
        """Touch the tap's memory no more."""
        with self.lock:
            following = int(self.taps.data[index]["next"])
            if int(self.hosts.data[host]["tap"]) == index:
                self.hosts.data[host]["tap"] = following
            else:
                before = int(self.hosts.data[host]["tap"])
                while int(self.taps.data[before]["next"]) != index:
                    before = int(self.taps.data[before]["next"])
                self.taps.data[before]["next"] = following
            self.taps.data[index]["open"] = 0
            self.taps.data[index]["next"] = NONE
            self._closed_taps.append(index)

    def close(self) -> None:
        """Free the loop's resources, after it has ended for good."""
        os.close(self.wake_fd)
        self.wake_fd = NONE

    def _interrupt(self, wanted: bool) -> None:
        self._words[memory.SHARED_INTERRUPT] = wanted
        if wanted:
            self._ring()

    def _ring(self) -> None:
        if self.wake_fd >= 0:
            os.eventfd_write(self.wake_fd, 1)
