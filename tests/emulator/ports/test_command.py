"""`weir-switch` as a process: its command line, its control plane, its end."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import finsy as fy
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from weir.emulator.command import _is_local, _LogFile
from weir.emulator.ports.options import ProcessOptions, UsageError, parse, parse_rate
from weir.tests.emulator.compiler.test_compiler_expressions import hexstr, program_of, wrap
from weir.tests.emulator.network import Network, eventually, needs_namespaces, network
from weir.tests.paths import PROGRAMS, ROOT
from weir.wire.int_md import probe_frame

PAIRS = PROGRAMS / "pairs.json"
BUILD = ROOT / "p4src" / "build"
COMMAND = [sys.executable, "-m", "weir.emulator.command"]


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A switch that says it is ready; ended by SIGTERM if the test has not done it.

    SIGHUP does to it what it does by default, also where the tests themselves were started to survive it: it would
    rightly go on ignoring what it was told to ignore.
    """
    process = subprocess.Popen(
        ["env", "--default-signal=HUP,INT", *COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "P4Runtime on" in line:
                break
        else:
            raise AssertionError(f"the switch ended with status {process.wait()}")
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=300)
        finally:
            process.kill()  # one that does not end must not outlive its test


def fails(*arguments: str) -> str:
    """The one line with which the command refuses."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    return line


def test_the_command_line_of_mininet_harnesses() -> None:
    general = (
        "-i 1@s1-eth1 --interface 2@s1-eth2 --pcap --nanolog ipc:///tmp/log.ipc --device-id 7 program.json"
        " --thrift-port 9090 --log-console -L warn --port-rate all=1Gbit --port-rate 2=2.5Mbit --queue-depth 1=9"
        " --queue-bytes all=9000"
    )
    target = "--grpc-server-addr 0.0.0.0:50051 --cpu-port 255 --priority-queues 8"
    options = parse([*general.split(), "--", *target.split()])
    assert options == ProcessOptions(
        program=Path("program.json"),
        interfaces={1: "s1-eth1", 2: "s1-eth2"},
        device_id=7,
        cpu_port=255,
        drop_port=511,
        max_passes=1024,
        rates_bps={1: 10**9, 2: 2_500_000},
        queue_packets={1: 9},
        queue_bytes={1: 9000, 2: 9000},
        grpc_address="0.0.0.0:50051",
        allow_anyone=False,
        control=None,
        tls=None,
        capture=Path(),
        ring=True,
        log_console=True,
        log_file=None,
        log_level=30,
        notes=(
            "--nanolog: ignored: there are no nanomsg sockets; use P4Runtime",
            "--thrift-port: ignored: there is no Thrift server; use P4Runtime",
        ),
    )
    plain = parse(["--no-p4"])
    assert (plain.program, plain.interfaces, plain.grpc_address) == (None, {}, None)
    assert parse(["--no-p4", "--allow-anyone"]).grpc_address == "127.0.0.1:9559"
    assert parse(["--pcap", "program.json"]).program == Path("program.json")


@pytest.mark.parametrize("way", ["--pcap={}", "--pcap {}"])
def test_folders_for_captures_and_files_for_logs(way: str, tmp_path: Path) -> None:
    line = (
        f"-i 1@s1-eth1 {way.format(tmp_path)} program.json --log-file {tmp_path}/s1.log --log-level trace --log-flush"
    )
    options = parse(line.split())
    assert (options.capture, options.program) == (tmp_path, Path("program.json"))
    assert (options.log_file, options.log_level) == (tmp_path / "s1.log", 10)
    assert options.notes == ("--log-flush: ignored: its log is always flushed",)


def test_packages_of_a_foreign_pythonpath_are_not_taken(tmp_path: Path) -> None:
    for package in ("numpy", "grpc", "google", "llvmlite"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"raise ImportError('a foreign {package}')")
    foreign = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    # a console script has no folder of its own on the module path, and its environment has
    code = "import sys; sys.path.remove(''); from weir.cli.switch_entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-p4", "-i", "1@no-such-interface"],
        env=foreign,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "foreign" not in done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no-such-interface" in done.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "no program: name a BMv2 JSON file, or give --no-p4"),
        ("--no-p4 -i eth0", "'eth0' is not PORT@INTERFACE; write it like 1@s1-eth1"),
        ("--no-p4 -i 600@eth0", "port 600 is not one of 0 … 510"),
        ("--no-p4 -i 1@a -i 1@b", "port 1 is a already"),
        ("--no-p4 -i 510@a", "510 is the CPU port"),
        ("--no-p4 --cpu-port 0", "'0' is not one of 1 … 510"),
        ("--no-p4 --drop-port 512", "'512' is not one of 0 … 511"),
        ("--no-p4 --priority-queues 9", "'9' is not one of 1 … 8"),
        (
            "--no-p4 -i 1@a --port-rate 1=fast",
            "rate 'fast' is not a rate between 1bit and 10Tbit; write it like 200Mbit",
        ),
        ("--no-p4 -i 1@a --port-rate 2=1Gbit", "there is no port 2; -i gives [1]"),
        ("--no-p4 -i 1@a --queue-depth 1=0", "depth '0' is not a number from 1"),
        ("--no-p4 --pcap /nowhere", "there is no such folder"),
        ("--no-p4 --grpc-server-ssl", "needs --grpc-server-key and --grpc-server-cert"),
        ("--no-p4 --log-console --log-file x", "exclude each other"),
        ("--no-p4 --no-such-flag", "unrecognized arguments: --no-such-flag"),
    ],
)
def test_command_lines_that_do_not_serve(line: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        parse(line.split())


@pytest.mark.parametrize(
    ("text", "rate_bps"), [("1bit", 1), ("200Mbit", 2 * 10**8), ("2.5 Gbit", 25 * 10**8), ("9kbit", 9000)]
)
def test_rates(text: str, rate_bps: int) -> None:
    assert parse_rate(text) == rate_bps


def test_unavailable_resources_are_one_line(tmp_path: Path) -> None:
    assert "interface nowhere does not exist" in fails("-i", "1@nowhere", str(PAIRS))
    assert f"program {tmp_path / 'none.json'}: No such file" in fails(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{")
    assert "bad.json: not a BMv2 JSON program" in fails(str(tmp_path / "bad.json"))
    (tmp_path / "own.p4").write_text("// mine\n#include <core.p4>\n#include <v1model.p4>\n")
    assert "own.p4: P4 source: compile it first: p4c-bm2-ss" in fails(str(tmp_path / "own.p4"))
    log = tmp_path / "nowhere" / "switch.log"
    assert fails("--no-p4", "--log-file", str(log)) == f"weir-switch: --log-file {log}: No such file or directory"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen on {address}" in fails("--no-p4", "--grpc-server-addr", address)


def test_an_address_open_to_others_is_warned_of(tmp_path: Path) -> None:
    private, free = f"unix:{tmp_path / 'p4runtime'}", "127.0.0.1:0"
    cases = (
        (["--grpc-server-addr", "0.0.0.0:0"], "warning: P4Runtime on 0.0.0.0", "every user who reaches this machine"),
        (["--grpc-server-addr", free], "warning: P4Runtime on 127.0.0.1", "every user of this machine"),
        (["--grpc-server-addr", free, "--allow-anyone"], "every user of this machine", "(--allow-anyone)"),
        (["--grpc-server-addr", private], "", ""),
    )
    for words, *told in cases:
        with running("--no-p4", "--control", str(tmp_path / "control"), *words) as process:
            process.send_signal(signal.SIGTERM)
            assert process.stdout is not None
            said = process.stdout.read()
        assert ("is open to" in said) == (private not in words)
        assert all(each in said for each in told), said


STRANGER: Final = """
import os, socket, sys
os.setgid(65534), os.setuid(65534)
try:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(sys.argv[1])
except PermissionError:
    print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
@pytest.mark.parametrize("mask", [0o022, 0])
def test_another_user_reaches_no_switch_that_names_no_address(mask: int, tmp_path: Path) -> None:
    """Nor one whose umask would let everybody connect."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    words = [*COMMAND, "--no-p4", "--device-id", "7"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment, umask=mask)
    try:
        assert process.stdout is not None
        path = process.stdout.readline().strip().rpartition("P4Runtime on unix:")[2]
        assert path == f"{tmp_path}/weir/p4runtime-7"
        for folder in Path(path).parents[:-2]:
            folder.chmod(0o755)  # the socket alone must do
        done = subprocess.run([sys.executable, "-c", STRANGER, path], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "refused"
        other = subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=300)
        assert (other.returncode, "another switch with this device id" in other.stderr) == (2, True)
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize(
    ("address", "local"),
    [("localhost:1", True), ("[::1]:1", True), ("127.1.2.3:1", True), ("[::]:1", False), ("s1.example:1", False)],
)
def test_addresses_that_only_this_machine_reaches(address: str, local: bool) -> None:
    assert _is_local(address) == local


def test_sigterm_ends_it_while_it_compiles(tmp_path: Path) -> None:
    """The program takes far longer to compile than the switch may take to end."""
    wide = {"type": "field", "value": ["out", "o0"]}
    grown = [wrap("*", wrap("+", wide, hexstr(number)), wrap("^", wide, hexstr(number))) for number in range(300)]
    cut = hexstr((1 << 1000) - 1)
    path = tmp_path / "program.json"
    path.write_bytes(program_of([(1000, wrap("&", tree, cut)) for tree in grown]))
    process = subprocess.Popen(
        [*COMMAND, "--thrift-port", "9090", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "WEIR_CACHE": str(tmp_path / "cache")},
    )
    try:
        assert process.stdout is not None
        assert "--thrift-port: ignored" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "ended without what was still being done" in said


def test_help_teaches() -> None:
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert "weir-switch -i 1@s1-eth1 -i 2@s1-eth2" in done.stdout


def test_a_cached_start_imports_no_numba_or_plotting_library() -> None:
    code = f"""
import sys
from weir.emulator.command import _make_server, _make_switch
from weir.emulator.ports.options import parse
options = parse([{str(PAIRS)!r}])
switch = _make_switch(options)
from weir.emulator.ports.wired import WiredSwitch
WiredSwitch(switch, {{}})
_make_server(options, switch)
print(*sorted({{"numba", "scapy", "matplotlib", "networkx"}} & set(sys.modules)))
"""
    for _ in range(2):  # the first may compile
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == []


@pytest.fixture
def net() -> Iterator[Network]:
    with network([1, 2, 3]) as made:
        yield made


def attached(net: Network) -> list[str]:
    return [word for port, name in net.interfaces.items() for word in ("-i", f"{port}@{name}")]


FRAME = bytes.fromhex("0200000000020200000000010900") + bytes(range(86))


@needs_namespaces
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_its_counters(net: Network, number: signal.Signals, tmp_path: Path) -> None:
    with running(*attached(net), "--grpc-server-addr", f"unix:{tmp_path}/grpc", str(PAIRS)) as process:
        net.send(1, FRAME)
        assert net.receive(2, 1) == [FRAME]
        process.send_signal(number)
        said = process.communicate(timeout=300)[0].splitlines()
    assert process.returncode == 0
    assert said == [
        f"weir-switch: {line}"
        for line in (
            "port 1 (s1-eth1): received 1 packets (100 bytes), sent 0 (0 bytes), queue drops 0, deepest queue 0",
            "port 2 (s1-eth2): received 0 packets (0 bytes), sent 1 (100 bytes), queue drops 0, deepest queue 1",
            "port 3 (s1-eth3): received 0 packets (0 bytes), sent 0 (0 bytes), queue drops 0, deepest queue 0",
            "1 packets in ingress, 1 in egress",
        )
    ]


HELD = """
import os, signal, sys, threading, time
from weir.emulator.command import _watch_signals
ended = threading.Event()
_watch_signals(ended)
with ended._cond:  # as the main thread does at the beginning and the end of `wait`
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
sys.exit(not ended.wait(10))
"""


def test_a_signal_as_the_main_thread_begins_to_wait_ends_it() -> None:
    assert subprocess.run([sys.executable, "-c", HELD], timeout=300, check=False).returncode == 0


UNHEARD = """
import os, signal, threading
from weir.emulator import command
command._END_SECONDS = 0.0
command._watch_signals(threading.Event())
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait()
"""


@pytest.mark.parametrize("reader", ["asleep", "gone"])
def test_a_signal_ends_it_though_nobody_reads_what_it_says(reader: str) -> None:
    """Its standard output is a pipe that is full, or whose other end is closed."""
    out, into = os.pipe()
    if reader == "gone":
        os.close(out)
    else:
        fill(into)
    try:
        command = [sys.executable, "-c", UNHEARD]
        done = subprocess.run(command, stdout=into, stderr=subprocess.PIPE, timeout=300, check=False)
    finally:
        os.close(into)
        if reader == "asleep":
            os.close(out)
    assert (done.returncode, done.stderr) == (0, b"")


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(512))
    os.set_blocking(pipe, True)


@needs_namespaces
def test_a_log_file_has_lines_for_each_packet_and_its_tables(net: Network, tmp_path: Path) -> None:
    log = tmp_path / "log"
    address = ["--grpc-server-addr", "127.0.0.1:0"]
    datagram = Ether(dst="02:00:00:00:00:09") / IP(src="10.0.0.9", dst="10.0.0.2") / UDP(chksum=0) / bytes(58)
    with running(*attached(net), *address, "--log-file", str(log), "-L", "debug", str(BUILD / "fabric.json")):
        net.send(1, bytes(datagram))
        assert eventually(lambda: "dropped" in log.read_text())
    lines = [line.partition("[packets] ")[2].partition("] ")[2] for line in log.read_text().splitlines()]
    names = ("start", "parse_ethernet", "look_at_ipv4", "parse_ipv4", "parse_udp", "look_at_marker", "behind_udp")
    assert [line for line in lines if line] == [
        "packet of 100 bytes received on port 1",
        *(f"parser state {name}" for name in names),
        "table FabricIngress.traffic_class: miss for hdr.ipv4.dscp=0x0: FabricIngress.set_class(priority=0x1)",
        "table FabricIngress.policing.policers: miss for standard_metadata.ingress_port=0x1, priority=0x1, "
        "is_message=0x0: NoAction()",
        "table FabricIngress.node_address: miss for hdr.ipv4.dst_addr=0xa000002: NoAction()",
        "table FabricIngress.admission.hosts: miss for standard_metadata.ingress_port=0x1: NoAction()",
        "table FabricIngress.routing.routes: miss for hdr.ipv4.dst_addr=0xa000002: no action",
        "table FabricIngress.drop_watch: miss for reason=0x5, src_addr=0xa000009, dst_addr=0xa000002, protocol=0x11, "
        "src_port=0x35, dst_port=0x35: NoAction()",
        "packet dropped for the program's wish, in ingress",
    ]


@needs_namespaces
def test_a_capture_on_a_full_disk_ends_with_a_whole_frame(net: Network, tmp_path: Path) -> None:
    """Three and a half records fit. The switch continues; later frames that would fit are not appended behind a gap.

    The last frame but one arrives after all before it have been written, or earlier.
    """
    arguments = [*attached(net), "--grpc-server-addr", "127.0.0.1:0", "--pcap", str(tmp_path), str(PAIRS)]
    frames = [FRAME[:-1] + bytes([number]) for number in range(7)]
    with running(*arguments) as process:
        for size, some in ((24 + 3 * 116 + 58, frames[:5]), (24 + 3 * 116 + 58, frames[5:6]), (1 << 30, frames[6:])):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            net.send(1, *some)
            assert net.receive(2, len(some)) == some
        process.terminate()
        said = process.communicate(timeout=300)[0].splitlines()
    ended = {name: tmp_path / f"{name}.pcap" for name in ("s1-eth1_in", "s1-eth2_out")}
    for path in ended.values():
        assert path.stat().st_size == 24 + 3 * 116
        assert [bytes(frame) for frame in rdpcap(str(path))] == frames[:3]
    lines = [f"weir-switch: capture {path} ended after 3 frames: File too large" for path in ended.values()]
    assert [line for line in said if "capture" in line] == lines
    assert "weir-switch: 7 packets in ingress, 7 in egress" in said


@needs_namespaces
def test_a_capture_that_cannot_begin_is_named(net: Network, tmp_path: Path) -> None:
    (tmp_path / "s1-eth1_out.pcap").symlink_to("/dev/full")
    said = fails(*attached(net), "--grpc-server-addr", "127.0.0.1:0", "--pcap", str(tmp_path), str(PAIRS))
    assert said == f"weir-switch: capture file {tmp_path}/s1-eth1_out.pcap: cannot be written: No space left on device"


def test_the_end_of_a_log_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Threads that had looked at the log's level before may still come."""

    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EFBIG, "File too large")

    log = _LogFile(tmp_path / "log")
    log.close()
    monkeypatch.setattr(log, "stream", Full())
    for _ in range(2):
        log.handle(logging.makeLogRecord({"msg": "a packet"}))
    assert capsys.readouterr().out == f"weir-switch: the log {tmp_path}/log ends here: File too large\n"


@needs_namespaces
def test_a_log_ends_where_the_disk_takes_no_more(net: Network, tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = ["--grpc-server-addr", f"unix:{tmp_path}/grpc", "--log-file", str(log), "-L", "debug", str(PAIRS)]
    with running(*attached(net), *arguments) as process:
        limit = (log.stat().st_size + 250, resource.RLIM_INFINITY)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limit)
        for _ in range(2):
            net.send(1, *[FRAME] * 20)
            assert net.receive(2, 20) == [FRAME] * 20
        process.terminate()
        said = process.communicate(timeout=300)[0].splitlines()
    assert process.returncode == 0
    assert said[0] == f"weir-switch: the log {log} ends here: File too large"
    assert said[-1] == "weir-switch: 40 packets in ingress, 40 in egress"
    assert sum("ends here" in line for line in said) == 1, said


@needs_namespaces
def test_two_in_a_row_on_the_same_interfaces_and_address(net: Network, tmp_path: Path) -> None:
    arguments = [*attached(net), "--grpc-server-addr", "127.0.0.1:9559", "--pcap", str(tmp_path), str(PAIRS)]
    for _ in range(2):
        with running(*arguments):
            net.send(2, FRAME)
            assert net.receive(1, 1) == [FRAME]
            assert "cannot listen on 127.0.0.1:9559" in fails("--no-p4", "--allow-anyone")
    assert len(list(tmp_path.glob("s1-eth*_*.pcap"))) == 6


@needs_namespaces
def test_without_the_right_to_open_an_interface(net: Network) -> None:
    drop = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"]
    done = subprocess.run(
        [*drop, *COMMAND, *attached(net), str(PAIRS)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 2
    assert "interface s1-eth1: cannot be opened: that takes root, or the capability CAP_NET_RAW" in done.stderr


@needs_namespaces
def test_an_interface_is_tried_before_anything_is_compiled(tmp_path: Path) -> None:
    drop = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"]
    cache = tmp_path / "cache"
    done = subprocess.run(
        [*drop, *COMMAND, "-i", "1@lo", str(PAIRS)],
        env={**os.environ, "WEIR_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "interface lo: cannot be opened: that takes root" in done.stderr
    assert not cache.exists()


@needs_namespaces
async def test_a_controller_sets_the_program_and_exchanges_packets(net: Network, tmp_path: Path) -> None:
    """finsy loads `fabric.p4` and its entries; packets go through, out of the controller and into it."""
    address = f"unix:{tmp_path / 'p4runtime'}"
    with running(*attached(net), "--no-p4", "--device-id", "5", "--", "--grpc-server-addr", address), net.outside():
        await control(net, address)


async def control(net: Network, address: str) -> None:
    options = fy.SwitchOptions(
        p4info=BUILD / "fabric.p4info.txtpb", p4blob=BUILD / "fabric.json", device_id=5, initial_election_id=1
    )
    async with fy.Switch("s1", address, options) as switch:
        forward = fy.P4TableAction("FabricIngress.routing.forward", port=2, src_mac=1, dst_mac=2)
        await switch.insert(
            [
                fy.P4TableEntry(
                    "FabricIngress.routing.routes",
                    match=fy.P4TableMatch({"hdr.ipv4.dst_addr": "10.0.0.2"}),
                    action=fy.P4IndirectAction([(1, forward)]),
                ),
                fy.P4TableEntry(
                    "FabricIngress.node_address",
                    match=fy.P4TableMatch({"hdr.ipv4.dst_addr": "10.255.0.5"}),
                    action=fy.P4TableAction("FabricIngress.to_node"),
                ),
            ]
        )
        await switch.write([fy.P4PacketOut(FRAME, egress_port=3, _pad=0)])
        assert await asyncio.to_thread(net.receive, 3, 1) == [FRAME]
        datagram = Ether(dst="02:00:00:00:00:09") / IP(src="10.0.0.9", dst="10.0.0.2") / UDP(chksum=0) / b"hello"
        await asyncio.to_thread(net.send, 1, bytes(datagram))
        [forwarded] = await asyncio.to_thread(net.receive, 2, 1)
        assert (Ether(forwarded).dst, Ether(forwarded)[IP].ttl) == ("00:00:00:00:00:02", 63)
        probes = [probe_frame(source=i, destination=0x0AFF0005, source_mac=1, destination_mac=2) for i in range(100)]
        reading = asyncio.create_task(first_packets(switch, len(probes)))
        await asyncio.sleep(0)  # it listens from now on
        await asyncio.to_thread(net.send, 1, *probes)
        assert await asyncio.wait_for(reading, 60) == [(1, probe) for probe in probes]


async def first_packets(switch: fy.Switch, count: int) -> list[tuple[object, bytes]]:
    seen: list[tuple[object, bytes]] = []
    async for packet in switch.read_packets():
        seen.append((packet["ingress_port"], packet.payload))
        if len(seen) == count:
            break
    return seen
