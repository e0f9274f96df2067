"""Start of the vendor's model and Stratum for PTF; an emulated switch stands for the two, and the rest is real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from weir.tests.emulator.network import needs_namespaces
from weir.tests.ptf.fabric_tests import TESTS
from weir.tests.ptf.tofino_model import ADDRESS, MODEL, NODE, STRATUM, chassis
from weir.topologies.targets import LIKE_TOFINO

BIN = Path(sys.executable).parent
MODULE = ["-m", "weir.tests.ptf.tofino_model"]

STANDS_FOR_THE_MODEL = """
import json, pathlib, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
pathlib.Path(TOLD, "model.json").write_text(json.dumps(options | {"ports": json.loads(open(options["-f"]).read())}))
time.sleep(1000)
"""

STANDS_FOR_STRATUM = """
import json, os, pathlib, sys
options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
chassis = pathlib.Path(options["chassis_config_file"])
told = options | {"chassis": chassis.read_text(), "pid": os.getpid()}
pathlib.Path(TOLD, "stratum.json").write_text(json.dumps(told))
ends = json.loads((chassis.parent / "ports.json").read_text())["PortToVeth"]
words = [word for end in ends for word in ("-i", f"{end['device_port']}@veth{end['veth1']}")]
words += ["--device-id", "NODE", "--no-p4", "--log-level", "off", "--", "--grpc-server-addr", "ADDRESS"]
os.execv("BIN/weir-switch", ["BIN/weir-switch", *words, "--cpu-port", "510", "--priority-queues", "8"])
"""


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """Folder for PATH with stand-ins of both, which write their arguments there."""
    for name, text in ((MODEL, STANDS_FOR_THE_MODEL), (STRATUM, STANDS_FOR_STRATUM)):
        for word, value in (("TOLD", repr(str(tmp_path))), ("NODE", NODE), ("ADDRESS", ADDRESS), ("BIN", BIN)):
            text = text.replace(word, str(value))
        (tmp_path / name).write_text(f"#!{sys.executable}\n{text}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "logs").mkdir()
    return tmp_path


def play(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run in a network namespace of its own, with results under `folder`."""
    environment = {
        **os.environ,
        "PATH": f"{folder}:{BIN}:{os.environ['PATH']}",
        "SDE_INSTALL": str(folder),
        "TMPDIR": str(folder / "logs"),
    }
    return subprocess.run(
        ["unshare", "--net", sys.executable, *MODULE, "--target", LIKE_TOFINO.name, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def kept(folder: Path) -> list[Path]:
    return list((folder / "logs").glob("weir-tofino-model-*"))


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@needs_namespaces
@pytest.mark.skipif(find_spec("ptf") is None, reason="ptf is not installed: pip install --no-deps ptf")
def test_all_tests_run_on_what_answers(stand_ins: Path) -> None:
    done = play(stand_ins)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(\w+\.\w+) \.\.\. ok$", done.stderr, re.MULTILINE) == list(TESTS)
    assert not kept(stand_ins)
    model = json.loads((stand_ins / "model.json").read_text())
    assert (model["--chip-type"], model["--install-dir"]) == ("2", str(stand_ins))
    assert [end["device_port"] for end in model["ports"]["PortToVeth"]] == [1, 2, 3, 4]
    stratum = json.loads((stand_ins / "stratum.json").read_text())
    assert stratum["external_stratum_urls"] == ADDRESS
    assert stratum["chassis"] == chassis()
    assert not runs(stratum["pid"])


def test_the_chassis_names_the_chips_ports() -> None:
    """Four numbers of the chip a port: D_P 1, 2 and 3 are channels of port 1, 4 is the first of port 2."""
    ports = re.findall(r"id: (\d+) .*? slot: 1 port: (\d+) channel: (\d+) speed_bps: 10000000000 ", chassis())
    assert [tuple(map(int, port)) for port in ports] == [(1, 1, 2), (2, 1, 3), (3, 1, 4), (4, 2, 1)]
    assert chassis().count("node: 1 }") == 4
    assert "nodes { id: 1 " in chassis()


@needs_namespaces
@pytest.mark.skipif(find_spec("ptf") is None, reason="ptf is not installed: pip install --no-deps ptf")
def test_a_failed_start_is_reported_and_its_output_kept(stand_ins: Path) -> None:
    (stand_ins / STRATUM).write_text("#!/bin/sh\necho no huge pages >&2\nexit 7\n")
    done = play(stand_ins)
    assert done.returncode == 2
    assert f"weir: {STRATUM} ended with 7" in done.stderr
    [folder] = kept(stand_ins)
    assert str(folder) in done.stderr
    assert (folder / f"{STRATUM}.log").read_text() == "no huge pages\n"


@needs_namespaces
@pytest.mark.skipif(find_spec("ptf") is None, reason="ptf is not installed: pip install --no-deps ptf")
def test_a_test_that_fails_is_the_commands_failure(stand_ins: Path) -> None:
    (stand_ins / "broken.py").write_text(
        "from ptf.base_tests import BaseTest\n\n\nclass No(BaseTest):\n    runTest = BaseTest.fail\n"
    )
    done = play(stand_ins, "--test-dir", str(stand_ins), "broken.No")
    assert done.returncode == 1, done.stderr
    assert kept(stand_ins)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *MODULE],
        env={**os.environ, "PATH": "/nonexistent", "SDE_INSTALL": "", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    for missing in (MODEL, STRATUM, "ptf", "SDE_INSTALL"):
        assert missing in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
