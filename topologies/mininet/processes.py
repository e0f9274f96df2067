"""Processes, ports, interfaces and signals of a real fabric, and the means to end all of them in every case."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from ..errors import TopologyError

LOOK_S: Final = 0.05
"""Polling interval while waiting for a condition."""

_STOP_S: Final = 10.0
_OWNER: Final = "weir-mininet-"
"""The alias of an interface that was made here begins so, and ends with the number of the process that made it."""
_Result = TypeVar("_Result")
_END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def check_free(name: str, address: str) -> None:
    """Check that a switch's HOST:PORT is free.

    Raises:
        TopologyError: It is taken; the error names the switch.
    """
    if address.startswith("unix:"):
        return
    host, _, port = address.rpartition(":")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, int(port)))
        except OSError as error:
            raise TopologyError(
                f"cannot have {address} for P4Runtime: {error.strerror}; choose another first port",
                place=name,
                value=address,
            ) from None


@contextmanager
def claimed(name: str, address: str) -> Iterator[None]:
    """No other fabric may have a switch at this address meanwhile, also before the switch listens there. Raises
    TopologyError, in the name of the switch, where one has.
    """
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(f"\0{_OWNER}{hashlib.sha256(address.encode()).hexdigest()}")
        except OSError:
            raise TopologyError(
                f"cannot have {address} for P4Runtime, which another fabric has that is being started or runs; "
                "choose another first port or folder",
                place=name,
                value=address,
            ) from None
        yield


def free_ports(first: int) -> Iterator[int]:
    """Yield TCP ports from `first` on without a listener on this machine."""
    for port in range(first, 65_536):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                listener.bind(("", port))
                yield port


def answers(address: str) -> bool:
    """Return True if HOST:PORT or unix:PATH accepts connections."""
    if address.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(address.removeprefix("unix:")) == 0
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


class Signalled(Protocol):
    """A process that was started."""

    def send_signal(self, signal: int, /) -> None:
        """Same contract as `subprocess.Popen.send_signal`."""


def ends_with_us(signal_name: str) -> list[str]:
    """Return words in front of a command: it gets this signal when the thread that starts it ends, even by SIGKILL."""
    return ["setpriv", "--pdeathsig", signal_name]


def may_end_with_us(signal_name: str) -> list[str]:
    """Return the same where the machine can do that, else none."""
    return ends_with_us(signal_name) if shutil.which("setpriv") else []


def own(interface: str) -> None:
    """Note at a network interface that this process has made it. The note ends with the interface."""
    subprocess.run(["ip", "link", "set", "dev", interface, "alias", f"{_OWNER}{os.getpid()}"], check=True)


def remove_orphans(interfaces: Collection[str]) -> None:
    """Remove those of these interfaces, with their peers, whose maker was killed before it could; no others."""
    listed = subprocess.run(["ip", "-json", "link", "show"], capture_output=True, text=True, check=True)
    for link in json.loads(listed.stdout):
        name, alias = link["ifname"], link.get("ifalias", "")
        if name in interfaces and alias.startswith(_OWNER) and not os.path.exists(f"/proc/{alias[len(_OWNER) :]}"):
            # a host's namespace, which ends by itself, may take it away meanwhile
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


def stop(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """Ask all to end, then see to it."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def stop_beside(pids: Collection[int]) -> None:
    """End whatever lives in the network namespaces of these processes, but not these; our own namespace is spared."""
    spaces = {space for pid in pids if (space := _network_of(pid))} - {_network_of(os.getpid())}
    deadline = time.monotonic() + _STOP_S
    number = signal.SIGTERM
    while others := [pid for pid in _all_pids() if pid not in pids and _network_of(pid) in spaces]:
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(LOOK_S)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _network_of(pid: int) -> str | None:
    """The network namespace that a process lives in; None for one that has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def _in_main_thread() -> bool:
    """Only there may signals be handled."""
    return threading.current_thread() is threading.main_thread()


def ignore_end_signals() -> None:
    """Ignore signals that end the program, until `orderly_end` is left."""
    if _in_main_thread():
        for number in _END_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


class End:
    """The end of this program by a signal: a flag, which event loops and emulation loops look at.

    The handler sets the flag. It raises an exception only where nothing else would notice: outside `run` and `later`,
    in synchronous code that waits. Compiled code, such as gRPC's poller, would swallow an exception or hang by it.
    """

    def __init__(self) -> None:
        self.by = signal.SIGINT
        """The signal; SIGINT if none was received."""
        self.asked = False
        self._later = 0
        self._cancel: Callable[[], object] | None = None

    def check(self) -> None:
        """Raise SystemExit, or KeyboardInterrupt for SIGINT, once the program was asked to end."""
        if self.asked:
            if self.by is signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + self.by)

    def run(self, main: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in a new event loop and return its result; a signal cancels it, and `check` then raises."""

        async def cancellable() -> _Result:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            self._cancel = partial(loop.call_soon_threadsafe, task.cancel)
            if self.asked:
                task.cancel()
            try:
                return await main
            finally:
                self._cancel = None

        with self.later():
            try:
                return asyncio.run(cancellable())
            except (Exception, asyncio.CancelledError):
                self.check()
                raise

    @contextmanager
    def later(self) -> Iterator[None]:
        """Context in which a signal only sets the flag."""
        self._later += 1
        try:
            yield
        finally:
            self._later -= 1

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Context in which a signal raises, also inside `later`: for work that checks no flag."""
        before, self._later = self._later, 0
        try:
            self.check()
            yield
        finally:
            self._later = before

    def on_signal(self, number: int, _: object) -> None:
        """Handle a signal by ending in order."""
        self.by, self.asked = signal.Signals(number), True
        if self._cancel is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                self._cancel()
        elif not self._later:
            self.check()


_ends: list[End] = []
"""The one that signals go to, as often as `orderly_end` is entered."""


def run_until_ended(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Call `End.run`, within `orderly_end` or without it."""
    return (_ends[-1] if _ends else End()).run(main)


def is_ending() -> bool:
    """Return whether a signal has asked this program to end: an emulation loop then lets the event loop cancel it."""
    return bool(_ends) and _ends[-1].asked


@contextmanager
def orderly_end() -> Iterator[End]:
    """SIGINT, SIGTERM and SIGHUP end the program by way of `End`; afterwards they do what they did before."""
    if not _in_main_thread():
        yield End()
        return
    last_end = _ends[-1] if _ends else End()
    _ends.append(last_end)
    try:
        with _handled_by(last_end.on_signal, _END_SIGNALS):
            yield last_end
    finally:
        _ends.pop()


@contextmanager
def passing_on_end_signals() -> Iterator[Callable[[Signalled], None]]:
    """Pass SIGTERM and SIGHUP on to processes, whose end this program waits for.

    Yields:
        A function that adds a process. One that is added after a signal has come is sent it as well.
    """
    processes: list[Signalled] = []
    came: list[int] = []

    def send(process: Signalled, number: int) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    def pass_on(number: int, _: object) -> None:
        came.append(number)
        for process in processes:
            send(process, number)

    def add(process: Signalled) -> None:
        processes.append(process)
        for number in came:
            send(process, number)

    with _handled_by(pass_on, (signal.SIGTERM, signal.SIGHUP)):
        yield add


@contextmanager
def _handled_by(handler: Callable[[int, object], None], numbers: Collection[signal.Signals]) -> Iterator[None]:
    """Afterwards all signals that end a program do what they did before. One that is ignored stays so (nohup)."""
    before = {number: signal.getsignal(number) for number in _END_SIGNALS}
    for number in numbers:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
