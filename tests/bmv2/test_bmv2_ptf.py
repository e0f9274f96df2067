"""The program's own PTF tests on the real bmv2, as PTF meets any switch: at network interfaces and over P4Runtime."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from weir.tests.bmv2.harness import CPU_PORT, EXECUTABLE, PRIORITIES, needs_bmv2, needs_root, new_network_namespace
from weir.tests.paths import ROOT
from weir.tests.ptf.fabric_tests import TESTS
from weir.tests.ptf.interfaces import make_pairs
from weir.tests.test_snippets import LINES
from weir.topologies.mininet.fabric import thrift_words
from weir.topologies.targets import BMV2, BMV2_32, Target

pytestmark = [
    pytest.mark.bmv2,
    needs_bmv2,
    needs_root,
    pytest.mark.skipif(find_spec("ptf") is None, reason="ptf is not installed: pip install --no-deps ptf"),
]

LINE: Final = next(line for page, line in LINES if page == "docs/ptf.md" and line.startswith("ptf "))
"""The guide's, with the interfaces that `make_pairs` makes."""
PORTS: Final = (1, 2, 3, 4)
ADDRESS: Final = "127.0.0.1:9559"
PATIENCE_S: Final = 900
"""Time limit on a busy machine, in seconds."""


@contextlib.contextmanager
def switch() -> Iterator[None]:
    """Switch in a network namespace that this thread has entered, with the guide's interfaces."""
    ends = make_pairs(PORTS)
    interfaces = [word for port in PORTS for word in ("-i", f"{port}@{ends[port][0]}")]
    command = [EXECUTABLE, "--device-id", "0", "--no-p4", "--log-level", "off", *interfaces]
    command += [*thrift_words(EXECUTABLE, 9090), "--", "--grpc-server-addr", ADDRESS]
    command += ["--cpu-port", str(CPU_PORT), "--priority-queues", str(PRIORITIES)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", 9559)):
                break
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize(
    "target", [pytest.param(BMV2_32, marks=pytest.mark.long), BMV2], ids=lambda target: target.name
)
def test_the_program_passes(target: Target, tmp_path: Path) -> None:
    """Run the guide's line, as it stands and with more lanes."""
    script = shutil.which("ptf", path=str(Path(sys.executable).parent)) or shutil.which("ptf")
    assert script is not None
    assert LINE.count(f"'{BMV2_32.name}'") == 1
    _, *words = shlex.split(LINE.replace(BMV2_32.name, target.name))
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    with new_network_namespace(), switch():
        done = subprocess.run(
            [sys.executable, script, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(\w+\.\w+) \.\.\. ok$", done.stderr, re.MULTILINE) == list(TESTS)
