"""Run file with a section `torchrun`: a PyTorch script, the ranks that run it, and their fabric."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from ...hosts.collectives.mesh import read_mesh
from ...hosts.errors import InvalidPlan
from ...topologies import Topology
from ...topologies.schema import parse_topology
from ..errors import ExperimentError
from .fabric import FabricFile, read_run_file
from .sections import FileName, Section, full_path, read_section


class TorchrunConfig(Section):
    """A script and its ranks."""

    script: str
    """Python file; its path is relative to the run file's folder."""
    arguments: list[str | int | float] = Field([], max_length=100)
    mesh: str | None = None
    """Sizes of the mesh whose groups are placed together, such as 2x2x2."""
    ranks: int = Field(0, ge=0)
    """Number of ranks, each on a host of its own; 0: those of the mesh, or 4."""

    @field_validator("mesh")
    @classmethod
    def _is_mesh(cls, mesh: str | None) -> str | None:
        if mesh is not None:
            try:
                read_mesh(mesh, 0)
            except InvalidPlan as error:
                raise ValueError(error.args[0]) from None
        return mesh

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.mesh is not None and self.ranks not in (0, count := prod(read_mesh(self.mesh, 0))):
            raise ValueError(f"ranks: {self.ranks}, and the mesh {self.mesh} has {count} ranks; leave ranks out")
        return self


class TorchrunFile(FabricFile):
    """A run of a PyTorch script."""

    name: FileName
    seed: int = Field(1, ge=0, lt=1 << 32)
    """Seed of the fabric's random draws."""
    fabric: dict[str, Any]
    """The fabric, spelled out as in topologies/*.yaml (a file may name another one: `fabric: live.yaml`)."""
    torchrun: TorchrunConfig

    @property
    def topology(self) -> Topology:
        """The fabric."""
        return parse_topology(self.fabric, f"run {self.name}: fabric")

    @classmethod
    def load(cls, path: Path) -> TorchrunFile:
        """Read a run file; the script is not executed.

        Raises:
            ExperimentError: It cannot be read, or something in it is wrong.
        """
        written, data = read_run_file(path, "a run of a script is a YAML mapping with name, fabric and torchrun")
        section = data.get("torchrun")
        if isinstance(section, dict) and isinstance(script := section.get("script"), str):
            data["torchrun"] = {**section, "script": full_path(path, script)}
        config = read_section(cls, written, data)
        script = config.torchrun.script
        if not Path(script).is_file():
            raise ExperimentError(f"{script}: no such file", place=f"{path}: torchrun.script", value=script)
        return config
