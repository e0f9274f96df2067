"""The UDP socket that receives reports: many datagrams per system call (recvmmsg), without an object for each.

It never blocks: the controller's driver polls it before each decision, and an event loop whenever something has come.
So the newest report that the kernel has is in every snapshot; while the controller is busy the kernel's buffer holds
the rest.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from ...wire.message_batch import MessageBatch, enlarge_buffer
from ..errors import ControllerError

if TYPE_CHECKING:
    from .collector import ReportCollector

BATCH: Final = 512
"""Datagrams a call."""
_SLOT_BYTES: Final = 2048
"""Bytes per datagram, above the fabric's MTU; longer ones are cut, and thus malformed."""
_MAX_BATCHES: Final = 64
"""Maximum number of batches per poll, so that a flood does not block the controller."""
_BUFFER_BYTES: Final = 1 << 26
_SO_MEMINFO: Final = 55
_MEMINFO_DROPS: Final = 8


class ReportSocket:
    """Receives for one collector; a context manager."""

    def __init__(
        self, collector: ReportCollector, port: int, host: str = "127.0.0.1", bound: socket.socket | None = None
    ) -> None:
        """Open a UDP socket for reports.

        Args:
            collector: Collector that receives them.
            port: UDP port; 0: any free one.
            host: Address to bind to.
            bound: Bound socket to use instead, for example of another network namespace; it is closed on exit.

        Raises:
            ControllerError: The port cannot be bound.
        """
        self._collector = collector
        self._rows = np.zeros((BATCH, _SLOT_BYTES), np.uint8)
        self._data = self._rows.reshape(-1)
        self._starts = np.arange(BATCH, dtype=np.int64) * _SLOT_BYTES
        self._lengths = np.zeros(BATCH, np.int64)
        self._batch = MessageBatch(BATCH)
        self._batch.use(self._rows)
        self._socket = _bound(host, port) if bound is None else bound
        self._socket.setblocking(False)
        enlarge_buffer(self._socket, socket.SO_RCVBUF, _BUFFER_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Return the file descriptor for event loops: readable when reports have come."""
        return self._socket.fileno()

    @property
    def port(self) -> int:
        """UDP port that switches send reports to."""
        return int(self._socket.getsockname()[1])

    @property
    def kernel_drops(self) -> int:
        """Datagrams for which the kernel had no room."""
        told = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64)
        return int(struct.unpack_from("=I", told, 4 * _MEMINFO_DROPS)[0])

    def poll(self, now_ns: int) -> int:
        """Receive the waiting datagrams, at most 32,768; return their number.

        Raises:
            ControllerError: The socket fails.
        """
        taken = 0
        for _ in range(_MAX_BATCHES):
            try:
                count = self._batch.receive(self.fileno())
            except OSError as error:
                raise ControllerError(f"telemetry reports: port {self.port}: {error.strerror}") from error
            self._lengths[:count] = self._batch.lengths[:count]
            self._collector.receive_batch(self._data, self._starts, self._lengths, count, now_ns)
            taken += count
            if count < BATCH:
                break
        return taken


def _bound(host: str, port: int) -> socket.socket:
    new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        new.bind((host, port))
    except OSError as error:
        new.close()
        raise ControllerError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port",
            place="telemetry reports",
            value=f"{host}:{port}",
        ) from None
    return new
