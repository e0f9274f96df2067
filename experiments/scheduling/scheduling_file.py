"""Run file with a section `scheduling`: drawn searches, drawn jobs with learning curves, or jobs in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ...controller.scheduling.orders import ORDERS
from ...topologies import Topology
from ...topologies.schema import parse_topology
from ..config.fabric import FabricFile, read_run_file
from ..config.sections import FileName, LongDuration, Section, described, found_user_file, read_section

ORACLE: Final = "oracle"
"""JPAS's order with the true curves in place of predicted ones."""
MAX_SEEDS: Final = 1000
_HOSTS: Final = 5
"""Hosts of a drawn job: four workers and a server."""


class SearchesConfig(Section):
    """Searches of several users, which are drawn."""

    count: int = Field(6, ge=1, le=64)
    sigma: float = Field(0.5, ge=0, le=3)
    """Standard deviation of the logarithm of a model's bytes."""
    bound: bool = True
    """True if the lower bound on the mean stage completion time is computed for each seed."""


class LearnersConfig(Section):
    """Jobs that follow learning curves of real small models, which are drawn."""

    count: int = Field(8, ge=1, le=64)


class TurnsConfig(Section):
    """Jobs that share four devices."""

    compute: list[LongDuration] = Field(min_length=1, max_length=16)
    """Computation of each job's step."""
    exposed: list[LongDuration] = Field(min_length=1, max_length=16)
    """Communication of each job's step that computation does not hide."""
    shared_link: bool = False
    """True if all jobs' sums cross one link."""
    steps: int = Field(40, ge=20, le=10_000)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.compute) != len(self.exposed):
            raise ValueError(
                f"{len(self.compute)} values of compute and {len(self.exposed)} of exposed; one of each per job"
            )
        return self


class SchedulingConfig(Section):
    """One kind of jobs, and the orders of their traffic."""

    searches: SearchesConfig | None = None
    learners: LearnersConfig | None = None
    turns: TurnsConfig | None = None
    orders: list[str] = Field([], max_length=32)
    """Orders that are compared; by default all that suit the jobs. Jobs in turns have none."""
    seeds: int = Field(5, ge=1, le=MAX_SEEDS)
    """Number of draws."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = [name for name in ("searches", "learners", "turns") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError(f"{' and '.join(kinds) or 'nothing'} is given; give one of searches, learners and turns")
        if self.turns is not None and self.orders:
            raise ValueError("orders: jobs in turns are compared with other ways to share devices; leave orders out")
        if self.searches is not None and (wrong := [order for order in self.orders if order in ("jpas", ORACLE)]):
            raise ValueError(f"orders: {wrong[0]} needs predicted progress, which searches do not use")
        return self

    @field_validator("orders")
    @classmethod
    def _known(cls, names: list[str], info: ValidationInfo) -> list[str]:
        for name in names:
            if name != ORACLE:
                described(ORDERS, name, info)
        if len(set(names)) < len(names):
            raise ValueError("an order is named twice; name each once")
        return names

    @property
    def compared(self) -> list[str]:
        """The orders, or all that suit the jobs."""
        if self.orders or self.turns is not None:
            return self.orders
        suiting = [name for name, order in ORDERS.items() if order.knows != "progress"]
        return suiting if self.searches is not None else [*suiting, "jpas", ORACLE]


class SchedulingFile(FabricFile):
    """A run of scheduling."""

    name: FileName
    seed: int = Field(0, ge=0, lt=1 << 32)
    """Seed of the first draw; the next one is larger by 1."""
    fabric: dict[str, Any]
    """The fabric, spelled out as in topologies/*.yaml (a file may name another one: `fabric: leaf_spine.yaml`)."""
    scheduling: SchedulingConfig

    @model_validator(mode="after")
    def _has_hosts(self) -> Self:
        if (hosts := len(self.topology.hosts)) < _HOSTS:
            raise ValueError(f"fabric: {hosts} hosts; the jobs that are drawn have {_HOSTS}")
        return self

    @property
    def topology(self) -> Topology:
        """The fabric."""
        return parse_topology(self.fabric, f"run {self.name}: fabric")

    @classmethod
    def load(cls, path: Path, *, execute: bool = True) -> SchedulingFile:
        """Read a run file. Raises ExperimentError: it cannot be read, or says something that no run can be."""
        written, data = read_run_file(path, "a run of scheduling is a YAML mapping with name, fabric and scheduling")
        section = data.get("scheduling")
        if isinstance(section, dict) and isinstance(orders := section.get("orders"), list):
            data["scheduling"] = {**section, "orders": [found_user_file(path, name) for name in orders]}
        checked = read_section(cls, written, data, execute=False)
        return read_section(cls, written, data) if execute else checked
