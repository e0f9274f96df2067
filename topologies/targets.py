"""What kinds of switches can do. A fabric names one for each switch; one fabric may have several.

The compiled program of a kind and this page say the same: `tests/p4src/test_targets.py` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .errors import TopologyError


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of switch with the program that it runs."""

    name: str
    program: str
    """The compiled program in p4src/build: `<program>.json` and `<program>.p4info.txtpb`."""
    lanes: int
    """Numbers that the program sums of one message."""
    slots: int = 1024
    """Aggregation slots that the program has registers for."""
    last_port: int = 509
    """Ports of links are 1…last_port."""
    cpu_port: int = 510
    """Where packet-ins leave and packet-outs come in."""
    drop_port: int = 511


BMV2: Final = Target("bmv2", "fabric", lanes=256)
"""v1model, as simple_switch_grpc and the emulator run it."""

BMV2_64: Final = Target("bmv2-64", "fabric_64", lanes=64)
"""The same with fewer lanes, as a chip of match-action stages has them, so that its jobs can be tried without one."""

TARGETS: Final[Mapping[str, Target]] = {target.name: target for target in (BMV2, BMV2_64)}


def target_named(name: str) -> Target:
    """Raises `TopologyError`."""
    if name not in TARGETS:
        raise TopologyError(f'target "{name}" is no kind of switch; there are {", ".join(TARGETS)}')
    return TARGETS[name]
