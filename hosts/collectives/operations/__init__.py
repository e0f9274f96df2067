"""Collective operations by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of
the user's that ends in one, whose path is its name.
"""

from __future__ import annotations

from typing import Final

from ....imports.registry import Registry
from ...errors import InvalidTensor
from ..operation import OperationCall, OperationDescription, Started, Stepped, gathered, summed

Sum: Final = "sum"
Average: Final = "mean"
Adasum: Final = "adasum"
AdaCons: Final = "adacons"
"""Operations under the names that users of Horovod know."""

__all__ = [
    "OPERATIONS",
    "AdaCons",
    "Adasum",
    "Average",
    "OperationCall",
    "OperationDescription",
    "Started",
    "Stepped",
    "Sum",
    "gathered",
    "summed",
]

OPERATIONS: Final = Registry(__name__, __path__, OperationDescription, "operation", InvalidTensor, first="sum")
