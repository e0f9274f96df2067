"""`weir stf`: output and exit status for a program's tests and for a folder of p4c's kind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from weir.cli.stf import stf
from weir.emulator.program import UnsupportedProgram
from weir.emulator.stf import StfError
from weir.experiments.errors import ExperimentError
from weir.tests.paths import STF as FOLDER

RUNNER = CliRunner()
WEIR = Path(sys.executable).with_name("weir")

app = typer.Typer()
app.command()(stf)

needs_p4c = pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")


def test_a_test_that_passes() -> None:
    result = RUNNER.invoke(app, [str(FOLDER / "selector.json"), str(FOLDER / "selector.stf")])
    assert (result.exit_code, result.stdout) == (0, "✓ selector.stf: 11 packets sent, 11 checks hold\n")


def test_one_of_two_tests_fails(tmp_path: Path) -> None:
    failing = tmp_path / "failing.stf"
    failing.write_text("mirroring_get 3\npacket 0 01 0000 00\nexpect 1 01\n")
    arguments = [str(FOLDER / "selector.json"), str(FOLDER / "selector.stf"), str(failing)]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == [
        "  failing.stf:1: clone session 3: ports none",
        "✗ failing.stf:3: port 1: packet 1 was expected and did not come",
    ]
    printed = json.loads(RUNNER.invoke(app, [*arguments, "--json"]).stdout)
    assert [(result["passed"], result["packets"], result["checks"]) for result in printed["results"]] == [
        (True, 11, 11),
        (False, 1, 1),
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "weir stf takes either PROGRAM TEST.stf... or --p4c FOLDER"),
        (["program.json"], "weir stf takes either"),
        (["program.json", "test.stf", "--p4c", "folder"], "weir stf takes either"),
        (["nothing.p4", str(FOLDER / "tables.stf")], "nothing.p4: cannot be read as a program: No such file"),
        (["nothing.json", str(FOLDER / "tables.stf")], "nothing.json: cannot be read as a program"),
        (
            [str(FOLDER / "tables.json"), "nothing.stf"],
            "nothing.stf: cannot be read as an STF test: No such file or directory",
        ),
        ([str(FOLDER / "tables.stf"), str(FOLDER / "tables.stf")], "tables.stf: not a BMv2 JSON program"),
        (["--p4c", "nowhere"], "nowhere: no *.stf in this folder, nor in testdata/p4_16_samples"),
    ],
)
def test_usage_errors(arguments: list[str], complaint: str) -> None:
    result = RUNNER.invoke(app, arguments)
    assert isinstance(result.exception, (ExperimentError, StfError, UnsupportedProgram))
    assert complaint in str(result.exception)


@pytest.mark.p4c
@needs_p4c
def test_a_program_in_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "cache"))
    result = RUNNER.invoke(app, [str(FOLDER / "selector.p4"), str(FOLDER / "selector.stf")])
    assert (result.exit_code, result.stdout) == (0, "✓ selector.stf: 11 packets sent, 11 checks hold\n")
    broken = tmp_path / "broken.p4"
    broken.write_text("header h_t { bit<8> x }\n")
    result = RUNNER.invoke(app, [str(broken), str(FOLDER / "selector.stf")])
    assert isinstance(result.exception, StfError)
    assert "broken.p4(1):" in str(result.exception)


@pytest.mark.p4c
@needs_p4c
def test_a_folder_with_every_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "cache"))
    tests = tmp_path / "tests"
    tests.mkdir()
    selector, skeleton = (FOLDER / "selector.p4").read_text(), (FOLDER / "skeleton.p4").read_text()
    sources = {
        "skeleton": skeleton,
        "passes": selector,
        "fails": selector,
        "broken": selector.replace("state start", "state begin"),
        "refused": selector.replace("bit<16> flow", "bit<80> flow").replace("group: exact; }", "flow: range; }"),
        "foreign": "#include <core.p4>\n#include <psa.p4>\n",
    }
    for name, text in sources.items():
        (tests / f"{name}.p4").write_text(text)
        (tests / f"{name}.stf").write_text("packet 0 01 0000 00\nexpect 7 01 0000 00$\n")
    (tests / "fails.stf").write_text("packet 0 01 0000 00\nexpect 7 01 0001 00$\n")
    (tests / "skeleton.stf").unlink()
    (tests / "alone.stf").write_text("wait\n")
    result = RUNNER.invoke(app, ["--p4c", str(tests), "--json"])
    assert result.exit_code == 1
    printed = json.loads(result.stdout)
    verdicts = {result["test"]: result["verdict"] for result in printed["results"]}
    assert verdicts == {
        "alone": "does not compile",
        "broken": "does not compile",
        "fails": "failed",
        "foreign": "not v1model",
        "passes": "passed",
        "refused": "refused",
    }
    details = {result["test"]: result["detail"] for result in printed["results"]}
    assert details["alone"] == "alone.p4 is not there"
    assert "error" in details["broken"]
    assert details["fails"].startswith("fails.stf:2: port 7: packet 1 differs at byte 2: 01000000, expected 01000100")
    assert details["foreign"] == "written for psa.p4"
    assert details["passes"] == ""
    assert details["refused"].startswith("refused.p4:29: range key hdr.flow.flow of 80 bits")
    kept = sorted((tmp_path / "cache").glob("*.p4.json"))
    assert len(kept) == 3
    before = [path.stat().st_mtime_ns for path in kept]
    table = RUNNER.invoke(app, ["--p4c", str(tests)])
    assert table.exit_code == 1
    assert "6 tests: 1 passed, 1 failed, 1 refused, 1 not v1model, 2 does not compile" in table.stdout
    assert [path.stat().st_mtime_ns for path in kept] == before


@pytest.mark.p4c
@needs_p4c
def test_the_root_of_a_source_tree_stands_for_its_tests(tmp_path: Path) -> None:
    tests = tmp_path / "testdata" / "p4_16_samples"
    tests.mkdir(parents=True)
    (tests / "alone.stf").write_text("wait\n")
    result = RUNNER.invoke(app, ["--p4c", str(tmp_path), "--json"])
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert [(result["test"], result["detail"]) for result in printed["results"]] == [("alone", "alone.p4 is not there")]


@pytest.mark.parametrize("option", [(), ("-q",)])
def test_a_folders_progress_is_a_note_that_quiet_silences(option: tuple[str, ...], tmp_path: Path) -> None:
    """Standard output is a terminal. The compiler has to exist, and is not called."""
    (tmp_path / "alone.stf").write_text("wait\n")
    (tmp_path / "p4c-bm2-ss").touch(0o755)
    command, where = [str(WEIR), *option, "stf", "--p4c", str(tmp_path)], f"{tmp_path}:{os.environ['PATH']}"
    terminal = {**os.environ, "FORCE_COLOR": "1", "PATH": where}
    done = subprocess.run(command, env=terminal, capture_output=True, text=True, check=True)
    assert "alone.p4 is not there" in done.stdout
    assert ("STF tests" in done.stderr) == (not option)
    assert not option or done.stderr == ""
