"""Section `strategies` of a run file: names of strategies, or paths of user files."""

from __future__ import annotations

from typing import Annotated, Final

from ...controller.placement.strategies import STRATEGIES, Need
from .sections import one_of_or_user_file

NEED_SERVER: Final = frozenset(name for name, known in STRATEGIES.items() if Need.SERVER in known.needs)
"""Strategies that cannot do with a switch as the root."""


StrategyName = Annotated[str, one_of_or_user_file(STRATEGIES)]
