"""A guard of a UDP port: no other user of the machine can bind it on any address.

A process may send from any local address with IP_PKTINFO, without a right. If it could bind a member's port on another
address, such as 127.0.0.1, its datagrams would look like the member's. So the port is held on the wildcard address,
too, by a socket that nobody reads.

Linux lets two sockets of one user have the same port if both have SO_REUSEPORT while the later one is bound. The
member's own socket gives the option up as soon as it is bound, so that its address stays exclusive.
"""

from __future__ import annotations

import errno
import os
import pwd
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

_SOCKETS: Final = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_LOCAL, _USER = 1, 7


def hold_port(port: int) -> socket.socket | None:
    """Hold a UDP port on all addresses; None if another process of this user has it on some address already.

    Raises:
        OSError: Another user has the port on some address.
    """
    guard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # what comes to other addresses is dropped
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        guard.bind(("", port))
    except OSError as error:
        guard.close()
        if error.errno != errno.EADDRINUSE:
            raise
        if others := set(_users_of(port)) - {os.geteuid()}:
            raise OSError(
                errno.EADDRINUSE,
                f"UDP port {port} is in use by {_named(min(others))}, another user of this machine, who could send in "
                "this host's name",
            ) from None
        return None
    return guard


def bind_beside(bound: socket.socket, address: int, port: int) -> None:
    """Bind a socket to an address whose port a guard of this user may hold; nobody else can bind it then."""
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((str(IPv4Address(address)), port))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)


def _users_of(port: int) -> Iterator[int]:
    for path in _SOCKETS:
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[_LOCAL].rpartition(":")[2], 16) == port:
                yield int(fields[_USER])


def _named(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
