"""Link faults: delay, loss, duplication, reordering, corruption of frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .nodes import FabricError

REORDER_NS: Final = 10_000
"""Default of how much later than its turn a reordered frame may arrive."""
_DURATIONS: Final = {"delay_ns": 0, "reorder_ns": 1}
"""The faults that are times, with the least that each may be; the others are probabilities."""
_LONGEST_NS: Final = 3_600_000_000_000
"""An hour, so that no time of arrival is beyond 64 bits."""


def check_faults(where: str, faults: Mapping[str, Any]) -> None:
    """Check the faults of a link.

    Raises:
        FabricError: A value is out of range; `where` is its place.
    """
    for name, value in faults.items():
        if name in _DURATIONS:
            if value < _DURATIONS[name]:
                raise FabricError(f"must be >= {_DURATIONS[name]}, got {value}", place=f"{where}: {name}", value=value)
            if value > _LONGEST_NS:
                raise FabricError(
                    f"must be at most an hour ({_LONGEST_NS}), got {value}", place=f"{where}: {name}", value=value
                )
        elif not 0 <= value <= 1:
            raise FabricError(f"must be a probability in 0…1, got {value}", place=f"{where}: {name}", value=value)


def write_faults(port: Any, faults: Mapping[str, Any]) -> None:
    """Set them in the engine's record of the port that frames leave by; a probability is a share of 2⁶⁴ there."""
    for name, value in faults.items():
        port[name] = value if name in _DURATIONS else min(int(value * 2.0**64), 2**64 - 1)
