"""Sum of all workers' arrays, added by the switches."""

from typing import Final

from ..operation import Description, summed

DESCRIPTION: Final = Description("sum", "Σ x", summed)
