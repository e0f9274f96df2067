"""Parameters of one end of the transport."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from ...errors.values import Checks
from ...wire.control import KEY_BYTES
from ...wire.transport import PAYLOAD_BYTES, SEQUENCES
from ..errors import InvalidPlan

_KEY: Final = re.compile(rf"(?:[0-9a-f]{{{2 * KEY_BYTES}}})?")
_MAX_WINDOW: Final = 8192
MIN_PAYLOAD_BYTES: Final = 256
"""A packet's payload holds the head of a message, and the bitmap of the largest window in packets of 1444 bytes."""


@dataclass(frozen=True, slots=True)
class TransportPlan:
    """Members of a transport: the job, its hosts' addresses and its key."""

    job: int
    address: int
    """This host's IPv4 address."""
    peers: tuple[int, ...]
    """The hosts' addresses by rank, this one's included."""
    epoch: int
    """Differs from that of every earlier start of this host with high probability: a random number of 1…2³² − 1."""
    key: str = field(default="", repr=False)
    """The job's key, hexadecimal; "": packets have a checksum only."""

    def __post_init__(self) -> None:
        """Raises InvalidPlan."""
        checks = Checks(InvalidPlan, "transport")
        checks.integer("job", self.job, 1, (1 << 16) - 1)
        checks.integer("epoch", self.epoch, 1, SEQUENCES - 1)
        checks.text("key", self.key)
        if len({*self.peers}) != len(self.peers) or self.address not in self.peers:
            raise InvalidPlan(
                f"transport of job {self.job}: addresses by rank are not distinct, or this host's is not among them"
            )
        if not _KEY.fullmatch(self.key):
            raise InvalidPlan(f"transport of job {self.job}: its key is not {KEY_BYTES} bytes in hexadecimal digits")


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Limits of one endpoint of the transport. `payload_bytes` must be the same at all hosts of a job."""

    window: int = 64
    """Packets that may be in the network to one peer, acknowledgements in their place: 1…8192."""
    payload_bytes: int = PAYLOAD_BYTES
    """Payload bytes of a full packet, whose IPv4 packet is 56 bytes longer: 256…1444."""
    first_timeout_ns: int = 100_000_000
    """Retransmission time-out before the first round trip is known."""
    min_timeout_ns: int = 10_000_000
    patience_ns: int = 10_000_000_000
    """Silence after which a peer is lost, while a packet of it is expected."""
    inbox_bytes: int = 256 << 20
    """Bytes of received messages that no call has taken, per peer, from which on the peer is not to send more."""
    lower_effort: bool = False
    """True for DSCP 8, which Weir's switches send after all other traffic."""
    life_ns: int = 0
    """Longest time that a packet and its acknowledgement can be in the network. A packet that has timed out counts in
    the window for that long; 0: it is forgotten at once.
    """

    def __post_init__(self) -> None:
        """Raises InvalidPlan."""
        checks = Checks(InvalidPlan, "transport")
        checks.integer("window", self.window, 1, _MAX_WINDOW)
        checks.integer("payload_bytes", self.payload_bytes, MIN_PAYLOAD_BYTES, PAYLOAD_BYTES)
        if self.window > 8 * (self.payload_bytes - 4):
            raise checks.refuse("window", self.window, f"is acknowledged by more than {self.payload_bytes} bytes")
        for name in ("first_timeout_ns", "min_timeout_ns", "patience_ns", "inbox_bytes"):
            checks.integer(name, getattr(self, name), 1)
        checks.flag("lower_effort", self.lower_effort)
        checks.integer("life_ns", self.life_ns)
