"""A fabric in Mininet carries real packets between all its hosts, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from weir.emulator.ports.options import parse
from weir.tests.own_network import IN_ITS_OWN_NETWORK, play
from weir.tests.paths import ROOT
from weir.tests.processes import left_with, processes_with
from weir.tests.support.errors import raises
from weir.tests.topologies.mininet.mininet_exchange import fabric_of, traffic
from weir.topologies import Endpoint, Link, TopologyError, dump_topology, leaf_spine
from weir.topologies.mininet.fabric import (
    MininetFabric,
    SwitchKind,
    _sockets,
    _with_switches_of,
    interface,
    netem_command,
    obstacle,
    rate_command,
    switch_command,
)
from weir.topologies.mininet.processes import claimed, orderly_end
from weir.topologies.targets import LIKE_TOFINO
from weir.topologies.units import parse_rate

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

WITHOUT_OBSTACLE = [
    pytest.param(kind, marks=pytest.mark.skipif(reason is not None, reason=f"{kind} in Mininet: {reason}"))
    for kind in SwitchKind
    for reason in [obstacle(kind)]
]
LONG_ON_BMV2 = [
    pytest.param(*each.values, marks=[*each.marks, *([pytest.mark.long] if SwitchKind.BMV2 in each.values else [])])
    for each in WITHOUT_OBSTACLE
]
"""The same, for tests that are long ones on bmv2."""


@pytest.mark.parametrize("kind", LONG_ON_BMV2)
def test_every_host_reaches_every_other_through_the_switches(kind: SwitchKind) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    seen = play("weir.tests.topologies.mininet.mininet_exchange", kind, str(seed))
    topology = fabric_of()
    assert sorted(map(tuple, seen["received"])) == sorted(traffic(topology, seed))
    assert seen["statuses"] == [0, 1]
    assert seen["entries"].keys() == {"s1", "s2", "s3", "s4"}
    before, during, after = seen["interfaces"]
    ports = [end for end in topology.directed_links if topology.is_switch(end.node)]
    assert sorted(set(during) - set(before)) == sorted(map(interface, ports))
    assert after == before
    assert seen["processes"] == ["h1", "h2", "h3", "h4", "s1", "s2", "s3", "s4"]
    assert seen["alive"] == []


@contextmanager
def started(command: Sequence[str | Path], mark: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with WEIR_TEST_MARK in its environment, in a session of its own; killed at the end if it is alive."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "WEIR_TEST_MARK": str(mark)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_ends_all_that_was_started(number: signal.Signals, tmp_path: Path) -> None:
    dump_topology(leaf_spine(1, 1, 1), tmp_path / "fabric.yaml")
    mark = f"WEIR_TEST_MARK={tmp_path}"
    code = "import typer; from weir.cli.mininet import mininet; typer.run(mininet)"
    command = [*IN_ITS_OWN_NETWORK, "-c", code, str(tmp_path / "fabric.yaml")]
    command += ["--exec", "h1 sh -c 'echo begun; sleep 1000'"]
    with started(command, tmp_path) as process:
        assert process.stdout is not None
        assert "begun\n" in process.stdout
        assert sum("weir-switch --no-p4" in command for command in processes_with(mark)) == 2
        process.send_signal(number)
        assert process.wait(120) == 128 + number
        assert processes_with(mark) == []


@pytest.mark.long
@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
def test_a_kill_ends_all_processes_and_the_next_fabric_is_built(tmp_path: Path) -> None:
    """Links between switches outlive a SIGKILL, which cannot be handled; the next fabric removes them."""
    dump_topology(leaf_spine(1, 1, 1), tmp_path / "fabric.yaml")
    code = "import typer; from weir.cli.mininet import mininet; typer.run(mininet)"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && cat"], **PIPES) as network:
        assert network.stdout is not None
        assert network.stdout.readline() == "up\n"
        weir = ["nsenter", f"--net=/proc/{network.pid}/ns/net", sys.executable, "-c", code, f"{tmp_path}/fabric.yaml"]
        forever = ["env", f"TMPDIR={tmp_path}", *weir, "--exec", "h1 sh -c 'echo begun; exec sleep 1000'"]
        with started(forever, tmp_path) as killed:  # which leaves its folder with the logs
            assert killed.stdout is not None
            assert "begun\n" in killed.stdout
        assert left_with(f"WEIR_TEST_MARK={tmp_path}") == []
        done = subprocess.run(
            [*weir, "--exec", "h1 true"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=200
        )
        assert done.returncode == 0, done.stderr
        network.communicate()


def test_command_lines_of_the_switches() -> None:
    topology = leaf_spine(1, 1, 1, rate_bps=2_500_000_000, queue_packets=9)
    leaf = topology.switch("s1")
    assert " ".join(switch_command(topology, leaf, SwitchKind.WEIR, "127.0.0.1:50051")) == (
        "weir-switch --no-p4 --device-id 1 -i 1@s1-p1 -i 2@s1-p2"
        " --port-rate 1=2500Mbit --queue-depth 1=9 --port-rate 2=2500Mbit --queue-depth 2=9"
        " -- --grpc-server-addr 127.0.0.1:50051 --cpu-port 510"
    )
    assert " ".join(switch_command(topology, leaf, SwitchKind.BMV2, "127.0.0.1:50052")) == (
        "simple_switch_grpc --no-p4 --device-id 1 -i 1@s1-p1 -i 2@s1-p2 --log-level off"
        " -- --grpc-server-addr 127.0.0.1:50052 --cpu-port 510 --priority-queues 8"
    )
    assert parse_rate("2500Mbit") == 2_500_000_000


@pytest.mark.parametrize("kind", SwitchKind)
def test_switches_have_the_limits_of_their_program(kind: SwitchKind) -> None:
    """A packet of simple_switch has no room to grow by 256 lanes; its P4Runtime server takes no class of a clone."""
    [switch] = _with_switches_of(leaf_spine(1, 0, 2), kind).switches
    limits = (switch.target.present_lanes, switch.target.clone_classes, switch.target.minimum_share)
    assert limits == ((256, True, 0) if kind == SwitchKind.WEIR else (32, False, 0))
    [chips_like] = _with_switches_of(leaf_spine(1, 0, 2, target=LIKE_TOFINO), kind).switches
    assert chips_like.target.present_lanes == 32


def test_command_lines_with_what_a_user_asks_for(tmp_path: Path) -> None:
    topology = leaf_spine(1, 1, 1)
    leaf = topology.switch("s1")
    asked: dict[str, Any] = {"device_id": 0, "captures": tmp_path, "log": tmp_path / "s1.log"}
    weir = " ".join(switch_command(topology, leaf, SwitchKind.WEIR, "127.0.0.1:50051", **asked))
    assert weir.startswith(f"weir-switch --no-p4 --device-id 0 -i 1@s1-p1 -i 2@s1-p2 --pcap {tmp_path} --log-file ")
    parse(weir.split()[1:])  # weir-switch takes it
    assert " ".join(switch_command(topology, leaf, SwitchKind.BMV2, "127.0.0.1:50052", thrift_port=9091, **asked)) == (
        f"simple_switch_grpc --no-p4 --device-id 0 -i 1@s1-p1 -i 2@s1-p2 --pcap {tmp_path} --log-file {tmp_path}/s1.log"
        " --log-level debug --log-flush --thrift-port 9091"
        " -- --grpc-server-addr 127.0.0.1:50052 --cpu-port 510 --priority-queues 8"
    )


STOCK = """#!{python}
# Of bmv2's default build what a fabric sees at its start: a Thrift server, at 9090 unless it is told another port, and
# P4Runtime's. It ends, as that does, where it cannot have the port.
import os, socket, sys, time
words = sys.argv[1:]
if "--help" in words:
    print("  --thrift-port arg   TCP port on which to run the Thrift runtime server")
    sys.exit(0)
def listen(host, port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen()
    return listener
thrift = int(words[words.index("--thrift-port") + 1]) if "--thrift-port" in words else 9090
try:
    kept = [listen("", thrift)]
except OSError:
    print("Calling target program-options parser")
    print("Thrift: TServerSocket::listen() BIND", thrift)
    sys.exit(1)
if "{fails}":
    print("Calling target program-options parser")
    print("terminate called after throwing an instance of 'std::bad_alloc'")
    sys.exit(3)
kept.append(socket.socket(socket.AF_UNIX))
kept[-1].bind(words[words.index("--grpc-server-addr") + 1].removeprefix("unix:"))
kept[-1].listen()
time.sleep(1000)
"""


@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
@pytest.mark.parametrize("fails", ["", "yes"])
def test_bmv2_has_a_thrift_port_per_switch_and_keeps_its_output(fails: str, tmp_path: Path) -> None:
    stock = tmp_path / "simple_switch_grpc"
    stock.write_text(STOCK.format(python=sys.executable, fails=fails))
    stock.chmod(0o755)
    code = (
        "import json, sys\n"
        "from weir.topologies import TopologyError, leaf_spine\n"
        "from weir.topologies.mininet.fabric import MininetFabric, SwitchKind\n"
        "try:\n"
        "    with MininetFabric(leaf_spine(2, 1, 1), SwitchKind.BMV2) as fabric:\n"
        "        print(json.dumps(fabric.thrift_ports))\n"
        "except TopologyError as error:\n"
        "    print(json.dumps(str(error)))\n"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [*IN_ITS_OWN_NETWORK, "-c", code]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    if not fails:
        assert told == {"s1": 9090, "s2": 9091, "s3": 9092}
    else:
        assert re.fullmatch(r"s\d: ended with status 3 at its start: Calling .* \| terminate called after .*", told)


def test_rate_of_a_link() -> None:
    end = Endpoint("h1", 0)
    link = Link(end, Endpoint("s1", 1), rate_bps=40_000_000, queue_packets=512)
    assert rate_command(end, link) == ("tc qdisc add dev h1-eth0 root tbf rate 40000000bit burst 15000 limit 768000")


def test_delay_and_loss_of_a_link() -> None:
    end = Endpoint("s1", 1)
    link = Link(Endpoint("h1", 0), end, delay_ns=1_234_567_891, loss=0.025)
    assert netem_command(end, link) == ("tc qdisc add dev s1-p1 root netem limit 100000 delay 1234567.89us loss 2.5%")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """The same holds under nohup, which ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with orderly_end():
            os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(SystemExit) as ended, orderly_end() as end:
            os.kill(os.getpid(), signal.SIGTERM)
        assert (ended.value.code, end.by) == (128 + signal.SIGTERM, signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_two_fabrics_share_no_port_even_before_they_listen() -> None:
    with claimed("s1", "127.0.0.1:50051"):
        with claimed("s2", "127.0.0.1:50052"):
            pass
        with raises(TopologyError, place="s1", value="127.0.0.1:50051"), claimed("s1", "127.0.0.1:50051"):
            pass
    with claimed("s1", "127.0.0.1:50051"):
        pass


BACKGROUND = """
import os, sys
from pathlib import Path
from weir.topologies import leaf_spine
from weir.topologies.exercise import ExerciseHost
from weir.topologies.mininet.fabric import MininetFabric
fabric = MininetFabric(leaf_spine(1, 0, 1), hosts={"h1": ExerciseHost(24, (f"sleep 1000 & echo $! > {sys.argv[1]}",))})
with fabric:
    pid = Path(sys.argv[1]).read_text().strip()
    print(os.path.exists(f"/proc/{pid}"), any("its command" in note for note in fabric.notes))
"""


@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
def test_processes_a_hosts_command_leaves_are_not_awaited(tmp_path: Path) -> None:
    with started([*IN_ITS_OWN_NETWORK, "-c", BACKGROUND, tmp_path / "pid"], tmp_path) as process:
        said, complained = process.communicate(timeout=100)
    assert said == "True False\n", complained
    assert processes_with(f"WEIR_TEST_MARK={tmp_path}") == []


STRANGER = """
import os, socket, sys
from pathlib import Path
from weir.topologies import leaf_spine
from weir.topologies.mininet.fabric import MininetFabric
with MininetFabric(leaf_spine(1, 0, 1), sockets=Path(sys.argv[1])) as fabric:
    path = fabric.addresses["s1"].removeprefix("unix:")
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(path)
    os.chmod(sys.argv[1], 0o755)  # the socket alone must do
    if (stranger := os.fork()) == 0:
        os.setgid(65534), os.setuid(65534)
        try:
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(path)
        except PermissionError:
            os._exit(7)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(stranger, 0)[1]), flush=True)
"""


@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
def test_mininets_switches_are_closed_to_other_users() -> None:
    with tempfile.TemporaryDirectory(prefix="weir-test-") as folder:
        os.chmod(folder, 0o755)
        words = [*IN_ITS_OWN_NETWORK, "-c", STRANGER, f"{folder}/sockets"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "7\n", done.stderr


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(TopologyError, match="Mininet needs root"), MininetFabric(leaf_spine(1, 1, 1)):
        pass


def test_names_of_interfaces_fit_the_kernel() -> None:
    assert interface(Endpoint("s1", 3)) == "s1-p3"
    assert interface(Endpoint("h1", 0)) == "h1-eth0"
    assert len(interface(Endpoint("a123456789", 509))) == len(interface(Endpoint("a123456789", 0))) == 15


def test_sockets_go_where_nobody_else_can_write(tmp_path: Path) -> None:
    topology = leaf_spine(1, 1, 1)
    made = _sockets(topology, tmp_path / "mine")
    assert made == {name: f"unix:{tmp_path}/mine/{name}" for name in ("s1", "s2")}
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o700
    tmp_path.chmod(0o777)
    with raises(TopologyError, place=str(tmp_path), value=str(tmp_path)):
        _sockets(topology, tmp_path)


def test_grpc_ports_that_are_none() -> None:
    with raises(TopologyError, place="leaf-spine", value=65535):
        MininetFabric(leaf_spine(1, 1, 1), first_grpc_port=65535)
