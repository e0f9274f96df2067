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
import logging
import multiprocessing
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final
from unittest import mock

import numpy as np

from weir.experiments import synchronised
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.tests.experiments.bound_trials import Trial, changed, drawn
from weir.wire.aggregation import LANES

LEAST_BOUND: Final = 5
"""Queues with a smaller bound have no part in ratios: a probe alone fills some."""
LEAST_USE: Final = 5
"""Packets that a queue has held if its bound was put to the test."""


@dataclass(frozen=True)
class Outcome:
    """Result of a trial."""

    broken: tuple[str, ...] = ()
    ratios: tuple[float, ...] = field(default=(), repr=False)
    """Held/promised of the queues in use that had a bound throughout."""
    tested: int = 0
    """Number of these queues that held `LEAST_USE` packets or more."""

    @property
    def largest(self) -> float:
        return max(self.ratios, default=0.0)

    @classmethod
    def of(cls, cluster: Cluster) -> Outcome:
        figures = cluster.figures
        held = {link.end: link.largest_queue_packets for link in figures.links()}
        bounds = {end: bound for end, bound in figures.promised.items() if bound is not None and bound >= LEAST_BOUND}
        used = {end: held[end] for end in bounds if held.get(end, 0) > 1}
        broken = tuple(figures.broken_promises)
        classes = {
            queue: (packets, bound)
            for queue, packets in figures.class_held.items()
            if packets > 1 and (bound := figures.class_promised.get(queue, 0)) >= LEAST_BOUND
        }
        ratios = [packets / bounds[end] for end, packets in used.items()]
        ratios += [packets / bound for packets, bound in classes.values()]
        tested = [*used.values(), *(packets for packets, _ in classes.values())]
        return cls(broken, tuple(ratios), sum(packets >= LEAST_USE for packets in tested))


def play(trial: Trial) -> Outcome | None:
    """Play a trial; None if its run file is refused."""
    try:
        config = RunConfig.model_validate(trial.run())
    except (ExperimentError, ValueError):
        return None
    return asyncio.run(_train(config) if trial.mode else _sum(trial, config))


async def _sum(trial: Trial, config: RunConfig) -> Outcome:
    """Sum once for each of the trial's `late_frames`, and start generations of all jobs by its `moves`."""
    async with Cluster(config, config.strategies[0]) as cluster:
        values = np.ones(LANES * trial.rounds, np.float32)
        for late, move in zip(trial.late_frames, trial.moves, strict=True):
            *early, last = cluster.job.communicators
            for communicator in early:
                communicator.allreduce_async(values)
            await cluster.compute(trial.after(late) if late else 0)
            last.allreduce_async(values)
            if move:
                await cluster.compute(trial.after(move))
                for number in list(cluster.controller.jobs):
                    cluster.controller.moves.begin(number, cluster.now_ns)
            await cluster.settle()
        await cluster.compute(trial.after(2 * trial.buffer))
        return Outcome.of(cluster)


async def _train(config: RunConfig) -> Outcome:
    """Train in the run's only mode."""
    outcomes = []

    class Seen(Cluster):
        async def __aexit__(self, *args: object) -> None:
            outcomes.append(Outcome.of(self))
            await super().__aexit__(*args)

    with mock.patch.object(synchronised, "Cluster", Seen):
        await synchronised.train_in_mode(config, 0)
    return outcomes[-1]


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

    def __init__(self, limit_s: int) -> None:
        """`limit_s`: processor time of a trial."""
        self._limit_s = limit_s
        self.outcomes: Counter[str] = Counter()
        self.ratios: list[float] = []
        self.tested: list[int] = []

    def play(self, trial: Trial) -> Outcome | None:
        """Play a trial; None if its file is refused, if it fails, or takes longer than the limit."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_play_apart, args=(trial, theirs, self._limit_s))
        process.start()
        theirs.close()
        try:
            result = ours.recv()
        except EOFError:  # the traceback of a failed run is on the error output
            result = "failed"
        process.join()
        if not isinstance(result, Outcome):
            kind = "refused" if result is None else result
            if process.exitcode == -signal.SIGXCPU:
                kind = "too long"
            self.outcomes[kind] += 1
            if kind != "refused":
                _say(f"  {kind}: {trial}")
            return None
        self.outcomes["exceeded" if result.broken else "kept"] += 1
        self.ratios += result.ratios
        self.tested.append(result.tested)
        return result

    @property
    def summary(self) -> str:
        """Outcomes, and the tightness over all queues in use."""
        ratios = self.ratios or [0.0]
        return (
            f"{', '.join(f'{count} {kind}' for kind, count in self.outcomes.items())}; {np.count_nonzero(self.tested)} "
            f"runs tested {sum(self.tested)} queues with {LEAST_USE} packets or more; {len(self.ratios)} queues in "
            f"use, held/promised: median {np.median(ratios):.2f}, 90 % {np.quantile(ratios, 0.9):.2f}, maximum "
            f"{max(ratios):.2f}"
        )


def _play_apart(trial: Trial, answer: Connection, limit_s: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
    logging.disable(logging.WARNING)
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
    parser.add_argument("--limit", type=int, default=20, help="processor seconds after which a run is given up")
    given = parser.parse_args(arguments)
    tally = Tally(given.limit)
    for seed in range(given.first, given.first + given.climbs):
        best, outcome = climb(seed, given.runs, tally.play)
        _say(f"seed {seed}: {outcome.largest:.2f} {'; '.join(outcome.broken)}".rstrip())
        if outcome.broken:
            _say(f"  {best}")
        if (seed + 1 - given.first) % 10 == 0:
            _say(f"so far {tally.summary}")
    _say(tally.summary)
    return 1 if tally.outcomes["exceeded"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
