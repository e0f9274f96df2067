"""Synchronisation modes that a run compares, and the workers' machines, as in its file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os.path import isfile
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ...controller.gossip.policies import POLICIES
from ...errors.texts import printable
from ...imports import user_files
from ...topologies.problems import shown
from ...topologies.units import format_delay
from ...training import MODES, Machine, Mode, TrainingError, make_mode
from ...training.machines import FASTEST, LEAST_JITTER, SLOWEST, drifting, jitter, stepping
from ...training.mode import PeerMode, ServedMode, SummedMode
from ...training.workloads import WORKLOADS
from .sections import Duration, LongDuration, Section, described, is_left_alone, one_of_or_user_file

_SPANS = 997
"""Number of spans, and of iterations, after which drawn values repeat: a prime, so that the periods rarely coincide."""
_AND_OPTIONS = "the path of a Python file, or a mapping with one as its name and the mode's options"
_FILE = {"type": "string", "pattern": rf"{re.escape(user_files.ENDING)}$"}


@dataclass(frozen=True)
class _UnreadMode(Mode):
    """Mode of a user's file, or with an option that names one, which is not executed."""

    written: str
    """Name and options as they are written, by which two modes are told apart."""
    given: Mapping[str, Any] = field(compare=False)

    @property
    def options(self) -> Mapping[str, Any]:
        return self.given


def _what_is_no_mode(value: object) -> str:
    if value is None:
        return "there is no mode"
    if not isinstance(value, dict):
        return f"{shown(value)} is no mode"
    if "name" not in value:
        return f"{shown(value)} has no name of a mode"
    return f"name: {shown(value['name'])} is no name of a mode"


def _as_mode(value: object, info: ValidationInfo) -> object:
    """Accept a mode's name alone, or with its options."""
    fields = {"name": value} if isinstance(value, str) else value
    if isinstance(value, Mode):
        return value
    if not isinstance(fields, dict) or not isinstance(fields.get("name"), str):
        raise ValueError(f"{_what_is_no_mode(value)}; write one of {', '.join(MODES)}, {_AND_OPTIONS}")
    if strange := [name for name in fields if not isinstance(name, str)]:
        raise ValueError(f"mode {printable(fields['name'])}: option {shown(strange[0])} is no option's name")
    options = {name: value for name, value in fields.items() if name != "name"}
    files = [
        (name, text) for name, text in options.items() if isinstance(text, str) and text.endswith(user_files.ENDING)
    ]
    for name, text in files:
        if not isfile(text):
            raise ValueError(f"{name}: {printable(text)}: no such file")
    if is_left_alone(fields["name"], info) or any(is_left_alone(text, info) for _, text in files):
        return _UnreadMode(fields["name"], str(fields), options)
    try:
        mode = make_mode(**fields)
    except TrainingError as error:
        raise ValueError(str(error)) from None
    if mode.name in tuple(MODES) and isinstance(policy := mode.options.get("policy"), str):
        described(POLICIES, policy, info)
    return mode


def _as_written(mode: Mode) -> dict[str, Any]:
    return {"name": mode.name, **mode.options}


def _schema(name: dict[str, Any], options: dict[str, Any], *, closed: bool = True) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": name, **options},
        "required": ["name"],
        "additionalProperties": not closed,
    }


ModeEntry = Annotated[
    InstanceOf[Mode],
    BeforeValidator(_as_mode),
    PlainSerializer(_as_written),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(MODES)},
                _FILE,
                *(_schema({"const": name}, {key: {} for key in MODES[name].options}) for name in MODES),
                _schema(_FILE, {}, closed=False),
            ]
        }
    ),
]


class MachinesConfig(Section):
    """Workers' computing speeds; changes and jitter are drawn from the run's seed."""

    speeds: list[Annotated[float, Field(ge=SLOWEST, le=FASTEST)]] = Field(min_length=1)
    """Samples per second of each worker's machine when all of it is free, by rank."""
    launch: Duration = 0
    """Time of every iteration apart from its samples."""
    changes: Literal["none", "stepping", "drifting"] = "none"
    """Change of a machine's free share: none, to another level, or by small steps."""
    span: LongDuration = 100_000_000
    """Time between changes."""
    noise: float = Field(0.03, ge=0, lt=0.2)
    """Standard deviation of single iterations' times."""
    spikes: float = Field(0.03, ge=0, lt=1)
    """Share of iterations that take twice as long."""

    def drawn(self, seed: int) -> list[Machine]:
        """Draw the machines by this seed, in the order of ranks."""
        machines = []
        for rank, speed in enumerate(self.speeds):
            rng = np.random.default_rng((seed, rank))
            match self.changes:
                case "none":
                    cpu = np.ones(1)
                case "stepping":
                    cpu = stepping(rng, _SPANS)
                case "drifting":
                    cpu = drifting(rng, _SPANS)
            factors = jitter(rng, _SPANS, self.noise, self.spikes)
            machines.append(Machine(speed, self.launch, span_ns=self.span, cpu=cpu, jitter=factors))
        return machines


class SynchronisationConfig(Section):
    """Synchronisation modes to compare, besides the strategies."""

    modes: list[ModeEntry] = Field(min_length=1)
    """Names or paths of Python files, or mappings with one and the mode's options."""
    machines: MachinesConfig
    """Workers' machines: speeds, and their changes."""
    workload: Annotated[str, one_of_or_user_file(WORKLOADS)] = "digits"
    """Workload: the network of the section training, another workload by name, or the path of a Python file."""
    label_mix: float | None = Field(None, ge=0, le=1)
    """Share of the rows that are dealt to workers regardless of their label; the others are dealt by label. None: every
    worker draws from all rows.
    """
    target: float = Field(gt=0, le=1e30)
    """Held-out loss whose time is taken; training ends with it."""
    limit: LongDuration = 5_000_000_000
    """Virtual time after which it ends anyway."""

    @field_validator("workload")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        described(WORKLOADS, name, info)
        return name

    @model_validator(mode="after")
    def _once_each(self) -> Self:
        if len(set(self.modes)) < len(self.modes):
            raise ValueError("modes: one is there twice; name each once")
        return self

    def check(self, workers: int, batch: int, has_server: bool) -> None:
        """Raise ValueError for options that do not fit a job.

        Args:
            workers: Number of its workers.
            batch: Samples of a worker's step.
            has_server: True if it has one parameter server.
        """
        if len(self.machines.speeds) != workers:
            raise ValueError(
                f"synchronisation.machines.speeds: {len(self.machines.speeds)} for {workers} workers; each has one"
            )
        for mode in self.modes:
            if isinstance(mode, PeerMode) and mode.racks:
                raise ValueError(
                    f"synchronisation.modes: {mode.name} needs a job for each rack; a run has none, so use gossip"
                )
            if isinstance(mode, ServedMode) and not has_server:
                raise ValueError(f"synchronisation.modes: {mode.name} needs a parameter server; name it as job.server")
            if isinstance(mode, _UnreadMode):
                continue
            try:
                mode.check(workers)
            except TrainingError as error:
                raise ValueError(f"synchronisation.modes: {error}") from None
            self._check_exchange(mode, batch)

    def _check_exchange(self, mode: Mode, batch: int) -> None:
        """Raise ValueError if the limit ends training before the mode's first exchange, whatever is drawn."""
        speeds = self.machines.speeds
        speed = min(speeds) if isinstance(mode, SummedMode) else max(speeds)  # in sums all workers take part
        steps = int(self.limit / (self.machines.launch + LEAST_JITTER * 1e9 * batch / speed))
        if steps < mode.steps_between > 1:
            raise ValueError(
                f"synchronisation.modes: {mode.name}: period {mode.steps_between} leaves no exchange within the limit "
                f"of {format_delay(self.limit)}, in which a worker of {speed:g} samples per second makes at most "
                f"{steps} steps"
            )
