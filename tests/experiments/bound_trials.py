"""Drawn run files for the search for queues above their bounds.

::

    seed ─▶ drawn ─▶ Trial ─▶ run: the run file
                       │
                       └─▶ changed: another trial, with one choice drawn again

Times are in frames of the hosts' links, so that a file keeps its shape at every rate. Flows that never yield are left
out if they would fill a link, except in the few trials with `overload`: a full link has no bound.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from weir.controller.scheduling.orders import ORDERS
from weir.wire.aggregation import LANES

RATES_MBIT: Final = (10, 100, 1_000, 10_000, 25_000, 40_000, 100_000)
FRAME_BITS: Final = 8 * 1_100
_FILLED: Final = 0.85
"""Share of a link that flows may fill."""
_MODES: Final = ("bsp", "lb-bsp", "ssp", "asp", "backup", "r2sp", "local", "gossip", "d-psgd", "ad-psgd")


@dataclass(frozen=True)
class Trial:
    """One run: the choices from which its file is made."""

    seed: int
    rate_mbit: int = 1_000
    uplink: float = 1.0
    """Rate of links between switches, as a share of the hosts'."""
    access: tuple[float, ...] = (1.0,)
    """Rates of the hosts' links as shares of `rate_mbit`, in turn."""
    leaves: int = 2
    spines: int = 1
    hosts_per_leaf: int = 5
    buffer: int = 128
    small_buffer: int = 0
    """Buffer of the links of every third host; 0: `buffer`."""
    delay_us: int = 2
    workers: int = 4
    root: str = "server"
    """Root of sums: "server", "servers" (two), "switch", or "stripes" (two trees); modes have a server."""
    strategy: str = "hierarchy"
    """Strategy; "ps" needs a server, and stands for "rack" without one."""
    window: int = 32
    bound: int = 64
    lease_frames: int = 2_000
    poll_frames: float = 1.0
    probe_frames: int = 500
    """Time between two probes of a path, at least 10 µs; other times as well."""
    steady: tuple[tuple[int, int, float, int, int], ...] = ()
    """Flows that never yield: source, destination, share of the slowest link, first frame, and how long; 0: always. No
    flow has an exact multiple of a link's rate: such a one refills a full queue at the very moment that a packet
    leaves, and locks out all others for ever.
    """
    overload: bool = False
    """True if flows may fill links."""
    yielding: tuple[tuple[int, int, int], ...] = ()
    """Flows that yield: source, destination, window."""
    transfers: tuple[tuple[int, int, int, bool], ...] = ()
    """Messages of the transport: source, destination, window, and whether in the class below bulk traffic."""
    others: tuple[tuple[int, int, bool], ...] = ()
    """Other jobs of two workers: first frame, how long (0: always), and whether the server is the trained job's."""
    classes: tuple[int, ...] = (1, 1, 1)
    """Traffic classes of the trained job and the others."""
    heartbeat_frames: int = 0
    """Time between two heartbeats of a worker; 0: without heartbeats."""
    reports: bool = False
    """True if switches report queues and every third packet, without a declared maximum."""
    collector: int = 0
    """Host of the reports, also one of the job's."""
    mode: str = ""
    """Synchronisation mode; "": sums by turns of `late_frames`."""
    late_frames: tuple[int, ...] = (0, 0, 0)
    """Per sum, the frames by which the last worker is later than the others."""
    rounds: int = 60
    order: str = ""
    """Order of running jobs, which sets their traffic classes; "": they keep `classes`."""
    moves: tuple[int, ...] = (0, 0, 0)
    """Per sum, the frames after which all jobs get another generation; 0: they do not."""
    other_windows: tuple[int, int] = (32, 32)
    other_rounds: tuple[int, int] = (60, 60)
    """Rounds of each sum of the other jobs."""

    @property
    def frame_ns(self) -> float:
        return FRAME_BITS * 1e3 / self.rate_mbit

    def after(self, frames: float) -> int:
        """Time of so many frames, in ns, and at least one."""
        return max(1, round(frames * self.frame_ns))

    @property
    def hosts(self) -> list[str]:
        return [f"h{number}" for number in range(1, self.leaves * self.hosts_per_leaf + 1)]

    def run(self) -> dict[str, Any]:
        """The run file."""
        hosts = self.hosts
        placed = random.Random(self.seed).sample(hosts, min(self.workers, len(hosts) - 3) + 2)
        *workers, server, second = placed
        rest = [host for host in hosts if host not in placed]
        roots: dict[str, dict[str, Any]] = {
            "server": {"server": server},
            "servers": {"servers": [server, second]},
            "switch": {},
            "stripes": {"stripes": 2},
        }
        root = "server" if self.mode else self.root
        strategy = self.strategy if "server" in root else self.strategy.replace("ps", "rack")
        period = max(self.after(self.probe_frames), 10_000)
        run: dict[str, Any] = {
            "name": "search",
            "seed": self.seed,
            "fabric": self._fabric(),
            "job": {
                "workers": workers,
                **roots["server" if self.mode else self.root],
                "window": self.window,
                "slots": 2 * self.window,
                "traffic_class": self.classes[0],
            },
            "other_jobs": self._other_jobs(rest, server),
            "background": self._background([*rest, *hosts]),
            "host_poll": round(self.poll_frames * self.frame_ns),
            "congestion": {"bound": self.bound, "lease": self.after(self.lease_frames)},
            "control": {
                "interval": period,
                "warm_up": 3 * period,
                "solve_interval": 4 * period,
                "dwell": 8 * period,
                "gain": 0.01,
                "latency": self.after(10),
            },
            "strategies": [strategy],
        }
        if self.order:
            run["control"]["order"] = self.order
        if self.heartbeat_frames:
            interval = max(self.after(self.heartbeat_frames), 10_000)
            run["heartbeats"] = {"to": rest[-1], "interval": interval, "lease": max(4 * interval, 1_000_000)}
        if self.reports:
            run["telemetry"] = {
                "collector": hosts[self.collector % len(hosts)],
                "watch": [{"mode": "xd", "every": 3}],
                "queues": {"depth": 4, "depth_step": 4},
            }
        if self.mode:
            computes_s = self.after(300) / 1e9
            run["training"] = {"batch": 4, "steps": 1, "momentum": 0}
            run["synchronisation"] = {
                "modes": [self.mode],
                "machines": {"speeds": [4 / computes_s / (1 + 2 * (rank == 1)) for rank in range(len(workers))]},
                "workload": "synthetic",
                "target": 1e-9,
                "limit": self.after(12_000),
            }
        return run

    def _fabric(self) -> dict[str, Any]:
        rate_bps, links = self.rate_mbit * 1e6, list[dict[str, Any]]()
        for index, host in enumerate(self.hosts):
            leaf, port = divmod(index, self.hosts_per_leaf)
            small = self.small_buffer and index % 3 == 0
            rate = f"{rate_bps * self._access(index):.0f}bit"
            queue = self.small_buffer if small else self.buffer
            links.append({"ends": [host, f"s{leaf + 1}-p{port + 1}"], "rate": rate, "queue": queue})
        spines = range(self.leaves + 1, self.leaves + 1 + (self.spines if self.leaves > 1 else 0))
        for leaf in range(1, self.leaves + 1):
            for spine in spines:
                ends = [f"s{leaf}-p{20 + spine}", f"s{spine}-p{leaf}"]
                links.append({"ends": ends, "rate": f"{rate_bps * self.uplink:.0f}bit"})
        leaves = {f"s{leaf}": {"tier": "leaf"} for leaf in range(1, self.leaves + 1)}
        return {
            "name": "search",
            "defaults": {"delay": f"{self.delay_us}us", "queue": self.buffer},
            "hosts": dict.fromkeys(self.hosts),
            "switches": leaves | {f"s{spine}": {"tier": "spine"} for spine in spines},
            "links": links,
        }

    def _access(self, host: int) -> float:
        return self.access[host % len(self.access)]

    def _other_jobs(self, rest: list[str], server: str) -> list[dict[str, Any]]:
        return [
            {
                "workers": rest[2 * n : 2 * n + 2],
                "server": server if same else rest[2 * n + 2],
                "window": self.other_windows[n],
                "slots": 2 * self.other_windows[n],
                "values": LANES * self.other_rounds[n],
                "traffic_class": self.classes[1 + n],
                "start": self.after(first),
                **({"stop": self.after(first + lasts)} if lasts else {}),
            }
            for n, (first, lasts, same) in enumerate(self.others)
            if len(rest) >= 2 * n + 3
        ]

    def _background(self, names: list[str]) -> list[dict[str, Any]]:
        flows: list[dict[str, Any]] = []
        filled: dict[tuple[str, object], float] = defaultdict(float)

        def between(a: int, b: int) -> dict[str, Any]:
            return {"source": names[a % len(names)], "destination": names[b % len(names)]}

        for n, (a, b, share, first, lasts) in enumerate(self.steady):
            flow = between(a, b)
            ends = [int(flow[end][1:]) - 1 for end in ("source", "destination")]
            leaves = [end // self.hosts_per_leaf for end in ends]
            capacity = {("out", ends[0]): self._access(ends[0]), ("in", ends[1]): self._access(ends[1])}
            if leaves[0] != leaves[1]:
                capacity |= {("up", leaves[0]): self.uplink, ("down", leaves[1]): self.uplink}
            rate = share * min(capacity.values())
            if self.overload or all(filled[end] + rate <= _FILLED * most for end, most in capacity.items()):
                filled.update({end: filled[end] + rate for end in capacity})
                flow |= {"rate": int(rate * self.rate_mbit * 1e6), "port": 100 + n, "start": self.after(first)}
                flows.append(flow | ({"stop": self.after(first + lasts)} if lasts else {}))
        for n, (a, b, window) in enumerate(self.yielding):
            flows.append(between(a, b) | {"kind": "yielding", "window": window, "port": 200 + n})
        for a, b, window, lower in self.transfers:
            flows.append(between(a, b) | {"kind": "transfer", "bytes": 30_000, "window": window, "lower_effort": lower})
        return [flow for flow in flows if flow["source"] != flow["destination"]]


def _pair(rng: random.Random) -> tuple[int, int]:
    return rng.randrange(12), rng.randrange(12)


def _seldom(rng: random.Random, share: float, *values: Any) -> Any:
    """One of the values after the first with this probability; else the first."""
    return rng.choice(values[1:]) if rng.random() < share else values[0]


_CHOICES: Final[dict[str, Callable[[random.Random], Any]]] = {
    "rate_mbit": lambda rng: rng.choice(RATES_MBIT),
    "uplink": lambda rng: rng.choice([1.0, 1.0, 0.6, 0.3, 2.5]),
    "access": lambda rng: _seldom(rng, 0.4, (1.0,), (1.0, 0.5), (1.0, 0.25, 2.5), (0.1, 1.0, 1.0)),
    "leaves": lambda rng: rng.choice([1, 2, 2, 3]),
    "spines": lambda rng: rng.choice([1, 2]),
    "hosts_per_leaf": lambda rng: rng.choice([5, 5, 7]),
    "buffer": lambda rng: rng.choice([24, 64, 128, 256]),
    "small_buffer": lambda rng: _seldom(rng, 0.25, 0, 8, 16),
    "delay_us": lambda rng: rng.choice([1, 2, 20]),
    "workers": lambda rng: rng.randrange(2, 7),
    "root": lambda rng: _seldom(rng, 0.3, "server", "servers", "switch", "stripes"),
    "strategy": lambda rng: rng.choice(["ps", "rack", "hierarchy", "widest", "widest"]),
    "window": lambda rng: rng.choice([4, 16, 32, 64]),
    "bound": lambda rng: rng.choice([32, 64, 128, 256]),
    "lease_frames": lambda rng: rng.choice([100, 1_000, 4_000]),
    "poll_frames": lambda rng: rng.choice([0.0, 1.0, 4.0]),
    "probe_frames": lambda rng: rng.choice([100, 400, 1_500]),
    "steady": lambda rng: tuple(
        (*_pair(rng), rng.choice([0.07, 0.23, 0.41, 0.59]), rng.choice([0, 0, 2_000]), rng.choice([0, 0, 700, 4_000]))
        for _ in range(rng.randrange(4))
    ),
    "overload": lambda rng: rng.random() < 0.04,
    "yielding": lambda rng: tuple((*_pair(rng), rng.choice([1, 4, 12])) for _ in range(_seldom(rng, 0.4, 0, 1, 2, 3))),
    "transfers": lambda rng: tuple(
        (*_pair(rng), rng.choice([1, 4, 12]), rng.random() < 0.5) for _ in range(_seldom(rng, 0.4, 0, 1, 2))
    ),
    "others": lambda rng: tuple(
        (rng.randrange(300, 3_000), rng.choice([0, 500, 1_500]), rng.random() < 0.5) for _ in range(rng.randrange(3))
    ),
    "classes": lambda rng: tuple(rng.randint(1, 5) for _ in range(3)) if rng.random() < 0.4 else (1, 1, 1),
    "heartbeat_frames": lambda rng: _seldom(rng, 0.25, 0, 40, 400),
    "reports": lambda rng: rng.random() < 0.2,
    "collector": lambda rng: rng.randrange(12),
    "mode": lambda rng: _seldom(rng, 0.2, "", *_MODES),
    "late_frames": lambda rng: tuple(rng.choice([0, 0, 500, 3_000]) for _ in range(3)),
    "rounds": lambda rng: rng.choice([8, 40, 80]),
    "order": lambda rng: _seldom(rng, 0.2, "", *ORDERS),
    "moves": lambda rng: tuple(_seldom(rng, 0.3, 0, 40, 150, 400, 1_000) for _ in range(3)),
    "other_windows": lambda rng: (rng.choice([4, 32, 64]), rng.choice([4, 32, 64])),
    "other_rounds": lambda rng: (rng.choice([2, 20, 80]), rng.choice([2, 20, 80])),
}


def drawn(seed: int) -> Trial:
    """Draw a trial."""
    rng = random.Random(seed)
    return Trial(seed=seed, **{name: choose(rng) for name, choose in _CHOICES.items()})


def changed(trial: Trial, rng: random.Random) -> Trial:
    """Draw one of the choices of a trial again, or its hosts."""
    name = rng.choice(["seed", *_CHOICES])
    another: dict[str, Any] = {name: rng.randrange(1 << 16) if name == "seed" else _CHOICES[name](rng)}
    return replace(trial, **another)
