"""`weir-switch ctl`: rates and depths of a running switch, and its messages about ports."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from weir.emulator.ports import control
from weir.emulator.ports.control import ControlError, ControlServer, default_socket, send_command
from weir.emulator.ports.options import UsageError, parse_control
from weir.emulator.ports.wired import WiredSwitch
from weir.tests.emulator.network import Network, eventually, ip, needs_namespaces, network
from weir.tests.emulator.ports.test_command import COMMAND, PAIRS, attached, fails, running
from weir.tests.emulator.ports.test_ports import numbered, pairs


@pytest.fixture
def net() -> Iterator[Network]:
    with network([1, 2, 3]) as made:
        yield made


@pytest.fixture
def wired(net: Network, tmp_path: Path) -> Iterator[WiredSwitch]:
    with WiredSwitch(pairs(), net.interfaces) as made:
        server = ControlServer(made, net.interfaces, tmp_path / "control")
        yield made
        server.close()
    assert not (tmp_path / "control").exists()


@needs_namespaces
def test_rates_and_depths_while_packets_flow(net: Network, wired: WiredSwitch, tmp_path: Path) -> None:
    frames = numbered(64, 1000)

    def say(line: str) -> str:
        return send_command(tmp_path / "control", line)

    assert say("set_queue_rate 100kbit 2") == ""
    assert say("set_queue_depth 4 2") == ""
    net.send(1, *frames)
    assert eventually(lambda: wired.counters()[1].port.rx_packets == 64)
    counters = wired.counters()[2].port
    assert counters.drops[0] > 40
    assert counters.max_depth_packets == 4
    assert say("set_queue_rate none 2") == ""  # waiting packets leave at once
    assert len(net.receive(2, 64 - counters.drops[0], 2.0)) == 64 - counters.drops[0]
    assert say("set_queue_depth none") == say("set_queue_bytes 2500 all") == ""
    assert [wired.switch.port_config(port).queue_packets for port in (1, 2, 3)] == [None] * 3
    assert say("set_queue_rate 100kbit 2") == ""
    net.send(1, *frames)
    assert eventually(lambda: wired.counters()[1].port.rx_packets == 128)
    assert wired.counters()[2].port.depth_bytes <= 2000


@needs_namespaces
def test_depths_that_no_queue_holds_are_refused(net: Network, wired: WiredSwitch, tmp_path: Path) -> None:
    for line in ("set_queue_depth 99999999999999999999", "set_queue_bytes 99999999999999999999 1 2"):
        with pytest.raises(ControlError, match=r"is 99999999999999999999; .*1 … 4611686018427387904"):
            send_command(tmp_path / "control", line)
    assert send_command(tmp_path / "control", "set_queue_depth 5 1") == ""
    assert wired.switch.port_config(1).queue_packets == 5


@needs_namespaces
def test_the_depth_of_one_priority(net: Network, wired: WiredSwitch, tmp_path: Path) -> None:
    """It stays when a rate is set, and depths of other kinds."""
    for line in ("set_queue_depth 3 2 0", "set_queue_bytes 100000 2 0", "set_queue_rate 50kbit 2"):
        send_command(tmp_path / "control", line)
    net.send(1, *numbered(32, 1000))
    assert eventually(lambda: wired.counters()[1].port.rx_packets == 32)
    assert wired.counters()[2].port.max_depth_packets == 3
    first, *others = [
        line for line in send_command(tmp_path / "control", "show_ports").splitlines() if "priority" in line
    ]
    assert re.fullmatch(
        r"  priority 0: queue of 3 packets or 100000 bytes; holds \d packets \(\d+ bytes\), at most 3 so far; "
        r"drops \d+",
        first,
    )
    assert others == []
    send_command(tmp_path / "control", "set_queue_depth none 3 7")
    assert send_command(tmp_path / "control", "show_ports").splitlines()[-1] == (
        "  priority 7: queue of any number of packets; holds 0 packets (0 bytes), at most 0 so far; drops 0"
    )


@needs_namespaces
def test_the_state_of_ports_is_printed(net: Network, wired: WiredSwitch, tmp_path: Path) -> None:
    send_command(tmp_path / "control", "set_queue_rate 2.5Mbit 1")
    net.send(1, *numbered(2))
    net.receive(2, 2)
    ip("link set far3 down")
    assert eventually(lambda: wired.links_down == {3})
    lines = send_command(tmp_path / "control", "show_ports").splitlines()
    assert re.fullmatch(
        r"  priority 0: queue of 64 packets; holds 0 packets \(0 bytes\), at most [12] so far; drops 0", lines.pop(2)
    )
    assert lines == [
        "1 s1-eth1 up: 2.5Mbit, queues of 64 packets; holds 0 packets (0 bytes); "
        "received 2 (200 bytes), sent 0 (0 bytes), queue drops 0, lost 0",
        "2 s1-eth2 up: no rate, queues of 64 packets; holds 0 packets (0 bytes); "
        "received 0 (0 bytes), sent 2 (200 bytes), queue drops 0, lost 0",
        "3 s1-eth3 down: no rate, queues of 64 packets; holds 0 packets (0 bytes); "
        "received 0 (0 bytes), sent 0 (0 bytes), queue drops 0, lost 0",
    ]
    assert "set_queue_depth PACKETS" in send_command(tmp_path / "control", "help")


@needs_namespaces
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("set_queue_rate fast 1", "rate 'fast' is not a rate between 1bit and 10Tbit; write it like 200Mbit"),
        ("set_queue_rate 1Mbit 9", "switch 1 has no port 9; it has"),
        ("set_queue_rate 1Mbit one", "port 'one' is not a number, or `all`"),
        ("set_queue_rate 1Mbit 1 3", "a rate is a port's, which its priorities share"),
        ("set_queue_depth 0 1", "'0' is not a number from 1, or `none`"),
        ("set_queue_depth 5 1 8", "priority '8' is not one of 0 … 7"),
        ("set_queue_depth", "'set_queue_depth' is no command; there are:"),
        ("reboot\x00\xff", "is no command; there are:"),
    ],
)
def test_lines_that_do_not_serve(wired: WiredSwitch, tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(ControlError) as raised:
        send_command(tmp_path / "control", line)
    assert complaint in str(raised.value)
    assert "1 s1-eth1 up" in send_command(tmp_path / "control", "show_ports")


@needs_namespaces
def test_the_command_talks_to_a_running_switch(net: Network, tmp_path: Path) -> None:
    path = str(tmp_path / "control")
    arguments = [*attached(net), "--grpc-server-addr", "127.0.0.1:0", "--control", path, str(PAIRS)]
    with running(*arguments):
        for words in (["set_queue_rate", "1Mbit", "2"], ["show_ports"]):
            done = subprocess.run(
                [*COMMAND, "ctl", "--control", path, *words], capture_output=True, text=True, check=True
            )
        assert "2 s1-eth2 up: 1Mbit" in done.stdout
        assert "there is no port" not in done.stderr
        assert "has no port 9" in fails("ctl", "--control", path, "set_queue_depth", "1", "9")
        assert f"control socket {path}: Address already in use" in fails(*arguments[6:])
    assert f"no switch answers at {path}: No such file or directory" in fails("ctl", "--control", path, "help")


@needs_namespaces
def test_a_client_that_never_ends_its_line_is_cut_off(net: Network, tmp_path: Path) -> None:
    """One that says a byte now and then kept the switch from ending."""
    with WiredSwitch(pairs(), net.interfaces) as made, socket.socket(socket.AF_UNIX) as client:
        server = ControlServer(made, net.interfaces, tmp_path / "control")
        client.connect(str(tmp_path / "control"))
        client.sendall(b"show")
        ended = threading.Event()

        def trickle() -> None:
            with suppress(ConnectionError):
                while not ended.wait(0.01):
                    client.sendall(b" ")

        threads = [threading.Thread(target=trickle), threading.Thread(target=server.close)]
        for thread in threads:
            thread.start()
        threads[1].join(60)
        ended.set()
        threads[0].join()
        assert not threads[1].is_alive(), "the control socket waits for its client"


def test_the_control_socket_is_found_by_device_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_socket(7) == tmp_path / "weir" / "switch-7"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_socket(7).name == "switch-7"
    assert parse_control(["--device-id", "3", "show_ports"]) == (None, 3, "show_ports")
    with pytest.raises(UsageError, match="required: WORD"):
        parse_control([])


def test_a_link_of_another_user_to_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    lstat = Path.lstat

    def of_another(path: Path) -> os.stat_result:
        found = list(lstat(path))
        found[4] = os.getuid() + 1  # st_uid
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", of_another)
    with pytest.raises(ControlError):
        control._make_folder(tmp_path / "link")


@pytest.mark.parametrize("mode", [0o770, 0o757])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """They could put a socket of their own in the place of the switch's."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ControlError) as refusal:
        control._make_folder(folder)
    assert refusal.value.value == mode & 0o022
    folder.chmod(0o1777)  # as the folder for temporary files: each user removes only their own files
    control._make_folder(folder)
