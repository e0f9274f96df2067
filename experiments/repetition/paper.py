"""Entry of the table of papers: a published system, its baselines, and the measurement that repeats the comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECORDS: Final = Path(__file__).parent.parent / "papers" / "records"
"""Records of the registered entries."""
_RUN_FILES: Final = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Contender:
    """The system, or a baseline that is measured under the same conditions and seeds."""

    name: str
    """Name by which the measurement knows it, such as that of a strategy or a mode."""
    label: str
    """Name in tables."""
    strong: bool = False
    """True for a baseline that a reviewer would ask for: the best known competitor, not the naive way."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Quantity that is measured."""

    name: str
    """Such as "completion time of a step"."""
    unit: str
    less_is_better: bool = True
    compared: bool = True
    """True if the page shows its change by the system; False for one that may be near 0."""
    contenders: tuple[str, ...] = ()
    """Names of the contenders that have it, the system among them; empty: all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Measured value of one contender under one condition and one seed."""

    figure: str
    condition: str
    contender: str
    seed: int
    value: float
    """Measured value, in the figure's unit."""
    limited: bool = False
    """True if the measurement ended at its limit, so that the true value is larger."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One system. A module of `experiments/papers/`, or a user's Python file, ends in one as its DESCRIPTION."""

    name: str
    """Registered name; that of its record, too."""
    title: str
    """Heading on the page."""
    published: str
    """Reference of the paper."""
    headline: str
    """Main result as the paper states it."""
    system: Contender
    baselines: tuple[Contender, ...]
    figures: tuple[Quantity, ...]
    """The first one is that of the summary."""
    regime: str
    """Conditions here: fabric, machines, load, engine."""
    run_files: tuple[str, ...]
    """YAML files of the scenario, from `experiments/`, or absolute paths; empty if the measurement has none."""
    seeds: int
    """Draws of each condition, or turns on the wall clock; every contender has the same."""
    findings: str
    """Reading of the figures, including what does not hold here."""
    measure: Callable[[Paper], Iterator[Sample]]
    """Run all contenders and yield the samples as they are made."""

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The system, then the baselines."""
        return (self.system, *self.baselines)

    @property
    def files(self) -> tuple[Path, ...]:
        """Paths of the run files."""
        return tuple(_RUN_FILES / file for file in self.run_files)

    def figure(self, name: str) -> Quantity:
        """Return a figure by its name."""
        return next(figure for figure in self.figures if figure.name == name)


def command(name: str) -> str:
    """Return the command that repeats the measurement of a registered name or a user's file."""
    return f"weir papers run {name}"
