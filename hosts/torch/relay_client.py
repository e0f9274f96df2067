"""Client of the relay in the training process: blocks of shared memory, calls in flight, one thread for answers.

The thread waits in the kernel, without the interpreter's lock. Answers run callbacks on that thread, which must be
short.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.reduction import send_handle
from typing import Any, Final

from .. import errors
from ..errors import HostError

_MIN_BLOCK: Final = 1 << 16
_ENDED: Final = "the relay process {pid}, which moves this rank's packets, has ended"

Callback = Callable[[HostError | None], None]
"""Callback of a call, called once: with its error, or with None when its numbers are in place."""


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """Memory that both processes see."""

    number: int
    memory: mmap.mmap
    size: int


class Relay:
    """One relay process and the pipe to it."""

    def __init__(self) -> None:
        ours, its = Pipe()
        command = [sys.executable, "-m", "weir.hosts.torch.relay", str(its.fileno()), str(os.getpid())]
        # a session of its own: Ctrl-C is for the training process, which then says what is to become of its seats
        self._process = subprocess.Popen(
            command, pass_fds=[its.fileno()], start_new_session=True, stdin=subprocess.DEVNULL
        )
        its.close()
        self._pipe = ours
        self._sending = threading.Lock()
        self._state = threading.Lock()
        self._numbers = itertools.count(1)
        self._calls: dict[int, tuple[int, Callback]] = {}
        """Unanswered calls: the seat, and the callback."""
        self._seats: dict[int, Callback] = {}
        self._begun: dict[int, Callable[[bool], object]] = {}
        """Callbacks of seats whose jobs have not begun."""
        self._free: dict[int, list[SharedBlock]] = {}
        """Unused blocks, by size."""
        self._gone: HostError | None = None
        self._thread = threading.Thread(target=self._receive_answers, name="weir relay", daemon=True)
        self._thread.start()

    @property
    def gone(self) -> bool:
        """True if the relay's process has ended."""
        return self._gone is not None

    def open_seat(self, told: Callback, begun: Callable[[bool], object], **command: Any) -> int:
        """Have the relay take a seat.

        Args:
            told: Receives the error that ends the seat, if there is one.
            begun: Called once all ranks have joined: with True if the fabric takes PRESENT in the job's rounds, the
                same at all ranks.
            **command: The relay's command.

        Returns:
            The seat's number.
        """
        number = next(self._numbers)
        with self._state:
            if self._gone is not None:
                raise self._gone
            self._seats[number] = told
            self._begun[number] = begun
        self._send({"do": "join", "seat": number, **command})
        return number

    def leave(self, seat: int, reason: str = "") -> None:
        """Leave a seat: behind the sums before, or at once for a reason. The relay waits for the others; this does
        not.
        """
        with self._state:
            self._seats.pop(seat, None)
            self._begun.pop(seat, None)
        self._send({"do": "leave", "seat": seat, "reason": reason})

    def sum(self, seat: int, block: SharedBlock, told: Callback, **command: Any) -> None:
        """Sum the numbers of a block, in the order of the calls."""
        self._call(seat, block, told, do="sum", **command)

    def balance(self, seat: int, block: SharedBlock, told: Callback, **command: Any) -> None:
        """Have everyone's batch sizes put into a block, in the order of the calls."""
        self._call(seat, block, told, do="balance", **command)

    def report(self, seat: int, values: Mapping[str, Any], phases_ns: tuple[int, int]) -> None:
        """Report the job's progress, behind the calls before; nothing answers.

        Args:
            seat: Number of the seat.
            values: Keywords of the report.
            phases_ns: Computation and exposed communication since the last report, for values that have none.
        """
        self._send({"do": "report", "seat": seat, "values": dict(values), "phases_ns": phases_ns})

    def take_turn(self, seat: int, told: Callback, device: str) -> None:
        """Ask for a turn on a device, which no other call waits for."""
        self._call(seat, None, told, do="take_turn", device=device)

    def release_turn(self, seat: int) -> None:
        """End the turn, or withdraw the request for one; nothing answers."""
        self._send({"do": "release_turn", "seat": seat})

    def _call(self, seat: int, block: SharedBlock | None, told: Callback, **command: Any) -> None:
        number = next(self._numbers)
        with self._state:
            gone = self._gone
            if gone is None and seat not in self._seats:
                gone = HostError("its seat was left before")
            if gone is None:
                self._calls[number] = seat, told
        if gone is not None:
            told(gone)
            return
        where = {} if block is None else {"block": block.number}
        self._send({"seat": seat, "call": number, **where, **command})

    def acquire_block(self, size: int) -> SharedBlock:
        """Return a block of at least this many bytes."""
        rounded = max(_MIN_BLOCK, 1 << (size - 1).bit_length())
        with self._state:
            if free := self._free.get(rounded):
                return free.pop()
        number = next(self._numbers)
        descriptor = os.memfd_create(f"weir block {number}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, rounded)
            memory = mmap.mmap(descriptor, rounded)
            with self._sending:
                self._pipe.send_bytes(json.dumps({"do": "block", "block": number, "size": rounded}).encode())
                send_handle(self._pipe, descriptor, self._process.pid)
        except OSError as error:
            raise self._gone or HostError(f"no memory of {rounded} bytes to share with the relay: {error}") from error
        finally:
            os.close(descriptor)
        return SharedBlock(number, memory, rounded)

    def release_block(self, block: SharedBlock) -> None:
        """Return a block to the pool."""
        with self._state:
            self._free.setdefault(block.size, []).append(block)

    def end(self) -> None:
        """Let the process end when its seats are left, and wait for nothing but the own thread. May be repeated.

        The thread has to be gone before the interpreter is: PyTorch's tensors are freed without the interpreter's
        lock, and a thread that then finds no interpreter to come back to ends the process (SIGABRT).
        """
        self._send({"do": "end"})
        self._fail_all(HostError("the back end was shut down"))
        if not self._pipe.closed:
            with socket.socket(fileno=os.dup(self._pipe.fileno())) as pipe, suppress(OSError):
                pipe.shutdown(socket.SHUT_RDWR)  # pending commands are still read; close() would not wake the thread
        self._thread.join()
        self._pipe.close()

    def _send(self, command: dict[str, Any]) -> None:
        try:
            with self._sending:
                self._pipe.send_bytes(json.dumps(command).encode())
        except OSError:
            pass  # the receiving thread reports the failure to all waiting calls

    def _receive_answers(self) -> None:
        try:
            while True:
                answer = json.loads(self._pipe.recv_bytes())
                self._pass_on(answer)
        except (EOFError, OSError, TypeError):  # closed there, or here
            self._fail_all(HostError(_ENDED.format(pid=self._process.pid)))

    def _pass_on(self, answer: dict[str, Any]) -> None:
        """A function of its own: with a call's answer go its tensors, which may be freed."""
        if "begun" in answer:
            with self._state:
                begun = self._begun.pop(answer["begun"], None)
            if begun is not None:
                begun(answer["presents"])
            return
        for told in self._waiting_for(answer):
            told(_error_of(answer))

    def _waiting_for(self, answer: dict[str, Any]) -> list[Callback]:
        """Callbacks for an answer: if a seat is over, those of all its unanswered calls."""
        with self._state:
            match answer:
                case {"done": call} | {"failed": call}:
                    return [self._calls.pop(call)[1]] if call in self._calls else []
                case {"over": over}:
                    self._begun.pop(over, None)
                    calls = [call for call, (seat, _) in self._calls.items() if seat == over]
                    seats = [self._seats.pop(over)] if over in self._seats else []
                    return seats + [self._calls.pop(call)[1] for call in calls]
                case _:
                    return []

    def _fail_all(self, error: HostError) -> None:
        with self._state:
            if self._gone is None:
                self._gone = error
            waiting = [*(told for _, told in self._calls.values()), *self._seats.values()]
            self._calls.clear()
            self._seats.clear()
            self._begun.clear()
        for told in waiting:
            told(error)


def _error_of(answer: dict[str, Any]) -> HostError | None:
    if "done" in answer:
        return None
    kind = getattr(errors, answer["kind"], HostError)
    error: HostError = kind(answer["text"])
    return error


_relay: Relay | None = None
_lock = threading.Lock()


def relay() -> Relay:
    """Return this process's relay; the first call starts it."""
    global _relay
    with _lock:
        if _relay is None or _relay.gone:
            _relay = Relay()
        return _relay


def end_relay() -> None:
    """End this process's relay, if it has one."""
    global _relay
    with _lock:
        if _relay is not None:
            _relay.end()
            _relay = None


def _reset_after_fork() -> None:
    """Reset the client in a forked child, which has a copy of the parent's relay but no thread that reads answers."""
    global _relay, _lock
    _relay = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)
