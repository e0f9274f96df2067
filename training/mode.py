"""Interface of a synchronisation mode: its options, what its workers exchange, and the processes that exchange it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..hosts import Communicator
from ..hosts.collectives.leader_query import PendingAnswer
from .batching.analytic import equal_shares
from .batching.manager import RuleName
from .errors import TrainingError
from .loss_curve import LossCurve
from .machines import Machine
from .mail import Mail
from .optimiser import Optimiser
from .optimisers import make_optimiser
from .processes import ComputePhase, InProgress, Process
from .samples import Rows, Samples, Shard
from .workload import Floats, Workload


class BatchSizeService(Protocol):
    """Service that decides batch sizes: the controller, or a stand-in for it."""

    def request(
        self, reports: NDArray[np.float64], present: NDArray[np.bool_], *, rule: RuleName, size_step: int
    ) -> PendingAnswer:
        """Ask for everyone's sizes in the next step.

        Args:
            reports: Reports of `SpeedReporter` by rank.
            present: (n,), the ranks whose reports are there.
            rule: Rule by which sizes are decided.
            size_step: Samples that the numeric rule moves at once.
        """


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Facts about a job that all its processes have beforehand."""

    mode: Mode
    workers: int
    batch: int
    """Samples of a step, of all workers together."""
    learning_rate: float
    optimiser: str = "sgd"
    """Name or path of the optimiser."""
    options: Mapping[str, float] = field(default_factory=dict)
    """Options of the optimiser besides the learning rate."""
    seed: int = 1
    shards: Sequence[Rows] = ()
    """Rows that each worker holds, by rank; empty: every worker draws from all."""

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= self.batch:
            raise TrainingError(
                f"batch of {self.batch} samples for {self.workers} workers; allowed: at least one worker, and a sample "
                "for each"
            )
        if self.shards and len(self.shards) != self.workers:
            raise TrainingError(f"{len(self.shards)} shards for {self.workers} workers; each has one, or none has any")

    def equal_sizes(self) -> list[int]:
        """Return the batch shared out evenly, as far as that goes."""
        return equal_shares(self.batch, self.workers)


@dataclass(slots=True)
class Replicas:
    """All workers' replicas of one job, with the state that their processes share."""

    plan: TrainingPlan
    workload: Workload
    curve: LossCurve
    machines: Sequence[Machine]
    """The workers', by rank."""
    weights: list[Floats] = field(init=False)
    """Each worker's, by rank, as it had them last."""
    mail: Mail = field(init=False)
    """Messages between workers outside the fabric."""

    def __post_init__(self) -> None:
        if len(self.machines) != self.plan.workers:
            raise TrainingError(f"{len(self.machines)} machines for {self.plan.workers} workers; each has one")
        self.weights = [self.workload.initial() for _ in range(self.plan.workers)]
        self.mail = Mail(self.plan.workers)

    def samples(self, rank: int) -> Samples | Shard:
        """Return the order in which a worker draws its rows, alone."""
        seed = (self.plan.seed, 1 + rank)
        shards = self.plan.shards
        return Shard(shards[rank], seed) if shards else Samples(self.workload.rows, seed)

    def changed(self, rank: int, weights: Floats, samples: int, now_ns: int) -> None:
        """Set one worker's weights after an iteration, and record the loss of the mean of all workers' weights.

        Args:
            rank: Rank of the worker.
            weights: Its new weights, (parameters,).
            samples: Number of samples of its iteration.
            now_ns: Time in ns.
        """
        self.weights[rank] = weights
        self.curve.diverged(self.weights, samples, now_ns)

    def optimiser(self) -> Optimiser:
        """Return an optimiser at its start, for one replica or for the server."""
        plan = self.plan
        return make_optimiser(plan.optimiser, self.workload.layers, plan.learning_rate, **plan.options)

    def computing(self, rank: int, step: int, weights: Floats, rows: Rows) -> ComputePhase:
        """Return a worker's computation of the mean gradient over these rows.

        Args:
            rank: Rank of the worker.
            step: Number of its iteration.
            weights: Weights at which the gradient is computed, (parameters,).
            rows: Rows of the data set.
        """
        return ComputePhase(rank, step, len(rows), lambda: self.workload.gradient(weights, self.workload.fetch(rows)))


class Peers(Protocol):
    """One worker's way to the others, such as a `hosts.transport.transport.Transport`. Peers are named by rank.

    A pending call raises PeerLost if the peer is lost.
    """

    @property
    def rank(self) -> int:
        """Rank of this worker, 0…`size` − 1."""

    @property
    def size(self) -> int:
        """Number of workers."""

    def publish(self, name: str, value: object, /) -> int:
        """Let peers pull a copy of the value, until the next one under this name."""

    def pull_async(self, peer: int, name: str, /) -> InProgress:
        """Start to read what the peer has published last; the answer has it as `value`."""

    def send_async(self, peer: int, value: object, /) -> InProgress:
        """Start to send a copy of the value."""

    def recv_async(self, peer: int, /) -> InProgress:
        """Start to take the next value that the peer has sent here."""


class PullPolicies(Protocol):
    """Source of gossip policies: the controller, or a stand-in for it."""

    def row(self, rank: int, policy: str, source: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a worker's probabilities and pull weights as they are in force now, (workers,) each.

        Args:
            rank: The worker's rank.
            policy: Name of the policy.
            source: Source of iteration times, "telemetry" or "measured".
        """

    def pulling(self, rank: int, peer: int) -> None:
        """Record that worker `rank` begins to pull from `peer`."""

    def failed(self, rank: int, peer: int) -> None:
        """Record that the pull under way has failed, because the peer is lost."""

    def pulled(self, rank: int, peer: int, duration_ns: int) -> None:
        """Record that a pull of worker `rank` from `peer` took so long."""


@dataclass(frozen=True, slots=True)
class PeerEnds:
    """One worker's ends of a decentralised job."""

    peers: Peers
    policies: PullPolicies
    rack: Communicator | None = None
    """End of the sums inside the worker's rack; None: the job has no racks."""


class Server(Protocol):
    """The parameter server of one job."""

    def process(self, worker: int, communicator: Communicator) -> Process:
        """Process that takes one worker's updates and gives it weights."""


@dataclass(frozen=True)
class Mode(ABC):
    """A mode with its options, which are the fields of its dataclass."""

    summed: ClassVar[bool]
    """True if all workers call collectives of one job together, so that the switches sum. Otherwise each worker has a
    job of two with the parameter server, and switches only carry what they exchange.
    """
    name: str
    """Name by which it was found in the registry, or the path of the user's file."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Values of the options by name."""
        return {option.name: getattr(self, option.name) for option in fields(self) if option.name != "name"}

    @property
    def steps_between(self) -> int:
        """Steps that a worker makes from one exchange to the next."""
        return 1

    @property
    def detail(self) -> str:
        """The option that tables show next to the label, with its symbol; empty if there is none."""
        return ""

    def check(self, workers: int) -> None:  # noqa: B027 - most modes have no option that depends on the workers
        """Raise TrainingError for options that a job of so many workers cannot have."""

    def updates_per_step(self, workers: int) -> int:
        """Return the number of weight changes that count as one step of the whole batch."""
        return 1


class SummedMode(Mode):
    """A mode whose workers exchange by collectives."""

    summed = True

    @abstractmethod
    def worker(self, job: Replicas, rank: int, communicator: Communicator, service: BatchSizeService) -> Process:
        """Make the process of one worker.

        Args:
            job: Weights, rows and loss curve of the workers.
            rank: Rank of this worker.
            communicator: Collectives of the workers.
            service: Gives batch sizes to modes that ask for them.
        """


class ServedMode(Mode):
    """A mode whose workers exchange with a parameter server."""

    summed = False

    @abstractmethod
    def worker(self, job: Replicas, rank: int, communicator: Communicator) -> Process:
        """Make the process of one worker."""

    @abstractmethod
    def server(self, job: Replicas) -> Server:
        """Make the parameter server of a job."""


class PeerMode(Mode):
    """A mode whose workers exchange with one another, without a server."""

    summed = False
    racks: ClassVar[bool] = False
    """True if workers sum inside their racks, so that they need `PeerEnds.rack`."""

    def updates_per_step(self, workers: int) -> int:
        """Return the number of workers: each changes its own weights."""
        return workers

    @abstractmethod
    def processes(self, job: Replicas, rank: int, ends: PeerEnds) -> list[Process]:
        """Return processes of one worker, which stop when it is lost."""


@dataclass(frozen=True, slots=True)
class ModeDescription:
    """A mode as it is registered: one in each module of `modes`, as DESCRIPTION."""

    name: str
    """Name in run files and commands."""
    label: str
    """Name in tables and plots."""
    summary: str
    """Summary in one line: the exchanged data, and the processes that wait."""
    make: type[SummedMode] | type[ServedMode] | type[PeerMode]
    """Dataclass with the options; its field `name` has this name as default."""

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options."""
        return tuple(option.name for option in fields(self.make) if option.name != "name")
