"""One controller's open stream: its outgoing queue, and the reason for its end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Final

from finsy.proto import p4r

from ..refusal import Code, Refusal

MAX_WAITING: Final = 65_536
"""Messages waiting for a slow controller. More are dropped, as a switch's CPU port does; where that may not be, the
stream ends."""
MAX_WAITING_BYTES: Final = 64 << 20
"""The same, for the bytes of these messages: one list of digests may be as large as thousands of packet-ins."""


class Session:
    """A live `StreamChannel`. Compared by identity."""

    def __init__(self) -> None:
        self.role: str | None = None
        """The role that the client claimed; None until its first arbitration message."""
        self.device_id = 0
        self.refusal: Refusal | None = None
        """Reason why the server ends the stream; None if the client left."""
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._counting = threading.Lock()
        self._waiting_bytes = 0

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Queue a message; if the queue is full, end the stream."""
        if not self.offer(message):
            self.close(
                Refusal(
                    Code.RESOURCE_EXHAUSTED,
                    f"{self._outbox.qsize()} messages of {self._waiting_bytes} bytes wait for this controller to read "
                    f"them; there is room for {MAX_WAITING} of {MAX_WAITING_BYTES}",
                )
            )

    def offer(self, message: p4r.StreamMessageResponse) -> bool:
        """Send unless `MAX_WAITING` messages or `MAX_WAITING_BYTES` are waiting; whether it was sent."""
        data = message.SerializeToString()
        with self._counting:
            if self._outbox.qsize() >= MAX_WAITING or self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
                return False
            self._waiting_bytes += len(data)
            self._outbox.put(data)
        return True

    def close(self, refusal: Refusal | None = None) -> None:
        """End the stream when what is waiting has been sent."""
        if self.refusal is None:
            self.refusal = refusal
        self._outbox.put(None)

    def messages(self) -> Iterator[bytes]:
        """Yield the messages to send, serialised, in order, until the stream is closed."""
        while (data := self._outbox.get()) is not None:
            with self._counting:
                self._waiting_bytes -= len(data)
            yield data
