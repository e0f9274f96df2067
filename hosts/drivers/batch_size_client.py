"""Questions for a job's batch sizes, by the worker that asks the controller for all, over one stream that stays open.

::

    ask ──question──▶ stream ──▶ controller
     │                  └ a thread takes the answers, in the questions' order
     ▼
    BatchSizeRequest ◀──sizes, or why there are none

A call for each question would cost both sides about twice the processor time. What is refused ends the stream, as does
a controller that ends; the next question opens another one.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import Any, Final

import grpc

from ...wire import control_pb2 as pb
from ...wire.control_channel import Tls
from ...wire.control_messages import BALANCE
from ..errors import ControlAbsent, HostError
from .control_client import open_channel, refusal_of

_ANSWER_S: Final = 30.0
"""Seconds after which a question counts as unanswered."""

_Outbox = queue.SimpleQueue[pb.BalanceRequest | None]


class BatchSizeRequest:
    """Batch sizes that were asked for (`collectives.leader_query.Answer`)."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._late_s = time.monotonic() + _ANSWER_S
        self._settled = threading.Event()
        self._found: list[int] | HostError = ControlAbsent(
            f"no answer after {_ANSWER_S:g} s", place=address, value=_ANSWER_S
        )

    @property
    def overdue(self) -> bool:
        """True if the time for an answer is over."""
        return not self._settled.is_set() and time.monotonic() > self._late_s

    def settle(self, found: list[int] | HostError) -> None:
        """Set the answer: a batch size per rank, or the error."""
        self._found = found
        self._settled.set()

    def done(self) -> bool:
        """True if `wait` returns, or raises, at once."""
        return self._settled.is_set() or self.overdue

    def await_done(self, timeout_s: float) -> None:
        """Return when it is answered, or this time is over."""
        self._settled.wait(timeout_s)

    def wait(self, timeout_s: float = _ANSWER_S, /) -> list[int]:
        """Wait for the batch sizes of the next step.

        Args:
            timeout_s: time limit in seconds.

        Returns:
            Samples per rank; 0 for ranks that were lost.

        Raises:
            ControlAbsent: no controller answers.
            ControlRefused: there are no sizes.
        """
        self._settled.wait(timeout_s)
        if isinstance(self._found, HostError):
            raise self._found
        return self._found


class BatchSizeClient:
    """Asks the controller that serves at an address. The stream is opened by the first question."""

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        """Raises ControlRefused for an address or TLS files that cannot be."""
        self._address = address
        self._channel = open_channel(address, tls)
        self._balance = self._channel.stream_stream(
            BALANCE,
            request_serializer=pb.BalanceRequest.SerializeToString,
            response_deserializer=pb.BatchSizes.FromString,
        )
        self._lock = threading.Lock()
        self._outbox: _Outbox | None = None
        """Outbox of the open stream; None if no stream is open."""
        self._unanswered: deque[BatchSizeRequest] = deque()
        """Its questions, in their order."""
        self._thread: threading.Thread | None = None

    def request(self, request: pb.BalanceRequest) -> BatchSizeRequest:
        """Ask the controller for batch sizes; `wire.control_messages.balance_request` makes the message."""
        question = BatchSizeRequest(self._address)
        with self._lock:
            if self._unanswered and self._unanswered[0].overdue:
                self._hang_up()
            if self._outbox is None:
                self._outbox, self._unanswered = queue.SimpleQueue(), deque()
                answers = self._balance(iter(self._outbox.get, None))
                self._thread = threading.Thread(
                    target=self._read, args=(self._outbox, answers, self._unanswered), name="batch sizes", daemon=True
                )
                self._thread.start()
            self._unanswered.append(question)
            self._outbox.put(request)
        return question

    def close(self) -> None:
        """End the stream. May be repeated."""
        with self._lock:
            self._hang_up()
        self._channel.close()
        if self._thread is not None:
            self._thread.join()

    def _hang_up(self) -> None:
        if self._outbox is not None:
            self._outbox.put(None)
            self._outbox = None

    def _read(self, outbox: _Outbox, answers: Any, unanswered: deque[BatchSizeRequest]) -> None:
        """The thread of one stream: take its answers until it ends."""
        ended: HostError = ControlAbsent("the controller has ended the stream of questions", place=self._address)
        try:
            for answer in answers:
                with self._lock:
                    question = unanswered.popleft()
                question.settle(list(answer.sizes))
        except grpc.RpcError as error:
            ended = refusal_of(self._address, error)
        with self._lock:
            if self._outbox is outbox:
                self._hang_up()
        for question in unanswered:
            question.settle(ended)
