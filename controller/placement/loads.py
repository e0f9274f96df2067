"""What placement takes of one directed link's measurement. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """What is known of one directed link, without the job's own traffic."""

    background_bps: float = 0.0
    """Others' traffic, in bit/s."""
    queue_packets: float = 0.0
    """Depth of the egress queue."""


IDLE: Final = LinkLoad()
