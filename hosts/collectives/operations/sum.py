"""Sum of all workers' arrays, added by the switches."""

from typing import Final

from ..operation import OperationDescription, summed

DESCRIPTION: Final = OperationDescription("sum", "Σ x", summed)
