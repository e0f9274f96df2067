"""What goes to one host over its stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import grpc

from ...wire import control_pb2 as pb

MOST_UNSENT: Final = 256
"""A host that has so many messages to take, each of them unlike the others, is not waited for any longer."""


class HostStream:
    """What goes to one host, in order, until `end`. What still waits to be sent is not queued a second time, and of
    what the job waits for only the newest word counts, so a host that takes nothing costs little.
    """

    def __init__(self) -> None:
        self.failure: tuple[grpc.StatusCode, str] | None = None
        """How the stream ends; None: well."""
        self._unsent: deque[pb.ToHost] = deque()
        self._ended = False
        self._changed = asyncio.Event()

    def send(self, message: pb.ToHost) -> None:
        """Nothing happens once it has ended."""
        if self._ended:
            return
        if message.HasField("waiting"):
            self._unsent = deque(each for each in self._unsent if not each.HasField("waiting"))
        elif message in self._unsent:
            return
        if len(self._unsent) == MOST_UNSENT:
            self._unsent.clear()
            self.end(
                (grpc.StatusCode.RESOURCE_EXHAUSTED, f"this host has not taken {MOST_UNSENT} messages; join again")
            )
            return
        self._unsent.append(message)
        self._changed.set()

    def end(self, failure: tuple[grpc.StatusCode, str] | None = None) -> None:
        """After what was sent so far."""
        self.failure = failure
        self._ended = True
        self._changed.set()

    async def messages(self) -> AsyncIterator[pb.ToHost]:
        while True:
            while self._unsent:
                yield self._unsent.popleft()
            if self._ended:
                return
            self._changed.clear()
            await self._changed.wait()
