"""Processes under test, on veth pairs in a network namespace of their own: switches, and a C program."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import finsy as fy

from weir.bench.driver import OUT_PORT
from weir.topologies.mininet.fabric import thrift_words
from weir.topologies.mininet.processes import ends_with_us, stop

WEIR: Final = (sys.executable, "-m", "weir.emulator.command")
BMV2: Final = "simple_switch_grpc"
DEVICE_ID: Final = 1

_CLONE_NEWNET: Final = 0x40000000
_START_S: Final = 60
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class P4Files:
    """A compiled program."""

    info: Path
    json: Path

    @classmethod
    def at(cls, json: Path) -> P4Files:
        """Return the BMv2 JSON with the P4Info next to it."""
        return cls(json.with_name(f"{json.stem}.p4info.txtpb"), json)


def obstacle() -> str | None:
    """Return the reason why interfaces cannot be created here; None if they can."""
    if os.geteuid() != 0:
        return "network interfaces need root"
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not on PATH"
    return None


@contextmanager
def own_namespace() -> Iterator[None]:
    """A network namespace without a name, which ends with its last process."""
    with open("/proc/thread-self/ns/net") as home:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace can be made")
        try:
            for name in ("all", "default"):
                Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            _ip("link set lo up")
            yield
        finally:
            _libc.setns(home.fileno(), _CLONE_NEWNET)


@dataclass(frozen=True, slots=True)
class Running:
    """A process that has started."""

    process_id: int
    address: str = ""
    """Address of a switch's P4Runtime server."""

    def cpu_seconds(self) -> float:
        """The processor's time that all its threads have taken so far, in the kernel too."""
        tasks = Path(f"/proc/{self.process_id}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) * 1e-9


@contextmanager
def running_switch(command: Sequence[str], folder: Path, interfaces: Sequence[str] = ()) -> Iterator[Running]:
    """A switch without a program that takes simple_switch_grpc's command line, with interfaces as ports 1 and on.

    It is there as soon as its P4Runtime server is, which listens on a socket in `folder`.
    """
    ports = [word for port, name in enumerate(interfaces, 1) for word in ("-i", f"{port}@{name}")]
    address = folder / f"{Path(command[0]).name}.sock"
    address.unlink(missing_ok=True)
    target = ["--grpc-server-addr", f"unix:{address}", "--cpu-port", "510", "--priority-queues", "8"]
    thrift = thrift_words(BMV2) if command[0] == BMV2 else []
    process = subprocess.Popen(
        [*ends_with_us("TERM"), *command, *ports, *thrift, "--no-p4", "--device-id", str(DEVICE_ID), "--", *target],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _START_S
        while not address.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start; its status is {process.poll()}")
            time.sleep(0.01)
        yield Running(process.pid, f"unix:{address}")
    finally:
        stop([process])


@contextmanager
def running_relay(compiler: str, folder: Path, interfaces: Sequence[str]) -> Iterator[Running]:
    """The C program `relay.c`, from all interfaces but the last to the last."""
    program = folder / "relay"
    source = Path(__file__).with_name("relay.c")
    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    with subprocess.Popen([*ends_with_us("TERM"), program, *interfaces], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Running(process.pid)
        finally:
            stop([process])


def load(address: str, program: P4Files, entries: Sequence[fy.P4TableEntry]) -> None:
    """Give a switch its program and entries by P4Runtime, the same way for every switch."""

    async def write() -> None:
        options = fy.SwitchOptions(p4info=program.info, p4blob=program.json, device_id=DEVICE_ID)
        async with fy.Switch("switch", address, options) as switch:
            await switch.insert(entries)

    logging.getLogger("finsy").setLevel(logging.ERROR)  # it warns that a switch has no gNMI
    asyncio.run(write())


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def make_interfaces(prefix: str) -> list[str]:
    """Veth pairs for the ports 1, 2 and 3 of a device, `prefix`1 …, with the far ends `prefix`1-far …"""
    names = [f"{prefix}{port}" for port in range(1, OUT_PORT + 1)]
    for name in names:
        _ip(f"link add {name} type veth peer name {name}-far")
        _ip(f"link set {name} up")
        _ip(f"link set {name}-far up")
    return names
