"""The native runtime as such: how it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_START = """
import sys
from emulator.runtime.engine import Engine
engine = Engine()
host = engine.add_host()
engine.set_timer(host, 5)
assert engine.run(10) == [host] and engine.now_ns == 5, engine.now_ns
print("numba" in sys.modules)
"""


def _start(cache: Path) -> str:
    environment = {**os.environ, "WEIR_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", _START], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_second_start_needs_no_compiler(tmp_path: Path) -> None:
    assert _start(tmp_path) == "True"
    (code,) = tmp_path.iterdir()
    assert code.suffix == ".o"
    assert _start(tmp_path) == "False"
    assert list(tmp_path.iterdir()) == [code]
