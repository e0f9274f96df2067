"""A worker's turns on a device that jobs share, over one stream to the controller that stays open.

::

    ask ──▶ stream ──▶ controller          release ──▶ stream
                           └─ a turn begins ─▶ a thread ─▶ callback

Without a controller there are no turns: the callback receives the error, and the worker computes without one. The next
request opens a new stream.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import grpc

from ...wire import control_pb2 as pb
from ...wire.control_channel import Tls
from ...wire.control_messages import TAKE_TURNS
from ..errors import ControlAbsent, HostError
from .control_client import open_channel, refusal_of

_JOIN_S: Final = 5.0

Told = Callable[[HostError | None], object]
"""Takes None as the turn begins, or the error for which there is none."""

_Outbox = queue.SimpleQueue[pb.TurnRequest | None]


class TurnClient:
    """Turns of one worker. The stream is opened by the first request."""

    def __init__(self, address: str, job: int, token: str, device: str = "", tls: Tls | None = None) -> None:
        """Prepare the client.

        Args:
            address: Address of the control service.
            job: The job's number.
            token: Token of the worker's seat.
            device: Name of the device in the worker's host, at most 64 characters; empty: the host has one.
            tls: Certificates of the connection.

        Raises:
            ControlRefused: The address or the TLS files cannot be used.
        """
        self._address = address
        self._first = pb.TurnRequest(action=pb.TurnRequest.ATTEND, job=job, token=token, device=device)
        self._channel = open_channel(address, tls)
        self._turns = self._channel.stream_stream(
            TAKE_TURNS,
            request_serializer=pb.TurnRequest.SerializeToString,
            response_deserializer=pb.Turn.FromString,
        )
        self._lock = threading.Lock()
        self._outbox: _Outbox | None = None
        """Outbox of the open stream; None if no stream is open."""
        self._thread: threading.Thread | None = None
        self._told: Told | None = None
        """Callback of the request that has no turn yet."""
        self._request = 0
        self._asked_ns = self._began_ns = self._ended_ns = 0
        self._compute_ns = self._between_ns = self._waited_ns = 0

    def ask(self, told: Told) -> None:
        """Ask for the next turn. The callback is called once, on another thread or on this one; it must be short."""
        with self._lock:
            if self._outbox is None:
                self._open()
            assert self._outbox is not None
            now = time.monotonic_ns()
            self._between_ns += now - self._ended_ns if self._ended_ns else 0
            self._asked_ns, self._ended_ns = now, 0
            self._told = told
            self._request += 1
            self._outbox.put(pb.TurnRequest(action=pb.TurnRequest.ASK, request=self._request))

    def release(self) -> None:
        """End the turn, or withdraw the request for one, whose callback is then not called."""
        with self._lock:
            now = time.monotonic_ns()
            if self._told is not None:
                self._told = None
                self._waited_ns += now - self._asked_ns
            if self._began_ns:
                self._compute_ns += now - self._began_ns
                self._began_ns, self._ended_ns = 0, now
            if self._outbox is not None:
                self._outbox.put(pb.TurnRequest(action=pb.TurnRequest.RELEASE))

    def phases(self) -> tuple[int, int, int]:
        """Return times of complete phases since the last call.

        Returns:
            Time in turns, time between a turn's end and the next request, and time between a request and its turn, in
            ns.
        """
        with self._lock:
            measured = self._compute_ns, self._between_ns, self._waited_ns
            self._compute_ns = self._between_ns = self._waited_ns = 0
        return measured

    def close(self) -> None:
        """End the stream, and a turn with it. May be repeated."""
        with self._lock:
            if self._outbox is not None:
                self._outbox.put(None)
                self._outbox = None
        self._channel.close()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _open(self) -> None:
        self._outbox = queue.SimpleQueue()
        self._outbox.put(self._first)
        answers = self._turns(iter(self._outbox.get, None))
        self._thread = threading.Thread(target=self._read, args=(self._outbox, answers), name="turns", daemon=True)
        self._thread.start()

    def _read(self, outbox: _Outbox, answers: Any) -> None:
        """The thread of one stream: take its turns until it ends."""
        ended: HostError = ControlAbsent("the controller has ended the stream of turns", place=self._address)
        try:
            for turn in answers:
                with self._lock:
                    told = self._told if turn.request == self._request else None
                    if told is not None:
                        self._told, self._began_ns = None, time.monotonic_ns()
                        self._waited_ns += self._began_ns - self._asked_ns
                if told is not None:
                    told(None)
        except grpc.RpcError as error:
            ended = refusal_of(self._address, error)
        outbox.put(None)  # ends the thread that sends
        with self._lock:
            told = None
            if self._outbox in (outbox, None):
                self._outbox, told, self._told = None, self._told, None
                self._waited_ns += 0 if told is None else time.monotonic_ns() - self._asked_ns
        if told is not None:
            told(ended)
