"""Times to a loss beside a slow link that moves: gossip policies, modes without a server, and sums.

Flow model in virtual time: values share links evenly, other packets, acknowledgements and queues do not count. The
slow link carries others' traffic, which leaves a share of its rate, and telemetry shows that after its average's time.

::

    training.Processes ─▶ SharedLinks ◀─ MovingLink ─▶ PublishedPolicies (by INT, or by the workers' own pulls)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...controller.telemetry.snapshot import LinkView, Snapshot
from ...hosts.collectives.leader_query import PendingAnswer
from ...topologies import Endpoint, Topology, leaf_spine
from ...training import LossCurve, Machine, Mode, Processes, Training, TrainingPlan, make_mode
from ...training.batching.manager import RuleName
from ...training.exchanges.ideal_peers import IdealNetwork, RunClock
from ...training.ideal import IdealClock, IdealJob, run
from ...training.machines import jitter
from ...training.mode import PeerEnds, PeerMode
from ...training.samples import label_shards
from ...training.workloads.digits import DigitsNetwork
from ..backends.gossip_policies import PublishedPolicies
from .measures import TIME_TO_LOSS
from .paper import Paper, Quantity, Sample

SPAN_NS: Final = 250_000_000
"""Time until the slow link is another one."""
FACTORS: Final = (2.0, 100.0)
"""Bounds of the factor by which a link is slow; drawn log-uniformly."""
RATE_BPS: Final = 100_000_000
SPINES: Final = 2
LEAVES: Final = 4
TARGET: Final = 0.3
LIMIT_NS: Final = 2_000_000_000
SPEED: Final = 4000.0
"""Samples per second of a machine."""
BATCH: Final = 16
LEARNING_RATE: Final = 0.4
MIXED: Final = 0.25
"""Share of rows that are dealt out regardless of their label, where shards differ."""
TELEMETRY_NS: Final = 10_000_000
"""Period of telemetry; its averages are over two."""
MEASURED_NS: Final = 100_000_000
"""Time between two policies from the workers' own pulls: 2/5 of a span, as NetMax's two minutes of five."""
TREE_NS: Final = 60_000_000
"""Time until the tree of a sum has left a link that became slow: telemetry, and the period of placement."""

WASTED: Final = Quantity("mean number of pulls that a worker wastes after a link slows", "pulls")
MOST_WASTED: Final = Quantity("largest number of pulls that a worker wastes after a link slows", "pulls")
WATCHED_NS: Final = 2 * SPAN_NS + SPAN_NS // 2
"""Gossip goes on until this instant, so that at least two moves are counted."""

RING: Final = "ring"
"""Contender that is BSP by a ring all-reduce among the hosts."""
MODES: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "steady": ("gossip", {"policy": "steady"}),
    "exact": ("gossip", {"policy": "exact"}),
    "netmax": ("gossip", {"policy": "netmax"}),
    "netmax-measured": ("gossip", {"policy": "netmax", "source": "measured"}),
    "uniform": ("gossip", {"policy": "uniform"}),
    "ad-psgd": ("ad-psgd", {}),
    "prague": ("prague", {"group": 4}),
    "d-psgd": ("d-psgd", {}),
    RING: ("bsp", {}),
    "bsp": ("bsp", {}),
    "local": ("local", {"period": 4}),
    "diloco": ("diloco", {"period": 4}),
}
"""Mode and options of each contender."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Job and slow links of one comparison."""

    workers: int
    between_switches: bool = False
    """The slow link is between a leaf and a spine; otherwise it is a worker's host's."""
    sharded: bool = False
    """Workers hold different labels."""

    @property
    def name(self) -> str:
        """Name in tables."""
        link = "a link between switches" if self.between_switches else "a host's link"
        return f"{self.workers} workers, {link}, {'shards by label' if self.sharded else 'data alike'}"


CONDITIONS: Final = tuple(
    Condition(workers, between_switches, sharded)
    for workers in (8, 16)
    for between_switches, sharded in ((False, False), (False, True), (True, False))
)


class MovingLink:
    """Fabric in which one link is slow, drawn again after each span."""

    def __init__(self, condition: Condition, seed: int) -> None:
        """Draw no link yet; link k depends on the seed and k alone."""
        per_leaf = condition.workers // LEAVES
        self.topology: Topology = leaf_spine(LEAVES, SPINES, per_leaf, rate_bps=RATE_BPS)
        self.hosts = [f"h{number}" for number in range(1, condition.workers + 1)]
        self._per_leaf, self._between, self._seed = per_leaf, condition.between_switches, seed
        self._slow: dict[int, tuple[frozenset[Endpoint], float]] = {}

    def slow(self, now_ns: int) -> tuple[frozenset[Endpoint], float]:
        """Return both directions of the slow link, and by what factor it is slow."""
        span = max(now_ns, 0) // SPAN_NS
        if span not in self._slow:
            rng = np.random.default_rng((self._seed, 48, span))
            factor = float(np.exp(rng.uniform(*np.log(FACTORS))))
            if self._between:
                end = Endpoint(f"s{1 + rng.integers(LEAVES)}", self._per_leaf + 1 + int(rng.integers(SPINES)))
            else:
                end = Endpoint(self.hosts[int(rng.integers(len(self.hosts)))], 0)
            self._slow[span] = frozenset((end, self.topology.peer(end))), factor
        return self._slow[span]

    def rate_bps(self, link: Endpoint, now_ns: int) -> float:
        """Return what is free of a link's rate."""
        links, factor = self.slow(now_ns)
        return RATE_BPS / factor if link in links else RATE_BPS

    def path(self, source: str, destination: str) -> list[Endpoint]:
        """Return the links from a host to another; equal paths are shared out by their numbers."""
        first, last = self.hosts.index(source), self.hosts.index(destination)
        from_leaf, to_leaf = first // self._per_leaf, last // self._per_leaf
        inside = self._through(from_leaf, (first + last) % SPINES, to_leaf) if from_leaf != to_leaf else []
        return [Endpoint(source, 0), *inside, self.topology.peer(Endpoint(destination, 0))]

    def _through(self, from_leaf: int, spine: int, to_leaf: int) -> list[Endpoint]:
        up = Endpoint(f"s{1 + from_leaf}", self._per_leaf + 1 + spine)
        down = Endpoint(f"s{1 + to_leaf}", self._per_leaf + 1 + spine)
        return [up, self.topology.peer(down)]

    def snapshot(self, now_ns: int) -> Snapshot:
        """Return the state of the links as telemetry has it, with the traffic of others alone."""
        links, factor = self.slow(now_ns - 2 * TELEMETRY_NS)
        others = RATE_BPS * (1 - 1 / factor)
        view = LinkView(others, others, 0.0, 0.0, 0.0, TELEMETRY_NS, 1.0)
        return Snapshot(dict.fromkeys(links, view), frozenset(), frozenset())

    def tree(self, now_ns: int) -> list[Endpoint]:
        """Return the links of the tree in which switches sum, which leaves a slow spine's links after `TREE_NS`."""
        avoided, _ = self.slow(now_ns - TREE_NS)
        trees = [
            [Endpoint(f"s{1 + leaf}", self._per_leaf + 1 + spine) for leaf in range(LEAVES)] for spine in range(SPINES)
        ]
        ends = [Endpoint(host, 0) for host in self.hosts]
        return [*ends, *min(trees, key=lambda links: len(avoided & set(links)))]

    def ring(self) -> list[Endpoint]:
        """Return the links of a ring through all hosts."""
        return [link for pair in pairwise([*self.hosts, self.hosts[0]]) for link in self.path(*pair)]

    def carry_ns(self, bits: float, links: Callable[[int], Sequence[Endpoint]], now_ns: int) -> int:
        """Return how long bits take that cross all of these links at once, which may change with time.

        Args:
            bits: Bits over each link.
            links: Links in use at an instant.
            now_ns: When the first bit is sent.
        """
        at_ns = now_ns
        while True:
            ends_ns = min(at_ns - (at_ns - shift) % SPAN_NS + SPAN_NS for shift in (0, TREE_NS))
            rate = min(self.rate_bps(link, at_ns) for link in links(at_ns))
            if (needs_ns := 1e9 * bits / rate) <= ends_ns - at_ns:
                return at_ns + math.ceil(needs_ns) - now_ns
            bits -= rate * (ends_ns - at_ns) * 1e-9
            at_ns = ends_ns


@dataclass(slots=True, eq=False)
class _Flow:
    path: Sequence[Endpoint]
    bits: float
    rate_bps: float = 0.0


@dataclass(slots=True)
class SharedLinks:
    """Carrier of values between workers, with the contract of `training.exchanges.ideal_peers.Carrier`.

    Each flow has the least of its links' even shares.
    """

    clock: RunClock
    fabric: MovingLink
    _flows: list[_Flow] = field(default_factory=list)
    _at_ns: int = 0

    @property
    def deadline_ns(self) -> int | None:
        """When a value next arrives or rates change; None: nothing is under way."""
        self._advance()
        if not self._flows:
            return None
        ends = min(math.ceil(1e9 * flow.bits / flow.rate_bps) for flow in self._flows)
        return min(self._at_ns + max(ends, 1), (self._at_ns // SPAN_NS + 1) * SPAN_NS)

    def start(self, source: int, destination: int, size: int, /) -> Callable[[], bool]:
        """Begin to carry `size` bytes; return a function that tells whether they have arrived."""
        self._advance()
        hosts = self.fabric.hosts
        flow = _Flow(self.fabric.path(hosts[source], hosts[destination]), 8.0 * size)
        self._flows.append(flow)
        self._share()

        def arrived() -> bool:
            self._advance()
            return flow.bits <= 0

        return arrived

    def _advance(self) -> None:
        now_ns = self.clock.now_ns
        if now_ns == self._at_ns:
            return
        passed_s = 1e-9 * (now_ns - self._at_ns)
        for flow in self._flows:
            flow.bits -= flow.rate_bps * passed_s
            if flow.bits < 1e-3:
                flow.bits = 0.0
        self._flows = [flow for flow in self._flows if flow.bits > 0]
        self._at_ns = now_ns
        self._share()

    def _share(self) -> None:
        users: dict[Endpoint, int] = {}
        for flow in self._flows:
            for link in flow.path:
                users[link] = users.get(link, 0) + 1
        shares = {link: self.fabric.rate_bps(link, self._at_ns) / count for link, count in users.items()}
        for flow in self._flows:
            flow.rate_bps = min(shares[link] for link in flow.path)


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull of gossip that has ended."""

    rank: int
    source: int
    """Rank of the worker whose weights were pulled."""
    ended_ns: int
    duration_ns: int
    policy_ns: int
    """Instant of the times that the policy of this pull was computed from."""


@dataclass(frozen=True, slots=True)
class Course:
    """One contender's training."""

    reached_ns: int | None
    """When the loss was the target's; None: not within the limit."""
    pulls: tuple[Pull, ...]
    """Pulls of gossip in the order of their ends."""


class _Recorded(PublishedPolicies):
    """Policies that also keep what workers pulled."""

    def __init__(self, fabric: MovingLink, clock: IdealClock, message_bytes: int) -> None:
        super().__init__(
            fabric.topology,
            fabric.hosts,
            message_bytes,
            now_ns=lambda: clock.now_ns,
            snapshot=lambda _: fabric.snapshot(clock.now_ns),
            compute_s=lambda: np.full(len(fabric.hosts), BATCH / SPEED),
            period_ns=TELEMETRY_NS,
            measured_period_ns=MEASURED_NS,
            paths=fabric.path,
        )
        self._clock = clock
        self._policy_ns = [0] * len(fabric.hosts)
        self.pulls: list[Pull] = []

    def row(self, rank: int, policy: str, source: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        row = super().row(rank, policy, source)
        self._policy_ns[rank] = self._looked_ns[policy, source]
        return row

    def pulled(self, rank: int, peer: int, duration_ns: int) -> None:
        super().pulled(rank, peer, duration_ns)
        self.pulls.append(Pull(rank, peer, self._clock.now_ns, duration_ns, self._policy_ns[rank]))


def wasted_pulls(
    condition: Condition, seed: int, course: Course, *, measured: bool, longer_ns: float = 1.5e9 * BATCH / SPEED
) -> list[int]:
    """Return how many pulls each worker wasted after a link became slow, for each worker and move of the slow link.

    Wasted is a long pull that crosses the slow link and is drawn by a policy that cannot know of the move yet: its
    times are older than the telemetry's averages need, or older than the end of the first such pull.

    Args:
        condition: Job and slow links.
        seed: Seed of the slow links.
        course: The training.
        measured: True if the policy is computed from the workers' own pulls.
        longer_ns: Only pulls that take longer count, in ns; 1.5 times as long as computing.
    """
    fabric = MovingLink(condition, seed)
    spans = range(1, 1 + max((pull.ended_ns for pull in course.pulls), default=0) // SPAN_NS)
    counts = {(span, rank): 0 for span in spans for rank in range(condition.workers)}
    tried_ns: dict[int, int] = {}
    """End of the first slow pull after each move."""
    for pull in course.pulls:
        began_ns = pull.ended_ns - pull.duration_ns
        span = began_ns // SPAN_NS
        crossed = fabric.path(fabric.hosts[pull.source], fabric.hosts[pull.rank])
        slow = not fabric.slow(began_ns)[0].isdisjoint(crossed)
        if (span, pull.rank) not in counts or not slow or pull.duration_ns <= longer_ns:
            continue
        known_ns = tried_ns.setdefault(span, pull.ended_ns) if measured else span * SPAN_NS + 2 * TELEMETRY_NS
        counts[span, pull.rank] += pull.policy_ns < known_ns
    return list(counts.values())


def train(condition: Condition, contender: str, seed: int, target: float = TARGET, watched_ns: int = 0) -> Course:
    """Train until the target loss or the limit.

    Args:
        condition: Job and slow links.
        contender: A name of `MODES`.
        seed: Seed of data, machines' noise and slow links.
        target: Held-out loss with which training ends.
        watched_ns: Instant before which it does not end.
    """
    workers = condition.workers
    fabric, clock, workload = MovingLink(condition, seed), IdealClock(), DigitsNetwork(32, seed)
    name, options = MODES[contender]
    mode: Mode = make_mode(name, **options)
    _, labels = workload.fetch(np.arange(workload.rows))
    shards = label_shards(labels, workers, MIXED, seed) if condition.sharded else ()
    curve = LossCurve(workload.loss, every=mode.updates_per_step(workers))
    plan = TrainingPlan(mode, workers, BATCH * workers, LEARNING_RATE, seed=seed, shards=shards)
    drawn = [jitter(np.random.default_rng((seed, rank)), 997) for rank in range(workers)]
    training = Training(plan, workload, curve, [Machine(SPEED, jitter=factors) for factors in drawn])
    bits = 32.0 * workload.parameters
    policies = _Recorded(fabric, clock, 4 * workload.parameters)
    if isinstance(mode, PeerMode):
        network = IdealNetwork(clock, SharedLinks(clock, fabric), workers)
        processes = training.gossiping([PeerEnds(end, policies) for end in network.ends])
        timed: IdealNetwork | IdealJob = network
    else:
        ring = fabric.ring()
        around = 2 * (workers - 1) / workers

        def carried_ns(_: int) -> int:
            if contender == RING:
                return fabric.carry_ns(around * bits, lambda _: ring, clock.now_ns)
            return fabric.carry_ns(bits, fabric.tree, clock.now_ns)

        timed = IdealJob(clock, workers, carried_ns)
        processes = training.summed(timed.communicators, _NoSizes())

    def done() -> bool:
        if clock.now_ns < watched_ns:
            return False
        return clock.now_ns >= LIMIT_NS or curve.reached_ns(target) is not None

    run(Processes(processes, training.cost_ns), clock, [timed], done)
    reached = curve.reached_ns(target)
    return Course(reached if reached is not None and reached <= LIMIT_NS else None, tuple(policies.pulls))


class _NoSizes:
    """Service of batch sizes for modes of equal ones, which never ask."""

    def request(
        self, reports: NDArray[np.float64], present: NDArray[np.bool_], *, rule: RuleName, size_step: int
    ) -> PendingAnswer:
        raise NotImplementedError("batch sizes are equal")


def times_beside_a_moving_link(paper: Paper) -> Iterator[Sample]:
    """Measure `TIME_TO_LOSS` of all contenders, which are names of `MODES`, and the wasted pulls of some.

    A mode that has not reached the target at the limit counts with the limit.
    """
    for condition in CONDITIONS:
        for seed in range(1, paper.seeds + 1):
            for contender in (each.name for each in paper.contenders):
                counted = contender in paper.figure(WASTED.name).contenders
                course = train(condition, contender, seed, watched_ns=WATCHED_NS if counted else 0)
                limited = course.reached_ns is None
                taken_ns = LIMIT_NS if course.reached_ns is None else course.reached_ns
                yield Sample(TIME_TO_LOSS.name, condition.name, contender, seed, taken_ns / 1e6, limited)
                if counted:
                    measured = MODES[contender][1].get("source") == "measured"
                    wasted = wasted_pulls(condition, seed, course, measured=measured)
                    yield Sample(WASTED.name, condition.name, contender, seed, float(np.mean(wasted)))
                    yield Sample(MOST_WASTED.name, condition.name, contender, seed, float(max(wasted)))
