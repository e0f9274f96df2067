"""Section `control` of a run file: the controller's intervals."""

from __future__ import annotations

from pydantic import Field

from .sections import Duration, LongDuration, Section


class ControlConfig(Section):
    """Periods and delays of the controller."""

    interval: LongDuration = 2_000_000
    """Time between two rounds of probes."""
    warm_up: Duration = 20_000_000
    """Probes alone, before the job is placed."""
    solve_interval: LongDuration = 20_000_000
    """Time between two looks at whether the job should move."""
    dwell: Duration = 50_000_000
    """Minimum time between two moves of a job."""
    latency: Duration = 100_000
    """Delay of a message between the controller and a host, one way."""
    order: str | None = None
    """Order of running jobs, whose traffic classes they take; None: each job keeps its own class."""
    gain: float = Field(0.15, ge=0, lt=1)
    """A running job is moved when the predicted completion time falls by more than this share."""
