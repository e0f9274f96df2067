"""Random programs in the emulated switch against bmv2: p4c compiles each, both get the same entries and packets."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from weir.emulator.program import Program
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.harness import Compiled, needs_bmv2, needs_p4c
from weir.tests.bmv2.mutation import mutate
from weir.tests.bmv2.random_programs import RandomProgram
from weir.tests.bmv2.test_bmv2_everything import PORTS, write_entries
from weir.tests.emulator.generation import packet

pytestmark = [pytest.mark.bmv2, needs_bmv2, needs_p4c]

PACKETS = 120


def run(seed: int, folder: Path) -> None:
    """The seed stands in the test's name, and makes the program, its entries and its packets."""
    program = RandomProgram(seed)
    source = folder / f"program_{seed}.p4"
    source.write_text(program.source)
    compiled = Compiled.compile(source, folder)
    rng = random.Random(seed)
    document = Program.load(compiled.json)._document
    with Pair(compiled, PORTS) as pair:
        write_entries(rng, pair)
        packets: list[tuple[int, bytes]] = []
        while len(packets) < PACKETS:
            frame = mutate(rng, packet(rng, document) or b"\0", 0.2)
            if len(frame) >= program.header_bytes:
                packets.append((rng.randrange(8), frame))
        pair.compare(packets)
        for attempts in reversed(range(50)):  # bmv2 counts a packet that it drops some time after it took it
            try:
                pair.compare_counters()
                break
            except AssertionError:
                if not attempts:
                    raise
                time.sleep(0.1)


@pytest.mark.parametrize("seed", range(1, 9))
def test_programs(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_many_programs(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)
