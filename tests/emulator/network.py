"""Network namespaces without a name for tests: veth pairs of a switch, and sockets at their far ends.

A namespace lasts as long as a process or socket in it, so nothing is left behind, whatever a test does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_CLONE_NEWNET = 0x40000000
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_libc = ctypes.CDLL(None, use_errno=True)


def _obstacle() -> str | None:
    if os.geteuid() != 0:
        return "network interfaces need root"
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not on PATH"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        return "this machine lets nobody make a network namespace"
    return None


_reason = _obstacle()
needs_namespaces = pytest.mark.skipif(_reason is not None, reason=_reason or "")


class Network:
    """Inside a namespace of its own: `s1-eth1` … are a switch's interfaces, and `far` the sockets behind them."""

    def __init__(self, ports: Sequence[int], home: int) -> None:
        self._home = home
        self.interfaces = {port: f"s1-eth{port}" for port in ports}
        for port, name in self.interfaces.items():
            ip(f"link add {name} type veth peer name far{port}")
            ip(f"link set far{port} up")
        self.up(*ports)
        self.far = {port: _tap(f"far{port}") for port in ports}

    def up(self, *ports: int) -> None:
        """Set these interfaces up. The kernel takes frames at both ends of a pair a moment later: until it does, it
        drops what is sent there without a word.
        """
        for port in ports:
            ip(f"link set {self.interfaces[port]} up")
        ends = {name for port in ports for name in (self.interfaces[port], f"far{port}")}
        assert eventually(lambda: ends <= _working())
        for name in ends:
            ip(f"link set {name} up")  # waits for the lock under which an end that works is let send

    def send(self, port: int, *frames: bytes) -> None:
        for frame in frames:
            self.far[port].send(frame)

    def receive(self, port: int, count: int, seconds: float = 30.0) -> list[bytes]:
        """The next frames behind a port: `count` of them, or those that came within some seconds."""
        frames: list[bytes] = []
        deadline = time.monotonic() + seconds
        while len(frames) < count and (left := deadline - time.monotonic()) > 0:
            self.far[port].settimeout(left)
            try:
                frames.append(self.far[port].recv(65536))
            except TimeoutError:
                break
            except OSError as error:
                if error.errno != errno.ENETDOWN:  # said once of an interface that has been down
                    raise
        return frames

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Back in the namespace that the test came from. gRPC belongs there: its threads outlive a test, and keep the
        namespace that they were made in.
        """
        with open("/proc/thread-self/ns/net") as inside:
            _enter(self._home)
            try:
                yield
            finally:
                _enter(inside.fileno())

    def close(self) -> None:
        for tap in self.far.values():
            tap.close()


@contextmanager
def network(ports: Sequence[int]) -> Iterator[Network]:
    """Enter a new namespace with a veth pair per port. Processes that the test starts are in it too."""
    with open("/proc/thread-self/ns/net") as home:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        try:
            # Neighbour discovery would send frames of its own.
            for name in ("all", "default"):
                Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            ip("link set lo up")
            made = Network(ports, home.fileno())
            try:
                yield made
            finally:
                made.close()
        finally:
            _enter(home.fileno())


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def _working() -> set[str]:
    """Interfaces of this namespace that are up and have a carrier."""
    said = subprocess.run(["ip", "-brief", "link"], check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in said.splitlines())
    return {name.split("@")[0] for name, state, *_ in rows if state == "UP"}


def eventually(holds: Callable[[], object], seconds: float = 30.0) -> bool:
    """Return whether a condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _tap(name: str) -> socket.socket:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    tap.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    tap.bind((name, 3))
    return tap
