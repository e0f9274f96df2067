"""How a controller goes about its work, and what it has for the hosts. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..wire.control import Abort, Pause, Resume, ServerPlan, WorkerPlan
from .congestion import CongestionOptions
from .errors import ControllerError
from .watching.settings import Watching


@dataclass(frozen=True, slots=True)
class Options:
    probe_period_ns: int = 10_000_000
    solve_period_ns: int = 100_000_000
    """Between two looks at whether a job should move; 0: jobs stay where they are."""
    together: bool = False
    """Whether jobs are also looked at together then, by one program over the trees of all."""
    decide_aside: bool = False
    """Whether placements are thought out in a thread beside the event loop; else time is to stand still meanwhile."""
    improvement: float = 0.15
    """Hysteresis: a job moves only to a placement that is predicted to be faster by more than this share."""
    dwell_ns: int = 500_000_000
    """A job that has moved stays for so long."""
    lease_ns: int | None = None
    """A host whose heartbeats are missing for so long is lost, and so is a switch whose session is broken for so long
    or a link that lets no probe through; None: nothing is ever lost by silence.
    """
    host_lease_ns: int | None = None
    """Of hosts alone, where their heartbeats come at another pace than probes do; None: `lease_ns`."""
    patience_ns: int | None = None
    """A host silent for so long in a move is given up as lost, heartbeats or not; None: never."""
    retry_ns: int = 50_000_000
    """Between two attempts: to tell a host something, or to write to a switch that refused."""
    stuck_ns: int | None = None
    """A worker that waits and has not completed a round for so long gets its job a new generation of the same
    placement, which sums anew what was damaged in a switch; None: never.
    """
    heartbeats_at: str | None = None
    """The host of the fabric where the controller takes heartbeats: then telemetry of their ways there tells whether a
    silent host is dead or the network slow. None: they come by another network.
    """
    congestion: CongestionOptions = field(default_factory=CongestionOptions)
    watching: Watching | None = None
    """What switches report by themselves; None: nothing, or what somebody else has told them to."""

    def __post_init__(self) -> None:
        if self.probe_period_ns < 1 or not 0 <= self.improvement < 1:
            raise ControllerError(
                f"options: probe_period_ns {self.probe_period_ns} must be positive, "
                f"improvement {self.improvement} in [0, 1)"
            )


@dataclass(frozen=True, slots=True)
class Message:
    """Something to tell a host. Plans begin a job; Pause and Resume move it; Abort ends it for this host."""

    host: str
    content: WorkerPlan | ServerPlan | Pause | Resume | Abort

    @property
    def job(self) -> int:
        return self.content.plan.job if isinstance(self.content, Resume) else self.content.job
