"""Placement's view of one directed link's measurement. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Measured state of one directed link, without the job's own traffic."""

    background_bps: float = 0.0
    """Others' traffic, in bit/s."""
    queue_packets: float = 0.0
    """Depth of the egress queue."""
    loss: float = 0.0
    """Share of packets that the link loses, 0…1."""
    latency_seconds: float | None = None
    """Time of a packet in the sending switch, its queue included; None: derived from the queue's depth."""


IDLE: Final = LinkLoad()
