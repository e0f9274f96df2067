"""Ports and queues at run time: `weir-switch ctl` and the socket of a running switch that it talks to.

The words are those of simple_switch_CLI where it has them. A client connects, sends one line, and gets an answer: a
first line `ok` or `error`, then text. Access is by the rights on the socket's file: its owner's.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..entries import EmulatorError
from ..runtime.memory import PRIORITIES
from .options import ALL, parse_rate, rate_text

if TYPE_CHECKING:
    from .wired import WiredSwitch

HELP: Final = f"""\
set_queue_rate RATE [PORT]                  rate at which a port sends, such as 200Mbit; `none`: unlimited
set_queue_depth PACKETS [PORT [PRIORITY]]   packets that each priority's queue holds; `none`: no limit
set_queue_bytes BYTES [PORT [PRIORITY]]     bytes that each priority's queue holds; `none`: no limit
show_ports                                  interfaces, links, rates and counters; below, each priority that was used
help                                        this list
Without PORT, or with `{ALL}`, all ports; priorities are 0 to {PRIORITIES - 1}, and share their port's rate.
"""
_MAX_BYTES: Final = 4096
_PATIENCE_S: Final = 5.0
_NOTHING: Final = "none"
_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH

log = logging.getLogger(__name__)


class ControlError(EmulatorError):
    """An unknown command of the control socket, or a socket that cannot be opened."""


def default_socket(device_id: int) -> Path:
    """Return the default socket of the switch with this device id, in a folder that only this user can access."""
    return _private_folder() / f"switch-{device_id}"


def p4runtime_socket(device_id: int) -> Path:
    """Return the default P4Runtime socket of the switch with this device id, and make its private folder.

    Raises:
        ControlError: The folder is another user's, or another switch serves at the socket.
    """
    path = _private_folder() / f"p4runtime-{device_id}"
    _make_folder(path.parent)
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)) == 0:  # gRPC would take the place of the switch that listens there
            raise ControlError(
                "another switch with this device id serves there; name an address with --grpc-server-addr",
                place=f"P4Runtime at unix:{path}",
                value=device_id,
            )
    return path


def _private_folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "weir" if base else Path(tempfile.gettempdir()) / f"weir-{os.getuid()}"


class ControlServer:
    """Serves one switch's control socket on a thread of its own. Raises ControlError where it cannot listen."""

    def __init__(self, wired: WiredSwitch, interfaces: Mapping[int, str], path: Path) -> None:
        self.path = path
        self._wired = wired
        self._interfaces = interfaces
        _make_folder(path.parent)
        self._socket = _listen(path)
        self._lock = threading.Lock()
        self._closing = False
        self._client: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name=f"control-{wired.switch.device_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and disconnect all clients."""
        self.path.unlink(missing_ok=True)
        with self._lock:
            self._closing = True
            for end in (self._socket, self._client):
                if end is not None:
                    with suppress(OSError):  # the client is gone already
                        end.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join()
        self._socket.close()

    def execute(self, line: str) -> str:
        """Execute a command line and return the answer. Raises EmulatorError or ValueError for an invalid one."""
        word, *arguments = line.split() or ["help"]
        match word, arguments:
            case "set_queue_rate", [text, *where] if len(where) <= 2:
                if _priority(where) is not None:
                    raise ControlError("a rate is a port's, which its priorities share; leave the priority out")
                return self._set("rate_bps", _or_none(text, parse_rate), where, None)
            case "set_queue_depth", [text, *where] if len(where) <= 2:
                return self._set("queue_packets", _or_none(text, _count), where, _priority(where))
            case "set_queue_bytes", [text, *where] if len(where) <= 2:
                return self._set("queue_bytes", _or_none(text, _count), where, _priority(where))
            case "show_ports", []:
                return "".join(f"{line}\n" for line in self._show())
            case "help", []:
                return HELP
        raise ControlError(f"{line.strip()!r} is no command; there are:\n{HELP}", value=line.strip())

    def _set(self, name: str, value: int | None, where: list[str], priority: int | None) -> str:
        switch = self._wired.switch
        ports = switch.ports if not where or where[0] == ALL else (_port(where[0]),)
        for port in ports:
            switch.set_port(port, priority=priority, **{name: value})  # type: ignore[arg-type]
        return ""

    def _show(self) -> list[str]:
        switch, down = self._wired.switch, self._wired.links_down
        lines = []
        for port, counters in self._wired.counters().items():
            config, count = switch.port_config(port), counters.port
            rate = "no rate" if config.rate_bps is None else rate_text(config.rate_bps)
            usual = _limits(config.queue_packets, config.queue_bytes)
            lines.append(
                f"{port} {self._interfaces[port]} {'down' if port in down else 'up'}: "
                f"{rate}, queues of {usual}; "
                f"holds {count.depth_packets} packets ({count.depth_bytes} bytes); "
                f"received {count.rx_packets} ({count.rx_bytes} bytes), "
                f"sent {count.tx_packets} ({count.tx_bytes} bytes), "
                f"queue drops {sum(count.drops)}, lost {count.lost_packets}"
            )
            for priority, queue in enumerate(switch.port_queues(port)):
                limits = _limits(queue.limit_packets, queue.limit_bytes)
                if queue.max_depth_packets or queue.drops or limits != usual:
                    lines.append(
                        f"  priority {priority}: queue of {limits}; "
                        f"holds {queue.depth_packets} packets ({queue.depth_bytes} bytes), "
                        f"at most {queue.max_depth_packets} so far; drops {queue.drops}"
                    )
        return lines

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # closed
            with client:
                if self._serves(client):
                    with suppress(OSError):  # the client is gone, or says nothing
                        client.sendall(self._answer(_read_line(client)).encode())
                self._serves(None)

    def _serves(self, client: socket.socket | None) -> bool:
        """Note whom the thread serves, which `close` may cut off. Whether it should: False once it is closing."""
        with self._lock:
            self._client = client
            return not self._closing

    def _answer(self, line: str) -> str:
        try:
            return f"ok\n{self.execute(line)}"
        except (EmulatorError, ValueError) as error:
            return f"error\n{error}\n"
        except Exception as error:
            log.exception("a word on the control socket failed")
            return f"error\nthe switch failed on this: {type(error).__name__}: {error}\n"


def send_command(path: Path, line: str) -> str:
    """Send a line to a running switch; its answer. Raises ControlError when it refuses, or is not there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE_S)
        try:
            client.connect(str(path))
            client.sendall(f"{line}\n".encode())
            parts = []
            while part := client.recv(1 << 16):
                parts.append(part)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else "it does not answer"
            raise ControlError(
                f"no switch answers at {path}: {reason} (--device-id or --control names one)", value=str(path)
            ) from None
    verdict, _, text = b"".join(parts).decode().partition("\n")
    if verdict != "ok":
        raise ControlError(text.rstrip())
    return text


def _make_folder(folder: Path) -> None:
    """Make a folder of this user alone, or check that no other user can replace files in the one that is there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        user_ids = {status.st_uid, folder.lstat().st_uid}  # of the folder, and of a link to it
    except OSError as error:
        raise ControlError(
            f"{os.strerror(error.errno or 0)}", place=f"control socket in {folder}", value=os.strerror(error.errno or 0)
        ) from None
    if not user_ids <= {os.getuid(), 0}:
        raise ControlError("the folder is another user's; name one with --control", place=f"control socket in {folder}")
    if (by_others := status.st_mode & _BY_OTHERS) and not status.st_mode & stat.S_ISVTX:
        raise ControlError(
            f"other users can write to the folder (mode {stat.S_IMODE(status.st_mode):o}), and put a socket in this "
            "one's place; name another one with --control, or remove that right with chmod go-w",
            place=f"control socket in {folder}",
            value=by_others,
        )


def _listen(path: Path) -> socket.socket:
    """A listening socket; a file that a switch left behind when it was killed is replaced."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                try:
                    probe.connect(str(path))
                except OSError:
                    path.unlink(missing_ok=True)
        server.bind(str(path))
        path.chmod(0o600)
        server.listen()
    except OSError as error:
        server.close()
        raise ControlError(
            f"{os.strerror(error.errno or 0) if error.errno else error}",
            place=f"control socket {path}",
            value=os.strerror(error.errno or 0) if error.errno else error,
        ) from None
    return server


def _read_line(client: socket.socket) -> str:
    """Read a client's line within `_PATIENCE_S` in total. Raises TimeoutError."""
    deadline = time.monotonic() + _PATIENCE_S
    data = b""
    while b"\n" not in data and len(data) < _MAX_BYTES:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        client.settimeout(left)
        if not (part := client.recv(_MAX_BYTES)):
            break
        data += part
    return data.partition(b"\n")[0].decode(errors="replace")


def _limits(packets: int | None, octets: int | None) -> str:
    return f"{'any number of' if packets is None else packets} packets{'' if octets is None else f' or {octets} bytes'}"


def _or_none(text: str, parse: Callable[[str], int]) -> int | None:
    return None if text == _NOTHING else parse(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ControlError(f"{text!r} is not a number from 1, or `{_NOTHING}`", value=text)
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal():
        raise ControlError(f"port {text!r} is not a number, or `{ALL}`", value=text)
    return int(text)


def _priority(where: list[str]) -> int | None:
    if len(where) < 2:
        return None
    if not where[1].isdecimal() or int(where[1]) >= PRIORITIES:
        raise ControlError(f"priority {where[1]!r} is not one of 0 … {PRIORITIES - 1}", value=where[1])
    return int(where[1])
