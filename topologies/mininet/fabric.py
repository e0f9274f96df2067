"""A fabric in Mininet: hosts in network namespaces, one process for each switch, real packets.

::

    h1 (own namespace) h1-eth0 ══ s1-p1 ┐
                                        ├ weir-switch or simple_switch_grpc, P4Runtime on a unix socket
    h2 (own namespace) h2-eth0 ══ s1-p2 ┘

Switches run in the namespace of whoever starts them, as Mininet's do, and are started by their command lines. They come
up without a program: whoever starts the fabric loads one and writes the entries. Linux and root; Mininet itself is
Debian's package, and is imported only when a fabric is built.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ..errors import TopologyError
from ..exercise import ExerciseHost
from ..model import Endpoint, Host, Link, Switch, Topology
from ..targets import BMV2, SIMPLE_SWITCH, Target
from ..units import format_rate
from .processes import (
    LOOK_S,
    answers,
    check_free,
    claimed,
    ends_with_us,
    free_ports,
    ignore_end_signals,
    orderly_end,
    own,
    remove_orphans,
    stop,
    stop_beside,
)
from .scratch import scratch_folder

FIRST_GRPC_PORT: Final = 50_051
FIRST_THRIFT_PORT: Final = 9_090
"""simple_switch_CLI's, where bmv2 was built with Thrift."""
HOST_ROUTE: Final = "10.0.0.0/8"
"""The network that holds every host's address and every switch's loopback."""

_DEBIAN_PACKAGES: Final = "/usr/lib/python3/dist-packages"
_COMMANDS: Final = {"mnexec": "mininet", "ip": "iproute2", "ethtool": "ethtool", "ifconfig": "net-tools"}
_OFFLOADS: Final = "tx off rx off tso off gso off gro off"
_NETEM_LIMIT_PACKETS: Final = 100_000
_FRAME_BYTES: Final = 1500
_BURST_BYTES: Final = 10 * _FRAME_BYTES
_TAIL_LINES: Final = 6
_CLONE_NEWNET: Final = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)
_START_S: Final = 120.0
"""The very first weir-switch on a machine compiles its packet loop."""


class SwitchKind(StrEnum):
    """Program that a switch runs."""

    WEIR = "weir"
    BMV2 = "bmv2"


_REMEDY: Final = {
    SwitchKind.WEIR: "install weir with its extra emulator there",
    SwitchKind.BMV2: "build it: https://github.com/p4lang/behavioral-model#installing-bmv2",
}
EXECUTABLE: Final = {SwitchKind.WEIR: "weir-switch", SwitchKind.BMV2: "simple_switch_grpc"}


def load_mininet(module: str) -> Any:
    """Return a module of Mininet, such as `mininet.net`. Raises TopologyError that says how to get it.

    Where the environment has none of its own, Debian's package is looked for, and nothing else is taken from there that
    the environment has.
    """
    debian = _DEBIAN_PACKAGES not in sys.path
    if debian:
        sys.path.append(_DEBIAN_PACKAGES)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == "distutils":
            raise TopologyError(
                f"Mininet imports distutils, which Python {sys.version_info.major}.{sys.version_info.minor} no longer "
                f"has: {sys.executable} -m pip install setuptools",
                value=sys.version_info.major,
            ) from None
        raise TopologyError("apt-get install mininet", place="Mininet") from None
    finally:
        if debian:
            sys.path.remove(_DEBIAN_PACKAGES)


def obstacle(kind: SwitchKind = SwitchKind.WEIR) -> str | None:
    """Return the reason why a fabric with such switches cannot be built on this machine, in one line, or None."""
    if os.geteuid() != 0:
        return "Mininet needs root, for it makes network namespaces"
    try:
        load_mininet("mininet.net")
    except TopologyError as error:
        return str(error)
    for command, package in _COMMANDS.items():
        if shutil.which(command) is None:
            return f"the command {command} is not on PATH: apt-get install {package}"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        return "this machine lets nobody make a network namespace"
    if _executable(kind) is None:
        return f"{EXECUTABLE[kind]} is not on PATH; {_REMEDY[kind]}"
    return None


def takes_thrift_port(executable: str) -> bool:
    """Return True if a simple_switch_grpc was built with Thrift, as bmv2's default build is.

    Such a switch always listens at a Thrift port; one without Thrift refuses the option.
    """
    said = subprocess.run([executable, "--help"], capture_output=True, text=True, check=False)
    return "--thrift-port" in said.stdout + said.stderr


def thrift_words(executable: str, first: int = FIRST_THRIFT_PORT) -> list[str]:
    """Return options that give one bmv2 a free Thrift port, from `first` on; none for one without Thrift."""
    return ["--thrift-port", str(next(free_ports(first)))] if takes_thrift_port(executable) else []


def switch_command(
    topology: Topology,
    switch: Switch,
    kind: SwitchKind,
    grpc_address: str,
    *,
    device_id: int | None = None,
    thrift_port: int | None = None,
    captures: Path | None = None,
    log: Path | None = None,
) -> list[str]:
    """Return the command line of one switch; only weir-switch takes the links' rates and queues.

    Args:
        topology: Fabric.
        switch: Switch of it.
        kind: Software of the switch.
        grpc_address: Address at which it serves P4Runtime.
        device_id: P4Runtime's device id; None: that of the fabric's file.
        thrift_port: Port of bmv2's Thrift server; None: not passed.
        captures: Folder for captures of its interfaces; None: no captures.
        log: File for its packet log; None: no log.
    """
    ports = topology.neighbours(switch.name)
    command = [EXECUTABLE[kind], "--no-p4", "--device-id", str(switch.device_id if device_id is None else device_id)]
    for port in ports:
        command += ["-i", f"{port}@{interface(Endpoint(switch.name, port))}"]
    if captures is not None:
        command += ["--pcap", str(captures)]
    if log is not None:
        command += ["--log-file", str(log), "--log-level", "debug"]
    target = ["--", "--grpc-server-addr", grpc_address, "--cpu-port", str(switch.target.cpu_port)]
    if kind == SwitchKind.BMV2:
        quiet = ["--log-level", "off"] if log is None else ["--log-flush"]
        thrift = [] if thrift_port is None else ["--thrift-port", str(thrift_port)]
        return [*command, *quiet, *thrift, *target, "--priority-queues", "8"]
    for port in ports:
        link = topology.link_at(Endpoint(switch.name, port))
        command += ["--port-rate", f"{port}={format_rate(link.rate_bps)}"]
        command += ["--queue-depth", f"{port}={link.queue_packets}"]
    return [*command, *target]


def netem_command(end: Endpoint, link: Link) -> str:
    """Return the command that sets a link's delay and loss in the direction that leaves through `end`."""
    shape = f"limit {_NETEM_LIMIT_PACKETS} delay {link.delay_ns / 1e3:.9g}us loss {100 * link.loss:.9g}%"
    return f"tc qdisc add dev {interface(end)} root netem {shape}"


def rate_command(end: Endpoint, link: Link) -> str:
    """Return the command that sets a link's rate and queue in the direction that leaves through `end`."""
    queue_bytes = link.queue_packets * _FRAME_BYTES
    return (
        f"tc qdisc add dev {interface(end)} root tbf rate {link.rate_bps}bit burst {_BURST_BYTES} limit {queue_bytes}"
    )


def interface(end: Endpoint) -> str:
    """Name of the network interface at a link's end: `s1-p3`, or `h1-eth0`; at most the kernel's 15 characters."""
    return str(end) if end.port else f"{end.node}-eth0"


def _with_switches_of(topology: Topology, kind: SwitchKind) -> Topology:
    """The fabric with switches as processes of this kind.

    Their ports have strict priorities, without a minimum share. simple_switch_grpc has the limits of its target, too.
    """
    clone_classes, present_lanes = True, BMV2.present_lanes
    if kind == SwitchKind.BMV2:
        clone_classes, present_lanes = SIMPLE_SWITCH.clone_classes, SIMPLE_SWITCH.present_lanes

    def limited(target: Target) -> Target:
        least = min(target.present_lanes, present_lanes)
        return replace(target, clone_classes=clone_classes, minimum_share=0.0, present_lanes=least)

    switches = (replace(switch, target=limited(switch.target)) for switch in topology.switches)
    return replace(topology, switches=tuple(switches))


class MininetFabric:
    """A running fabric; a context manager that stops everything it started, and nothing else.

    Raises:
        TopologyError: The machine lacks something, or a part does not start; one line.
    """

    def __init__(
        self,
        topology: Topology,
        kind: SwitchKind = SwitchKind.WEIR,
        *,
        first_grpc_port: int | None = None,
        sockets: Path | None = None,
        captures: Path | None = None,
        logs: Path | None = None,
        hosts: Mapping[str, ExerciseHost] | None = None,
        device_ids: Mapping[str, int] | None = None,
    ) -> None:
        """Create the fabric.

        Args:
            topology: Hosts, switches and links.
            kind: Program that switches run.
            first_grpc_port: First of the ports of 127.0.0.1 on which the switches' P4Runtime servers listen, open to
                every user of this machine; None: they listen on unix sockets, which only this user may connect to.
            sockets: Folder of these sockets, each with its switch's name; default: a temporary one.
            captures: Existing folder for every switch's packets.
            logs: Existing folder for every switch's packet log.
            hosts: Hosts with a custom set-up.
            device_ids: P4Runtime device ids that differ from the topology's.
        """
        self.topology = _with_switches_of(topology, kind)
        """The fabric as its switches are."""
        self.kind = kind
        self.addresses: Mapping[str, str] = {} if first_grpc_port is None else _ports(topology, first_grpc_port)
        """P4Runtime address of each switch: of sockets, once the fabric is entered."""
        self._sockets = sockets
        self.thrift_ports: Mapping[str, int] = {}
        """Thrift port of each bmv2 that was built with Thrift, for simple_switch_CLI."""
        self._captures = captures
        self._packet_logs = logs
        self._hosts = hosts or {}
        self.device_ids = {switch.name: switch.device_id for switch in topology.switches} | dict(device_ids or {})
        """P4Runtime's, by the switches' names."""
        self.notes: list[str] = []
        """Fabric features unsupported by this machine or switch target."""
        self.net: Any = None
        """Mininet's own `Mininet` object."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: list[subprocess.Popen[Any]] = []
        self._stack = ExitStack()

    def __enter__(self) -> MininetFabric:
        if (reason := obstacle(self.kind)) is not None:
            raise TopologyError(reason)
        for name, address in self.addresses.items():
            check_free(name, address)
        try:
            self._stack.enter_context(orderly_end())
            self._logs = self._stack.enter_context(scratch_folder("weir-mininet-"))
            if not self.addresses:
                self.addresses = _sockets(self.topology, self._sockets or self._logs)
            for name, address in self.addresses.items():
                self._stack.enter_context(claimed(name, address))
            self._build()
            self._start_switches()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        ignore_end_signals()  # the end is not to be interrupted; its last step puts back what was
        self._stack.callback(self._stop_commands)
        self._stack.close()

    @property
    def pids(self) -> Mapping[str, int]:
        """Process of each host (its shell) and of each switch."""
        hosts = {host.name: int(self.net[host.name].pid) for host in self.topology.hosts}
        return hosts | {name: process.pid for name, process in self._processes.items()}

    def popen(self, host: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command in a host's namespace, with the options of subprocess.Popen; it ends with the fabric."""
        pid = str(self.net[self.topology.host(host).name].pid)
        process = subprocess.Popen([*ends_with_us("KILL"), "mnexec", "-a", pid, *command], **options)
        self._commands.append(process)
        return process

    def execute(self, line: str) -> int:
        """Do one line of Mininet's command line; a host's command shows its output and gives its exit status.

        `h1 ping -c1 h2`: hosts' names stand for their addresses. Mininet's own commands, such as `pingall`, give 0.
        """
        first, *words = shlex.split(line) or [""]
        if self.topology.is_host(first) and words:
            hosts = {host.name: str(host.address) for host in self.topology.hosts}
            return self.popen(first, [hosts.get(word, word) for word in words]).wait()
        cli = load_mininet("mininet.cli").CLI
        if not hasattr(cli, f"do_{first}"):
            raise TopologyError(
                f'"{line}" is no command of a host nor of Mininet; write it like "h1 ping -c1 h2"', value=line
            )
        with tempfile.NamedTemporaryFile("w", suffix=".cli") as script:
            script.write(line + "\n")
            script.flush()
            cli(self.net, script=script.name)
        return 0

    def interact(self) -> None:
        """Run Mininet's command line, until `exit`."""
        load_mininet("mininet.cli").CLI(self.net)

    # --- building ---

    def _build(self) -> None:
        mininet, node = load_mininet("mininet.net").Mininet, load_mininet("mininet.node")
        mininet.inited = True  # else it would raise limits of the whole machine, for good
        self.net = mininet(topo=None, build=False, controller=None, switch=node.Switch)
        self._stack.callback(self.net.stop)
        for host in self.topology.hosts:
            self.net.addHost(host.name, ip=f"{host.address}/32")
        for switch in self.topology.switches:
            self.net.addSwitch(switch.name, dpid=f"{switch.device_id:x}", inNamespace=False)
        remove_orphans([interface(end) for end in self.topology.directed_links])
        for link in self.topology.links:
            self._add_link(link)
        self.net.build()
        for host in self.topology.hosts:
            if host.name not in self._hosts:
                self._configure_host(host)
        for end in self.topology.directed_links:
            if self.topology.is_switch(end.node):
                name = interface(end)
                mtu = self.topology.link_at(end).mtu
                self._run(
                    end.node, f"ip link set dev {name} mtu {mtu}; ethtool -K {name} {_OFFLOADS}; {_without_ipv6(name)}"
                )
        self._shape_links()
        for name, setup in self._hosts.items():
            self._set_up(name, setup)

    def _add_link(self, link: Link) -> None:
        ends: dict[str, int | str] = {}
        for number, end in enumerate(link.ends, start=1):
            ends |= {f"port{number}": end.port, f"intfName{number}": interface(end)}
            if self.topology.is_host(end.node):
                ends[f"addr{number}"] = self.topology.host(end.node).mac
        try:
            self.net.addLink(link.a.node, link.b.node, **ends)
        except Exception as error:  # noqa: BLE001 - Mininet raises nothing narrower
            reason = " ".join(str(error).split())
            raise TopologyError(
                f"its interfaces cannot be made; is another Mininet running? {reason}", place=str(link), value=reason
            ) from None
        own(next(interface(end) for end in link.ends if self.topology.is_switch(end.node)))

    def _configure_host(self, host: Host) -> None:
        """Set up a host. The attached switch is the gateway, with a static ARP entry."""
        gateway = self.topology.attached_switch(host.name)
        end = Endpoint(host.name, 0)
        name = interface(end)
        self._run(
            host.name,
            f"ip link set dev {name} mtu {self.topology.link_at(end).mtu}; "
            f"ethtool -K {name} {_OFFLOADS}; {_without_ipv6('all')}; "
            f"ip address flush dev {name}; ip address add {host.address}/32 dev {name}; "  # ifconfig makes it a /0
            f"ip neigh replace {gateway.address} lladdr {gateway.mac} dev {name} nud permanent; "
            f"ip route add {gateway.address} dev {name} scope link; "
            f"ip route add {HOST_ROUTE} via {gateway.address} dev {name} src {host.address}",
        )

    def datagram_socket(self, host: str, port: int) -> socket.socket:
        """Return a UDP socket of this process that is bound to a port of this host. Raises TopologyError."""

        def bind() -> socket.socket:
            with open(f"/proc/{self.net[host].pid}/ns/net", "rb") as namespace:  # this thread moves there, and ends
                if _libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            new.bind((str(self.topology.host(host).address), port))
            return new

        try:
            with ThreadPoolExecutor(1) as apart:
                return apart.submit(bind).result()
        except OSError as error:
            raise TopologyError(f"cannot listen at UDP port {port}: {error.strerror}", place=host, value=port) from None

    def _set_up(self, name: str, setup: ExerciseHost) -> None:
        """The host's one interface is eth0, as p4lang/tutorials' commands for hosts have it."""
        host = self.topology.host(name)
        old = interface(Endpoint(name, 0))
        self._run(name, f"ethtool -K {old} {_OFFLOADS}; {_without_ipv6('all')}; ip address flush dev {old}")
        self.net[name].defaultIntf().rename("eth0")
        self._run(name, f"ip address add {host.address}/{setup.prefix_length} dev eth0; ip link set dev eth0 up")
        for command in setup.commands:
            if complaint := self._try(name, command):
                self.notes.append(f'{name}: its command "{command}" failed: {complaint}')

    def _shape_links(self) -> None:
        """Delay and loss by netem, both ways; where the kernel has none, that is noted once."""
        if self.kind == SwitchKind.BMV2:
            self.notes.append("bmv2 has no rate limits: its ports send as fast as they can, and queues do not fill")
        for end in self.topology.directed_links:
            link = self.topology.link_at(end)
            if not (link.delay_ns or link.loss):
                continue
            if complaint := self._try(end.node, netem_command(end, link)):
                self.notes.append(f"links have neither delay nor loss, for the kernel has no netem (tc: {complaint})")
                return

    def limit_hosts(self) -> None:
        """Limit what hosts send to their links' rates, as weir-switch does with its ports. For links without delay and
        loss.

        Raises:
            TopologyError: The kernel has no rate limits.
        """
        for host in self.topology.hosts:
            end = Endpoint(host.name, 0)
            link = self.topology.link_at(end)
            if complaint := self._try(host.name, rate_command(end, link)):
                raise TopologyError(
                    f"tc cannot limit it to {format_rate(link.rate_bps)}: {complaint}",
                    place=interface(end),
                    value=link.rate_bps,
                )

    def _run(self, node: str, script: str) -> None:
        if complaint := self._try(node, script):
            raise TopologyError(f"cannot be set up: {complaint}", place=node)

    def _try(self, node: str, script: str) -> str | None:
        """Run a shell script in a node's namespace up to the first failure; return its message in one line."""
        command = ["mnexec", "-a", str(self.net[node].pid), "sh", "-ec", script]
        # use files: background processes of the script would keep pipes open
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
            done = subprocess.run(command, stdout=said, stderr=complained, check=False)
            if done.returncode == 0:
                return None
            told = []
            for file in (complained, said):
                file.seek(0)
                told += [" ".join(file.read().split())]
        return told[0] or told[1] or f"{script!r} ended with status {done.returncode}"

    # --- switches ---

    def _start_switches(self) -> None:
        self._stack.callback(self._stop_switches)
        executable = _executable(self.kind)
        assert executable is not None  # obstacle() has looked
        if self.kind == SwitchKind.BMV2 and takes_thrift_port(executable):
            names = [switch.name for switch in self.topology.switches]
            self.thrift_ports = dict(zip(names, free_ports(FIRST_THRIFT_PORT), strict=False))
        for switch in self.topology.switches:
            command = switch_command(
                self.topology,
                switch,
                self.kind,
                self.addresses[switch.name],
                device_id=self.device_ids[switch.name],
                thrift_port=self.thrift_ports.get(switch.name),
                captures=self._captures,
                log=None if self._packet_logs is None else self._packet_logs / f"{switch.name}.log",
            )
            with self._log(switch.name).open("wb") as log:
                # its own session: Ctrl-C is for Mininet's command line
                self._processes[switch.name] = subprocess.Popen(
                    [*ends_with_us("TERM"), executable, *command[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        deadline = time.monotonic() + _START_S
        for name in self._processes:
            self._wait_for(name, deadline)

    def _wait_for(self, name: str, deadline: float) -> None:
        """Until a switch's P4Runtime server accepts connections."""
        process = self._processes[name]
        while True:
            is_there = answers(self.addresses[name])
            if process.poll() is not None:  # then it is somebody else who answers
                raise TopologyError(
                    f"ended with status {process.returncode} at its start: {self._last_output(name)}",
                    place=name,
                    value=process.returncode,
                )
            if is_there:
                return
            if time.monotonic() > deadline:
                raise TopologyError(
                    f"does not listen on {self.addresses[name]} after {_START_S:g} s",
                    place=name,
                    value=self.addresses[name],
                )
            time.sleep(LOOK_S)

    def _stop_switches(self) -> None:
        stop(list(self._processes.values()))

    def _stop_commands(self) -> None:
        """End whatever still runs in the hosts' namespaces, by its own will or not; but their shells are Mininet's."""
        if self.net is not None:
            stop_beside({int(host.pid) for host in self.net.hosts})
        stop(self._commands)  # one that has only just been started may not be in its namespace yet

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _last_output(self, name: str) -> str:
        """The last lines that a switch has printed, in one."""
        lines = self._log(name).read_text("utf-8", "replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-_TAIL_LINES:]) or "it said nothing"


def _ports(topology: Topology, first: int) -> dict[str, str]:
    """Return a P4Runtime address of each switch on ports of 127.0.0.1. Raises TopologyError."""
    last = first + len(topology.switches) - 1
    if not 1 <= first <= last <= 65_535:
        raise TopologyError(
            f"gRPC ports {first}…{last} are not ports; they must be in 1…65535", place=topology.name, value=first
        )
    return {switch.name: f"127.0.0.1:{first + index}" for index, switch in enumerate(topology.switches)}


def _sockets(topology: Topology, folder: Path) -> dict[str, str]:
    """Return a P4Runtime address of each switch in a folder that only this user can write to. Raises TopologyError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise TopologyError(f"cannot hold sockets ({error.strerror})", place=str(folder), value=str(folder)) from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise TopologyError(
            "other users can write there, and could put sockets in the place of switches'; name a folder of yours",
            place=str(folder),
            value=str(folder),
        )
    return {switch.name: f"unix:{folder.absolute() / switch.name}" for switch in topology.switches}


def _executable(kind: SwitchKind) -> str | None:
    """Find a switch's program, first next to this Python, in the environment's commands."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(EXECUTABLE[kind], path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


def _without_ipv6(name: str) -> str:
    """Switches its chatter off (a shell command); a kernel without IPv6 has nothing to switch off."""
    file = f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6"
    return f"if [ -e {file} ]; then echo 1 > {file}; fi"
