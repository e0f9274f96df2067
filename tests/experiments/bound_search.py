"""A search for runs in which a queue holds more packets than was promised: drawn run files, and climbs from them.

::

    seed ─▶ drawn ─▶ Trial ─▶ play ─▶ Outcome: queues above their bounds, and the largest held/promised
                       ▲                 │
                       └──── changed ◀───┘ climb: a change stays if the ratio does not fall

Ten climbs of ten runs each, from the seeds 0 to 9, with the tightness of the bounds over all their queues::

    python -m weir.tests.experiments.bound_search 0 10 --runs 10
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.wire.aggregation import LANES

RATES_MBIT: Final = (10, 100, 1_000, 10_000, 25_000, 40_000, 100_000)
FRAME_BITS: Final = 8 * 1_100
LEAST_BOUND: Final = 5
"""Queues with a smaller bound have no part in ratios: a probe alone fills some."""


@dataclass(frozen=True)
class Trial:
    """One run: the choices from which its file is made."""

    seed: int
    rate_mbit: int = 1_000
    uplink: float = 1.0
    """Rate of links between switches, as a share of the hosts'."""
    leaves: int = 2
    spines: int = 1
    hosts_per_leaf: int = 5
    buffer: int = 128
    delay_us: int = 2
    workers: int = 4
    strategy: str = "hierarchy"
    window: int = 32
    bound: int = 64
    lease_frames: int = 2_000
    poll_frames: float = 1.0
    probe_frames: int = 500
    """Time between two probes of a path, in frames of the hosts' links; other times as well."""
    steady: tuple[tuple[int, int, float], ...] = ()
    """Flows that never yield: source, destination, share of the hosts' rate. No flow has an exact multiple of a link's
    rate: such a one refills a full queue at the very moment that a packet leaves, and locks out all others for ever.
    """
    yielding: tuple[tuple[int, int, int], ...] = ()
    """Flows that yield: source, destination, window."""
    others: tuple[tuple[int, int], ...] = ()
    """Other jobs of two workers: first host, and frames after which the job stops; 0: never."""
    heartbeats: bool = False
    late_frames: tuple[int, ...] = (0, 0, 0)
    """Per sum, the frames by which the last worker is later than the others."""
    rounds: int = 60

    @property
    def frame_ns(self) -> float:
        return FRAME_BITS * 1e3 / self.rate_mbit

    def after(self, frames: float) -> int:
        """Time of so many frames, in ns, and at least one."""
        return max(1, round(frames * self.frame_ns))

    def run(self) -> dict[str, Any]:
        """The run file."""
        rng = random.Random(self.seed)
        hosts = [f"h{number}" for number in range(1, self.leaves * self.hosts_per_leaf + 1)]
        placed = rng.sample(hosts, min(self.workers, len(hosts) - 3) + 1)
        rest = [host for host in hosts if host not in placed]
        rate, period = f"{self.rate_mbit}Mbit", self.after(self.probe_frames)
        names = [*rest, *hosts]
        background: list[dict[str, Any]] = [
            {
                "source": names[a % len(names)],
                "destination": names[b % len(names)],
                "rate": int(share * self.rate_mbit * 1e6),
                "port": 100 + n,
            }
            for n, (a, b, share) in enumerate(self.steady)
            if names[a % len(names)] != names[b % len(names)]
        ]
        background += [
            {
                "source": names[a % len(names)],
                "destination": names[b % len(names)],
                "kind": "yielding",
                "window": window,
                "port": 200 + n,
            }
            for n, (a, b, window) in enumerate(self.yielding)
            if names[a % len(names)] != names[b % len(names)]
        ]
        others = [
            {
                "workers": rest[2 * n : 2 * n + 2],
                "server": placed[0],
                "window": self.window,
                "slots": 2 * self.window,
                "start": self.after(first),
                **({"stop": self.after(first + lasts)} if lasts else {}),
            }
            for n, (first, lasts) in enumerate(self.others)
            if len(rest) >= 2 * n + 2
        ]
        return {
            "name": "search",
            "seed": self.seed,
            "fabric": {
                "name": "search",
                "generate": {
                    "kind": "leaf-spine",
                    "leaves": self.leaves,
                    "spines": self.spines,
                    "hosts_per_leaf": self.hosts_per_leaf,
                    "rate": rate,
                    "uplink_rate": f"{max(1, round(self.uplink * self.rate_mbit))}Mbit",
                    "delay": f"{self.delay_us}us",
                    "queue": self.buffer,
                },
            },
            "job": {"workers": placed[:-1], "server": placed[-1], "window": self.window, "slots": 2 * self.window},
            "other_jobs": others,
            "background": background,
            "host_poll": round(self.poll_frames * self.frame_ns),
            "congestion": {"bound": self.bound, "lease": self.after(self.lease_frames)},
            "control": {
                "interval": period,
                "warm_up": 3 * period,
                "solve_interval": 4 * period,
                "latency": self.after(10),
            },
            **(
                {"heartbeats": {"to": rest[-1], "lease": max(self.after(4_000), 1_000_000)}}
                if self.heartbeats and rest
                else {}
            ),
            "strategies": [self.strategy],
        }


@dataclass(frozen=True)
class Outcome:
    """Result of a trial."""

    broken: tuple[str, ...] = ()
    ratios: tuple[float, ...] = field(default=(), repr=False)
    """Held/promised of the queues in use that had a bound throughout."""

    @property
    def largest(self) -> float:
        return max(self.ratios, default=0.0)


def play(trial: Trial) -> Outcome | None:
    """Play a trial; None if its run file is refused."""
    try:
        config = RunConfig.model_validate(trial.run())
    except (ExperimentError, ValueError):
        return None
    return asyncio.run(_play(trial, config))


async def _play(trial: Trial, config: RunConfig) -> Outcome:
    async with Cluster(config, trial.strategy) as cluster:
        values = np.ones(LANES * trial.rounds, np.float32)
        for late in trial.late_frames:
            *early, last = cluster.job.communicators
            for communicator in early:
                communicator.allreduce_async(values)
            await cluster.compute(trial.after(late) if late else 0)
            last.allreduce_async(values)
            await cluster.settle()
        await cluster.compute(trial.after(2 * trial.buffer))
        figures = cluster.figures
        held = {link.end: link.largest_queue_packets for link in figures.links()}
        bounds = {end: bound for end, bound in figures.promised.items() if bound is not None and bound >= LEAST_BOUND}
        used = [held[end] / bound for end, bound in bounds.items() if held.get(end, 0) > 1]
        return Outcome(tuple(figures.broken_promises), tuple(used))


_CHOICES: Final[dict[str, Callable[[random.Random], Any]]] = {
    "rate_mbit": lambda rng: rng.choice(RATES_MBIT),
    "uplink": lambda rng: rng.choice([1.0, 1.0, 0.3, 0.1, 2.5]),
    "leaves": lambda rng: rng.choice([1, 2, 3]),
    "spines": lambda rng: rng.choice([1, 2]),
    "buffer": lambda rng: rng.choice([8, 24, 64, 128, 256]),
    "delay_us": lambda rng: rng.choice([1, 2, 20]),
    "workers": lambda rng: rng.randrange(2, 6),
    "strategy": lambda rng: rng.choice(["ps", "rack", "hierarchy", "widest"]),
    "window": lambda rng: rng.choice([4, 16, 32, 64]),
    "bound": lambda rng: rng.choice([16, 32, 64, 128]),
    "lease_frames": lambda rng: rng.choice([100, 2_000, 20_000]),
    "poll_frames": lambda rng: rng.choice([0.0, 1.0, 4.0]),
    "probe_frames": lambda rng: rng.choice([50, 200, 1_000]),
    "steady": lambda rng: tuple(
        (rng.randrange(9), rng.randrange(9), rng.choice([0.11, 0.31, 0.59, 0.89])) for _ in range(rng.randrange(3))
    ),
    "yielding": lambda rng: tuple(
        (rng.randrange(9), rng.randrange(9), rng.choice([1, 4, 16])) for _ in range(rng.randrange(4))
    ),
    "others": lambda rng: tuple(
        (rng.randrange(300, 3_000), rng.choice([0, 500, 1_500])) for _ in range(rng.randrange(3))
    ),
    "heartbeats": lambda rng: rng.random() < 0.2,
    "late_frames": lambda rng: tuple(rng.choice([0, 0, 500, 3_000]) for _ in range(3)),
    "rounds": lambda rng: rng.choice([8, 40, 80]),
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


def climb(seed: int, trials: int, player: Callable[[Trial], Outcome | None] = play) -> tuple[Trial, Outcome]:
    """Return the best of so many trials: a drawn one, and changes of the best one until then.

    The best is one that exceeds a bound, or else has the largest held/promised. The climb ends at the former.
    """
    rng = random.Random(seed)
    best, outcome = drawn(seed), Outcome()
    trial = best
    for _ in range(trials):
        found = player(trial)
        if found is not None and (found.broken or found.largest >= outcome.largest):
            best, outcome = trial, found
            if found.broken:
                break
        trial = changed(best, rng)
    return best, outcome


class Tally:
    """Plays trials, each in a process of its own, and counts their outcomes."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.outcomes: Counter[str] = Counter()
        self.ratios: list[float] = []

    def play(self, trial: Trial) -> Outcome | None:
        """Play a trial; None if its file is refused, if it fails, or takes longer than the limit."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_play_apart, args=(trial, theirs))
        process.start()
        theirs.close()
        try:
            result = ours.recv() if ours.poll(self._limit_s) else "too long"
        except EOFError:  # its traceback is on the error output
            result = "failed"
        process.kill()
        process.join()
        if not isinstance(result, Outcome):
            kind = "refused" if result is None else result
            self.outcomes[kind] += 1
            if kind != "refused":
                _say(f"  {kind}: {trial}")
            return None
        self.outcomes["exceeded" if result.broken else "kept"] += 1
        self.ratios += result.ratios
        return result


def _play_apart(trial: Trial, answer: Connection) -> None:
    answer.send(play(trial))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Climb from some seeds; print each climb's best, and the tightness of the bounds over all queues in use."""
    parser = argparse.ArgumentParser(prog="bound_search", description="Search for a queue that exceeds its bound.")
    parser.add_argument("first", type=int, help="first seed")
    parser.add_argument("climbs", type=int, help="number of seeds")
    parser.add_argument("--runs", type=int, default=10, help="runs of each climb")
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a run is given up")
    given = parser.parse_args(arguments)
    tally = Tally(given.limit)
    for seed in range(given.first, given.first + given.climbs):
        best, outcome = climb(seed, given.runs, tally.play)
        _say(f"seed {seed}: {outcome.largest:.2f} {'; '.join(outcome.broken)}".rstrip())
        if outcome.broken:
            _say(f"  {best}")
    ratios = tally.ratios or [0.0]
    _say(
        f"{', '.join(f'{count} {kind}' for kind, count in tally.outcomes.items())}; {len(tally.ratios)} queues in use, "
        f"held/promised: median {np.median(ratios):.2f}, 90 % {np.quantile(ratios, 0.9):.2f}, maximum {max(ratios):.2f}"
    )
    return 1 if tally.outcomes["exceeded"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
