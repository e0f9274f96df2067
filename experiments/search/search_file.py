"""File of `weir search`: a fabric, orders of jobs, and searches with their spaces. Errors name file, key and value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ...controller.scheduling.classes import CLASSES
from ...controller.scheduling.orders import ORDERS
from ...topologies import Topology
from ...topologies.schema import parse_topology
from ...training.errors import TrainingError
from ...training.search import Range, Schedule, Space
from ...training.search_models import check_parameters
from ...training.workloads import WORKLOADS
from ..config.fabric import FabricFile, read_run_file
from ..config.sections import (
    Duration,
    FileName,
    Section,
    described,
    found_user_file,
    one_of_or_user_file,
    read_section,
)

OrderName = Annotated[str, one_of_or_user_file(ORDERS)]
WorkloadName = Annotated[str, one_of_or_user_file(WORKLOADS)]


class RangeConfig(Section):
    """Numbers from `low` to `high`."""

    low: float
    high: float
    log: bool = False
    """True if logarithms are drawn evenly."""
    integer: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.range
        return self

    @property
    def range(self) -> Range:
        """The range. Raises ValueError for one that cannot be."""
        try:
            return Range(low=self.low, high=self.high, log=self.log, integer=self.integer)
        except TrainingError as error:
            raise ValueError(str(error)) from None


Choice = Annotated[list[float | int | str], Field(min_length=1)]


class SearchConfig(Section):
    """One user's search."""

    name: FileName
    start: Duration = 0
    """When its first stage begins."""
    workload: WorkloadName = "digits"
    workers: int = Field(4, ge=1, le=32)
    """Workers of each job, on hosts of the fabric that the seed draws."""
    sample_time: Duration = Field(20_000, gt=0)
    """Computation of one sample on one worker."""
    source: Literal["random", "optuna"] = "random"
    """Origin of the configurations."""
    configurations: int = Field(8, ge=1, le=256)
    """Configurations of the first stage."""
    stages: int = Field(3, ge=1, le=20)
    steps: int = Field(30, ge=1, le=100_000)
    """Steps of the first stage."""
    keep: float = Field(0.5, gt=0, le=1)
    """Share of a stage's configurations that goes on; at least one does."""
    growth: float = Field(2.0, gt=0, le=16)
    """Steps of a stage as a multiple of those of the stage before."""
    new: int = Field(0, ge=0, le=256)
    """Configurations that start with each later stage."""
    space: dict[str, RangeConfig | Choice] = Field(min_length=1)
    """Parameters by name: a range, or a list of values to choose from."""

    @field_validator("space")
    @classmethod
    def _known(cls, space: dict[str, Any]) -> dict[str, Any]:
        try:
            check_parameters(space)
        except TrainingError as error:
            raise ValueError(str(error)) from None
        return space

    @field_validator("workload")
    @classmethod
    def _is_there(cls, name: str, info: ValidationInfo) -> str:
        described(WORKLOADS, name, info)
        return name

    @property
    def schedule(self) -> Schedule:
        """Stages of the search."""
        return Schedule(
            configurations=self.configurations,
            stages=self.stages,
            steps=self.steps,
            keep=self.keep,
            growth=self.growth,
            new=self.new,
        )

    @property
    def ranges(self) -> Space:
        """Return the search space: a range or a list of values per parameter."""
        return {
            name: values.range if isinstance(values, RangeConfig) else values for name, values in self.space.items()
        }


class SearchFile(FabricFile):
    """Searches that share a fabric."""

    name: FileName
    seed: int = Field(1, ge=0, lt=1 << 32)
    fabric: dict[str, Any]
    """The fabric, spelled out as in topologies/*.yaml (a file may name another one: `fabric: leaf_spine.yaml`)."""
    orders: list[OrderName] = Field(["fair", "grouper"], min_length=1)
    """Orders of the searches' traffic; each is played once."""
    classes: int = Field(CLASSES, ge=1, le=6)
    """Traffic classes of jobs, from which the first tiers of an order have one each."""
    searches: list[SearchConfig] = Field(min_length=1)

    @field_validator("orders")
    @classmethod
    def _known(cls, names: list[str], info: ValidationInfo) -> list[str]:
        for name in names:
            order = described(ORDERS, name, info)
            if order is not None and order.knows == "progress":
                raise ValueError(f"order {name} needs predicted progress, which stages of fixed length do not use")
        if len(set(names)) < len(names):
            raise ValueError("an order is named twice; name each once")
        return names

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [search.name for search in self.searches]
        if len(set(names)) < len(names):
            raise ValueError("two searches have the same name; give each its own")
        hosts = len(self.topology.hosts)
        for search in self.searches:
            if search.workers >= hosts:
                raise ValueError(
                    f"search {search.name}: {search.workers} workers and a server on {hosts} hosts; take fewer workers"
                )
        return self

    @property
    def topology(self) -> Topology:
        """The fabric."""
        return parse_topology(self.fabric, f"search {self.name}: fabric")

    @classmethod
    def load(cls, path: Path, *, execute: bool = True) -> SearchFile:
        """Read a file of searches. Its Python files are executed after everything else is known to be right.

        Args:
            path: The file.
            execute: False to execute no Python file that it names; those are not checked.

        Raises:
            ExperimentError: It cannot be read, or a value is not allowed.
        """
        written, data = read_run_file(path, "a search is a YAML mapping with name, fabric and searches")
        if isinstance(orders := data.get("orders"), list):
            data["orders"] = [found_user_file(path, name) for name in orders]
        if isinstance(searches := data.get("searches"), list):
            data["searches"] = [_with_full_path(path, search) for search in searches]
        checked = read_section(cls, written, data, execute=False)
        return read_section(cls, written, data) if execute else checked


def _with_full_path(path: Path, search: object) -> object:
    if isinstance(search, dict) and "workload" in search:
        return {**search, "workload": found_user_file(path, search["workload"])}
    return search
