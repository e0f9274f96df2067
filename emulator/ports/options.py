"""The command line of `weir-switch`: simple_switch_grpc's flags, and the few that are ours."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NoReturn

from ..abi import DROP_PORT
from ..runtime.memory import PORT_NUMBERS, PRIORITIES

GRPC_ADDRESS: Final = "127.0.0.1:9559"
CPU_PORT: Final = 510
QUEUE_PACKETS: Final = 64
MAX_PASSES: Final = 1024
LOG_LEVELS: Final = {"trace": 10, "debug": 10, "info": 20, "warn": 30, "error": 40, "off": 100}
PACKET_LOG: Final = "packets"
"""The logger with one line per packet event, at DEBUG."""
ALL: Final = "all"

_DESCRIPTION: Final = """\
One emulated P4 switch on network interfaces, with a P4Runtime server.
It runs BMv2 JSON, the output of p4c. The flags are simple_switch_grpc's; those
that need a `--` before them there need none here.
"""
_EPILOG: Final = """\
example: a switch between two hosts, each in a network namespace of its own,
with 100 Mbit/s towards h2

  ip netns add h1; ip link add s1-eth1 type veth peer name eth0 netns h1
  ip netns add h2; ip link add s1-eth2 type veth peer name eth0 netns h2
  ip link set s1-eth1 up; ip -n h1 link set eth0 up
  ip link set s1-eth2 up; ip -n h2 link set eth0 up
  weir-switch -i 1@s1-eth1 -i 2@s1-eth2 --port-rate 2=100Mbit fabric.json

It then waits for a P4Runtime controller at the address that it prints: a
socket that only its user may connect to, unless --grpc-server-addr names
another. `weir-switch ctl set_queue_rate 200Mbit 2` changes the rate of port 2
meanwhile; `weir-switch ctl help` lists all such commands. SIGTERM, SIGHUP or
Ctrl-C ends it, and it prints its counters. Exit status: 0, or 2 for an
unusable command line, program, interface or address.
"""
_RATE_BPS: Final = {"bit": 1, "kbit": 10**3, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")

# Flags of simple_switch_grpc that this switch has no use for: whether they take a value, and why they do nothing.
_NO_THRIFT: Final = "there is no Thrift server; use P4Runtime"
_NO_NANOMSG: Final = "there are no nanomsg sockets; use P4Runtime"
_NO_DEBUGGER: Final = "there is no debugger"
_NO_LIMIT: Final = "it has no such limit"
_POINTLESS: Final = {
    "--thrift-port": (True, _NO_THRIFT),
    "--nanolog": (True, _NO_NANOMSG),
    "--notifications-addr": (True, _NO_NANOMSG),
    "--packet-in": (True, _NO_NANOMSG),
    "--debugger": (False, _NO_DEBUGGER),
    "--debugger-addr": (True, _NO_DEBUGGER),
    "--use-files": (True, "it reads no packets from files"),
    "--restore-state": (True, "it saves no state to restore"),
    "--dump-packet-data": (True, "its log has lengths, not contents; use --pcap"),
    "--log-flush": (False, "its log is always flushed"),
    "--log-file-max-size": (True, "its log does not rotate"),
    "--log-file-max-files": (True, "its log does not rotate"),
    "--max-port-count": (True, f"it has port numbers 0 … {PORT_NUMBERS - 2}"),
    "--disable-swap": (False, "a program is replaced at once, never swapped"),
    "--dp-grpc-server-addr": (True, "its ports are network interfaces"),
    "--max-mc-groups": (True, _NO_LIMIT),
    "--max-l1-entries": (True, _NO_LIMIT),
    "--max-l2-entries": (True, _NO_LIMIT),
}


class UsageError(Exception):
    """The command line is invalid; the message has the allowed values."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM: key and certificate of the server, and the authorities of clients (None: no client needs a
    certificate).
    """

    key: Path
    certificate: Path
    client_roots: Path | None


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Options of the command `weir-switch`."""

    program: Path | None
    interfaces: dict[int, str]
    device_id: int
    cpu_port: int
    drop_port: int
    max_passes: int
    """Maximum number of passes of one packet through ingress."""
    rates_bps: dict[int, int]
    """Rates by port; a port that is not here has an infinite one."""
    queue_packets: dict[int, int]
    """Depths of queues by port; a port that is not here has the default one."""
    queue_bytes: dict[int, int]
    grpc_address: str | None
    """Address of P4Runtime; None: a socket of this user's."""
    allow_anyone: bool
    """A TCP address that asks clients for no certificate is what the user wants."""
    control: Path | None
    """The control socket; None: the default one, if it can be had."""
    tls: TlsFiles | None
    capture: Path | None
    ring: bool
    log_console: bool
    log_file: Path | None
    log_level: int
    notes: tuple[str, ...]
    """Flags that were given and do nothing."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (weir-switch --help shows how)")


def parse(arguments: Sequence[str]) -> ProcessOptions:
    """Read the command line. Raises UsageError; `--help` and `--version` print and exit."""
    options = _parser().parse_args([word for word in arguments if word != "--"])
    _settle_pcap(options)
    interfaces: dict[int, str] = {}
    for port, name in options.interface:
        if port in interfaces:
            raise UsageError(f"-i {port}@{name}: port {port} is {interfaces[port]} already")
        interfaces[port] = name
    cpu_port = options.cpu_port
    if cpu_port in interfaces:
        raise UsageError(f"-i {cpu_port}@{interfaces[cpu_port]}: {cpu_port} is the CPU port (--cpu-port)")
    if options.no_p4 and options.program is not None:
        options.notes.append(f"{options.program}: ignored, for --no-p4 starts the switch without a program")
        options.program = None
    if options.program is None and not options.no_p4:
        raise UsageError("no program: name a BMv2 JSON file, or give --no-p4 and let a controller set it")
    if options.log_console and options.log_file is not None:
        raise UsageError("--log-console and --log-file exclude each other")
    tls = _tls(options)
    return ProcessOptions(
        program=options.program,
        interfaces=interfaces,
        device_id=options.device_id,
        cpu_port=cpu_port,
        drop_port=options.drop_port,
        max_passes=options.max_passes,
        rates_bps=_by_port("--port-rate", options.port_rate, interfaces),
        queue_packets=_by_port("--queue-depth", options.queue_depth, interfaces),
        queue_bytes=_by_port("--queue-bytes", options.queue_bytes, interfaces),
        grpc_address=options.grpc_server_addr or (GRPC_ADDRESS if options.allow_anyone or tls is not None else None),
        allow_anyone=options.allow_anyone,
        control=options.control,
        tls=tls,
        capture=options.pcap,
        ring=not options.no_ring,
        log_console=options.log_console,
        log_file=options.log_file,
        log_level=LOG_LEVELS[options.log_level],
        notes=tuple(options.notes),
    )


def parse_control(arguments: Sequence[str]) -> tuple[Path | None, int, str]:
    """Read the command line of `weir-switch ctl`: socket, device id, and request. Raises UsageError."""
    parser = _Parser(
        prog="weir-switch ctl",
        description="Change ports and queues of a running switch; `weir-switch ctl help` lists how.",
        allow_abbrev=False,
    )
    parser.add_argument("--device-id", type=_number(0, 2**64 - 1), default=0, metavar="ID", help="which switch (0)")
    parser.add_argument("--control", type=Path, metavar="SOCKET", help="its socket, if it was given one")
    parser.add_argument("words", nargs="+", metavar="WORD", help="such as: set_queue_rate 200Mbit 2")
    given = parser.parse_args(arguments)
    return given.control, given.device_id, " ".join(given.words)


def parse_rate(text: str) -> int:
    """Return bits per second of a rate such as `200Mbit`. Raises ValueError."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is not None and match[2] in _RATE_BPS:
        rate_bps = Decimal(match[1]) * _RATE_BPS[match[2]]
        if 1 <= rate_bps <= 10**13 and rate_bps == int(rate_bps):
            return int(rate_bps)
    raise ValueError(f"rate {text!r} is not a rate between 1bit and 10Tbit; write it like 200Mbit")


def rate_text(rate_bps: float) -> str:
    """Return a rate as people write it: 200Mbit."""
    unit = next((unit for unit in ("Tbit", "Gbit", "Mbit", "kbit") if rate_bps >= _RATE_BPS[unit]), "bit")
    return f"{rate_bps / _RATE_BPS[unit]:g}{unit}"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="weir-switch",
        usage="weir-switch [options] [-i PORT@INTERFACE]... PROGRAM.json",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(notes=[])
    _add_program(parser)
    _add_ports(parser)
    _add_server(parser)
    _add_output(parser)
    for flag, (takes_value, _) in _POINTLESS.items():
        parser.add_argument(flag, action=_Pointless, nargs=1 if takes_value else 0, help=argparse.SUPPRESS)
    return parser


def _add_program(parser: argparse.ArgumentParser) -> None:
    """Add the program, its interfaces and numbers."""
    add = parser.add_argument
    add("program", nargs="?", type=Path, metavar="PROGRAM.json", help="BMv2 JSON to start with")
    add(
        "-i",
        "--interface",
        action="append",
        default=[],
        type=_interface,
        metavar="PORT@INTERFACE",
        help="attach a network interface as a port; once for every port",
    )
    add("--no-p4", action="store_true", help="start without a program; a controller sets it")
    add("--device-id", type=_number(0, 2**64 - 1), default=0, metavar="ID", help="P4Runtime's device id (default 0)")
    add(
        "--cpu-port",
        type=_number(1, DROP_PORT - 1),
        default=CPU_PORT,
        metavar="PORT",
        help=f"port of packet-ins and packet-outs (default {CPU_PORT})",
    )
    add(
        "--drop-port",
        type=_number(0, PORT_NUMBERS - 1),
        default=DROP_PORT,
        metavar="PORT",
        help=f"drop port, to which mark_to_drop() sends (default {DROP_PORT})",
    )
    add(
        "--max-passes",
        type=_number(1, 2**62),
        default=MAX_PASSES,
        metavar="N",
        help=f"maximum passes of a packet through ingress, counted on through clones (default {MAX_PASSES})",
    )
    add(
        "--priority-queues",
        type=_number(1, PRIORITIES),
        metavar="N",
        help=f"at most {PRIORITIES}; every port always has {PRIORITIES}, strictly by priority",
    )


def _add_ports(parser: argparse.ArgumentParser) -> None:
    """Add rates and queues of ports."""
    add = parser.add_argument
    add(
        "--port-rate",
        action="append",
        default=[],
        type=_setting(parse_rate),
        metavar="PORT=RATE",
        help="rate at which a port sends, such as 2=200Mbit; `all` means every port (default: unlimited)",
    )
    add(
        "--queue-depth",
        action="append",
        default=[],
        type=_setting(_count),
        metavar="PORT=PACKETS",
        help=f"packets that each priority's queue of a port holds (default {QUEUE_PACKETS})",
    )
    add(
        "--queue-bytes",
        action="append",
        default=[],
        type=_setting(_count),
        metavar="PORT=BYTES",
        help="bytes that each priority's queue of a port holds (default: unlimited)",
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    """Add addresses and certificates of the switch's servers."""
    add = parser.add_argument
    add(
        "--grpc-server-addr",
        metavar="ADDRESS:PORT",
        help="where P4Runtime listens, or unix:PATH (default: a socket of this user's, for the device id)",
    )
    add(
        "--allow-anyone",
        action="store_true",
        help=f"serve P4Runtime on TCP to every user who reaches it (default address then {GRPC_ADDRESS})",
    )
    add("--control", type=Path, metavar="SOCKET", help="socket for `weir-switch ctl` (default: one for the device id)")
    add("--grpc-server-ssl", action="store_true", help="P4Runtime over TLS")
    add("--grpc-server-key", type=Path, metavar="PEM", help="the server's private key")
    add("--grpc-server-cert", type=Path, metavar="PEM", help="the server's certificate")
    add("--grpc-server-cacert", type=Path, metavar="PEM", help="certificates that sign clients' certificates")
    add("--grpc-server-with-client-auth", action="store_true", help="accept only clients with a certificate")


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Add captures and logs."""
    add = parser.add_argument
    add(
        "--pcap",
        nargs="?",
        const=".",
        type=Path,
        metavar="FOLDER",
        help="write what each interface receives and sends to INTERFACE_in.pcap and INTERFACE_out.pcap (default: here)",
    )
    add(
        "--no-ring",
        action="store_true",
        help="use system calls in place of rings: slower, and saves 5 MB of memory per port",
    )
    add("--log-console", action="store_true", help="log to standard output")
    add("--log-file", type=Path, metavar="FILE", help="log to a file")
    add(
        "-L",
        "--log-level",
        choices=LOG_LEVELS,
        default="info",
        metavar="LEVEL",
        help="trace, debug, info, warn, error or off (default info)",
    )
    add("-v", "--version", action=_Version, nargs=0, help="print the version and exit")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"weir-switch {version('weir')}\n")
        parser.exit()


class _Pointless(argparse.Action):
    """A flag that is accepted for simple_switch_grpc's sake."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        assert option is not None
        namespace.notes = [*namespace.notes, f"{option}: ignored: {_POINTLESS[option][1]}"]


def _settle_pcap(arguments: argparse.Namespace) -> None:
    """Settle `--pcap`, which takes a folder or no argument: an argument that is no folder is the program."""
    if arguments.pcap is None:
        return
    if arguments.program is None and not arguments.no_p4 and not arguments.pcap.is_dir():
        arguments.program, arguments.pcap = arguments.pcap, Path()
    if not arguments.pcap.is_dir():
        raise UsageError(f"--pcap {arguments.pcap}: there is no such folder")


def _tls(arguments: argparse.Namespace) -> TlsFiles | None:
    key, certificate, roots = arguments.grpc_server_key, arguments.grpc_server_cert, arguments.grpc_server_cacert
    if not arguments.grpc_server_ssl:
        if key or certificate or roots or arguments.grpc_server_with_client_auth:
            arguments.notes.append("certificates and keys are ignored without --grpc-server-ssl")
        return None
    if key is None or certificate is None:
        raise UsageError("--grpc-server-ssl needs --grpc-server-key and --grpc-server-cert")
    if arguments.grpc_server_with_client_auth and roots is None:
        raise UsageError("--grpc-server-with-client-auth needs --grpc-server-cacert")
    return TlsFiles(key, certificate, roots if arguments.grpc_server_with_client_auth else None)


def _interface(text: str) -> tuple[int, str]:
    number, at, name = text.partition("@")
    if not at or not name or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT@INTERFACE; write it like 1@s1-eth1")
    if int(number) > PORT_NUMBERS - 2:
        raise argparse.ArgumentTypeError(f"{text!r}: port {number} is not one of 0 … {PORT_NUMBERS - 2}")
    return int(number), name


def _number(low: int, high: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            wanted = f"{low}" if low == high else f"one of {low} … {high}"
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return int(text)

    return number


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"depth {text!r} is not a number from 1")
    return int(text)


def _setting(parse_value: Callable[[str], int]) -> Callable[[str], tuple[str, int]]:
    def setting(text: str) -> tuple[str, int]:
        port, equals, value = text.partition("=")
        if not equals or not (port == ALL or port.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r} is not PORT=VALUE, with a port's number or `{ALL}`")
        try:
            return port, parse_value(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return setting


def _by_port(flag: str, settings: Sequence[tuple[str, int]], interfaces: dict[int, str]) -> dict[int, int]:
    """Values by port; a setting of one port overrides the setting of all ports."""
    result: dict[int, int] = {}
    for port, value in sorted(settings, key=lambda setting: setting[0] != ALL):
        if port == ALL:
            result.update(dict.fromkeys(interfaces, value))
        elif int(port) in interfaces:
            result[int(port)] = value
        else:
            raise UsageError(f"{flag} {port}=…: there is no port {port}; -i gives {sorted(interfaces) or 'none'}")
    return result
