"""Fabrics for users' tests: entries written are entries in the switch, and misfits are reported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from weir.emulator.entries import ActionCall, EmulatorError, Exact, Lpm, Match, Range, TableEntry, Ternary
from weir.testing import Network
from weir.tests.paths import STF
from weir.tests.support.errors import raises
from weir.topologies.errors import TopologyError

FIREWALL = Path(__file__).parents[2] / "examples" / "p4_program" / "firewall.json"
TABLES = STF / "tables.json"
ARRAYS = STF / "arrays.json"
EXERCISE = Path(__file__).parents[2] / "examples" / "exercise"


@pytest.mark.parametrize(
    ("table", "text", "lists", "written"),
    [
        ("by_prefix", {"address": "10.0.0.0/8"}, {"address": [0x0A000000, 8]}, (Lpm(0x0A000000, 8),)),
        ("by_range", {"low_half": "1..5"}, {"low_half": [1, 5]}, (Range(1, 5),)),
        ("by_exact", {"hdr.probe.key": "0x1f"}, {"key": [31]}, (Exact(31),)),
        (
            "by_ternary",
            {"key": "0x10&&&0xf0", "port": 3},
            {"hdr.probe.key": (16, 240), "port": "3"},
            (Ternary(16, 240), Exact(3)),
        ),
        ("by_ternary", {"port": 3}, {"hdr.probe.key": [0, 0], "port": 3}, (Ternary(0, 0), Exact(3))),
        ("by_prefix", {}, {"address": [0, 0]}, (Lpm(0, 0),)),
    ],
)
def test_entries_are_what_was_written_as_text_or_lists(
    table: str, text: Mapping[str, object], lists: Mapping[str, object], written: tuple[Match, ...]
) -> None:
    switch = Network(program=TABLES).switch()
    assert switch.switch.program is not None
    priority = 5 if switch.switch.program.tables[f"Forward.{table}"].needs_priority else 0
    switch.add(table, text, "answer", {"result": "0x10"}, priority=priority)
    assert switch.entries(table) == [TableEntry(written, ActionCall("Forward.answer", (16,)), priority)]
    switch.remove(f"Forward.{table}", lists, priority=priority)
    assert switch.entries(table) == []


@pytest.mark.parametrize(
    ("table", "match", "action", "params", "complaint"),
    [
        ("alowed", {}, "admit", {}, 'no table alowed; there are FirewallIngress.allowed, did you mean "allowed"'),
        ("allowed", {"hdr.ipv4.src_adr": 1}, "admit", {}, "did you mean"),
        ("allowed", {"src_addr": "10.0.0/8"}, "admit", {}, "'10.0.0' is neither a number nor an address"),
        ("allowed", {"src_addr": [1, 2, 3]}, "admit", {}, r"\[1, 2, 3\] are not two numbers"),
        ("allowed", {"src_addr": "10.0.0.0/8"}, "admit", {"port": 1}, "admit has no parameter port; it has none"),
    ],
)
def test_entries_that_do_not_fit_the_program_are_refused(
    table: str, match: Mapping[str, object], action: str, params: Mapping[str, object], complaint: str
) -> None:
    with pytest.raises(EmulatorError, match=complaint):
        Network(program=FIREWALL).switch().add(table, match, action, params)


def test_counters_and_registers_have_bounds() -> None:
    switch = Network(program=ARRAYS).switch()
    program = switch.switch.program
    assert program is not None
    register = next(iter(program.registers.values()))
    switch.set_register(register.name, register.size - 1, 1)
    assert switch.register(register.name, register.size - 1) == 1
    with pytest.raises(IndexError, match="the register has"):
        switch.register(register.name, register.size)
    counter = next(each for each in program.counters.values() if each.table is None)
    assert switch.counter(counter.name, 0) == (0, 0)
    with raises(EmulatorError, place="Forward.seen[4]", value=4):
        switch.counter(counter.name, counter.size)


def test_node_names_and_missing_programs_are_checked() -> None:
    network = Network(ports=2)
    with raises(EmulatorError, value="h3", allowed=("h1", "h2")):
        network.send("h3", b"frame")
    with raises(EmulatorError, value="h1"):
        network.switch("h1")
    with raises(TopologyError, place="one-switch", value="s2"):
        network.switch("s2")
    with raises(EmulatorError, value="s1"):
        network.switch().entries("any")
    with raises(EmulatorError, place='program of "S1"', value="one-switch"):
        Network(program={"s1": b"{}", "S1": b"{}"})
    with raises(TopologyError, value=0):
        Network(ports=0)


def test_links_carry_frames_as_large_as_their_mtu(tmp_path: Path) -> None:
    """Longer ones are dropped, and those that no link could carry are refused."""
    fabric = tmp_path / "jumbo.yaml"
    fabric.write_text(
        "name: jumbo\ndefaults: {mtu: 9000}\nhosts: {h1: , h2: }\nswitches: {s1: }\n"
        "links: [{ends: [h1, s1-p1]}, {ends: [s1-p2, h2], mtu: 4000}]\n"
    )
    network = Network(fabric, FIREWALL)
    frames = [bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")) + bytes(size) for size in (4000, 4001)]
    for frame in frames:
        network.send("h1", frame)
    assert network.received("h2") == frames[:1]
    network.send("h1", frames[0][:14] + bytes(9000))
    assert network.received("h2") == []
    with raises(EmulatorError, place="frame of 9015 bytes", value=9015):
        network.send("h1", frames[0][:14] + bytes(9001))


def test_an_unexpected_packet_fails_with_its_content() -> None:
    network = Network(program=FIREWALL, ports=2)
    frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / b"0123456789"
    network.send("h1", frame)
    with pytest.raises(AssertionError, match=f"nothing more was expected: h2: {bytes(frame).hex()}"):
        network.verify_no_other_packets()
    with pytest.raises(AssertionError, match=f"h2: {bytes(frame).hex()} came; expected 00"):
        network.verify_packet(b"\x00", "h2")
    with pytest.raises(AssertionError, match="h1: no packet came; expected 00"):
        network.verify_packet(b"\x00", "h1")
    network.send("h1", frame)

    class AnyOfThisLength:
        def pkt_match(self, packet: bytes) -> bool:
            return len(packet) == len(frame)

    network.verify_packet(AnyOfThisLength(), "h2")
    network.verify_no_other_packets()


def test_p4runtime_is_served_until_the_end() -> None:
    import grpc

    with Network(program=FIREWALL, ports=2) as network, grpc.insecure_channel(network.serve()) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)


def inwards(payload: bytes = b"payload") -> bytes:
    """A packet from 203.0.113.9 to 10.0.0.1 for the firewalls."""
    ethernet = bytes.fromhex("020000000002 020000000001 0800")
    return ethernet + bytes(12) + bytes([203, 0, 113, 9, 10, 0, 0, 1]) + payload


def two_firewalls() -> Network:
    return Network("two_firewalls.yaml", "firewall.json", folder=FIREWALL.parent)


def test_a_trace_tells_parser_tables_and_links_up_to_the_host() -> None:
    with two_firewalls() as network:
        for name in ("s1", "s2"):
            network.switch(name).add("allowed", {"src_addr": "203.0.113.0/24"}, "admit")
        told = network.trace("h2", inwards()).splitlines()
        assert network.received("h1") == []  # nothing was sent
    hop = [
        "  parser state start",
        "  parser state ipv4",
        "  table FirewallIngress.allowed: hit for hdr.ipv4.src_addr=0xcb007109: FirewallIngress.admit()",
    ]
    assert told[1:] == [
        "s2, port 2:",
        *hop,
        "  41 bytes leave through port 1 to s1",
        "s1, port 2:",
        *hop,
        "  41 bytes leave through port 1 to h1",
    ]


def test_lost_frames_end_with_the_reason() -> None:
    with two_firewalls() as network:
        network.switch("s2").add("allowed", {"src_addr": "203.0.113.0/24"}, "admit")
        network.send("h2", inwards())
        network.send("h2", inwards()[:20])
        network.settle()
        refused, short = network.lost_frames().split("\n\n")
        network.switch("s1").add("allowed", {"src_addr": "203.0.113.0/24"}, "admit")
        assert inwards().hex() not in network.lost_frames(), "it would come to h1 now"
    assert refused.splitlines()[-2:] == [
        "  table FirewallIngress.allowed: miss for hdr.ipv4.src_addr=0xcb007109: FirewallIngress.refuse()",
        "  dropped: the program dropped it in ingress",
    ]
    assert "  parser error PacketTooShort" in short.splitlines()


def test_a_replay_leaves_registers_and_indirect_counters_alone() -> None:
    with Network(program=FIREWALL, ports=2) as network:
        network.trace("h2", inwards())
        assert network.switch().counter("refused").packets == 0


def test_a_refused_entry_of_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "s1-runtime.json"
    good = {"table": "allowed", "match": {"hdr.ipv4.src_addr": ["10.0.0.0", 8]}, "action_name": "admit"}
    rows = [good, {**good, "action_name": "admitt"}]
    file.write_text(json.dumps({"table_entries": rows}))
    with Network(program=FIREWALL, ports=2) as network, pytest.raises(EmulatorError) as error:
        network.switch().load_entries(file)
    assert str(error.value).startswith(f"{file}: table_entries[1]: ")


def test_an_exercise_as_tutorials_write_it_runs_as_it_is() -> None:
    with Network("pod/topology.json", "build/router.json", folder=EXERCISE) as network:
        for name in ("s1", "s2"):
            network.switch(name).load_entries(EXERCISE / "pod" / f"{name}-runtime.json")
        network.send("h1", Ether() / IP(src="10.0.1.1", dst="10.0.2.2") / b"payload")
        (frame,) = network.received("h2")
    packet = Ether(frame)
    assert (packet.dst, packet[IP].ttl) == ("08:00:00:00:02:22", 62)


def test_a_failed_tests_report_has_the_trace_of_the_lost_packet(tmp_path: Path) -> None:
    (tmp_path / "test_lost.py").write_text(f"""
def test_it_comes(fabric, send, received):
    fabric(program={str(FIREWALL)!r}, ports=2)
    send("h2", {inwards()!r})
    assert received("h1")


def test_nothing_is_wrong(fabric, send, received):
    fabric(program={str(FIREWALL)!r}, ports=2)
    send("h2", {inwards()!r})
    assert not received("h1")
""")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "weir.testing.plugin", "-p", "no:cacheprovider")
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert ran.stdout.count("packets that came to no host") == 1
    assert "table FirewallIngress.allowed: miss for hdr.ipv4.src_addr=0xcb007109" in ran.stdout
