"""A host's heartbeats through the fabric, in the control class: a socket and a thread of their own.

::

    the host's state ──▶ HeartbeatSender ──UDP, DSCP 48──▶ fabric ──▶ the controller's host

They go on while the stream to the controller is broken, and wait behind no sums. What cannot be sent now is lost: the
next one comes soon.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Final, Protocol

import numpy as np

from ...wire import control_pb2 as pb
from ...wire.frames import DSCP_CONTROL, DSCP_SHIFT, Datagrams
from ...wire.heartbeat import HEARTBEAT_PORT, Heartbeat
from ..errors import HostError
from .fabric_link import FabricLink

HEARTBEAT_NIC: Final = ".heartbeats"
"""Suffix of a host's path in an emulated fabric at which it receives heartbeats."""
_SEQUENCES: Final = 1 << 32


class _Link(Protocol):
    def send(self, payload: bytes) -> None: ...
    def close(self) -> None: ...


class _UdpLink:
    """Heartbeats from the host's own address and any free port: a host may have several jobs, each in a process."""

    def __init__(self, address: int, to: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._to = (str(IPv4Address(to)), HEARTBEAT_PORT)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, DSCP_CONTROL << DSCP_SHIFT)
            self._socket.bind((str(IPv4Address(address)), 0))
        except OSError as error:
            self._socket.close()
            raise OSError(
                error.errno, f"cannot send heartbeats from {IPv4Address(address)}: {error.strerror}"
            ) from error

    def send(self, payload: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(payload, self._to)

    def close(self) -> None:
        self._socket.close()


class _NicLink:
    """Into an emulated fabric, which puts what comes by this path into the control class."""

    def __init__(self, nic: str, to: int) -> None:
        self._socket = FabricLink.connect(nic + HEARTBEAT_NIC)
        self._to = np.array([to], np.uint32)

    def send(self, payload: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(Datagrams(self._to, np.frombuffer(payload, np.uint8)[None]))

    def close(self) -> None:
        self._socket.close()


class HeartbeatSender:
    """Sends one host's heartbeats of one job until `close`, or until the host itself has ended."""

    def __init__(
        self,
        job: int,
        token: str,
        state: Callable[[], pb.Heartbeat | None],
        *,
        address: int,
        to: int,
        period_s: float,
        nic: str = "",
        first: int = 0,
    ) -> None:
        """Start to send heartbeats from `address`.

        Args:
            job: the job's number.
            token: the seat's token.
            state: returns the host's progress, or None as long as there is nothing to report. A HostError ends the
                heartbeats, since a host that has ended must not be taken for alive.
            address: this host's IPv4 address, as an integer.
            to: the receiver's address.
            period_s: seconds between two heartbeats.
            nic: path of this host in an emulated fabric; "" for a UDP socket.
            first: sequence number of the first heartbeat.

        Raises:
            OSError: no heartbeat can be sent from `address`.
        """
        self._job = job
        self._token = token
        self._state = state
        self._period_s = period_s
        self.sequence = first
        """The next one's number."""
        self._link: _Link = _NicLink(nic, to) if nic else _UdpLink(address, to)
        self._closing = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeats of job {job}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                state = self._state()
            except HostError:
                return
            if state is not None:
                beat = Heartbeat(self._job, self.sequence, state.rounds, state.waiting, time.monotonic_ns())
                self._link.send(beat.pack(self._token))
                self.sequence = (self.sequence + 1) % _SEQUENCES
            self._due.wait(self._period_s)
            self._due.clear()
            if self._closing:
                return

    def send_now(self) -> None:
        """Do not wait for the next one's time."""
        self._due.set()

    def close(self) -> None:
        """End thread and socket. May be repeated."""
        self._closing = True
        self._due.set()
        self._thread.join()
        self._link.close()
