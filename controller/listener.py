"""A TCP port that strangers may connect to: a bounded number of connections, and a time limit for a request's head.

::

    accept ──▶ Door (timer, count) ──▶ the protocol behind it (aiohttp's, or a stream reader's)

Each connection carries one request: the protocols behind it close it after their answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

MAX_CONNECTIONS: Final = 64
HEAD_S: Final = 5.0
"""Time limit for the head of a request, from the connection on."""
_BACKLOG: Final = 64
_RETRY_S: Final = 1.0
"""Pause after a failure to accept, such as a lack of file descriptors: one line is logged per pause."""
_HEAD_END: Final = b"\r\n\r\n"

_log = logging.getLogger(__name__)


class Listener:
    """Accepts connections in the running event loop. A new one takes the place of the oldest without a whole head."""

    def __init__(self, name: str, make: Callable[[], asyncio.Protocol], head_s: float = HEAD_S) -> None:
        """Create a listener that does not listen yet.

        Args:
            name: The port's name in log lines.
            make: Returns the protocol of one connection.
            head_s: Time limit for a request's head, in seconds.
        """
        self.head_s = head_s
        self._name = name
        self._make = make
        self._sockets: list[socket.socket] = []
        self._doors: set[_Door] = set()
        self._half_open: dict[_Door, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming = 0

    async def start(self, host: str, port: int) -> int:
        """Listen on all addresses of a host and return the port; 0 takes a free one. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(addresses):
                place = (address[0], port, *address[2:])
                listening = socket.create_server(place, family=family, backlog=_BACKLOG)
                self._sockets.append(listening)
                listening.setblocking(False)
                port = port or int(listening.getsockname()[1])
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        return port

    def close(self) -> None:
        """Stop listening and end all connections."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for door in list(self._doors):
            door.end()

    def enter(self, door: _Door) -> None:
        """Count a new connection as open; its head has not arrived."""
        self._coming -= 1
        self._doors.add(door)
        self._half_open[door] = None

    def has_asked(self, door: _Door) -> None:
        """Note that a connection has sent its whole head."""
        self._half_open.pop(door, None)

    def leave(self, door: _Door) -> None:
        """Remove a closed connection."""
        self._doors.discard(door)
        self._half_open.pop(door, None)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("%s: no connection can be accepted: %s", self._name, error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(_RETRY_S, self._resume, listening)
                return
            if not self._make_room():
                connection.close()
                continue
            connection.setblocking(False)
            self._coming += 1
            task = self._loop.create_task(self._admit(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _make_room(self) -> bool:
        """End the oldest connection without a whole head if there are too many; False: there is none to end."""
        if len(self._doors) + self._coming < MAX_CONNECTIONS:
            return True
        oldest = next(iter(self._half_open), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.end()
        return True

    async def _admit(self, connection: socket.socket) -> None:
        with suppress(OSError):
            await self._loop.connect_accepted_socket(lambda: _Door(self, self._make()), connection)


class _Door(asyncio.Protocol):
    """One connection: passes everything on, and ends it if no whole head comes in time."""

    def __init__(self, listener: Listener, behind: asyncio.Protocol) -> None:
        self._listener = listener
        self._behind = behind
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.enter(self)
        self._timer = asyncio.get_running_loop().call_later(self._listener.head_s, self.end)
        self._behind.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._timer is not None:
            seen = self._tail + data
            self._tail = seen[1 - len(_HEAD_END) :]
            if _HEAD_END in seen:
                self._settle()
                self._listener.has_asked(self)
        self._behind.data_received(data)

    def eof_received(self) -> bool | None:
        return self._behind.eof_received()

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._settle()
        self._listener.leave(self)
        self._behind.connection_lost(error)

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
