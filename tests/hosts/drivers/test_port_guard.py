"""A member's UDP port is closed to all other users of its host, on every address."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from ipaddress import IPv4Address
from typing import Final

import pytest

from weir.hosts.drivers.datagram_socket import DatagramSocket
from weir.hosts.drivers.shared_port import SharedPort

HERE: Final = int(IPv4Address("127.0.0.5"))
THERE: Final = int(IPv4Address("127.0.0.6"))
NOBODY: Final = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root to be started")
BIND: Final = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for option in sys.argv[4:]:
    end.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
try:
    end.bind((sys.argv[2], int(sys.argv[3])))
except OSError as error:
    print(error.errno)
else:
    print("bound", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("", 0))
        number: int = free.getsockname()[1]
    return number


def stranger(port: int, address: str, *options: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", BIND, str(NOBODY), address, str(port), *options]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@needs_root
@pytest.mark.parametrize("options", [(), ("SO_REUSEADDR",), ("SO_REUSEPORT",), ("SO_REUSEADDR", "SO_REUSEPORT")])
def test_other_user_cannot_bind_the_port_on_any_address(port: int, options: tuple[str, ...]) -> None:
    member = DatagramSocket(HERE, port)
    try:
        for address in ("127.0.0.1", "0.0.0.0", "127.0.0.5"):
            with stranger(port, address, *options) as other:
                assert other.communicate()[0] == f"{errno.EADDRINUSE}\n"
    finally:
        member.close()


@needs_root
def test_port_of_another_user_is_refused_by_name(port: int) -> None:
    with stranger(port, "127.0.0.1") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "bound\n"
        with pytest.raises(OSError, match="nobody") as refused:
            DatagramSocket(HERE, port)
        assert refused.value.errno == errno.EADDRINUSE
        other.communicate()
    DatagramSocket(HERE, port).close()


def test_members_on_two_addresses_have_one_guard(port: int) -> None:
    here, there = DatagramSocket(HERE, port), DatagramSocket(THERE, port)
    assert here.guard is not None
    assert there.guard is None
    here.close()
    there.close()


def test_address_stays_exclusive(port: int) -> None:
    here = DatagramSocket(HERE, port)
    with pytest.raises(OSError, match="cannot bind") as refused:
        DatagramSocket(HERE, port)
    assert refused.value.errno == errno.EADDRINUSE
    here.close()


@needs_root
def test_guard_outlives_the_first_process_of_a_shared_port(port: int) -> None:
    first = SharedPort(HERE, port)
    code = (
        "import sys\n"
        "from weir.hosts.drivers.shared_port import SharedPort\n"
        "shared = SharedPort(int(sys.argv[1]), int(sys.argv[2]))\n"
        "print('shared', flush=True)\n"
        "sys.stdin.read()\n"
        "shared.close()\n"
    )
    words = [sys.executable, "-c", code, str(HERE), str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        os.set_blocking(second.stdout.fileno(), False)
        said = ""
        while not said and second.poll() is None:
            first.receive()
            said = second.stdout.readline()
        first.close()
        with stranger(port, "127.0.0.1") as other:
            assert other.communicate()[0] == f"{errno.EADDRINUSE}\n"
        second.communicate()
