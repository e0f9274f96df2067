"""Nothing that arrives stops a switch: random packets through every program of the project, in a process of its own.

`WEIR_SEED=…` replays a run. With `P4C_SAMPLES=…/testdata/p4_16_samples`, `make test-long` takes p4c's programs as well.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from emulator.stf import StfError, suite

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted(
    [
        *HERE.glob("stf/*.json"),
        *HERE.glob("programs/*.json"),
        *HERE.glob("p4runtime/programs/*.json"),
        *ROOT.glob("p4src/build/*.json"),
    ]
)
FRAMES = 30_000
MANY_FRAMES = 1_000_000
SAMPLE_FRAMES = 50_000


def fuzz(programs: Sequence[Path], frames: int, seconds: float) -> str:
    """What the child says last; the test fails with all that it said if it does not end well, or in time."""
    seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
    sys.stdout.write(f"WEIR_SEED={seed}\n")
    command = [sys.executable, "-m", "tests.emulator.fuzz", str(seed), str(frames), *map(str, programs)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = child.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        pytest.fail(f"no end within {seconds} s:\n{child.communicate()[0]}")
    assert child.returncode == 0, f"status {child.returncode}:\n{said}"
    return said.splitlines()[-1]


def test_random_packets_through_every_program() -> None:
    assert len(PROGRAMS) > 20
    assert fuzz(PROGRAMS, FRAMES, 280).startswith("done: ")


@pytest.mark.long
def test_millions_of_random_packets_through_every_program() -> None:
    said = fuzz(PROGRAMS, MANY_FRAMES, 3000)
    sys.stdout.write(f"{said}\n")
    assert int(said.split()[-2]) < 2000, "memory does not grow with the number of frames"


@pytest.mark.long
@pytest.mark.p4c
@pytest.mark.skipif(
    shutil.which("p4c-bm2-ss") is None or "P4C_SAMPLES" not in os.environ,
    reason="needs p4c-bm2-ss on PATH, and P4C_SAMPLES=the folder of p4c's tests",
)
def test_random_packets_through_the_programs_of_p4c(tmp_path: Path) -> None:
    programs = list(_samples(Path(os.environ["P4C_SAMPLES"]), tmp_path))
    assert len(programs) > 150
    fuzz(programs, SAMPLE_FRAMES, 3000)


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
