"""Isolation of emulated switches from other users of the machine, who could otherwise write the sources of sums and
tables.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from weir.experiments.backends.emulated import EmulatedFabric
from weir.experiments.backends.live import live_fabric
from weir.tests.processes import tcp_listeners
from weir.topologies import leaf_spine

_STRANGER = """
import os, socket, sys
os.setgid(65534), os.setuid(65534)
try:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(sys.argv[1])
except PermissionError:
    print("refused")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")


def stranger_is_refused(path: str) -> bool:
    words = [sys.executable, "-c", _STRANGER, path]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "refused"


@needs_root
def test_an_emulated_fabric_serves_p4runtime_to_its_user_alone() -> None:
    emulated = EmulatedFabric(leaf_spine(1, 1, 2))
    before = tcp_listeners(os.getpid())
    with emulated.serve() as server:
        path = server.address.removeprefix("unix:")
        assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(path)
        assert stranger_is_refused(path)
        assert tcp_listeners(os.getpid()) == before


@needs_root
async def test_a_launch_opens_no_port_to_other_users() -> None:
    """Neither for its switches nor for its jobs."""
    before = tcp_listeners(os.getpid())
    async with live_fabric(leaf_spine(1, 1, 2)) as live:
        (address,) = set(live.fabric.addresses.values())
        assert stranger_is_refused(address.removeprefix("unix:"))
        assert stranger_is_refused(live.service.address.removeprefix("unix:"))
        assert tcp_listeners(os.getpid()) == before
