"""Smallest of all workers' numbers, element by element; every worker's array travels to all."""

from functools import partial
from typing import Final

from ..operation import Description, gathered
from ..ordering import extreme

DESCRIPTION: Final = Description("min", "min x", partial(gathered, combine=partial(extreme, largest=False)))
