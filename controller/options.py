"""Options of a controller and of its hosts. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..wire.control import Abort, Pause, Resume, ServerPlan, TrafficClass, WorkerPlan
from .congestion import CongestionOptions
from .errors import ControllerError
from .int_config.settings import IntConfig
from .planning.default_slots import HOST_TURN_NS


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Periods, limits and policies of one controller. Times are in nanoseconds."""

    probe_period_ns: int = 10_000_000
    solve_period_ns: int = 100_000_000
    """Between two looks at whether a job should move; 0: jobs stay where they are."""
    together: bool = False
    """True to also place all jobs together, by one program over the trees of all."""
    decide_aside: bool = False
    """True to compute placements in a thread beside the event loop; else the clock must stand still meanwhile."""
    contains_failures: bool = False
    """True to abort a job whose work fails unexpectedly, and to go on with the others; else the exception passes, as it
    should in a run, which is one process with its controller.
    """
    improvement: float = 0.15
    """Hysteresis: a job moves only to a placement that is predicted to be faster by more than this share."""
    order: str = "fair"
    """Order of running jobs (`scheduling.orders`), by name or path."""
    order_ns: int = 1_000_000_000
    """Time between two looks at whether the order is to be renewed."""
    apply_order: bool = False
    """True to put running jobs into the traffic classes of their order; else the order is shown only."""
    dwell_ns: int = 500_000_000
    """Minimum time between two moves of a job."""
    lease_ns: int | None = None
    """A host without heartbeats for this time is lost, and so is a switch whose session is broken, or a link that
    passes no probe; None: silence never counts as loss.
    """
    host_lease_ns: int | None = None
    """Lease of hosts, if their heartbeats have another period than probes; None: `lease_ns`."""
    patience_ns: int | None = None
    """A host silent for this time in a move is lost, heartbeats or not; None: never."""
    retry_ns: int = 50_000_000
    """Time between two attempts to notify a host, or to write to a switch that refused."""
    stuck_ns: int | None = None
    """A job with a worker that has waited this long without completing a round gets a new generation of the same
    placement, which sums damaged rounds again; None: never. On slow links it waits for longer repairs.
    """
    heartbeats_at: str | None = None
    """Host of the fabric at which the controller receives heartbeats: telemetry of their paths then distinguishes a
    dead host from a slow network. None: they use another network.
    """
    host_turn_ns: int = HOST_TURN_NS
    """Time from the arrival of a result until its worker's next round leaves; sets the default number of slots."""
    congestion: CongestionOptions = field(default_factory=CongestionOptions)
    watching: IntConfig | None = None
    """Configuration of switches' own reports; None: no reports, or configured by others."""

    def __post_init__(self) -> None:
        if self.probe_period_ns < 1 or not 0 <= self.improvement < 1:
            raise ControllerError(
                f"probe_period_ns {self.probe_period_ns} must be positive, improvement {self.improvement} in [0, 1)",
                place="options",
                value=(self.probe_period_ns, self.improvement),
            )


@dataclass(frozen=True, slots=True)
class Message:
    """Message to a host. Plans begin a job; Pause and Resume move it; Abort ends it for this host. TrafficClass changes
    its class.
    """

    host: str
    content: WorkerPlan | ServerPlan | TrafficClass | Pause | Resume | Abort

    @property
    def job(self) -> int:
        """Number of the job that the message is about."""
        return self.content.plan.job if isinstance(self.content, Resume) else self.content.job
