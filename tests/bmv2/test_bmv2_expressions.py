"""Random expressions in the emulated switch, bmv2 and a plain interpreter."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.expression_programs import ExpressionProgram
from weir.tests.bmv2.harness import Compiled, needs_bmv2, needs_p4c
from weir.tests.bmv2.judges import Judges

pytestmark = [pytest.mark.bmv2, needs_bmv2, needs_p4c]

PACKETS = 120


def run(seed: int, folder: Path) -> None:
    program = ExpressionProgram(seed)
    source = folder / f"expressions_{seed}.p4"
    source.write_text(program.source)
    rng = random.Random(seed)
    size = program.header_bytes
    packets = [(0, rng.randbytes(size) + rng.randbytes(rng.randrange(4))) for _ in range(PACKETS)]
    packets += [(0, bytes([byte]) * size) for byte in (0, 0xFF, 0x80, 0x7F, 1)]
    compiled = Compiled.compile(source, folder)
    with Pair(compiled, (0, 1)) as pair:
        assert Judges(compiled.json, pair=pair).differences(packets) == []
        assert pair.forwarded == len(packets)


@pytest.mark.parametrize("seed", range(1, 6))
def test_expressions(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_expressions(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)
