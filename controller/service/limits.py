"""Limits of each client of the control service, so that none of them can exhaust it for the others."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

MESSAGE_BYTES: Final = 1 << 20
"""No message to the service is longer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The default limits."""

    jobs: int = 512
    """Jobs that run at once."""
    jobs_of_client: int = 256
    """Jobs that run at once and were registered from one address since the controller began; all unix sockets are one
    address.
    """
    connections: int = 10_000
    """Connections at once, or half of the descriptors that the process may have, if that is less."""
    streams: int = 8_192
    """Hosts that attend at once, and as many streams of questions for batch sizes."""
    half_open: int = 256
    """Streams that have not said Join yet."""
    first_words_s: float = 10.0
    """Until a connection has begun to speak gRPC, and then a stream to say Join; else it is closed."""
    absent_ns: int = 10_000_000_000
    """Time after the start of a controller in which clients of queued jobs have to come back."""
    unattended_ns: int = 3_600_000_000_000
    """Time after which a job that has not begun and has no hosts is ended."""
    left_ns: int = 60_000_000_000
    """The same for a job of which a group has begun and is over."""

    @property
    def accepted(self) -> int:
        """Number of connections that are accepted at once."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self.connections if descriptors == resource.RLIM_INFINITY else min(self.connections, descriptors // 2)


def client_of(peer: str) -> str:
    """Client of a connection, from gRPC's `ipv4:ADDRESS:PORT`, `ipv6:[ADDRESS]:PORT` and `unix:`."""
    kind, _, where = peer.partition(":")
    return f"{kind}:{where.rpartition(':')[0]}" if kind != "unix" else kind
