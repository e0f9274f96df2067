"""A custom P4 program under pytest: `pytest examples/p4_program`. The switch is emulated; no root, no compiler.

firewall.json was made by `p4c-bm2-ss --arch v1model -o firewall.json firewall.p4`.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from weir.emulator import ActionCall, Lpm, Switch, TableEntry

INSIDE, OUTSIDE = 1, 2
PROGRAM = Path(__file__).with_name("firewall.json")
ALLOWED = (Lpm(int(IPv4Address("203.0.113.0")), 24),)


@pytest.fixture
def switch() -> Switch:
    """A switch with that program, which lets 203.0.113.0/24 in."""
    switch = Switch(1, ports=(INSIDE, OUTSIDE))
    switch.load(PROGRAM.read_bytes())
    assert switch.state is not None
    switch.state.tables["FirewallIngress.allowed"].insert(TableEntry(ALLOWED, ActionCall("FirewallIngress.admit")))
    return switch


def packet(source: str, destination: str) -> bytes:
    """An IPv4 packet without options, in Ethernet."""
    ethernet = bytes.fromhex("020000000002 020000000001 0800")
    return ethernet + bytes(12) + IPv4Address(source).packed + IPv4Address(destination).packed + b"payload"


def test_inside_hosts_reach_everybody(switch: Switch) -> None:
    frame = packet("10.0.0.1", "198.51.100.7")
    assert switch.forward(frame, port=INSIDE) == [(OUTSIDE, frame)]


def test_only_allowed_sources_come_in_and_both_are_counted(switch: Switch) -> None:
    good, bad = packet("203.0.113.9", "10.0.0.1"), packet("198.51.100.7", "10.0.0.1")
    assert [switch.forward(frame, port=OUTSIDE) for frame in (good, bad, good)] == [
        [(INSIDE, good)],
        [],
        [(INSIDE, good)],
    ]
    assert switch.state is not None
    packets, _ = switch.state.tables["FirewallIngress.allowed"].counter(ALLOWED)
    assert packets == 2
    assert switch.state.counters["FirewallIngress.refused"].packets.tolist() == [1]


@pytest.mark.parametrize("frame", [b"\xff" * 6 + b"\x02" * 6 + b"\x08\x06" + bytes(28), b"short"])
def test_packets_other_than_ipv4_stay_outside(switch: Switch, frame: bytes) -> None:
    assert switch.forward(frame, port=OUTSIDE) == []
