"""A fabric on the wall clock: its event loop is native and sleeps while nothing happens; processes link to its hosts.

Links keep their rates and delays as far as the machine keeps up. When events are overdue by more than 20 ms, the
fabric's time stands still for the excess, and `behind_s` counts it.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Final

from ..fabric import Fabric
from ..runtime.engine import DueHost, Engine
from .engine import LiveEngine, TapRings

_PR_SET_TIMERSLACK: Final = 29


class WallClockFabric(Fabric):
    """Build it like any `Fabric`; then `start` it."""

    def _make_engine(self, max_frame: int) -> Engine:
        self._live = LiveEngine(max_frame)
        self._stopping = False
        self._due: list[DueHost] = []
        self._thread = threading.Thread(target=self._serve, name="fabric", daemon=True)
        return self._live

    @property
    def bell(self) -> int:
        """The eventfd that a process writes after it has written frames."""
        return self._live.wake_fd

    @property
    def behind_s(self) -> float:
        """Seconds that the fabric's time has stood still because the machine did not keep up."""
        return int(self._live.live.behind_ns) / 1e9

    def start(self) -> None:
        """Start the thread; from now on frames of hosts go to their taps alone."""
        for host in self._nodes.hosts.values():
            self._live.tap_host(host.index)
        self._live.begin()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._live.wake()
        self._thread.join()
        self._live.close()

    def open_tap(self, host: str, rings: TapRings, *, bell: int, priority: int, key_at: int, key: int) -> int:
        """Link a process to a host's first NIC.

        Args:
            host: Name of the host.
            rings: Memory shared with the process.
            bell: File descriptor of an eventfd that is written when frames have arrived.
            priority: Priority of the frames that the process sends.
            key_at: Place in the frame of the 16 bits that select received frames.
            key: Value of these bits.

        Returns:
            Number of the tap, for `close_tap`.

        Raises:
            FabricError: The host is unknown.
        """
        port = self._nodes.port((host, 0))
        index = self._nodes.host(host).index
        return self._live.open_tap(index, port, rings, bell=bell, priority=priority, key_at=key_at, key=key)

    def close_tap(self, host: str, tap: int) -> None:
        """Undo `open_tap`; the rings may go then."""
        self._live.close_tap(self._nodes.host(host).index, tap)

    # --- the thread ---

    def _serve(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        while not self._stopping:
            self._live.attend()
            for switch in self._nodes.switches.values():
                switch.release_packet_outs()
            self._live.gate.pass_when_free(self._serve_until_wanted)
            for wake in self._due:
                self._cpus[wake.host].deliver_packet_ins()
            for switch in self._nodes.switches.values():
                switch.poll_digests()

    def _serve_until_wanted(self) -> None:
        self._due = [] if self._stopping else self._live.serve()
