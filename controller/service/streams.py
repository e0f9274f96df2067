"""What goes to one host over its stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc

from ...wire import control_pb2 as pb


class HostStream:
    """What goes to one host, in order, until `end`."""

    def __init__(self) -> None:
        self.failure: tuple[grpc.StatusCode, str] | None = None
        """How the stream ends; None: well."""
        self._queue: asyncio.Queue[pb.ToHost | None] = asyncio.Queue()

    def send(self, message: pb.ToHost) -> None:
        self._queue.put_nowait(message)

    def end(self, failure: tuple[grpc.StatusCode, str] | None = None) -> None:
        """After what was sent so far."""
        self.failure = failure
        self._queue.put_nowait(None)

    async def messages(self) -> AsyncIterator[pb.ToHost]:
        while (message := await self._queue.get()) is not None:
            yield message
