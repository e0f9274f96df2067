"""`weir doctor`: what this machine has of what Weir can use, what each thing is for, and how to get it.

What `make demo` and `make test` need is required; the rest widens what can be run. Each finding is tried, not guessed:
a namespace is made and deleted, a link is shaped, a port is bound.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from ...topologies import TopologyError
from ...topologies.mininet.fabric import FIRST_GRPC_PORT, load_mininet

P4RUNTIME_PORT: Final = 9559
_OLDEST_PYTHON: Final = (3, 11)
_P4C_HOME: Final = "https://github.com/p4lang/p4c#getting-started"
_BMV2_HOME: Final = "https://github.com/p4lang/behavioral-model#installing-bmv2"
_COMMAND_S: Final = 30

_console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for."""

    name: str
    purpose: str
    """What it is for."""
    required: bool
    """Whether `make demo` or `make test` cannot do without."""
    found: str | None
    """What there is; None when it is missing."""
    problem: str | None = None
    """Why it counts as missing."""
    remedy: str | None = None
    """How to get it; None when it is there."""

    @property
    def ok(self) -> bool:
        return self.found is not None


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON instead of lines.")] = False,
) -> None:
    """Check this machine; exit status 1 when something that make demo or make test needs is missing."""
    findings = list(examine())
    healthy = all(finding.ok for finding in findings if finding.required)
    if as_json:
        listed = [{"ok": finding.ok, **asdict(finding)} for finding in findings]
        sys.stdout.write(json.dumps({"ok": healthy, "findings": listed}) + "\n")
    else:
        for finding in findings:
            _print(finding)
        missing = sum(not finding.ok for finding in findings)
        verdict = "everything that make demo and make test need is there" if healthy else "something needed is missing"
        missed = f"; {missing} of {len(findings)} things are missing" if missing else ""
        _console.print(verdict + missed, soft_wrap=True)
    if not healthy:
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Every finding, what is required first."""
    yield _python()
    yield _packages()
    yield _cache()
    yield _loopback()
    yield _root()
    yield from _network()
    yield _command("ethtool", "Mininet: switching offloads off", "apt-get install ethtool", ["ethtool", "--version"])
    yield _command("ping", "pingall in Mininet", "apt-get install iputils-ping", ["ping", "-V"])
    yield _mininet()
    yield _command(
        "p4c-bm2-ss", "recompiling edited P4 (make p4)", f"build it: {_P4C_HOME}", ["p4c-bm2-ss", "--version"]
    )
    yield _command(
        "simple_switch_grpc",
        "bmv2 as the switch (--switch bmv2)",
        f"build it: {_BMV2_HOME}",
        ["simple_switch_grpc", "-v"],
    )
    yield _ports("P4Runtime port", [P4RUNTIME_PORT], "weir-switch and make shell")
    yield _ports("Mininet's P4Runtime ports", list(range(FIRST_GRPC_PORT, FIRST_GRPC_PORT + 8)), "weir mininet")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= _OLDEST_PYTHON
    return Finding(
        "Python",
        "everything",
        True,
        f"{version}, {sys.executable}" if good else None,
        None if good else f"this is {version}; 3.11 is the oldest that will do",
        None if good else "apt-get install python3 python3-venv (Debian 12 or later), then make clean demo",
    )


def _packages() -> Finding:
    """The distribution's own requirements, those of the tests included, at the versions that it asks for."""
    purpose, remedy = "everything", f"{sys.executable} -m pip install --editable '.[dev]'"
    try:
        from packaging.requirements import Requirement

        wanted = [Requirement(line) for line in metadata.requires("weir") or ()]
    except (ImportError, metadata.PackageNotFoundError) as error:
        return Finding("Python packages", purpose, True, None, f"not installed: {error.name}", remedy)
    problems, count = [], 0
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": "dev"}):
            continue
        count += 1
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement.name} is {version}, not {requirement.specifier}")
    if problems:
        return Finding("Python packages", purpose, True, None, "; ".join(problems), remedy)
    return Finding("Python packages", purpose, True, f"all {count}")


def _cache() -> Finding:
    from ...emulator import cache

    folder, purpose = cache.directory(), "the switch programs' native code"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = f"{folder}: cannot be written to: {error.strerror}"
        return Finding("cache folder", purpose, True, None, problem, "name one that can be, by WEIR_CACHE=FOLDER")
    return Finding("cache folder", purpose, True, str(folder))


def _loopback() -> Finding:
    purpose = "P4Runtime between controller and switches"
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
    except OSError as error:
        return Finding("loopback", purpose, True, None, f"127.0.0.1: {error.strerror}", "ip link set lo up")
    return Finding("loopback", purpose, True, "127.0.0.1 accepts listeners")


def _root() -> Finding:
    purpose = "Mininet, and weir-switch on interfaces"
    if os.geteuid() == 0:
        return Finding("root", purpose, False, "running as root")
    return Finding("root", purpose, False, None, f"running as user {os.geteuid()}", "run the command by sudo")


def _network() -> Iterator[Finding]:
    """Try namespaces, veth and netem in a namespace of our own."""
    space = f"weir-doctor-{os.getpid()}"
    inside = ["ip", "-n", space]
    steps = [
        (
            "network namespaces",
            "Mininet's hosts, and the tests of weir-switch",
            ["ip", "netns", "add", space],
            "as root, on a machine or in a container that may make them; ip is in Debian's iproute2",
        ),
        (
            "veth",
            "links between hosts and switches",
            [*inside, "link", "add", "name", "end1", "type", "veth", "peer", "name", "end2"],
            "modprobe veth",
        ),
        (
            "netem",
            "delay and loss of links in Mininet",
            ["tc", "-n", space, "qdisc", "add", "dev", "end1", "root", "netem", "delay", "1ms"],
            "modprobe sch_netem; Debian's linux-image-amd64 has it, kernels of containers and small machines may not",
        ),
    ]
    before: str | None = None
    made = False
    try:
        for name, purpose, command, remedy in steps:
            problem = f"needs {before}" if before else _complaint(command)
            made = made or (name == "network namespaces" and problem is None)
            if problem is None:
                yield Finding(name, purpose, False, "tried: it works")
            else:
                yield Finding(name, purpose, False, None, problem, remedy)
                before = before or name
    finally:
        if made:
            _complaint(["ip", "netns", "delete", space])


def _mininet() -> Finding:
    purpose = "fabrics of real processes and packets (weir mininet)"
    try:
        version = str(load_mininet("mininet.net").VERSION)
    except TopologyError as error:
        problem, _, remedy = str(error).partition(": ")
        return Finding("Mininet", purpose, False, None, problem, remedy)
    if shutil.which("mnexec") is None:
        return Finding("Mininet", purpose, False, None, "its mnexec is not on PATH", "apt-get install mininet")
    return Finding("Mininet", purpose, False, f"{version}, this Python imports it")


def _command(name: str, purpose: str, remedy: str, command: list[str]) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, purpose, False, None, "not on PATH", remedy)
    if (problem := _complaint(command)) is not None:
        return Finding(name, purpose, False, None, f"{path} does not run: {problem}", remedy)
    return Finding(name, purpose, False, path)


def _ports(name: str, ports: list[int], purpose: str) -> Finding:
    taken = [port for port in ports if not _is_free(port)]
    listed = f"{ports[0]}…{ports[-1]}" if len(ports) > 1 else str(ports[0])
    if taken:
        problem = f"taken on 127.0.0.1: {', '.join(map(str, taken))}"
        return Finding(name, purpose, False, None, problem, "end what listens there (ss -ltnp), or choose another port")
    return Finding(name, purpose, False, f"{listed}: free")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _complaint(command: list[str]) -> str | None:
    """Run a command; what it complains of in one line, or None."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
    except FileNotFoundError:
        return f"the command {command[0]} is not on PATH"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"


def _print(finding: Finding) -> None:
    mark = "[green]ok     [/]" if finding.ok else "[red]missing[/]" if finding.required else "[yellow]missing[/]"
    optional = "" if finding.required else " (optional)"
    _console.print(f"{mark} [bold]{finding.name}[/]: {escape(finding.found or finding.problem or '')}", soft_wrap=True)
    _console.print(f"        for {escape(finding.purpose)}{optional}", soft_wrap=True)
    if finding.remedy is not None:
        _console.print(f"        → {escape(finding.remedy)}", soft_wrap=True)
