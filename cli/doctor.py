"""Findings of `weir doctor`: the parts of this machine that Weir can use, the purpose of each, and how to install it.

An installation requires only the parts for joining jobs; a clone requires those of `make demo` and `make test`; the
rest is optional. Each finding is tried, not guessed: a namespace is made and deleted, a link is shaped, a port is
bound. The bare installation suffices for all of this.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..imports.extras import DISTRIBUTION, PURPOSES, install_command
from ..machine_code import cache
from ..topologies import TopologyError
from ..topologies.mininet.fabric import FIRST_GRPC_PORT, load_mininet

P4RUNTIME_PORT: Final = 9559
_OLDEST_PYTHON: Final = (3, 11)
_P4C_HOME: Final = "https://github.com/p4lang/p4c#getting-started"
_BMV2_HOME: Final = "https://github.com/p4lang/behavioral-model#installing-bmv2"
_COMMAND_S: Final = 30
_HOME: Final = Path(__file__).parents[1]
"""The folder of the package, which is a clone if it has the Makefile."""

_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^]]*)\])?\s*(?P<versions>[^;]*?)\s*(?:;(?P<marker>.*))?"
)
_EXTRA: Final = re.compile(r"""extra\s*==\s*["'](?P<extra>[\w-]+)["']""")
_COLOURS: Final = {"ok": 32, "missing": 31, "not here": 33}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for."""

    name: str
    purpose: str
    """Purpose of the part."""
    required: bool
    """True if the part is required: by an installation to do anything, by a clone for `make demo` or `make test`."""
    found: str | None
    """The part that was found; None when it is missing."""
    problem: str | None = None
    """Reason that it counts as missing."""
    remedy: str | None = None
    """Command that installs it; None if it is there."""

    @property
    def ok(self) -> bool:
        """True if the part was found."""
        return self.found is not None


def report(as_json: bool) -> bool:
    """Print the findings, as lines or as JSON; whether all that is required is there."""
    clone = is_clone()
    findings = list(examine(clone))
    healthy = all(finding.ok for finding in findings if finding.required)
    if as_json:
        listed = [{"ok": finding.ok, **asdict(finding)} for finding in findings]
        sys.stdout.write(json.dumps({"ok": healthy, "findings": listed}) + "\n")
        return healthy
    for finding in findings:
        _print(finding)
    needed = "everything that make demo and make test need" if clone else "everything that joining jobs needs"
    missed = sum(not finding.ok and not finding.required for finding in findings)
    optional = f"; of the optional things {missed} are not here" if missed else ""
    sys.stdout.write(f"{f'{needed} is there' if healthy else 'something needed is missing'}{optional}\n")
    return healthy


def is_clone() -> bool:
    """Return whether this is a clone of the repository, with its tests, rather than an installed package."""
    return (_HOME / "Makefile").exists() and (_HOME / "tests").is_dir()


def examine(clone: bool) -> Iterator[Finding]:
    """Yield every finding, required ones first."""
    yield _python(clone)
    needed = _requirements(None) | (_requirements("dev") if clone else {})
    yield _packages(needed, clone)
    runs_switches = clone or not _complaints(_requirements("emulator"))
    yield _cache(runs_switches)
    yield _loopback(runs_switches)
    for extra, purpose in PURPOSES.items():
        if not _requirements(extra).items() <= needed.items():
            yield _extra(extra, purpose)
    yield _root()
    yield from _network()
    yield _command("ethtool", "Mininet: switching offloads off", "apt-get install ethtool", ["ethtool", "--version"])
    yield _command("ping", "pingall in Mininet", "apt-get install iputils-ping", ["ping", "-V"])
    yield _mininet()
    compiling = "compiling P4 (weir stf PROGRAM.p4" + (", make p4)" if clone else ")")
    yield _command("p4c-bm2-ss", compiling, f"build it: {_P4C_HOME}", ["p4c-bm2-ss", "--version"])
    yield _ptf()
    yield _command(
        "simple_switch_grpc",
        "bmv2 as the switch (--switch bmv2)",
        f"build it: {_BMV2_HOME}",
        ["simple_switch_grpc", "-v"],
    )
    yield _ports("P4Runtime port", [P4RUNTIME_PORT], "weir ptf" + (" and make shell" if clone else ""))
    yield _ports(
        "Mininet's P4Runtime ports", list(range(FIRST_GRPC_PORT, FIRST_GRPC_PORT + 8)), "weir mininet --grpc-port"
    )


def _python(clone: bool) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= _OLDEST_PYTHON
    anew = "make clean demo" if clone else "install weir there"
    return Finding(
        "Python",
        "everything",
        True,
        f"{version}, {sys.executable}" if good else None,
        None if good else f"this is {version}; 3.11 is the oldest that will do",
        None if good else f"apt-get install python3 python3-venv (Debian 12 or later), then {anew}",
    )


def _requirements(extra: str | None) -> dict[str, str]:
    """Required versions by package: the distribution's own, or those that one extra brings."""
    try:
        lines = metadata.requires(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return {DISTRIBUTION: ""}
    wanted: dict[str, str] = {}
    for line in lines:
        if (parts := _REQUIREMENT.fullmatch(line)) is None:
            continue
        marker = _EXTRA.search(parts["marker"] or "")
        if (marker["extra"] if marker else None) != extra:
            continue
        if parts["name"] == DISTRIBUTION:
            for name in parts["extras"].split(","):
                wanted |= _requirements(name.strip())
        else:
            wanted[parts["name"]] = parts["versions"]
    return wanted


def _complaints(wanted: Mapping[str, str]) -> list[str]:
    """Describe missing or unsuitable packages. Versions count if `packaging` is installed, as in a clone."""
    if compared := find_spec("packaging") is not None:
        from packaging.specifiers import SpecifierSet
    complaints = []
    for name, versions in wanted.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            complaints.append(f"{name} is not installed")
            continue
        if compared and not SpecifierSet(versions).contains(version, prereleases=True):
            complaints.append(f"{name} is {version}, not {versions}")
    return complaints


def _packages(needed: Mapping[str, str], clone: bool) -> Finding:
    """Find the required packages; in a clone those of the tests as well."""
    purpose = "everything" if clone else "joining jobs: weir.join, parameter servers"
    if problems := _complaints(needed):
        remedy = f"{sys.executable} -m pip install " + ("--editable '.[dev]'" if clone else DISTRIBUTION)
        return Finding("Python packages", purpose, True, None, "; ".join(problems), remedy)
    return Finding("Python packages", purpose, True, f"all {len(needed)}")


def _extra(extra: str, purpose: str) -> Finding:
    wanted = _requirements(extra)
    name = f"{DISTRIBUTION}[{extra}]"
    if problems := _complaints(wanted):
        remedy = f"{sys.executable} -m {install_command(extra)}"
        return Finding(name, purpose, False, None, "; ".join(problems), remedy)
    return Finding(name, purpose, False, f"all {len(wanted)} packages")


def _cache(required: bool) -> Finding:
    purpose = "the switch programs' native code"
    folder = cache.directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = f"{folder}: cannot be written to: {error.strerror}"
        return Finding("cache folder", purpose, required, None, problem, "name one that can be, by WEIR_CACHE=FOLDER")
    return Finding("cache folder", purpose, required, str(folder))


def _loopback(required: bool) -> Finding:
    purpose = "P4Runtime between controller and switches"
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
    except OSError as error:
        return Finding("loopback", purpose, required, None, f"127.0.0.1: {error.strerror}", "ip link set lo up")
    return Finding("loopback", purpose, required, "127.0.0.1 accepts listeners")


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


def _ptf() -> Finding:
    purpose = "p4lang's packet tests on an emulated switch (weir ptf)"
    missing = [name for name in ("ptf", "scapy") if find_spec(name) is None]
    if missing:
        remedy = f"{sys.executable} -m pip install --no-deps ptf scapy"
        return Finding("PTF", purpose, False, None, f"{' and '.join(missing)}: not installed", remedy)
    return Finding("PTF", purpose, False, f"ptf {metadata.version('ptf')}")


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
    """Run a command; return its error in one line, or None."""
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
    mark = "ok" if finding.ok else "missing" if finding.required else "not here"
    optional = "" if finding.required else " (optional)"
    lines = [
        f"{_coloured(mark)} {finding.name}: {finding.found or finding.problem or ''}",
        f"         for {finding.purpose}{optional}",
        *([f"         → {finding.remedy}"] if finding.remedy is not None else []),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _coloured(mark: str) -> str:
    padded = f"{mark:8}"
    return f"\x1b[{_COLOURS[mark]}m{padded}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else padded
