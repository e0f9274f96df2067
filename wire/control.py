"""Messages between controller and hosts (docs/design.md §3.5): plans, pauses, resumption, and the hosts' answers.

Addresses are IPv4 as integers in host order. These are values only; the drivers send them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from .aggregation import LANES, check_rounds
from .errors import WireError
from .frames import BULK_PRIORITY

KEY_BYTES: Final = 32
"""Bytes of the key of a job's hosts."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """Limits of a worker's packets in the network in one generation."""

    window: int = 2
    """Rounds in the network, until the first result says what the queues on the way allow."""
    hold_ns: int = 0
    """Delay before the first round after the plan has come: until then others may use this worker's share."""
    lease_ns: int = 0
    """After this time without a result the window shrinks to one round; 0: never."""
    gap_ns: int = 0
    """Between two rounds at least."""
    round_trip_ns: int = 0
    """Maximum time that a round is under way while all queues keep their bounds: no round is repeated before. 0 if
    frames are known to be lost, so that there is no bound.
    """


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Parameters of one worker for one generation of a job."""

    job: int
    generation: int
    rank: int
    workers: int
    """The job's size at its start: it fixes the scale of every chunk and never changes."""
    aggregator: int
    """Destination of contributions: a switch's loopback address or the parameter server."""
    child_bit: int
    """This worker's bit in the `contributors` of its aggregator; exactly one bit is set."""
    slots: int
    """S: slots that the job has in each of its nodes, a power of two."""
    window: int
    """W ≤ S/2: most rounds in flight."""
    lanes: int = LANES
    """Lanes of a message: as many as all switches of the fabric sum. It never changes while a job runs."""
    members: tuple[int, ...] = ()
    """Addresses of the participating workers; only they get answers to requests for a final round."""
    key: str = field(default="", repr=False)
    """Shared secret of the job's hosts, which checks sums, hexadecimal; "": none. It never changes."""
    pacing: Pacing = Pacing()
    presents: bool = False
    """True if all switches that may sum take PRESENT in place of such messages; else lanes of 0 are sent."""
    prunes: bool = False
    """True if the root is a switch, and all switches that may sum send DONE to workers that want no lanes; else all
    workers get all lanes.
    """
    traffic_class: int = field(default=BULK_PRIORITY, compare=False)
    """Priority of its messages, of `frames.JOB_CLASSES`; it changes within a generation (`TrafficClass`)."""


@dataclass(frozen=True, slots=True)
class Child:
    """One child of a parameter server: a worker or a switch."""

    bit: int
    address: int
    workers: int = 1
    """Number of workers whose numbers its contribution holds."""


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Parameters of a parameter server for one generation of a job."""

    job: int
    generation: int
    slots: int
    children: tuple[Child, ...]
    workers: int
    """The job's size at its start."""
    first_round: int = 0
    """First round of a server that joins with this plan: all rounds below are final and with the workers."""
    lanes: int = LANES
    """Lanes of a message, as the workers' plans say."""
    members: tuple[int, ...] = ()
    """Addresses of the participating workers; only they get answers to requests for a final round."""
    key: str = field(default="", repr=False)
    """Shared secret of the job's hosts, which checks sums, hexadecimal; "": none."""
    traffic_class: int = field(default=BULK_PRIORITY, compare=False)
    """Priority of its messages, as the workers' plans say."""


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """Send this job's messages in another class from now on, without a pause."""

    job: int
    priority: int
    """One of `frames.JOB_CLASSES`."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Send nothing of this generation any more, accept none of its results, and say what you hold.

    A host in another generation ignores it: it is a late copy.
    """

    job: int
    generation: int


@dataclass(frozen=True, slots=True)
class Held:
    """A paused host's answer: the rounds whose results it holds."""

    generation: int
    """The one that it was asked to leave; an answer in another generation's name is a late copy."""
    first_incomplete: int
    """All rounds below this one are held, as far as the host still keeps them (the last S)."""
    complete: frozenset[int] = frozenset()
    """Rounds beyond `first_incomplete` that are held as well."""
    done: frozenset[int] = frozenset()
    """Rounds among all these that a DONE has ended, so that their results are not held; only of the last S."""

    def __post_init__(self) -> None:
        check_rounds("held", max(self.first_incomplete, *self.complete, *self.done, 0))


@dataclass(frozen=True, slots=True)
class FinalRound:
    """A round that is final, and a host that holds its result."""

    round: int
    holder: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on in a new generation; fetch from their holders the final rounds that this host lacks."""

    plan: WorkerPlan | ServerPlan
    final: tuple[FinalRound, ...] = ()
    again: tuple[int, ...] = ()
    """Rounds, ascending, that a DONE has ended at some hosts and whose result no host holds: they are summed again."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A host confirms its Resume: it goes on in this generation. A copy of an earlier one changes nothing."""

    job: int
    generation: int


MAX_STAGE: Final = 64
"""Maximum length of a stage's name, in characters."""
MAX_STEPS: Final = (1 << 32) - 1
"""Maximum number of steps in one report."""
MAX_COUNT: Final = (1 << 63) - 1
"""Maximum of a report's counts, times and bytes."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """Progress of a job's program. Times and bytes are of one worker, the one that reports."""

    step: int
    """Newest complete step."""
    steps_left: int | None = None
    """Remaining steps of the stage; None: unknown."""
    stage: str = ""
    """Name of the stage, such as an epoch or a phase of a schedule."""
    loss: float | None = None
    accuracy: float | None = None
    steps: int = 1
    """Steps over which the values below are summed."""
    compute_ns: int = 0
    """Time between the steps' communication; 0: unknown."""
    exposed_ns: int = 0
    """Time that the program was blocked in communication; 0: unknown."""
    bytes: int = 0
    """Bytes of the arrays handed to collectives."""
    waiting_ns: int = 0
    """Time that the program waited for turns on devices that jobs share."""

    def __post_init__(self) -> None:
        for name in ("step", "steps_left", "steps", "compute_ns", "exposed_ns", "bytes", "waiting_ns"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and (name == "steps") <= value <= MAX_COUNT):
                raise WireError(
                    f"{name} {value!r} is out of range",
                    place="report",
                    value=value,
                    allowed=(f"integers {int(name == 'steps')} to 2^63 - 1",),
                )
        for name in ("loss", "accuracy"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, float):
                raise WireError(f"{name} {value!r} is not a float", place="report", value=value)
        if not isinstance(self.stage, str) or len(self.stage) > MAX_STAGE or not self.stage.isprintable():
            raise WireError(
                f"stage {self.stage!r} is not a name",
                place="report",
                value=self.stage,
                allowed=(f"text of at most {MAX_STAGE} printable characters",),
            )

    def after(self, before: JobReport) -> JobReport:
        """Merge with the report before it: the newest step, and sums of times and bytes."""
        return replace(
            self,
            steps=min(before.steps + self.steps, MAX_STEPS),
            compute_ns=min(before.compute_ns + self.compute_ns, MAX_COUNT),
            exposed_ns=min(before.exposed_ns + self.exposed_ns, MAX_COUNT),
            bytes=min(before.bytes + self.bytes, MAX_COUNT),
            waiting_ns=min(before.waiting_ns + self.waiting_ns, MAX_COUNT),
        )


@dataclass(frozen=True, slots=True)
class Departure:
    """A worker that has left its job in good order."""

    rank: int
    host: str
    """Name of its host in the topology."""
    address: int
    calls: int
    """Sums that it has asked for; it takes part in no later one."""

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host})"


@dataclass(frozen=True, slots=True)
class Abort:
    """The job is over for this host, and no sum that it waits for will come."""

    job: int
    reason: str
    """Text for people: the failure, and why the job did not go on."""


CALLS_DIFFER: Final = "the workers' calls differ"
"""Beginning of the result of a comparison that has found different calls."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One collective call of a worker."""

    collective: str
    name: str
    details: tuple[str, ...] = ()
    """All else on which the workers must agree, such as `shape (100,)`."""

    def __str__(self) -> str:
        return f"{self.collective} {self.name!r}"


@dataclass(frozen=True, slots=True)
class Calls:
    """The last calls of a worker."""

    first: int
    """Number of the first of them; the job's first call is 0."""
    calls: tuple[CallRecord, ...]
    awaited: int | None
    """Number of the oldest call without a result; None if it waits for none."""

    @property
    def made(self) -> int:
        """Number of calls since the job began."""
        return self.first + len(self.calls)

    def get(self, number: int) -> CallRecord | None:
        """Return a call by its number, or None if it was not made or is no longer recorded."""
        return self.calls[number - self.first] if self.first <= number < self.made else None
