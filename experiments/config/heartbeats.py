"""Section `heartbeats` of a run file: heartbeats through the fabric and the lease on a worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pydantic import field_validator

from ...controller.congestion import Uncontrolled
from ...topologies.units import format_delay
from ...wire.frames import FRAME_HEADER_BYTES
from ...wire.heartbeat import HEARTBEAT_BYTES, HEARTBEAT_PORT
from .sections import Duration, Section

HEARTBEAT_FRAME_BYTES: Final = FRAME_HEADER_BYTES + HEARTBEAT_BYTES
MIN_STRETCH: Final = 0.75
"""An interval between two heartbeats is stretched by a factor from here to as much above 1."""


MIN_INTERVAL_NS: Final = 10_000
"""Between a worker's heartbeats: in no time virtual time would not go on."""


class HeartbeatConfig(Section):
    """Heartbeats of workers to the controller, through the fabric, and the criterion of a worker's death."""

    to: str
    """The host where the controller takes them; it has no part in the job."""
    interval: Duration = 5_000_000
    """Between two heartbeats of a worker; 10us is the least."""
    lease: Duration = 20_000_000
    """Time without a heartbeat after which a worker counts as dead, and its job waits for it."""
    in_class: bool = True
    """True if heartbeats have the control class (DSCP 48, strict priority), false if they wait behind bulk traffic."""
    detector: Literal["telemetry", "timer"] = "telemetry"
    """Detector of dead workers: with telemetry, a silent worker counts as dead only if the network does not explain the
    silence.
    """

    @field_validator("interval")
    @classmethod
    def _is_long_enough(cls, interval: int) -> int:
        if interval < MIN_INTERVAL_NS:
            raise ValueError(f"too short; {format_delay(MIN_INTERVAL_NS)} is the least")
        return interval

    def declared(self, hosts: Iterable[str]) -> tuple[Uncontrolled, ...]:
        """Return the traffic of these hosts' heartbeats: in the data queues, or ahead of them in the control class."""
        rate_bps = 8e9 * HEARTBEAT_FRAME_BYTES / (MIN_STRETCH * self.interval)
        ports = HEARTBEAT_PORT, HEARTBEAT_PORT
        return tuple(
            Uncontrolled(host, self.to, rate_bps, HEARTBEAT_FRAME_BYTES, ports=ports, in_control_class=self.in_class)
            for host in hosts
        )
