"""A host's UDP port, shared by several processes of one user, so that each can take part in jobs of its own.

The first process binds the port and opens a door: a unix socket with an abstract name, which exists once per network
namespace. A process that finds the port bound connects to the door and receives both sockets. They are the same
sockets, not copies, so the port survives if any one process hangs or ends. Each process may read datagrams that have
arrived, and passes on those for jobs of the others::

    port ──▶ this process ─── its own jobs ──▶ cores
             │        ▲
             │        └─inbox of each job here◀── others that share the port
             └─────────────────────────────────▶ inboxes of their jobs

Both ends of every connection check that the other one runs as the same user: other users can neither get the port nor
receive or pass on datagrams.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Collection
from ipaddress import IPv4Address
from typing import Final

import numpy as np

from ...wire.aggregation import MESSAGE_BYTES
from ...wire.frames import Datagrams
from ..errors import HostError
from ..protocol.messages import job_numbers
from .batch_socket import BatchSocket
from .datagram_socket import DatagramSocket

_KNOCK_S: Final = 5.0
"""Time limit for the handover of the port, in seconds: of the processes that share it, one must run."""
_REFUSED_S: Final = 0.3
"""Time limit in seconds if there is no door."""
_ANSWER_S: Final = 0.5
"""Time limit for one answer, in seconds: the process that accepted may have been stopped just then."""
_PAUSE_S: Final = 0.02
_BACKLOG: Final = 16
_CREDENTIALS: Final = struct.Struct("3i")
_RETRY_S: Final = 0.05
"""Seconds before a job that no process here has is searched for again."""
_LOOKED_FOR: Final = 16
"""Jobs looked for because of one batch, at most: a stranger chooses the numbers."""


class SharedPort:
    """One process's part of a port. Its caller keeps calls apart from each other."""

    def __init__(self, address: int, port: int, longest_bytes: int = MESSAGE_BYTES) -> None:
        """Bind a UDP port, or have it handed over by the process of this user that has it.

        Args:
            address: IPv4 address, as an integer.
            port: UDP port.
            longest_bytes: length of the longest datagram, in bytes.

        Raises:
            OSError: another user has the port, or no process that shares it answers.
        """
        self.together = False
        """True if another process has had the port as well."""
        self._longest_bytes = longest_bytes
        self._name = f"\0weir/{IPv4Address(address)}:{port}"
        self._poll = select.epoll()
        self._inboxes: dict[int, socket.socket] = {}  # by job
        self._links: dict[int, BatchSocket] = {}  # to others' inboxes, by job
        self._absent: dict[int, float] = {}  # when to look again for jobs that nobody has
        self._waiting: dict[int, tuple[socket.socket, int]] = {}  # inboxes with their jobs, by file number
        self._senders: dict[int, tuple[BatchSocket, int]] = {}  # links to inboxes, with the job of each
        self._door: socket.socket | None = None
        try:
            self.socket = DatagramSocket(address, port, longest_bytes=longest_bytes)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                self._poll.close()
                raise
            try:
                self.socket, self._door = self._knock(address, port)
            except OSError:
                self._poll.close()
                raise
            self.together = True
        else:
            self._door = self._open_door()
        if self._door is not None:
            self._poll.register(self._door, select.EPOLLIN)

    def fileno(self) -> int:
        """Return the file descriptor for selectors: readable when `receive` has something to do. The port itself has
        another one.
        """
        return self._poll.fileno()

    def claim_job(self, job: int) -> None:
        """Receive this job's datagrams from the other processes from now on. Raises HostError if one of them has the
        job.
        """
        inbox = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            inbox.bind(self._inbox_name(job))
        except OSError:
            inbox.close()
            raise HostError(
                f"job {job} has a core in another process of this host, or another user has taken its name here; a "
                "host takes part in a job once",
                value=job,
            ) from None
        inbox.listen(_BACKLOG)
        inbox.setblocking(False)
        self._inboxes[job] = inbox
        self._waiting[inbox.fileno()] = inbox, job
        self._poll.register(inbox, select.EPOLLIN)

    def drop_job(self, job: int) -> None:
        """Stop passing on datagrams of this job."""
        inbox = self._inboxes.pop(job)
        del self._waiting[inbox.fileno()]
        inbox.close()
        for number, (sender, of_job) in list(self._senders.items()):
            if of_job == job:
                del self._senders[number]
                sender.close()

    def receive(self) -> list[Datagrams]:
        """Return datagrams that others passed on, as views valid until the next call; accept waiting processes, too."""
        received: list[Datagrams] = []
        for number, _ in self._poll.poll(0):
            if self._door is not None and number == self._door.fileno():
                self._hand_over(self._door)
            elif number in self._waiting:
                self._accept(*self._waiting[number])
            elif number in self._senders:
                received += self._receive_from(number)
            else:
                self._unlink(number)
        return received

    def pass_on(self, datagrams: Datagrams, jobs: Collection[int]) -> Datagrams:
        """Pass datagrams of other processes' jobs on to them.

        Returns:
            The remaining datagrams: those of `jobs`, and those of unknown jobs.
        """
        if not self.together:
            return datagrams
        numbers = job_numbers(datagrams)
        left = np.isin(numbers, list(jobs))
        for job in np.unique(numbers[~left]).tolist()[:_LOOKED_FOR]:
            rows = numbers == job
            if (link := self._link(job)) is None:
                left |= rows
                continue
            try:
                link.send(Datagrams(datagrams.addresses[rows], datagrams.payload[rows]))
            except OSError:  # it has ended, or given the job up
                self._links.pop(job).close()
        if np.count_nonzero(left) == len(left):
            return datagrams
        return Datagrams(datagrams.addresses[left], datagrams.payload[left])

    def close(self) -> None:
        """May be repeated."""
        for end in (self.socket, self._door, *self._inboxes.values(), *self._links.values()):
            if end is not None:
                end.close()
        for sender, _ in self._senders.values():
            sender.close()
        self._poll.close()

    def _open_door(self) -> socket.socket | None:
        """Open the door for other processes; None if its name is taken, in which case the port cannot be shared."""
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            door.bind(self._name)
        except OSError:
            door.close()
            return None
        door.listen(_BACKLOG)
        door.setblocking(False)
        return door

    def _knock(self, address: int, port: int) -> tuple[DatagramSocket, socket.socket]:
        why = ""
        begun = time.monotonic()
        limit_s = _KNOCK_S
        while time.monotonic() < begun + limit_s:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
                knocking.settimeout(_ANSWER_S)
                try:
                    knocking.connect(self._name)
                    if not _same_user(knocking):
                        why = ", by another user's process"
                        break
                    _, handed, _, _ = socket.recv_fds(knocking, 1, 3)
                except ConnectionRefusedError:  # it has just bound the port, or it knows nothing of doors
                    limit_s = _REFUSED_S
                except (ConnectionError, BlockingIOError):
                    pass  # it is about to end, or many knock
                except TimeoutError:
                    why = ", by a process that does not answer"
                else:
                    sockets = [socket.socket(fileno=number) for number in handed]
                    if len(sockets) in (2, 3):  # port, door, and the port's guard if there is one
                        bound, door, *rest = sockets
                        guard = rest[0] if rest else None
                        return DatagramSocket(address, port, bound, self._longest_bytes, guard), door
                    for each in sockets:
                        each.close()
            time.sleep(_PAUSE_S)
        raise OSError(
            errno.EADDRINUSE, f"cannot bind {IPv4Address(address)}:{port}: {os.strerror(errno.EADDRINUSE)}{why}"
        )

    def _hand_over(self, door: socket.socket) -> None:
        try:
            knocking, _ = door.accept()
        except OSError:  # another one who shares the port was first
            return
        with knocking:
            if _same_user(knocking):
                self.together = True
                with contextlib.suppress(OSError):  # it has given up
                    guard = [] if self.socket.guard is None else [self.socket.guard.fileno()]
                    socket.send_fds(knocking, [b"!"], [self.socket.fileno(), door.fileno(), *guard])

    def _accept(self, inbox: socket.socket, job: int) -> None:
        try:
            connected, _ = inbox.accept()
        except OSError:
            return
        if not _same_user(connected):
            connected.close()
            return
        sender = BatchSocket(connected)
        self._senders[sender.fileno()] = sender, job
        self._poll.register(sender, select.EPOLLIN)

    def _receive_from(self, number: int) -> list[Datagrams]:
        sender, _ = self._senders[number]
        try:
            return sender.receive()
        except OSError:  # it has ended
            del self._senders[number]
            sender.close()
            return []

    def _link(self, job: int) -> BatchSocket | None:
        """Link to the inbox of the process that has the job; None if there is no such process."""
        if (link := self._links.get(job)) is not None:
            return link
        now = time.monotonic()
        if self._absent.get(job, 0.0) > now:
            return None
        if (connected := self._connect(job)) is not None:
            link = self._links[job] = BatchSocket(connected)
            self._poll.register(link, select.EPOLLIN)
            return link
        self._absent = {number: until for number, until in self._absent.items() if until > now}
        self._absent[job] = now + _RETRY_S
        return None

    def _connect(self, job: int) -> socket.socket | None:
        try:
            connecting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:  # too many are open
            return None
        connecting.setblocking(False)
        try:
            connecting.connect(self._inbox_name(job))
        except OSError:
            connecting.close()
            return None
        if _same_user(connecting):
            return connecting
        connecting.close()
        return None

    def _unlink(self, number: int) -> None:
        """Nothing ever comes over a link to another's inbox but its end."""
        for job in [job for job, link in self._links.items() if link.fileno() == number]:
            self._links.pop(job).close()

    def _inbox_name(self, job: int) -> str:
        return f"{self._name}/{job}"


def _same_user(connected: socket.socket) -> bool:
    """Return whether the other end of a unix socket runs as this process's user."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return bool(user == os.geteuid())
