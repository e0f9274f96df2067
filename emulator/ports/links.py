"""Link state of interfaces, from the kernel's notifications (rtnetlink)."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Mapping
from typing import Final

# linux/rtnetlink.h, linux/sockios.h, linux/if.h
_RTMGRP_LINK: Final = 1
_SIOCGIFFLAGS: Final = 0x8913
_UP_AND_RUNNING: Final = 0x1 | 0x40
_CHUNK_BYTES: Final = 1 << 16


class InterfaceWatch:
    """Watches interfaces, given by port. Its descriptor becomes readable when the link or MTU of any one changes."""

    def __init__(self, interfaces: Mapping[int, str]) -> None:
        self._interfaces = {port: (name, socket.if_nametoindex(name)) for port, name in interfaces.items()}
        self._changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._changes.setblocking(False)
        self._changes.bind((0, _RTMGRP_LINK))
        self._asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with a change, for `select`."""
        return self._changes.fileno()

    def drain(self) -> None:
        """Discard queued notifications; `down` reads the present state from the kernel."""
        while True:
            try:
                self._changes.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # more changes than its buffer holds: they were worth one look as well
                    raise

    def down(self) -> frozenset[int]:
        """Return the ports whose interface is down, has no carrier, or is gone."""
        return frozenset(port for port, (name, index) in self._interfaces.items() if not self._is_up(name, index))

    def close(self) -> None:
        """Close the sockets by which changes and flags are read."""
        self._changes.close()
        self._asking.close()

    def _is_up(self, name: str, index: int) -> bool:
        try:
            if socket.if_nametoindex(name) != index:
                return False
            answer = fcntl.ioctl(self._asking, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
        except OSError:
            return False
        flags: int = struct.unpack_from("H", answer, 16)[0]
        return flags & _UP_AND_RUNNING == _UP_AND_RUNNING
