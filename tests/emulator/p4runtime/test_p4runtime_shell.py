"""p4runtime-shell drives the server. It needs an old protobuf, so it has an environment of its own (`make shell`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from weir.emulator.p4runtime import P4RuntimeServer
from weir.tests.emulator.p4runtime.p4runtime_rig import DEVICE_CONFIG, P4INFO, RecordingDatapath
from weir.tests.paths import ROOT

INTERPRETER = ROOT / ".venv-shell" / "bin" / "python"
SESSION = Path(__file__).with_name("p4runtime_shell_session.py")

pytestmark = pytest.mark.skipif(
    not INTERPRETER.exists(), reason="p4runtime-shell is not installed (.venv-shell); 'make shell' installs it"
)


def test_the_shell_connects_writes_and_reads(server: P4RuntimeServer, datapath: RecordingDatapath) -> None:
    run = subprocess.run(
        [INTERPRETER, SESSION, server.address, str(datapath.device_id), P4INFO, DEVICE_CONFIG],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout.splitlines()[-1])
    assert seen.pop("inserted") == seen.pop("expected")
    assert seen == {
        "constants": [["0800", "01"], ["86dd", "02"]],
        "modified": ["03"],
        "refused": [6],
        "groups": [[7, [[1, 2]]]],
        "multicast": [[5, 1, 2]],
        "counters": [0, 0, 9, 0, 0, 0],
        "default": [["04", 5]],
        "one shot": [[[1, "01"], [1, "02"]]],
        "clones": [[9, 60]],
        "left": [],
    }
