"""Heartbeats that arrive through the fabric: their senders, and the number of missing ones (docs/design.md §2.3).

::

    hosts ──UDP, control class──▶ HeartbeatSource ──(source address, datagram)──▶ HeartbeatReader ──▶ Seating
                                                                             └── no host's: dropped, counted by reason

The source address names the host, and the token of its seat proves it. The sequence number must be newer than the last
one, so that a copy of an old heartbeat renews no lease. The clocks of host and controller differ by a constant. So only
the delay beyond that of the fastest heartbeat of the same process is known.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final, Protocol

from ...topologies.model import Topology
from ...wire.errors import WireError
from ...wire.heartbeat import HEARTBEAT_BYTES, HEARTBEAT_PORT, Heartbeat, is_from
from ..errors import ControllerError

_SEQUENCES: Final = 1 << 32
_DRIFT_PPM: Final = 200
"""Maximum drift of two clocks: the estimate of their offset loses accuracy at this rate."""
_MAX_BATCH: Final = 4096
"""Maximum datagrams read at once, so that a flood does not block the controller."""


class HeartbeatSource(Protocol):
    """Source of heartbeats: a UDP socket of the controller's host, or its link into an emulated fabric."""

    @property
    def address(self) -> int:
        """The address in the fabric that hosts send them to."""
        ...

    def fileno(self) -> int:
        """Return the file descriptor for event loops: readable when heartbeats have come."""
        ...

    def receive(self) -> Iterable[tuple[int, bytes]]:
        """Return the source address and datagram of each that has come; never waits."""
        ...

    def close(self) -> None:
        """End the reception of heartbeats."""


class HeartbeatSocket:
    """The UDP port of a host of the fabric."""

    def __init__(self, bound: socket.socket) -> None:
        """Takes over a socket that is bound to the host's address."""
        self._socket = bound
        self._socket.setblocking(False)

    @classmethod
    def bind(cls, topology: Topology, host: str) -> HeartbeatSocket:
        """Bind the socket that receives heartbeats.

        Raises:
            ControllerError: This machine does not have the host's address, or the port is taken.
        """
        address = topology.host(host).address
        new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            new.bind((str(address), HEARTBEAT_PORT))
        except OSError as error:
            new.close()
            raise ControllerError(
                f"heartbeats: cannot listen at {address}:{HEARTBEAT_PORT}: {error.strerror}; the controller is to run "
                f"on {host}, which {topology.name} has at that address"
            ) from None
        return cls(new)

    @property
    def address(self) -> int:
        """IPv4 address of the socket as an integer."""
        return int(IPv4Address(self._socket.getsockname()[0]))

    def fileno(self) -> int:
        """Same contract as `HeartbeatSource.fileno`."""
        return self._socket.fileno()

    def receive(self) -> Iterable[tuple[int, bytes]]:
        """Same contract as `HeartbeatSource.receive`."""
        for _ in range(_MAX_BATCH):
            try:
                payload, (address, _) = self._socket.recvfrom(
                    HEARTBEAT_BYTES + 1
                )  # one byte more, to detect datagrams that are too long
            except OSError:  # nothing to read, or an ICMP error about an earlier datagram
                return
            yield int(IPv4Address(address)), payload

    def close(self) -> None:
        """May be repeated."""
        self._socket.close()


@dataclass(slots=True)
class SeatHeartbeats:
    """Statistics of one host's heartbeats in one job."""

    first: int
    """Sequence number of the first heartbeat received."""
    last: int
    """Sequence number of the newest, without wrapping."""
    apart_ns: int
    """Minimum of arrival minus sending time: offset of the clocks and delay of the fastest heartbeat."""
    heard_ns: int
    """Arrival of the last one."""
    delay_ns: int = 0
    """Delay of the last heartbeat beyond that of the fastest."""
    came: int = 1

    @property
    def sent(self) -> int:
        """Number sent from the first received to the last."""
        return self.last - self.first + 1


class HeartbeatReader:
    """Decodes datagrams and verifies their senders. Pure."""

    def __init__(self, topology: Topology, token_of: Callable[[int, str], str | None], late_ns: int = 0) -> None:
        """Create a reader.

        `token_of` returns the token of a host's seat in a job, or None. A heartbeat that takes longer than the fastest
        by more than `late_ns` is late.
        """
        self.damaged = 0
        """Number of datagrams that are not heartbeats."""
        self.foreign = 0
        """Number of heartbeats of a host without a seat, or with a wrong token."""
        self.repeated = 0
        """Number of copies, and of heartbeats that arrived after a newer one."""
        self.late = 0
        """Number of accepted heartbeats that were late."""
        self.seats: dict[tuple[int, str], SeatHeartbeats] = {}
        """Statistics of each seat's heartbeats, by job and host."""
        self._ended_sent = self._ended_came = 0
        self._late_ns = late_ns
        self._token_of = token_of
        self._host_at = {int(host.address): host.name for host in topology.hosts}

    @property
    def dropped(self) -> int:
        """Number of datagrams that renewed no lease."""
        return self.damaged + self.foreign + self.repeated

    @property
    def sent(self) -> int:
        """Estimated number of heartbeats sent: of every host, from the first received to the last."""
        return self._ended_sent + sum(seat.sent for seat in self.seats.values())

    @property
    def came(self) -> int:
        """Count of valid heartbeats, of ended seats too."""
        return self._ended_came + sum(seat.came for seat in self.seats.values())

    def read(self, address: int, payload: bytes, now_ns: int) -> tuple[str, Heartbeat] | None:
        """Return the host and its heartbeat; None, and counted, for anything else."""
        host = self._host_at.get(address)
        try:
            beat = Heartbeat.parse(payload)
        except WireError:
            self.damaged += 1
            return None
        token = None if host is None else self._token_of(beat.job, host)
        if host is None or token is None or not is_from(payload, token):
            self.foreign += 1
            return None
        if not self._newer(host, beat, now_ns):
            self.repeated += 1
            return None
        return host, beat

    def _newer(self, host: str, beat: Heartbeat, now_ns: int) -> bool:
        took_ns = now_ns - beat.sent_ns
        seat = self.seats.get((beat.job, host))
        if seat is None:
            self.seats[beat.job, host] = SeatHeartbeats(beat.sequence, beat.sequence, took_ns, now_ns)
            return True
        ahead = (beat.sequence - seat.last) % _SEQUENCES
        if not 0 < ahead < _SEQUENCES // 2:
            return False
        seat.last += ahead
        seat.came += 1
        drifted_ns = (now_ns - seat.heard_ns) * _DRIFT_PPM // 1_000_000
        seat.heard_ns, seat.apart_ns = now_ns, min(seat.apart_ns + drifted_ns, took_ns)
        seat.delay_ns = took_ns - seat.apart_ns
        self.late += seat.delay_ns > self._late_ns
        return True

    def reset(self, job: int, host: str) -> None:
        """Reset a seat's heartbeats, since another process takes the seat, or the job is over."""
        if (seat := self.seats.pop((job, host), None)) is not None:
            self._ended_sent += seat.sent
            self._ended_came += seat.came
