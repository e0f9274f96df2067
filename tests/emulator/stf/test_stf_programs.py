"""The emulated switch against packet tests of its own, one program and test for each group of constructs.

The programs are compiled by p4c: `p4c-bm2-ss OPTIONS -o NAME.json --p4runtime-files NAME.p4info.txtpb NAME.p4`, in
their folder. `fabric.stf` is a test of the project's own switch program.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from weir.emulator.program import Program
from weir.emulator.stf import StfTest, play, read_test
from weir.emulator.stf.statements import Expect
from weir.p4src import FABRIC_JSON as FABRIC
from weir.tests.paths import STF as FOLDER

TESTS = sorted(FOLDER.glob("*.stf"))
SOURCES = sorted(path for path in FOLDER.glob("*.p4") if path.name != "skeleton.p4")
SILENT = ("unsupported", "unused", "invalid-header", "uninitialized-use")
"""Silenced warnings of p4c: a test is to read invalid headers."""
OPTIONS = ["--arch", "v1model", "--Werror", *(f"--Wdisable={each}" for each in SILENT)]


def program_of(test: Path) -> Program:
    return Program.load(FABRIC if test.stem == "fabric" else test.with_suffix(".json"))


def test_every_program_has_its_test_and_is_compiled() -> None:
    names = {path.stem for path in SOURCES}
    assert names == {path.stem for path in TESTS} - {"fabric"} == {path.stem for path in FOLDER.glob("*.json")}


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_program_does_what_its_test_says(path: Path) -> None:
    outcome = play(program_of(path), read_test(path))
    assert outcome.failures == ()
    assert outcome.checks >= 5


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_every_expectation_of_a_test_counts(path: Path) -> None:
    """Each expectation fails with the last digit of its frame altered, and nothing else does."""
    test = read_test(path)
    statements = []
    altered = 0
    for statement in test.statements:
        if isinstance(statement, Expect) and statement.pattern:
            last = "0" if statement.pattern[-1] != "0" else "1"
            statement = replace(statement, pattern=statement.pattern[:-1] + last)
            altered += 1
        statements.append(statement)
    assert len(play(program_of(path), StfTest(path, tuple(statements))).failures) == altered > 0


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_p4c_makes_the_same_of_the_sources(source: Path, tmp_path: Path) -> None:
    json, info = tmp_path / "program.json", tmp_path / "program.p4info.txtpb"
    command = ["p4c-bm2-ss", *OPTIONS, "-o", str(json), "--p4runtime-files", str(info), source.name]
    subprocess.run(command, cwd=FOLDER, check=True, capture_output=True)
    assert json.read_text() == source.with_suffix(".json").read_text()
    assert info.read_text() == source.with_suffix(".p4info.txtpb").read_text()
