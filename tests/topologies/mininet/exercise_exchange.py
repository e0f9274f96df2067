"""Run by test_tutorials.py in a network namespace of its own, as a module with the words `KIND FOLDER PLAN.json`.

Builds an exercise of p4lang/tutorials from its files, sends the plan's frames one after the other, and prints as JSON
the frames that arrive at each host after each of them, and the lines of the exercise's controller.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from weir.cli.mininet import load_programs
from weir.experiments.backends.user_program import user_programs
from weir.topologies.exercise import Exercise, read_exercise
from weir.topologies.mininet.fabric import FIRST_GRPC_PORT, MininetFabric, SwitchKind
from weir.topologies.mininet.processes import run_until_ended

PATIENCE_S: Final = 60.0
QUIET_S: Final = 0.5
"""Time without frames after which the last frame has caused no more of them."""
CLONE_NEWNET: Final = 0x4000_0000
PACKET_IGNORE_OUTGOING: Final = 23
SOL_PACKET: Final = 263
ALL_PROTOCOLS: Final = 0x0003

Arrival = tuple[str, str]
"""Host, and frame in hex."""


class Controller:
    """A controller's process, whose output is read while it runs."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: list[str] = []
        self._more = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Controller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._more:
                self._lines.append(line.rstrip("\n"))
                self._more.notify_all()

    def wait_for(self, pattern: str) -> None:
        """Wait until a whole line of the output matches. Raises AssertionError with the output after a minute."""
        with self._more:
            found = self._more.wait_for(lambda: self.lines(pattern), PATIENCE_S)
            assert found, f"no line {pattern!r} of the controller:\n" + "\n".join(self._lines)

    def lines(self, pattern: str) -> list[str]:
        """Lines of the output that match, each once, in order."""
        return list(dict.fromkeys(line for line in self._lines if re.fullmatch(pattern, line)))


def packet_socket(pid: int) -> socket.socket:
    """Socket for frames at the interface eth0 of the namespace that a process is in."""

    def bind() -> socket.socket:
        with open(f"/proc/{pid}/ns/net", "rb") as namespace:  # this thread moves there, and ends
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        new = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        new.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        new.bind(("eth0", ALL_PROTOCOLS))
        return new

    with ThreadPoolExecutor(1) as apart:
        return apart.submit(bind).result()


def arrivals(sockets: Mapping[str, socket.socket], expected: int) -> list[Arrival]:
    """The expected number of frames, waited for at most a minute, and those that come besides."""
    by_socket = {each: host for host, each in sockets.items()}
    found: list[Arrival] = []
    deadline = time.monotonic() + PATIENCE_S
    while ready := select.select(
        by_socket, [], [], max(0, deadline - time.monotonic()) if len(found) < expected else QUIET_S
    )[0]:
        found += [(by_socket[each], each.recv(1 << 16).hex()) for each in ready]
    return sorted(found)


def load(exercise: Exercise, fabric: MininetFabric) -> None:
    """Write the programs and entries that the exercise's files name, as `weir mininet` does."""
    names = [switch.name for switch in exercise.topology.switches]
    entries = {name: [file] for name, file in exercise.runtime.items()}
    run_until_ended(load_programs(fabric, user_programs(names, None, None, entries, exercise.programs)))


def run(kind: SwitchKind, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Arrivals after each of the plan's frames, and the controller's lines."""
    exercise = read_exercise(Path(plan["topology"]))
    command = plan["controller"]
    with ExitStack() as stack:
        fabric = stack.enter_context(
            MininetFabric(
                exercise.topology,
                kind,
                first_grpc_port=FIRST_GRPC_PORT if command else None,
                hosts=exercise.hosts,
                device_ids=exercise.device_ids,
            )
        )
        controller = stack.enter_context(Controller(command)) if command else None
        if controller is None:
            load(exercise, fabric)
        sockets = {}
        for host in exercise.topology.hosts:
            fabric.popen(host.name, ["ip", "address", "flush", "dev", "eth0"]).wait()  # the kernel is not to answer
            sockets[host.name] = stack.enter_context(packet_socket(fabric.pids[host.name]))
        seen = []
        for step in plan["steps"]:
            if controller is not None:
                controller.wait_for(step["after"])
            sockets[step["host"]].send(bytes.fromhex(step["frame"]))
            seen.append(arrivals(sockets, step["expected"]))
        for pattern in plan["awaited"]:
            assert controller is not None
            controller.wait_for(pattern)
        told = [controller.lines(pattern) for pattern in plan["told"]] if controller is not None else []
    return {"arrivals": seen, "told": told}


if __name__ == "__main__":
    kind, folder, plan = SwitchKind(sys.argv[1]), Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text())
    os.chdir(folder)
    sys.stdout.write(json.dumps(run(kind, plan)) + "\n")
