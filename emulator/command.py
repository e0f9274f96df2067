"""`weir-switch`: one emulated switch on network interfaces, with a P4Runtime server, until a signal ends it.

Nothing heavy is imported before the command line and the interfaces are known to be good.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..imports.extras import explained
from .entries import EmulatorError
from .ports.options import (
    LOG_LEVELS,
    PACKET_LOG,
    QUEUE_PACKETS,
    ProcessOptions,
    TlsFiles,
    UsageError,
    parse,
    parse_control,
)

if TYPE_CHECKING:
    from .p4runtime import P4RuntimeServer, ServerTls
    from .ports.control import ControlServer
    from .ports.wired import InterfaceCounters, WiredSwitch
    from .switch import Switch

_USAGE: Final = 2
_END_SECONDS: Final = 3.0
"""Time limit for the switch to end after a signal."""
_LAST_WORD_SECONDS: Final = 0.5
"""Time limit for the message that it ends without cleaning up."""

log = logging.getLogger("weir-switch")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; exit with status 0, or with 2 and one line for an unusable argument."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["ctl"]:
            control(words[1:])
        else:
            run(parse(words))
    except (UsageError, EmulatorError, OSError) as error:
        sys.stderr.write(f"weir-switch: {error}\n")
        sys.exit(_USAGE)
    except ImportError as error:
        if (told := explained(error, "it", "emulator")) is error:
            raise
        sys.stderr.write(f"weir-switch: {told}\n")
        sys.exit(_USAGE)


def control(arguments: Sequence[str]) -> None:
    """Run `weir-switch ctl`: send a request to a running switch and print its answer. Raises UsageError,
    EmulatorError.
    """
    from .ports.control import default_socket, send_command

    path, device_id, line = parse_control(arguments)
    sys.stdout.write(send_command(path or default_socket(device_id), line))


def run(options: ProcessOptions) -> None:
    """Start a switch and serve until SIGTERM, SIGINT or SIGHUP, then print its counters.

    Raises:
        UsageError, EmulatorError, OSError: The switch cannot serve.
    """
    ended = threading.Event()
    _watch_signals(ended)
    _start_log(options)
    for note in options.notes:
        _print(note)
    switch = _make_switch(options)
    from .ports.wired import WiredSwitch

    with WiredSwitch(switch, options.interfaces, options.capture, ring=options.ring) as wired:
        failed = threading.Event()

        def fail() -> None:
            failed.set()
            ended.set()

        wired.on_failure = fail
        server = _make_server(options, switch)
        server.start()
        control_server = None
        try:
            control_server = _make_control(options, wired)
            if options.ring and wired.without_ring:
                _print(f"ports {list(wired.without_ring)} go without rings, for there is no memory for them")
            ports = ", ".join(f"{port}@{name}" for port, name in options.interfaces.items()) or "none"
            _print(f"device {options.device_id}, ports {ports}; P4Runtime on {server.address}")
            if (warning := _open_to(options, server.address)) is not None:
                _print(warning)
            ended.wait()
        finally:
            if control_server is not None:
                control_server.close()
            server.stop()
    _report(options, switch, wired)
    if failed.is_set():
        raise EmulatorError("the packet loop has failed; the log has the reason (--log-console)")


def _watch_signals(ended: threading.Event) -> None:
    """Set `ended` at SIGTERM, SIGINT or SIGHUP, and end the process soon after, whatever it is doing.

    A thread receives the signals, so that they also arrive while the main thread compiles a client's program. The main
    thread's own handlers do nothing: a handler that set `ended` would deadlock if the signal arrived while
    `ended.wait()` holds its lock. SIGHUP stays ignored if it was ignored at the start (nohup).
    """
    ending = {signal.SIGTERM, signal.SIGINT}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        ending.add(signal.SIGHUP)
    for number in ending:
        signal.signal(number, lambda *_: None)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while not set(os.read(reader, 1)) & ending:
            pass
        ended.set()
        time.sleep(_END_SECONDS)
        last_word = f"ended without what was still being done after {_END_SECONDS:g} s"
        saying = threading.Thread(target=_try_to_print, args=(last_word,), name="last-word", daemon=True)
        try:
            saying.start()
            saying.join(_LAST_WORD_SECONDS)
        finally:
            os._exit(0)

    threading.Thread(target=watch, name="signals", daemon=True).start()


def _open_to(options: ProcessOptions, address: str) -> str | None:
    """Return a line about who may write to the switch besides this user; None: nobody else."""
    if address.startswith("unix:") or (options.tls is not None and options.tls.client_roots is not None):
        return None
    whom = "every user of this machine" if _is_local(address) else "every user who reaches this machine"
    line = f"P4Runtime on {address} is open to {whom}, to read and write tables and registers"
    if options.allow_anyone:
        return f"{line} (--allow-anyone)"
    return f"warning: {line}; --grpc-server-addr unix:PATH or --grpc-server-with-client-auth closes it"


def _is_local(address: str) -> bool:
    """Return True if only processes of this machine can connect to a TCP address."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _make_switch(options: ProcessOptions) -> Switch:
    from .ports.sockets import open_interface

    for port, name in options.interfaces.items():
        open_interface(name, port, ring=False).close()  # said now, not after what may have to be compiled
    from .port import PortConfig
    from .switch import Switch

    switch = Switch(
        options.device_id,
        cpu_port=options.cpu_port,
        drop_port=options.drop_port,
        max_passes=options.max_passes,
        traced=logging.getLogger(PACKET_LOG).isEnabledFor(logging.DEBUG),
    )
    for port in options.interfaces:
        switch.add_port(
            port,
            PortConfig(
                rate_bps=options.rates_bps.get(port),
                queue_packets=options.queue_packets.get(port, QUEUE_PACKETS),
                queue_bytes=options.queue_bytes.get(port),
            ),
        )
    if options.program is not None:
        try:
            text = options.program.read_bytes()
        except OSError as error:
            raise UsageError(f"program {options.program}: {error.strerror}") from None
        try:
            switch.load(text)
        except EmulatorError as error:
            raise UsageError(f"program {options.program}: {error}") from error
    return switch


def _make_control(options: ProcessOptions, wired: WiredSwitch) -> ControlServer | None:
    """The control socket: where the command line says, or at its usual place if another switch does not have that."""
    from .ports.control import ControlError, ControlServer, default_socket

    try:
        return ControlServer(wired, options.interfaces, options.control or default_socket(options.device_id))
    except ControlError as error:
        if options.control is not None:
            raise
        _print(f"without control: {error}; name another socket with --control")
        return None


def _make_server(options: ProcessOptions, switch: Switch) -> P4RuntimeServer:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines about an address that cannot be had
    from .p4runtime import P4RuntimeServer
    from .ports.control import p4runtime_socket

    address = options.grpc_address or f"unix:{p4runtime_socket(options.device_id)}"
    return P4RuntimeServer([switch], address, tls=_tls(options.tls))


def _tls(files: TlsFiles | None) -> ServerTls | None:
    if files is None:
        return None
    from .p4runtime import ServerTls

    roots = None if files.client_roots is None else _read_pem(files.client_roots)
    return ServerTls(_read_pem(files.key), _read_pem(files.certificate), roots)


def _read_pem(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


class _LogFile(logging.FileHandler):
    """A file for the log. Where the disk takes no more, the log ends and the switch goes on."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Handle a record that could not be written."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        if self.level == LOG_LEVELS["off"]:
            return  # a thread that had asked for the level before
        self.setLevel(LOG_LEVELS["off"])
        sys.stdout.write(f"weir-switch: the log {self.baseFilename} ends here: {error.strerror}\n")
        sys.stdout.flush()


def _start_log(options: ProcessOptions) -> None:
    if options.log_file is not None:
        try:
            handler: logging.Handler = _LogFile(options.log_file, "w", "utf-8")
        except OSError as error:
            raise UsageError(f"--log-file {options.log_file}: {error.strerror}") from None
    elif options.log_console:
        handler = logging.StreamHandler(sys.stdout)
    else:
        handler = logging.NullHandler()
    nowhere = isinstance(handler, logging.NullHandler)
    logging.basicConfig(
        level=LOG_LEVELS["off"] if nowhere else options.log_level,
        format="[%(asctime)s] [%(levelname)s] [%(name)s] %(message)s",
        handlers=[handler],
    )


def _print(text: str) -> None:
    """Write one line to standard output and to the log."""
    sys.stdout.write(f"weir-switch: {text}\n")
    sys.stdout.flush()
    log.info(text)


def _try_to_print(text: str) -> None:
    """Write a line to standard output if there is a reader. This blocks for ever if the pipe is full and never read."""
    with suppress(OSError):
        _print(text)


def _report(options: ProcessOptions, switch: Switch, wired: WiredSwitch) -> None:
    """Print the counters: a line per port, then what the switch dropped, and why."""
    for port, counters in wired.counters().items():
        _print(f"port {port} ({options.interfaces[port]}): {_port_line(counters)}")
    for line in wired.ended_captures:
        _print(line)
    totals = switch.counters
    parts = [f"{totals.ingress_packets} packets in ingress, {totals.egress_packets} in egress"]
    dropped = {name: value for name, value in totals._asdict().items() if not name.endswith("_packets")}
    dropped["packet_ins"] = wired.packet_in_drops
    parts += [f"{value} {name}" for name, value in dropped.items() if value]
    _print("; ".join(parts))


def _port_line(counters: InterfaceCounters) -> str:
    port = counters.port
    parts = [
        f"received {port.rx_packets} packets ({port.rx_bytes} bytes)",
        f"sent {port.tx_packets} ({port.tx_bytes} bytes)",
        f"queue drops {sum(port.drops)}",
        f"deepest queue {port.max_depth_packets}",
    ]
    parts += [
        f"{name.replace('_', ' ')} {value}" for name, value in counters._asdict().items() if name != "port" and value
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    main()
