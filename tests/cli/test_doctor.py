"""`weir doctor`: it finds what is there, names what is not, and how to get it."""

from __future__ import annotations

import json
import os
import re
import socket
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.cli import doctor
from weir.cli.app import app


def report(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor", *arguments])
    return done.exit_code, done.output


def test_all_that_is_required_is_here_where_the_tests_run() -> None:
    status, output = report("--json")
    told = json.loads(output)
    assert (status, told["ok"]) == (0, True), output
    findings = {finding["name"]: finding for finding in told["findings"]}
    assert {name for name, finding in findings.items() if finding["required"]} == {
        "Python",
        "Python packages",
        "cache folder",
        "loopback",
    }
    for finding in findings.values():
        assert (finding["found"] is not None) == finding["ok"] == (finding["remedy"] is None)
    assert findings["root"]["ok"] == (os.geteuid() == 0)


def test_missing_parts_are_named_with_their_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither commands nor a cache folder: the optional ones alone would not fail it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    status, output = report()
    assert status == 0
    assert "p4c-bm2-ss: not on PATH" in output
    assert "https://github.com/p4lang/p4c" in output
    assert "https://github.com/p4lang/behavioral-model" in output
    assert "network namespaces: the command ip is not on PATH" in output
    assert "veth: needs network namespaces" in output
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "file" / "cache"))
    status, output = report()
    assert status == 1
    assert f"cache folder: {tmp_path / 'file' / 'cache'}: cannot be written to: Not a directory" in output
    assert "WEIR_CACHE=FOLDER" in output
    assert "something needed is missing" in output


def test_remedies_name_pip_or_make_by_the_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PATH is empty and a package is missing, so that every finding has its problem and remedy."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(metadata, "requires", lambda _: ["no-such-package"])
    said = {}
    for clone in (True, False):
        monkeypatch.setattr(doctor, "is_clone", lambda clone=clone: clone)
        status, said[clone] = report()
        assert status == 1
        assert "no-such-package is not installed" in said[clone]
    assert "everything that joining jobs needs" not in said[True]
    assert re.findall(r"\bmake (?:clean|demo|p4|shell|test)\b|--editable|-e '|tests/|the clone", said[True])
    assert not re.findall(r"\bmake (?:clean|demo|p4|shell|test)\b|--editable|-e '|tests/|the clone", said[False])
    assert re.search(r"-m\s+pip\s+install\s+weir\b", said[False])


def test_packages_of_the_wrong_version_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["numpy>=999", "no-such-package", "hypothesis>=1; extra == 'dev'", "not-asked; extra == 'torch'"]
    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    finding = next(found for found in doctor.examine(clone=True) if found.name == "Python packages")
    assert not finding.ok
    assert finding.problem is not None
    assert finding.problem.startswith("numpy is ")
    assert finding.problem.endswith("not >=999; no-such-package is not installed")


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        finding = doctor._ports("ports", [port], "a test")
    assert (finding.ok, finding.problem) == (False, f"taken on 127.0.0.1: {port}")


def test_it_leaves_no_namespace_behind() -> None:
    report()
    assert list(Path("/run/netns").glob("weir-doctor-*")) == []
