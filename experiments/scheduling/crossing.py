"""Jobs that share devices: in turns, uncoordinated, with shifted starts, and one after the other.

All jobs have a worker on each of the same devices. In turns, a job computes when it has the turn on a device, and
releases it before its sum. Uncoordinated jobs compute at the same time, each at its share of the device's speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import numpy as np

from ...controller.scheduling.pairs import Phases, period_seconds
from ...controller.scheduling.turns import DeviceTurns, Turn
from ..flows.coflows import Coflow
from ..flows.simulator import FlowJob, Simulator

Way = Literal["turns", "uncoordinated", "shifted", "one after the other"]
WAYS: Final[tuple[Way, ...]] = ("turns", "uncoordinated", "shifted", "one after the other")
DEVICES: Final = ("d0", "d1", "d2", "d3")
_RATE: Final = 8e6
"""Bit/s of every link: a byte takes a microsecond."""
_WARM_UP: Final = 5
"""Iterations before the period is measured."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Jobs on one set of devices."""

    compute_seconds: tuple[float, ...]
    exposed_seconds: tuple[float, ...]
    """Communication of each job alone."""
    shared_link: bool = False
    """True if all jobs' sums cross one link; else each has links of its own."""

    @property
    def phases(self) -> list[Phases]:
        """Phases of each job."""
        links = 1 if self.shared_link else len(self.compute_seconds)
        phases = []
        for index, (compute, exposed) in enumerate(zip(self.compute_seconds, self.exposed_seconds, strict=True)):
            seconds = np.zeros(links)
            seconds[0 if self.shared_link else index] = exposed
            phases.append(Phases(compute, exposed, seconds))
        return phases

    @property
    def formula_seconds(self) -> float:
        """Period in turns by the formula of `pairs`."""
        return period_seconds(self.phases)


@dataclass(slots=True)
class _SharedDevices:
    """Devices whose jobs all compute at once, each at an equal share of the speed."""

    simulator: Simulator
    left: dict[int, tuple[float, Callable[[], None]]] = field(default_factory=dict)
    since: float = 0.0
    epoch: int = 0

    def compute(self, seconds: float, job: FlowJob, done: Callable[[], None]) -> None:
        """Compute for so many seconds of a whole device."""
        self._advance()
        self.left[job.number] = (seconds, done)
        self._plan()

    def _advance(self) -> None:
        passed = (self.simulator.now - self.since) / max(len(self.left), 1)
        self.left = {number: (left - passed, done) for number, (left, done) in self.left.items()}
        self.since = self.simulator.now

    def _plan(self) -> None:
        self.epoch += 1
        if self.left:
            soonest = min(left for left, _ in self.left.values())
            self.simulator.at(self.simulator.now + soonest * len(self.left), partial(self._end, self.epoch))

    def _end(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        self._advance()
        ended = [number for number, (left, _) in self.left.items() if left <= 1e-9]
        calls = [self.left.pop(number)[1] for number in ended]
        self._plan()
        for done in calls:
            done()


@dataclass(slots=True)
class _InTurns:
    """Devices whose jobs take turns; `whole_steps`: a turn lasts until the job's sum is complete."""

    simulator: Simulator
    turns: DeviceTurns
    seconds: dict[str, float]
    whole_steps: bool = False
    left: dict[str, int] = field(default_factory=dict)
    done: dict[str, Callable[[], None]] = field(default_factory=dict)
    held_while_summing: int = 0
    """Number of sums that began while their job still had a turn."""

    def compute(self, job: FlowJob, done: Callable[[], None]) -> None:
        """Compute a step on all devices when the job has its turns."""
        if self.whole_steps:
            self.after_sum(job)
        self.left[job.name], self.done[job.name] = len(DEVICES), done
        for device in DEVICES:
            self._begin(self.turns.request(job.name, device))

    def after_sum(self, job: FlowJob) -> None:
        """Release turns that a job has kept during its sum."""
        for device in DEVICES:
            held = self.turns.held.get(device)
            if held is not None and held.job == job.name:
                self._begin(self.turns.release(job.name, device))

    def remove(self, job: FlowJob) -> None:
        """Remove a killed job."""
        self.left.pop(job.name, None)
        self._begin(self.turns.remove(job.name))

    def _begin(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            self.simulator.at(self.simulator.now + self.seconds[turn.job], partial(self._computed, turn))

    def _computed(self, turn: Turn) -> None:
        if turn.job not in self.left:
            return
        self.left[turn.job] -= 1
        if not self.whole_steps:
            self._begin(self.turns.release(turn.job, turn.device))
        if not self.left[turn.job]:
            holds = any(held.job == turn.job for held in self.turns.held.values())
            self.held_while_summing += holds
            self.done[turn.job]()


@dataclass(frozen=True, slots=True)
class Periods:
    """Result of one run."""

    seconds: tuple[float, ...]
    """Mean time between two steps of each job, after the warm-up."""
    held_while_summing: int
    """Number of sums that began while their job still had a turn."""


def cross(crossing: Crossing, way: Way, steps: int = 40, *, kill_at: float | None = None) -> Periods:
    """Run all jobs and return their periods.

    Args:
        crossing: The jobs.
        way: Way in which they share their devices.
        steps: Number of steps of each job.
        kill_at: Time in s at which the first job is killed; None: never.
    """
    count = len(crossing.compute_seconds)
    simulator = Simulator(np.full(1 if crossing.shared_link else count, _RATE))
    names = [f"j{index}" for index in range(count)]
    turns = _InTurns(
        simulator,
        DeviceTurns(dict.fromkeys(names, DEVICES)),
        dict(zip(names, crossing.compute_seconds, strict=True)),
        whole_steps=way == "one after the other",
    )
    shared = _SharedDevices(simulator)
    ends: dict[str, list[float]] = {name: [] for name in names}
    jobs: list[FlowJob] = []

    def after_step(job: FlowJob) -> None:
        ends[job.name].append(simulator.now)
        if job.ended:
            turns.remove(job)

    def add(at: int) -> None:
        seconds = crossing.compute_seconds[at]
        compute = turns.compute if way in ("turns", "one after the other") else partial(shared.compute, seconds)
        link = np.array([0 if crossing.shared_link else at], np.int64)
        coflow = Coflow(link, np.ones(1), 0.0, 0.0, np.inf)
        size = crossing.exposed_seconds[at] * _RATE / 8
        jobs.append(simulator.add(names[at], size, [(coflow, 1.0)], steps, compute=compute, after_step=after_step))

    for index in range(count):
        start = sum(crossing.compute_seconds[:index]) if way == "shifted" else 0.0
        simulator.at(start, partial(add, index))
    if kill_at is not None:

        def kill() -> None:
            simulator.end(jobs[0])
            turns.remove(jobs[0])

        simulator.at(kill_at, kill)
    while len(jobs) < count or not all(job.ended for job in jobs):
        simulator.run(simulator.now + 1.0)
    return Periods(tuple(_period(ends[name], kill_at) for name in names), turns.held_while_summing)


def _period(ends: Sequence[float], after: float | None) -> float:
    """Return the mean time between steps: all after the warm-up, or those that begin after a time."""
    kept = [end for end in ends[_WARM_UP:-_WARM_UP] if after is None or end > after]
    return float(np.mean(np.diff(kept))) if len(kept) > 1 else float("nan")
