"""Paths of the tests' inputs: the checkout, and the programs compiled in it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The checkout, which is the package `weir`."""

EMULATOR: Final = ROOT / "tests" / "emulator"
PROGRAMS: Final = EMULATOR / "programs"
"""P4 programs of the switch's own tests, each with its BMv2 JSON."""

STF: Final = EMULATOR / "stf"
"""Packet tests in p4c's format, each with its program."""

P4RUNTIME_PROGRAMS: Final = EMULATOR / "p4runtime" / "programs"
"""Programs with P4Info, for the P4Runtime server."""
