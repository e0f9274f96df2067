"""The program's own PTF tests on the real bmv2, as PTF meets any switch: at network interfaces and over P4Runtime."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from weir.tests.bmv2.harness import CPU_PORT, EXECUTABLE, PRIORITIES, needs_bmv2, needs_root, new_network_namespace
from weir.tests.paths import ROOT
from weir.tests.ptf.fabric_tests import TESTS
from weir.topologies.mininet.fabric import thrift_words

pytestmark = [
    pytest.mark.bmv2,
    needs_bmv2,
    needs_root,
    pytest.mark.skipif(find_spec("ptf") is None, reason="ptf is not installed: pip install --no-deps ptf"),
]

PORTS = (1, 2, 3, 4)
ADDRESS = "127.0.0.1:9559"
PATIENCE_S = 900
"""Of a busy machine."""


@contextlib.contextmanager
def switch() -> Iterator[None]:
    """In a network namespace that this thread is in: its port i is the other end of interface h<i>."""
    links = [
        line
        for port in PORTS
        for line in (f"link add s{port} type veth peer name h{port}", f"link set s{port} up", f"link set h{port} up")
    ]
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    subprocess.run(["ip", "-batch", "-"], input="\n".join(("link set lo up", *links)), text=True, check=True)
    interfaces = [word for port in PORTS for word in ("-i", f"{port}@s{port}")]
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


def test_the_program_passes(tmp_path: Path) -> None:
    interfaces = [word for port in PORTS for word in ("-i", f"{port}@h{port}")]
    script = shutil.which("ptf", path=str(Path(sys.executable).parent)) or shutil.which("ptf")
    assert script is not None
    ptf = [sys.executable, script, "--test-dir", str(ROOT / "tests" / "ptf" / "fabric")]
    with new_network_namespace(), switch():
        done = subprocess.run(
            [*ptf, *interfaces, "--test-params", f"grpcaddr='{ADDRESS}'"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(\w+\.\w+) \.\.\. ok$", done.stderr, re.MULTILINE) == list(TESTS)
