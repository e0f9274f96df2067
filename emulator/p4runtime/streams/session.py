"""One controller's open stream: what is waiting to be sent on it, and why it must end."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Final

from finsy.proto import p4r

from ..refusal import Code, Refusal

MAX_WAITING: Final = 65_536
"""Messages waiting for a slow controller. More are dropped, as a switch's CPU port does; where that may not be, the
stream ends."""


class Session:
    """A live `StreamChannel`. Compared by identity."""

    def __init__(self) -> None:
        self.role: str | None = None
        """The role that the client claimed; None until its first arbitration message."""
        self.device_id = 0
        self.refusal: Refusal | None = None
        """Why the server ends the stream; None: the client left."""
        self._outbox: queue.SimpleQueue[p4r.StreamMessageResponse | None] = queue.SimpleQueue()

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Send; where that would be one too many, end the stream."""
        if not self.offer(message):
            self.close(
                Refusal(Code.RESOURCE_EXHAUSTED, f"{MAX_WAITING} messages wait for this controller to read them")
            )

    def offer(self, message: p4r.StreamMessageResponse) -> bool:
        """Send unless `MAX_WAITING` messages are waiting; whether it was sent."""
        if self._outbox.qsize() >= MAX_WAITING:
            return False
        self._outbox.put(message)
        return True

    def close(self, refusal: Refusal | None = None) -> None:
        """End the stream when what is waiting has been sent."""
        if self.refusal is None:
            self.refusal = refusal
        self._outbox.put(None)

    def messages(self) -> Iterator[p4r.StreamMessageResponse]:
        """What to send, in order, until the stream is closed."""
        while (message := self._outbox.get()) is not None:
            yield message
