"""Largest of all workers' numbers, element by element; every worker's array travels to all."""

from functools import partial
from typing import Final

from ..operation import OperationDescription, gathered
from ..ordering import extreme

DESCRIPTION: Final = OperationDescription("max", "max x", partial(gathered, combine=partial(extreme, largest=True)))
