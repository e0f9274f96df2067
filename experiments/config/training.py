"""Sections `training` and `workload` of a run file: the workload, and the training's length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ...training import TrainingError
from ...training.optimisers import OPTIMISERS
from ...training.workloads.digits import TrainingOptions
from ..errors import ExperimentError
from ..script import script_digest
from .sections import Duration, Section, full_path, is_left_alone, one_of_or_user_file

MAX_HIDDEN: Final = 4096


class TrainingConfig(Section):
    """Length of the training, and the digits' network, if the run has no workload of its own."""

    hidden: int = Field(128, ge=1, le=MAX_HIDDEN)
    """Units of the digits' network's hidden layer."""
    batch: int = Field(16, ge=1, le=1024)
    """Images per worker and step, for the digits' network."""
    steps: int = Field(150, ge=1)
    learning_rate: float = Field(0.15, gt=0, le=1e30)
    """Learning rate of the digits' network."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of the digits' network, with an optimiser that has momentum."""
    optimiser: Annotated[str, one_of_or_user_file(OPTIMISERS)] = "sgd"
    """Optimiser of the digits' network: sgd, adam, lars or lamb, or the path of a Python file."""
    optimiser_options: dict[str, float] = Field({})
    """Other options of the digits' network's optimiser."""
    compute: Duration = 500_000
    """Virtual time that a worker takes for one gradient."""

    @property
    def options(self) -> TrainingOptions:
        """Options of the digits' training, without the run file's other keys."""
        return TrainingOptions(
            self.hidden,
            self.batch,
            self.steps,
            self.learning_rate,
            self.momentum,
            self.optimiser,
            self.optimiser_options,
        )

    @model_validator(mode="after")
    def _check_optimiser(self, info: ValidationInfo) -> Self:
        if is_left_alone(self.optimiser, info):
            return self
        try:
            self.options.new_optimiser([1])
        except TrainingError as error:
            raise ValueError(str(error)) from None
        return self


OF_THE_DIGITS: Final = frozenset({"hidden", "batch", "learning_rate", "momentum", "optimiser", "optimiser_options"})
"""Keys of `training` that mean nothing to a workload of one's own."""


class WorkloadConfig(Section):
    """Workload in place of the digits: workers that a Python file makes."""

    script: str
    """The file, from the run's file; a record has the whole path."""
    options: dict[str, Any] = Field({})
    """Given by name to the function `worker` of the script."""
    digest: str = ""
    """SHA-256 of the script, which a record has so that a replay runs the same one; a run's file leaves it out."""

    @field_validator("options")
    @classmethod
    def _as_a_record_has_them(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            try:
                json.dumps(value)
            except TypeError:
                raise ValueError(
                    f"{name}: {value} is no text, number, true, false, null, list or mapping of these; in quotes it is "
                    "text"
                ) from None
        return options


def found_script(run_file: Path, workload: dict[str, Any], training: object) -> dict[str, Any]:
    """Return the section with the script's whole path and digest."""
    if strange := sorted(OF_THE_DIGITS & set(training if isinstance(training, dict) else ())):
        raise ExperimentError(
            f"{run_file}: training.{strange[0]}: is the digits' network's, and the run has a workload of its own; "
            "what that needs goes into workload.options"
        )
    path = full_path(run_file, workload["script"])
    return {**workload, "script": path, "digest": script_digest(Path(path))}
