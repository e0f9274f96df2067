"""Commands whose output, or packages, are missing say so in lines, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_WEIR = "from weir.cli.main import main; main()"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-c", _WEIR, "strategies"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=100)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "No space left on device" in line


def test_doctor_needs_no_numpy(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text('raise ModuleNotFoundError("No module named numpy", name="numpy")\n')
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-c", _WEIR, "doctor"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.stderr == ""
    assert "cache folder" in done.stdout
