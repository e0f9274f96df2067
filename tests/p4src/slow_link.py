"""A queue that fills: the switch program between a worker's fast link and a stranger's slow one, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weir.emulator.fabric import Fabric
from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.node_model import Tables
from weir.tests.p4src.small_fabric import STRANGER_PORT

FAST_BPS: Final = 10**9
SLOW_BPS: Final = 10**7


def through_slow_link(tables: Tables, frames: Sequence[bytes]) -> list[bytes]:
    """Return all frames in the order in which they reach the stranger, if a worker sends them at once."""
    fabric = Fabric()
    fabric.add_switch("s1", EmulatedNode(tables).switch)
    fabric.add_host("worker")
    fabric.add_host("stranger")
    fabric.add_link(("worker", 0), ("s1", 0), rate_bps=FAST_BPS)
    fabric.add_link(("s1", STRANGER_PORT), ("stranger", 0), rate_bps=SLOW_BPS)
    for frame in frames:
        fabric.send("worker", frame)
    received: list[bytes] = []
    while len(received) < len(frames):
        wakes = fabric.run(fabric.now_ns + 10**9)
        assert wakes, "frames are missing"
        received += [row.tobytes() for wake in wakes for batch in wake.frames for row in batch]
    return received
