"""Suite of an evaluation: grids of conditions, from a YAML file. Every error names file, key and value."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from ...controller.placement import PlacementError
from ...controller.placement.reference_schemes import OF_HOSTS, REFERENCE_SCHEMES
from ...controller.placement.strategies import STRATEGIES
from ...imports import user_files
from ...topologies import TopologyError, file_keys
from ...topologies.problems import BadFile
from ...topologies.schema import parse_topology
from ...topologies.spelling import nearest
from ...topologies.yaml_file import YamlFile
from ...wire.aggregation import FAN_IN
from ..config.fabric import read_fabric
from ..config.sections import (
    Duration,
    FileName,
    Section,
    Title,
    found_user_file,
    full_path,
    is_left_alone,
    one_of_or_user_file,
    read_section,
)
from ..config.training import MAX_HIDDEN
from ..errors import ExperimentError
from ..flows.sizes import ENDINGS, FLOW_SIZES, is_file, points_of

Spread = Literal["packed", "spread", "random"]
Rates = Literal["equal", "mixed"]
_DRAWN_RATES: Final = ("static", "shifting")
Memory = Literal["ample", "scarce"]
Telemetry = Literal["fresh", "old", "lossy", "absent"]
Importance = Literal["equal", "weights", "priorities"]
Engine = Literal["flows", "packets"]

PARAMETER_BYTES: Final = 4
INPUTS: Final = 64
CLASSES: Final = 10
"""Inputs and classes of the model whose gradients a packet run sums."""
MAX_PACKET_BYTES: Final = PARAMETER_BYTES * (MAX_HIDDEN * (INPUTS + 1 + CLASSES) + CLASSES)
"""Gradient of the largest such model, in bytes."""
MAX_POINTS: Final = 1_000_000
"""Points of a suite: conditions of all grids, each with every seed."""
FORMATS: Final[Mapping[Engine, int]] = {"flows": 3, "packets": 3}
"""Counted up where a point's record would say something else; those of an older format are run again."""
Strategies = Annotated[tuple[str, ...], Field(min_length=1)]
StrategyName = Annotated[str, one_of_or_user_file([*STRATEGIES, *REFERENCE_SCHEMES])]


def _background(name: str) -> str:
    """Accept a kind of background traffic, or the path of a file of flow sizes. Raises ValueError."""
    kinds = (*_DRAWN_RATES, *FLOW_SIZES)
    if name not in kinds and not is_file(name):
        raise ValueError(f'"{name}" is not right; write {", ".join(kinds)}, or the path of a file of flow sizes')
    try:
        if is_file(name):
            points_of(name)
    except ExperimentError as error:
        raise ValueError(str(error)) from None
    return name


Background = Annotated[
    str,
    AfterValidator(_background),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [*_DRAWN_RATES, *FLOW_SIZES]},
                {"type": "string", "pattern": f"({'|'.join(map(re.escape, ENDINGS))})$"},
            ]
        }
    ),
]


class Timing(Section):
    """Durations, the same for all points of a grid."""

    steps: int = Field(20, ge=1)
    """Steps that each job makes."""
    compute: Duration = 10_000_000
    """Between two aggregation phases."""
    interval: Duration = Field(20_000_000, gt=0)
    """Between two looks at telemetry."""
    shift: Duration = Field(400_000_000, gt=0)
    """Period of the background `shifting`."""
    pause: Duration = 2_000_000
    """Cost of a move to a job, in ns."""
    gain: float = Field(0.15, ge=0, lt=1)
    """A running job is moved when the predicted completion time falls by more than this share."""


class Point(Section):
    """One set of conditions under one seed."""

    grid: str
    engine: Engine
    fabric: dict[str, Any]
    """`generate:` of a fabric's file, or all of one."""
    workers: int
    """Workers of each job; its parameter server is one more host."""
    spread: Spread
    rates: Rates
    load: float
    """Mean load of the links between switches by other traffic."""
    background: Background
    jobs: int
    memory: Memory
    telemetry: Telemetry
    importance: Importance = "equal"
    gradient_bytes: int
    timing: Timing
    strategies: Strategies
    seed: int

    @property
    def by_strategy(self) -> Iterator[Point]:
        """The same point for each of its strategies alone."""
        return (self.model_copy(update={"strategies": (name,)}) for name in self.strategies)

    @property
    def key(self) -> str:
        """Digest of conditions, seed and strategies, and of the user's files.

        Raises OSError if such a file is gone.
        """
        own = [Path(name).read_bytes() for name in self.strategies if name.endswith(user_files.ENDING)]
        own += [Path(self.background).read_bytes()] if is_file(self.background) else []
        told = json.dumps([FORMATS[self.engine], self.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(b"\0".join([told.encode(), *own])).hexdigest()[:20]

    @property
    def conditions(self) -> dict[str, Any]:
        """All conditions except the seed and values that are constant in the grid."""
        kept = ("grid", "workers", "spread", "rates", "load", "background", "jobs", "memory", "telemetry", "importance")
        return {"fabric": fabric_name(self.fabric), **{name: getattr(self, name) for name in kept}}


class Grid(Section):
    """Conditions that are crossed with each other: each list's values with all of the others'."""

    name: Title
    about: str = ""
    """Purpose of the grid, for the page."""
    engine: Engine = "flows"
    """The flow-level simulator, or the packet fabric."""
    fabrics: list[dict[str, Any]] = Field(min_length=1)
    """Each as `generate:` of a fabric's file, or all of a file, which a suite names by its path."""
    workers: list[Annotated[int, Field(ge=1, le=4096)]] = Field([8], min_length=1)
    """Workers of each job; its parameter server is one more host."""
    spread: list[Spread] = Field(["random"], min_length=1)
    """Jobs' hosts: rack by rack, one of each rack in turn, or by lot."""
    rates: list[Rates] = Field(["equal"], min_length=1)
    """Links between switches have the fabric's rate, or by lot 0.4 of it."""
    load: list[Annotated[float, Field(ge=0, le=0.8)]] = Field([0.3], min_length=1)
    """Mean load of the links between switches by other traffic."""
    background: list[Background] = Field(["static"], min_length=1)
    """Background traffic: at constant or redrawn rates, or flows of published sizes."""
    jobs: list[Annotated[int, Field(ge=1, le=64)]] = Field([1], min_length=1)
    memory: list[Memory] = Field(["ample"], min_length=1)
    """Every switch has room for all jobs, or by lot for one or none."""
    telemetry: list[Telemetry] = Field(["fresh"], min_length=1)
    """Readings are new, ten looks old, lost three times in ten, or never there."""
    importance: list[Importance] = Field(["equal"], min_length=1)
    """Jobs count alike, or have by lot a weight of 1, 2 or 3, or a priority of 0, 1 or 2."""
    gradient_bytes: int = Field(25_000_000, ge=1_000)
    """That each step of a job sums."""
    timing: Timing = Timing()
    strategies: list[StrategyName] | None = None
    """Instead of the suite's."""

    @property
    def conditions(self) -> Sequence[Sequence[Any]]:
        """Values of each part of a condition; a grid has all their combinations."""
        return (
            self.fabrics,
            self.workers,
            self.spread,
            self.rates,
            self.load,
            self.background,
            self.jobs,
            self.memory,
            self.telemetry,
            self.importance,
        )

    @field_validator("fabrics")
    @classmethod
    def _fabrics(cls, fabrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for fabric in fabrics:
            try:
                parse_topology(as_file(fabric, "fabric"), "fabric")
            except TopologyError as error:
                raise ValueError(str(error)) from None
        names = [fabric_name(fabric) for fabric in fabrics]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"two fabrics are called {twice[0]}, and their figures would be one condition's; give each a grid of "
                "its own"
            )
        return fabrics

    @field_validator("strategies")
    @classmethod
    def _strategies(cls, names: list[str] | None, info: ValidationInfo) -> list[str] | None:
        return None if names is None else known_strategies(names, info)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for fabric in self.fabrics:
            hosts = len(parse_topology(as_file(fabric, "fabric"), "fabric").hosts)
            most = max(self.jobs) * (max(self.workers) + 1)
            if most > hosts:
                raise ValueError(
                    f"{max(self.jobs)} jobs of {max(self.workers)} workers and a server want {most} hosts; "
                    f"{fabric_name(fabric)} has {hosts}"
                )
        if self.engine == "packets":
            self._check_packets()
        return self

    def _check_packets(self) -> None:
        """Refuse conditions that the packet engine does not support, or that would take too long in it."""
        taken: Mapping[str, list[Any]] = {
            "jobs": [1],
            "rates": ["equal"],
            "memory": ["ample"],
            "telemetry": ["fresh"],
            "importance": ["equal"],
            "background": ["static", "shifting"],
        }
        for key, allowed in taken.items():
            if wrong := [value for value in getattr(self, key) if value not in allowed]:
                right = " or ".join(map(str, allowed))
                raise ValueError(f"{key} {wrong[0]} is not for packets; write {right}, or use engine flows")
        if max(self.workers) > FAN_IN:
            raise ValueError(f"workers {max(self.workers)} is not for packets, which take {FAN_IN} at most")
        for name in self.strategies or ():
            if name in REFERENCE_SCHEMES:
                raise ValueError(f"strategy {name} is not for packets; use engine flows")
        if self.gradient_bytes > MAX_PACKET_BYTES:
            raise ValueError(
                f"gradient_bytes {self.gradient_bytes} is not for packets; write {MAX_PACKET_BYTES} or less, or use "
                "engine flows"
            )


class Suite(Section):
    """One evaluation."""

    name: FileName
    seeds: int = Field(20, ge=1, le=1000)
    """Every condition is drawn with the seeds 1 to this."""
    strategies: list[StrategyName] = Field(min_length=1)
    grids: list[Grid] = Field(min_length=1)
    reference: StrategyName = "widest"
    """Strategy whose savings compared with the others are shown."""
    aims: bool = False
    """The page says in how many conditions the aims of Weir's own evaluation are reached."""
    findings: str = ""
    """The author's conclusions, for the page."""

    @field_validator("strategies")
    @classmethod
    def _strategies(cls, names: list[str], info: ValidationInfo) -> list[str]:
        return known_strategies(names, info)

    @model_validator(mode="after")
    def _compared(self) -> Self:
        names = dict.fromkeys([*self.strategies, *(name for grid in self.grids for name in grid.strategies or ())])
        if "reference" in self.model_fields_set and self.reference not in names:
            raise ValueError(f'reference "{self.reference}" is not one of the suite\'s strategies: {", ".join(names)}')
        return self

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        points = self.seeds * sum(math.prod(map(len, grid.conditions)) for grid in self.grids)
        if points > MAX_POINTS:
            raise ValueError(f"{points:,} points (conditions and seeds); at most {MAX_POINTS:,} are possible")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [grid.name for grid in self.grids]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f'two grids are called "{twice[0]}"; give each its own name')
        for grid in self.grids:
            if (among := OF_HOSTS.intersection(self._strategies_of(grid))) and min(grid.workers) < 2:
                raise ValueError(
                    f'grid "{grid.name}": {min(among)} of 1 worker sends nothing; write workers of 2 and more, or '
                    f"strategies without {', '.join(sorted(among))}"
                )
        return self

    @classmethod
    def load(cls, path: Path) -> Suite:
        """Read a suite's YAML file, and execute the strategies that it names if everything else is right.

        Raises: ExperimentError, which names file, key and value.
        """
        try:
            written = YamlFile.read(path, "a suite is a YAML mapping with name, strategies and grids")
        except BadFile as error:
            raise ExperimentError(str(error)) from None
        data = dict(written.data)
        for section in (data, *(grids if isinstance(grids := data.get("grids"), list) else ())):
            if isinstance(section, dict) and isinstance(names := section.get("strategies"), list):
                section["strategies"] = [found_user_file(path, name) for name in names]
        if isinstance(reference := data.get("reference"), str):
            data["reference"] = found_user_file(path, reference)
        for grid in grids if isinstance(grids := data.get("grids"), list) else ():
            if isinstance(grid, dict):
                _find_files(path, grid)
        checked = read_section(cls, written, data, execute=False)
        names = [*checked.strategies, *(name for grid in checked.grids for name in grid.strategies or ())]
        executes = any(name.endswith(user_files.ENDING) for name in names)
        return read_section(cls, written, data) if executes else checked

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of a suite's file; a grid's fabrics are like `generate` in a fabric's file."""
        suite, fabric = cls.model_json_schema(), file_keys.json_schema()
        generated = fabric["$defs"]["GeneratedKeys"]["properties"]["generate"]
        suite["$defs"]["Grid"]["properties"]["fabrics"]["items"] = {"anyOf": [{"type": "string"}, generated]}
        return {**suite, "$defs": {**fabric["$defs"], **suite["$defs"]}}

    def _strategies_of(self, grid: Grid) -> list[str]:
        return grid.strategies or [n for n in self.strategies if grid.engine == "flows" or n not in REFERENCE_SCHEMES]

    def points(self) -> Iterator[Point]:
        """Yield all of them, grid by grid, those of one fabric together."""
        for grid in self.grids:
            names = self._strategies_of(grid)
            crossed = itertools.product(*grid.conditions)
            for fabric, workers, spread, rates, load, background, jobs, memory, telemetry, importance in crossed:
                for seed in range(1, self.seeds + 1):
                    yield Point(
                        grid=grid.name,
                        engine=grid.engine,
                        fabric=fabric,
                        workers=workers,
                        spread=spread,
                        rates=rates,
                        load=load,
                        background=background,
                        jobs=jobs,
                        memory=memory,
                        telemetry=telemetry,
                        importance=importance,
                        gradient_bytes=grid.gradient_bytes,
                        timing=grid.timing,
                        strategies=tuple(names),
                        seed=seed,
                    )


def known_strategies(names: list[str], info: ValidationInfo) -> list[str]:
    """Return the same. Raises ValueError for one that is not there, or is there twice."""
    for name in names:
        if is_left_alone(name, info):
            continue
        try:
            is_known = name in REFERENCE_SCHEMES or name in STRATEGIES
        except PlacementError as error:
            raise ValueError(str(error)) from None
        if not is_known:
            known = sorted([*STRATEGIES, *REFERENCE_SCHEMES])
            raise ValueError(f'strategy "{name}" is unknown{nearest(name, known)}; there are {", ".join(known)}')
    if len(set(names)) < len(names):
        raise ValueError("a strategy is named twice; name each once")
    return names


def _find_files(suite_file: Path, grid: dict[str, Any]) -> None:
    """Read the fabrics that a grid names by their files, and find its files of flow sizes, beside the suite."""
    if isinstance(fabrics := grid.get("fabrics"), list):
        grid["fabrics"] = [read_fabric(suite_file, fabric) if isinstance(fabric, str) else fabric for fabric in fabrics]
    if isinstance(kinds := grid.get("background"), list):
        grid["background"] = [
            full_path(suite_file, kind) if isinstance(kind, str) and is_file(kind) else kind for kind in kinds
        ]


def as_file(fabric: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a grid's fabric as a fabric's file has it: those with a kind are generated, and get this name."""
    return {"name": name, "generate": fabric} if "kind" in fabric else fabric


def fabric_name(fabric: dict[str, Any]) -> str:
    """Short, for tables: leaf-spine 4×2×6; of a file, its name."""
    if "kind" not in fabric:
        return str(fabric.get("name"))
    kind = str(fabric["kind"])
    if kind == "fat-tree":
        return f"fat-tree {fabric['k']}"
    keys = {
        "leaf-spine": ("leaves", "spines", "hosts_per_leaf"),
        "jellyfish": ("switches", "degree", "hosts_per_switch"),
        "random": ("switches", "links", "hosts_per_switch"),
    }[kind]
    return f"{kind} {'×'.join(str(fabric[key]) for key in keys)}"
