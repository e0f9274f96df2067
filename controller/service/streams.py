"""Outgoing messages of one host's stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import grpc

from ...wire import control_pb2 as pb

MAX_UNSENT: Final = 256
"""Maximum number of different unsent messages of a host before it counts as lost."""


class HostStream:
    """Ordered outgoing messages of one host, until `end`.

    A waiting message is not queued twice, and only the newest pending condition is kept, so a host that reads nothing
    costs little.
    """

    def __init__(self) -> None:
        self.failure: tuple[grpc.StatusCode, str] | None = None
        """Status with which the stream ends; None: OK."""
        self._unsent: deque[pb.ToHost] = deque()
        self._ended = False
        self._changed = asyncio.Event()

    def send(self, message: pb.ToHost) -> None:
        """Queue a message for the host; ignored once the stream has ended."""
        if self._ended:
            return
        if message.HasField("waiting"):
            self._unsent = deque(each for each in self._unsent if not each.HasField("waiting"))
        elif message in self._unsent:
            return
        if len(self._unsent) == MAX_UNSENT:
            self._unsent.clear()
            self.end((grpc.StatusCode.RESOURCE_EXHAUSTED, f"this host has not taken {MAX_UNSENT} messages; join again"))
            return
        self._unsent.append(message)
        self._changed.set()

    def end(self, failure: tuple[grpc.StatusCode, str] | None = None) -> None:
        """End the stream after the messages sent so far."""
        self.failure = failure
        self._ended = True
        self._changed.set()

    async def messages(self) -> AsyncIterator[pb.ToHost]:
        """Yield messages in order, as they are added, until `end`."""
        while True:
            while self._unsent:
                yield self._unsent.popleft()
            if self._ended:
                return
            self._changed.clear()
            await self._changed.wait()
