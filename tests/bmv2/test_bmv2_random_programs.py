"""Random programs in the emulated switch, bmv2 and a plain interpreter: p4c compiles each, and all get the same entries
and packets. `WEIR_PROGRAMS` says how many the long run has.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.harness import Compiled, needs_bmv2, needs_p4c
from weir.tests.bmv2.judges import judged
from weir.tests.bmv2.random_programs import RandomProgram
from weir.tests.bmv2.test_bmv2_everything import PORTS

pytestmark = [pytest.mark.bmv2, needs_bmv2, needs_p4c]

PACKETS = 120
LONG = int(os.environ.get("WEIR_PROGRAMS", "300"))


def run(seed: int, folder: Path) -> None:
    """The seed stands in the test's name, and makes the program, its entries and its packets."""
    source = folder / f"program_{seed}.p4"
    source.write_text(RandomProgram(seed).source)
    compiled = Compiled.compile(source, folder)
    with Pair(compiled, PORTS, batch=1) as pair:
        judges = judged(compiled.json, seed, PACKETS, pair)
        assert judges.compared > PACKETS // 2
        for attempts in reversed(range(50)):  # bmv2 counts a packet that it drops some time after it took it
            try:
                pair.compare_counters()
                pair.compare_direct_counters()
                break
            except AssertionError:
                if not attempts:
                    raise
                time.sleep(0.1)


@pytest.mark.parametrize("seed", [*range(1, 4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 9))])
def test_programs(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1000 + LONG))
def test_many_programs(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)
