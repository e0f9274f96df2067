"""End of a mixed-integer program's search, as `scipy.optimize.milp` reports it."""

from __future__ import annotations

from typing import Any, Final

_INFEASIBLE: Final = 2
"""Status of a program without a solution."""
_STOPPED: Final = "limit reached"
"""Part of the message of a search that ended at its limit of branches; its status does not tell."""


def is_infeasible(solved: Any) -> bool:
    """Return True if the program has no solution."""
    return bool(solved.status == _INFEASIBLE)


def is_stopped(solved: Any) -> bool:
    """Return True if the search ended at its limit of branches: the result has the best solution so far, if any."""
    return not is_infeasible(solved) and _STOPPED in solved.message
