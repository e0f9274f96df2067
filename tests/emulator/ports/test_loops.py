"""Programs that send packets round and round: each is ended and counted, and other packets go on meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from weir.emulator.compiler.parser import MAX_RETURNS
from weir.emulator.entries import CloneSession, Replica
from weir.emulator.fabric import Fabric
from weir.emulator.ports.wired import WiredSwitch
from weir.emulator.runtime.memory import ALLOWANCE
from weir.emulator.switch import MAX_PASSES, Switch
from weir.tests.emulator.network import Network, eventually, needs_namespaces, network
from weir.tests.paths import PROGRAMS

LOOPS = PROGRAMS / "loops.json"
ONCE, RESUBMIT, RESUBMIT_SO_OFTEN, RECIRCULATE, CLONE, DOUBLE, SPAWN, BREED, PARSE = 0, 1, 2, 3, 4, 5, 6, 7, 9


def switch(max_passes: int = MAX_PASSES) -> Switch:
    made = Switch(1, ports=[1, 2, 3], max_passes=max_passes)
    made.load(LOOPS.read_bytes())
    made.replication.set_session(1, CloneSession((Replica(3, 0),)))
    made.replication.set_session(2, CloneSession((Replica(2, 0), Replica(3, 0))))
    return made


def order(what: int, times: int = 0) -> bytes:
    return bytes([what, times, 0, 0]) + bytes(60)


def passes(frame: bytes) -> int:
    """Number of passes of a frame through ingress."""
    return int.from_bytes(frame[2:4], "big")


@pytest.mark.parametrize("what", [RESUBMIT, RECIRCULATE])
def test_a_packet_passes_ingress_at_most_so_often(what: int) -> None:
    s = switch(max_passes=10)
    assert s.forward(order(what), 1) == []
    assert (s.counters.ingress_packets, s.counters.too_many_passes) == (10, 1)
    assert s.forward(order(ONCE), 1) != []
    s = switch()
    s.forward(order(what), 1)
    assert (s.counters.ingress_packets, s.counters.too_many_passes) == (MAX_PASSES, 1)


def test_as_many_passes_as_may_be_are_made() -> None:
    s = switch(max_passes=200)
    [(port, _)] = s.forward(order(RESUBMIT_SO_OFTEN, times=200), 1)
    assert (port, s.counters.ingress_packets, s.counters.too_many_passes) == (2, 200, 0)
    assert s.forward(order(RESUBMIT_SO_OFTEN, times=201), 1) == []
    assert s.counters.too_many_passes == 1


def test_clones_of_clones_end() -> None:
    s = switch(max_passes=10)
    assert [port for port, _ in s.forward(order(CLONE), 1)] == [2] + [3] * 9
    assert (s.counters.copied_packets, s.counters.clones_refused) == (9, 1)


@pytest.mark.parametrize("what", [DOUBLE, SPAWN, BREED])
def test_growing_numbers_end(what: int) -> None:
    """However many packets one frame turns into, they end, in bounded memory, and each is accounted for."""
    s = switch()
    out = s.process(np.frombuffer(order(what), np.uint8)[np.newaxis], ports=1)
    counters = s.counters
    assert counters.too_many_passes + counters.clones_refused > 0
    assert 0 < counters.copied_packets <= ALLOWANCE
    dropped = counters.loopback_full + counters.too_many_passes
    assert 1 + counters.copied_packets == len(out.lengths) + dropped
    assert s._engine.packets_in_use == 0
    assert [port for port, _ in s.forward(order(ONCE), 1)] == [2]


def test_cyclic_parser_states_end_in_a_parser_error() -> None:
    """The program sends packets with ParserTimeout to port 3."""
    assert MAX_RETURNS > 9000, "a stack of labels in the longest frame must do"
    s = switch()
    assert [port for port, _ in s.forward(order(PARSE), 1)] == [3]


def test_links_do_not_count_as_passes() -> None:
    """Two switches that send a frame back and forth: that is a matter of the network."""
    fabric = Fabric()
    for number in (1, 2):
        s = Switch(number, max_passes=2)
        s.load(LOOPS.read_bytes())
        fabric.add_switch(f"s{number}", s)
    fabric.add_host("h1")
    fabric.add_link(("h1", 0), ("s1", 1))
    fabric.add_link(("s1", 2), ("s2", 2), delay_ns=1000)
    fabric.send("h1", order(ONCE))
    fabric.run(100_000)
    assert fabric.port_counters()["s1", 2].tx_packets >= 40


@pytest.fixture
def net() -> Iterator[Network]:
    with network([1, 2, 3]) as made:
        yield made


@needs_namespaces
@pytest.mark.parametrize("what", [RESUBMIT, RECIRCULATE, CLONE])
def test_other_packets_go_on_while_some_go_round(net: Network, what: int) -> None:
    s = switch(max_passes=1 << 60)
    with WiredSwitch(s, net.interfaces) as wired:
        net.send(1, order(what))
        assert eventually(lambda: s.counters.ingress_packets + s.counters.egress_packets > MAX_PASSES)
        net.receive(2, int(what == CLONE))  # result of its clones
        for number in range(50):
            frame = order(ONCE)[:-1] + bytes([number])
            net.send(1, frame)
            assert [one[4:] for one in net.receive(2, 1)] == [frame[4:]]
        s.replication.set_group(1, (Replica(1),))  # and the control plane gets its turn
    assert wired.counters()[1].port.rx_packets == 51


@needs_namespaces
def test_a_signal_ends_a_switch_with_endless_packets(net: Network) -> None:
    command = [sys.executable, "-m", "weir.emulator.command", "--grpc-server-addr", "127.0.0.1:0"]
    command += ["-i", "1@s1-eth1", "-i", "2@s1-eth2"]
    command += ["--max-passes", str(1 << 60), str(LOOPS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        assert any("P4Runtime on" in line for line in process.stdout)
        net.send(1, *[order(RECIRCULATE)] * 8, *[order(RESUBMIT)] * 8, order(ONCE))
        assert len(net.receive(2, 1, 20)) == 1  # so the others go round already
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=20)[0]
    finally:
        process.kill()
    assert process.returncode == 0
    assert "received 17 packets" in said
