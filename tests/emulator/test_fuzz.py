"""Nothing that arrives stops a switch: random packets through every program of the project, in a process of its own.

`WEIR_SEED=…` replays a run. With `P4C_SAMPLES=…/testdata/p4_16_samples`, `make test-long` takes p4c's programs as well.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from weir.emulator.stf import StfError, suite
from weir.tests.emulator.harness import watched
from weir.tests.paths import P4RUNTIME_PROGRAMS, PROGRAMS, ROOT, STF

SAMPLES = sorted(
    [
        *STF.glob("*.json"),
        *PROGRAMS.glob("*.json"),
        *P4RUNTIME_PROGRAMS.glob("*.json"),
        *ROOT.glob("p4src/build/*.json"),
    ]
)
FRAMES = 3_000
MANY_FRAMES = 1_000_000
SAMPLE_FRAMES = 50_000
GROWTH_MB = 1000
"""A leak of 1 kB per frame would take as much in one program's frames."""
SILENCE_S = 280
"""Time limit in seconds for a few thousand frames, which take less than a second: an endless packet takes for ever."""


def fuzz(programs: Sequence[Path], frames: int) -> str:
    """Last output of the child."""
    seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
    sys.stdout.write(f"WEIR_SEED={seed}\n")
    command = [sys.executable, "-m", "weir.tests.emulator.fuzz", str(seed), str(frames), *map(str, programs)]
    return watched(command, SILENCE_S, ROOT, {}).splitlines()[-1]


def test_random_packets_through_every_program() -> None:
    assert len(SAMPLES) > 20
    assert fuzz(SAMPLES, FRAMES).startswith("done: ")


@pytest.mark.long
def test_millions_of_random_packets_through_every_program() -> None:
    """Memory does not grow with their number, beyond a switch's pool; compiling the programs takes much more, once."""
    fuzz(SAMPLES, 1)  # compiles programs that are not on disk yet
    few_mb, many_mb = (int(fuzz(SAMPLES, frames).split()[-2]) for frames in (FRAMES, MANY_FRAMES))
    sys.stdout.write(f"{few_mb} MB for {FRAMES} frames, {many_mb} MB for {MANY_FRAMES}\n")
    assert many_mb - few_mb < GROWTH_MB


@pytest.mark.long
@pytest.mark.p4c
@pytest.mark.skipif(
    shutil.which("p4c-bm2-ss") is None or "P4C_SAMPLES" not in os.environ,
    reason="needs p4c-bm2-ss on PATH, and P4C_SAMPLES=the folder of p4c's tests",
)
def test_random_packets_through_the_programs_of_p4c(tmp_path: Path) -> None:
    programs = list(_samples(Path(os.environ["P4C_SAMPLES"]), tmp_path))
    assert len(programs) > 150
    fuzz(programs, SAMPLE_FRAMES)


def _samples(folder: Path, target: Path) -> Iterator[Path]:
    """The programs of p4c's tests that this switch runs, compiled into `target`."""
    for test in suite.tests_in(folder):
        if suite.run_test(test).verdict is suite.Verdict.PASSED:
            try:
                json = suite.compile_v1model(test.with_suffix(".p4"))
            except StfError:
                continue
            path = target / f"{test.stem}.json"
            path.write_bytes(json)
            yield path
