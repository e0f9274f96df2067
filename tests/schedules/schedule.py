"""Schedule of one seed: a fabric, a job, its tensors, the links' faults, and events with their times.

`Schedule.draw(seed)` is the whole of it; `repr` shows it. Nothing else is random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from weir.controller.placement import Placement
from weir.topologies.generators import fat_tree, leaf_spine
from weir.topologies.model import Endpoint, Topology
from weir.topologies.routing import Routes
from weir.wire.aggregation import CHUNKS

GBPS: Final = 1_000_000_000
US: Final = 1_000

FABRICS: Final[dict[str, Callable[[], Topology]]] = {
    "one switch": lambda: leaf_spine(1, 0, 9, rate_bps=GBPS),
    "two leaves": lambda: leaf_spine(2, 1, 5, rate_bps=GBPS),
    "leaf-spine": lambda: leaf_spine(2, 2, 5, rate_bps=GBPS),
    "three leaves": lambda: leaf_spine(3, 2, 3, rate_bps=GBPS, uplink_rate_bps=GBPS // 2),
    "fat-tree": lambda: fat_tree(4, rate_bps=GBPS),
}
SIZES: Final = (0, 1, 2, 255, 256, 257, 512, 700, 2048, 4000)
"""Elements of a tensor."""


@cache
def fabric_named(name: str) -> tuple[Topology, Routes]:
    topology = FABRICS[name]()
    return topology, Routes(topology)


@dataclass(frozen=True)
class Happening:
    """Event that happens shortly after the fastest worker has completed this many rounds."""

    rounds: int
    delay_ns: int


@dataclass(frozen=True)
class MoveTo(Happening):
    depth: int
    server_root: bool


@dataclass(frozen=True)
class Kill(Happening):
    rank: int
    whole: bool
    """True if the host fails with all jobs on it; else only the job's process does."""


@dataclass(frozen=True)
class KillServer(Happening):
    """The parameter server dies, root or not."""


@dataclass(frozen=True)
class Hang(Happening):
    rank: int
    for_ns: int
    """Longer than a lease: the others go on without it."""


@dataclass(frozen=True)
class Restart(Happening):
    switch: str
    boot_ns: int


@dataclass(frozen=True)
class LinkDown(Happening):
    end: Endpoint
    noticed_ns: int
    for_ns: int


@dataclass(frozen=True)
class Damage:
    """Flipped bits: `way` is "down" (every link into a host), "up" (out of one host), "everywhere" (all hosts' links).

    Up or down no two contributions of one round are hit, and no packet twice: the public check finds any damage to one
    lane, but damage to the same high bit of two lanes can cancel in it (docs/design.md §2.2). A job with a key has no
    such bit, so that contributions of any workers may be hit at once.
    """

    way: str
    host: int
    rate: float


@dataclass(frozen=True)
class Before:
    """Earlier job of the same hosts, which left rounds in slots of switches."""

    how: str
    """Kind of its end: "ended" by the controller; "forgotten", by a new controller without records; or "dirty": slots
    hold possible remains of jobs and generations of long ago. If only a server has summed, no switch shows the
    generations to avoid: such jobs are forgotten only if they have keys, a different one each time.
    """
    job: int = 0
    rounds: int = 0
    """Number of rounds at its fastest worker after which it ends."""
    extra: bool = False
    """It has a worker more, which goes on by the old plan where the job is forgotten."""


@dataclass(frozen=True)
class Beside:
    """Another job, on some of the same hosts by processes of its own."""

    job: int
    workers: tuple[str, ...]
    server: str
    slots: int
    sizes: tuple[int, ...]
    key: str


@dataclass(frozen=True)
class Schedule:
    seed: int
    fabric: str
    job: int
    workers: int
    slots: int
    window: int
    depth: int
    server: bool
    """True if the job has a parameter server."""
    spare: bool
    """True if another host can replace it."""
    server_root: bool
    sizes: tuple[int, ...]
    gap_ns: int
    """Between two tensors' submissions; 0: all are in flight at once."""
    first_round: int
    slots_before: int
    """Slots of every switch that others occupy."""
    loss: float
    duplicate: float
    reorder: float
    reorder_ns: int
    damage: Damage | None
    poll_ns: int
    control_loss: float
    key: str
    """Key of the job; "" for none."""
    paired_flips: float
    """Rate of frames to and from hosts with the highest bits of two lanes flipped; only with a key."""
    heavy: bool
    """The weights add up to nearly 2³²."""
    before: Before | None
    beside: Beside | None
    happenings: tuple[Happening, ...] = field(default=())

    @classmethod
    def draw(cls, seed: int, *, faults: bool = True) -> Schedule:
        """`faults`: also kill workers, restart switches and take links down."""
        rng = random.Random(seed)
        fabric = rng.choices(list(FABRICS), (25, 25, 30, 18, 2))[0]
        topology, _ = fabric_named(fabric)
        workers = min(rng.choice((1, 2, 2, 3, 4, 5, 6, 8)), len(topology.hosts) - 2)
        slots = rng.choice((2, 4, 8, 16, 64))
        window = rng.choice((slots // 2, slots // 2, rng.randint(1, slots // 2)))
        sizes = tuple(rng.choice(SIZES) for _ in range(rng.randint(1, 4)))
        rounds = rounds_of(sizes, window)
        server = rng.random() < 0.7
        damage = None
        if rng.random() < 0.3:
            way = rng.choice(("down", "up"))
            rate = rng.uniform(0.001, 0.1 if way == "down" else 0.01)
            damage = Damage(way, rng.randrange(workers), rate)
        apart = random.Random(f"key {seed}")
        key = apart.choice(("", apart.randbytes(32).hex()))
        if key and damage is not None and damage.way == "up":
            damage = Damage("everywhere", damage.host, damage.rate / workers)
        schedule = cls(
            seed=seed,
            fabric=fabric,
            job=rng.choice((1, 0xFFFF, rng.randint(2, 0xFFFE))),
            workers=workers,
            slots=slots,
            window=window,
            depth=rng.choice((0, 1, 1, 2, 3) if server else (1, 1, 2, 3)),
            server=server,
            spare=server and rng.random() < 0.5,
            server_root=server and rng.random() < 0.7,
            sizes=sizes,
            gap_ns=rng.choice((0, 0, rng.randint(1, 300) * US)),
            first_round=rng.choice((0, 0, 0, CHUNKS - rng.randint(1, max(1, rounds)))),
            slots_before=rng.choice((0, rng.randint(1, 500), 1024 - slots)),
            loss=rng.choice((0.0, rng.uniform(0, 0.03), rng.uniform(0, 0.1))),
            duplicate=rng.choice((0.0, rng.uniform(0, 0.1))),
            reorder=rng.choice((0.0, rng.uniform(0, 0.5))),
            reorder_ns=rng.choice((50, 300, 3000)) * US,
            damage=damage,
            poll_ns=rng.choice((0, 5, 20)) * US,
            control_loss=rng.choice((0.0, 0.2)),
            key=key,
            paired_flips=apart.choice((0.0, apart.uniform(0.005, 0.05) / workers)) if key else 0.0,
            heavy=apart.random() < 0.5,
            before=None,
            beside=None,
        )
        schedule = replace(schedule, before=_draw_before(apart, schedule), beside=_draw_beside(apart, schedule))
        happenings = _draw_happenings(rng, schedule, rounds, faults)
        return replace(schedule, happenings=happenings)

    @property
    def may_stand_still(self) -> bool:
        """Return whether a round may need a new generation, beyond the workers' resends."""
        return (
            any(not isinstance(happening, MoveTo) for happening in self.happenings)
            or (self.damage is not None and self.damage.way != "down")
            or self.paired_flips > 0
        )

    @property
    def worker_names(self) -> tuple[str, ...]:
        return self._hosts()[: self.workers]

    @property
    def server_name(self) -> str | None:
        return self._hosts()[self.workers] if self.server else None

    @property
    def spares(self) -> tuple[str, ...]:
        return self._hosts()[self.workers + 1 : self.workers + 2] if self.spare else ()

    @property
    def part(self) -> tuple[str, ...]:
        """The hosts that have a part in the job."""
        return (*self.worker_names, *([self.server_name] if self.server_name else []))

    @property
    def idle_hosts(self) -> tuple[str, ...]:
        """Those that have no part in the job."""
        return self._hosts()[self.workers + self.server + len(self.spares) :]

    def _hosts(self) -> tuple[str, ...]:
        topology, _ = fabric_named(self.fabric)
        names = [host.name for host in topology.hosts]
        random.Random(f"hosts {self.seed}").shuffle(names)
        return tuple(names)


def other_key(key: str) -> str:
    """Key of another job, which has one if this one does."""
    return key[::-1]


def _draw_before(rng: random.Random, schedule: Schedule) -> Before | None:
    how = rng.choice((None, None, "ended", "ended", "dirty"))
    if how == "ended" and (schedule.key or not schedule.server) and rng.random() < 0.7:
        how = "forgotten"
    if how in (None, "dirty"):
        return Before(how) if how else None
    job = rng.choice((schedule.job, schedule.job, schedule.job % 0xFFFF + 1))
    return Before(how, job, rng.randint(1, 12), extra=rng.random() < 0.5)


def _draw_beside(rng: random.Random, schedule: Schedule) -> Beside | None:
    """Its hosts are mostly those of the job; the server may well be where the job has a worker."""
    if rng.random() < 0.7 or schedule.slots_before > 500:
        return None
    hosts = rng.sample(schedule.part, min(len(schedule.part), rng.randint(2, 4)))
    hosts += rng.sample(schedule.idle_hosts, rng.randint(1, 2) if len(hosts) < 2 else 0)
    sizes = tuple(rng.choice(SIZES[:-2]) for _ in range(rng.randint(1, 2)))
    return Beside(
        (schedule.job + 1) % 0xFFFF + 1,
        tuple(hosts[1:]),
        hosts[0],
        rng.choice((2, 8, 16)),
        sizes,
        other_key(schedule.key),
    )


def rounds_of(sizes: Sequence[int], window: int) -> int:
    chunks = [-(-size // 256) for size in sizes]
    return sum(min(window, count) + count for count in chunks)


def _draw_happenings(rng: random.Random, schedule: Schedule, rounds: int, faults: bool) -> tuple[Happening, ...]:
    topology, _ = fabric_named(schedule.fabric)
    drawn: list[Happening] = []

    def when() -> tuple[int, int]:
        return rng.randint(0, rounds), rng.randint(0, 300) * US

    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        drawn.append(MoveTo(*when(), rng.choice((0, 1, 2, 3)), schedule.server and rng.random() < 0.5))
    if not faults:
        return tuple(drawn)
    for rank in rng.sample(range(schedule.workers), rng.choice((0, 0, 0, 1, 1, 2))) if schedule.workers > 2 else ():
        drawn.append(Kill(*when(), rank, whole=random.Random(f"kill {schedule.seed}").random() < 0.5))
    if schedule.server and rng.random() < 0.15:
        drawn.append(KillServer(*when()))
    deaths = sum(isinstance(one, Kill) for one in drawn)
    if schedule.workers > deaths + 1 and rng.random() < 0.15:  # somebody is left
        drawn.append(Hang(*when(), rng.randrange(schedule.workers), rng.randint(1, 100) * 1000 * US))
    if rng.random() < 0.25:
        drawn.append(Restart(*when(), rng.choice(topology.switches).name, rng.randint(1, 20_000) * US))
    uplinks = [link.a for link in topology.links if topology.is_switch(link.a.node)]
    if schedule.fabric in ("leaf-spine", "three leaves", "fat-tree") and rng.random() < 0.2:
        drawn.append(
            LinkDown(*when(), rng.choice(uplinks), rng.randint(0, 5_000) * US, rng.randint(1_000, 100_000) * US)
        )
    return tuple(drawn)


def draw_tree(
    rng: random.Random, switches: Sequence[str], workers: Sequence[str], server: str | None, depth: int
) -> Placement:
    """Any tree of at most `depth` levels of switches over these workers; with a server, that is the root."""
    switches = rng.sample(switches, len(switches))
    if server is not None:
        root, level = server, {server: 0}
    else:
        root = switches.pop()
        level = {root: 1}
    parents: dict[str, str] = {}
    for name in switches[: rng.randint(0, 4)]:
        above = [node for node, at in level.items() if at < depth]
        if above:
            parents[name] = rng.choice(above)
            level[name] = level[parents[name]] + 1
    aggregators = {worker: rng.choice(list(level)) for worker in workers}
    used = set(aggregators.values())
    while idle := parents.keys() - used - set(parents.values()):
        for name in idle:
            del parents[name]
    return Placement(aggregators, parents, root)
