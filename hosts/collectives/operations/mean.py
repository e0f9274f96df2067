"""Mean of all workers' arrays by their weights: the switches add, and workers divide the sum."""

from functools import partial
from typing import Final

from ..operation import OperationDescription, summed

DESCRIPTION: Final = OperationDescription("mean", "Σ weight · x / Σ weight", partial(summed, mean=True), weighted=True)
