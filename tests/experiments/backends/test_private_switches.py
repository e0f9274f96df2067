"""Isolation of emulated switches from other users of the machine, who could otherwise write the sources of sums and
tables.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from weir.emulator.p4runtime.server import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.experiments.backends.emulated import EmulatedFabric
from weir.experiments.backends.live import live_fabric
from weir.tests.processes import tcp_listeners
from weir.tests.support.socket_modes import first_modes
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


def test_a_socket_of_p4runtime_is_this_users_alone_from_its_first_moment(tmp_path: Path) -> None:
    """The socket accepts connections before its mode is set."""
    path = tmp_path / "p4runtime"
    with first_modes() as modes, P4RuntimeServer([Switch(1)], f"unix:{path}"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [mode & 0o077 for mode in modes] == [0]


_KILLED = """
import os, signal
from weir.experiments.backends.emulated import EmulatedFabric
from weir.topologies import leaf_spine
emulated = EmulatedFabric(leaf_spine(1, 1, 2))
with emulated.serve():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for temporary files, whose path is short enough for a socket's."""
    with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_the_folder_of_a_killed_fabric_is_removed_by_the_next_one(temporary: Path, tmp_path: Path) -> None:
    """And no other: of a fabric that lives, or behind a link of the same kind of name."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".alive").touch()
    link = temporary / "weir-p4runtime-link"
    link.symlink_to(elsewhere)
    living = EmulatedFabric(leaf_spine(1, 1, 2))
    with living.serve() as server:
        folder = Path(server.address.removeprefix("unix:")).parent
        killed = subprocess.run([sys.executable, "-c", _KILLED], env={**os.environ, "TMPDIR": str(temporary)})
        assert killed.returncode == -signal.SIGKILL
        [left] = {*temporary.glob("weir-p4runtime-*")} - {link, folder}
        following = EmulatedFabric(leaf_spine(1, 1, 2))
        with following.serve():
            assert not left.exists()
            assert folder.exists()
            assert link.is_symlink()
    assert (elsewhere / ".alive").exists()
    del living, server
    gc.collect()
    assert not folder.exists()


@needs_root
async def test_a_launch_opens_no_port_to_other_users() -> None:
    """Neither for its switches nor for its jobs."""
    before = tcp_listeners(os.getpid())
    async with live_fabric(leaf_spine(1, 1, 2)) as live:
        (address,) = set(live.fabric.addresses.values())
        assert stranger_is_refused(address.removeprefix("unix:"))
        assert stranger_is_refused(live.service.address.removeprefix("unix:"))
        assert tcp_listeners(os.getpid()) == before
