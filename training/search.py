"""Hyper-parameter search by stages: the worst configurations stop after each one, and new ones may start.

::

    search.ask() ─▶ configurations of the stage ─▶ train each for search.steps steps ─▶ search.tell(number, value)
                                                                     the last one told ─▶ the next stage

The configurations that train at the same time are a *cojob*. All of a stage train for the same number of steps, so the
stage ends with its slowest job. With `keep = 1/2`, `growth = 2` and no new configurations this is successive halving
(Jamieson and Talwalkar, AISTATS 2016). Where configurations come from is a `Source`: `RandomSource` draws them, and
`optuna_source.OptunaSource` asks a study of Optuna.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .errors import TrainingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`.

    Raises:
        TrainingError: The range is empty, or logarithmic and not above 0.
    """

    low: float
    high: float
    log: bool = False
    """True if logarithms are drawn evenly."""
    integer: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise TrainingError(f"a range from {self.low:g} to {self.high:g}; low is at most high")
        if self.log and not self.low > 0:
            raise TrainingError(f"a logarithmic range from {self.low:g}; low is above 0")
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise TrainingError(f"a range of integers from {self.low:g} to {self.high:g}; both ends are integers")

    def draw(self, rng: random.Random) -> float | int:
        """Return a number of the range."""
        if self.integer and not self.log:
            return rng.randint(int(self.low), int(self.high))
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        value = min(max(value, self.low), self.high)
        return round(value) if self.integer else value


Space = Mapping[str, Range | Sequence[Any]]
"""Parameters by name: a range, or the values to choose from."""


@dataclass(slots=True, eq=False)
class Trial:
    """One configuration."""

    number: int
    """Number from 0, in the order in which configurations began."""
    parameters: Mapping[str, Any]
    begun_stage: int
    steps: int = 0
    """Steps that it has trained for."""
    values: list[float] = field(default_factory=list)
    """Value after each of its stages; the larger, the better."""
    stopped: bool = False
    """True if it was among the worst of a stage."""

    @property
    def value(self) -> float:
        """Value after its last stage; −∞ before the first one, and for NaN."""
        return self.values[-1] if self.values and not math.isnan(self.values[-1]) else -math.inf


class Source(Protocol):
    """Source of configurations, which also takes their results."""

    def propose(self, number: int) -> Mapping[str, Any]:
        """Return the parameters of a new configuration."""

    def observe(self, trial: Trial, *, ended: bool) -> None:
        """Record a configuration's value after a stage; `ended`: it trains no further."""


class RandomSource:
    """Configurations that are drawn independently."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        """Prepare the draws.

        Args:
            space: Parameters by name.
            seed: Seed of the draws. A configuration depends on the seed and its number alone.

        Raises:
            TrainingError: A parameter has no values.
        """
        for name, values in space.items():
            if not isinstance(values, Range) and not values:
                raise TrainingError(f"parameter {name} has no values to choose from", place=name)
        self._space, self._seed = space, seed

    def propose(self, number: int) -> Mapping[str, Any]:
        """Return the parameters of a new configuration."""
        rng = random.Random(f"configuration {self._seed} {number}")
        return {
            name: values.draw(rng) if isinstance(values, Range) else rng.choice(list(values))
            for name, values in self._space.items()
        }

    def observe(self, trial: Trial, *, ended: bool) -> None:
        """Do nothing: draws do not depend on results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Stages of a search.

    Raises:
        TrainingError: A number is out of range.
    """

    configurations: int = 8
    """Configurations of the first stage."""
    stages: int = 3
    steps: int = 30
    """Steps of the first stage."""
    keep: float = 0.5
    """Share of a stage's configurations that goes on; at least one does."""
    growth: float = 2.0
    """Steps of a stage as a multiple of those of the stage before."""
    new: int = 0
    """Configurations that start with each later stage."""

    def __post_init__(self) -> None:
        for name in ("configurations", "stages", "steps"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} must be >= 1, got {getattr(self, name)}", place=name)
        if not 0 < self.keep <= 1:
            raise TrainingError(f"keep must be > 0 and <= 1, got {self.keep:g}", place="keep")
        if not (math.isfinite(self.growth) and self.growth > 0):
            raise TrainingError(f"growth must be > 0, got {self.growth:g}", place="growth")
        if self.new < 0:
            raise TrainingError(f"new must be >= 0, got {self.new}", place="new")

    def steps_of(self, stage: int) -> int:
        """Return the steps of a stage, at least 1."""
        return max(1, round(self.steps * self.growth**stage))

    @property
    def trainings(self) -> int:
        """Number of stages of all configurations together."""
        total, running = 0, self.configurations
        for _ in range(self.stages):
            total += running
            running = self.kept(running) + self.new
        return total

    def kept(self, count: int) -> int:
        """Return how many of a stage's configurations go on."""
        return max(1, math.floor(self.keep * count))


class StagedSearch:
    """One search. A state machine: it trains nothing itself."""

    def __init__(self, source: Source, schedule: Schedule | None = None) -> None:
        """Begin the first stage.

        Args:
            source: Gives configurations.
            schedule: Stages; None: those of `Schedule()`.
        """
        self._source = source
        self.schedule = schedule or Schedule()
        self.trials: list[Trial] = []
        """All configurations, by number."""
        self.stages: list[tuple[Trial, ...]] = []
        """Configurations of each stage that has begun."""
        self._untold: dict[int, Trial] = {}
        self._begin(())

    @property
    def stage(self) -> int:
        """Number of the stage, from 0."""
        return len(self.stages) - 1

    @property
    def steps(self) -> int:
        """Steps of this stage."""
        return self.schedule.steps_of(self.stage)

    @property
    def over(self) -> bool:
        """True if all stages have ended."""
        return not self._untold

    def ask(self) -> list[Trial]:
        """Return the configurations of this stage without a value yet; none if the search is over."""
        return list(self._untold.values())

    def tell(self, number: int, value: float) -> None:
        """Give a configuration's value after this stage; the last one of a stage begins the next.

        Args:
            number: Number of the configuration.
            value: The larger, the better; NaN for one that has diverged.

        Raises:
            TrainingError: No configuration of this number waits for a value.
        """
        trial = self._untold.pop(number, None)
        if trial is None:
            raise TrainingError(
                f"configuration {number} waits for no value",
                place="tell",
                value=number,
                allowed=[*self._untold] or "none: the search is over",
            )
        trial.values.append(value)
        trial.steps += self.steps
        if not self._untold:
            self._end()

    @property
    def ranking(self) -> list[Trial]:
        """Configurations that ended the last stage, the best first; then those that stopped, the latest first."""
        return sorted(
            (trial for trial in self.trials if trial.values),
            key=lambda trial: (-(trial.begun_stage + len(trial.values)), -trial.value, trial.number),
        )

    @property
    def best(self) -> Trial:
        """The first of `ranking`. Raises TrainingError before the first value."""
        if not (ranking := self.ranking):
            raise TrainingError("no configuration has a value yet", place="best")
        return ranking[0]

    def _begin(self, kept: Sequence[Trial]) -> None:
        count = self.schedule.new if self.stages else self.schedule.configurations
        new = []
        for number in range(len(self.trials), len(self.trials) + count):
            new.append(Trial(number, dict(self._source.propose(number)), len(self.stages)))
        self.trials += new
        self.stages.append((*kept, *new))
        self._untold = {trial.number: trial for trial in self.stages[-1]}

    def _end(self) -> None:
        """Stop the worst, and begin the next stage if there is one."""
        last = len(self.stages) == self.schedule.stages
        ranked = sorted(self.stages[-1], key=lambda trial: (-trial.value, trial.number))
        kept = [] if last else ranked[: self.schedule.kept(len(ranked))]
        for trial in ranked:
            trial.stopped = not last and trial not in kept
            self._source.observe(trial, ended=last or trial.stopped)
        if not last:
            self._begin(kept)
