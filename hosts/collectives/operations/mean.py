"""Mean of all workers' arrays by their weights: the switches add, and workers divide the sum."""

from functools import partial
from typing import Final

from ..operation import Description, summed

DESCRIPTION: Final = Description("mean", "Σ weight · x / Σ weight", partial(summed, mean=True), weighted=True)
