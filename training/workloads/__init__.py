"""Workloads by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of the user's
that ends in one, whose path is its name.
"""

from __future__ import annotations

from typing import Final

from ...imports.registry import Registry
from ..errors import TrainingError
from ..workload import Workload, WorkloadDescription

__all__ = ["WORKLOADS", "make_workload"]

WORKLOADS: Final = Registry(__name__, __path__, WorkloadDescription, "workload", TrainingError, first="digits")


def make_workload(name: str, seed: int, hidden: int = 32) -> Workload:
    """Return a workload by name or path.

    Args:
        name: Name or path.
        seed: Seed by which data is split and weights are drawn.
        hidden: Units of a hidden layer, of workloads that have one.

    Raises:
        TrainingError: The workload is unknown.
        MissingExtra: A package with its data is not installed.
    """
    return WORKLOADS.describe(name).make(seed, hidden)
