"""Packets to a port that the switch does not have: egress runs for them, as in bmv2, and transmission drops them."""

from __future__ import annotations

import pytest

from weir.emulator.entries import CloneSession, Replica
from weir.emulator.fabric import Fabric
from weir.emulator.switch import Switch
from weir.tests.paths import PROGRAMS

ABSENT = 400
"""The port that the program sends to."""
DROP, RECIRCULATE, CLONE_IN_EGRESS, MULTICAST, CLONE_IN_INGRESS = range(5)
RECIRCULATED_TO, CLONED_TO = 2, 3


def loaded() -> Switch:
    switch = Switch(1, ports=range(1, 5))
    switch.load((PROGRAMS / "absent_port.json").read_bytes())
    switch.replication.set_group(9, (Replica(ABSENT, 1),))
    switch.replication.set_session(5, CloneSession((Replica(CLONED_TO),)))
    switch.replication.set_session(6, CloneSession((Replica(ABSENT),)))
    return switch


def frame(op: int, passes: int = 0) -> bytes:
    return bytes(12) + b"\x08\x00" + bytes([op, passes]) + b"payload"


def packets_seen(switch: Switch) -> list[int]:
    assert switch.state is not None
    return [int(count) for count in switch.state.counters["E.seen"].packets]


@pytest.mark.parametrize(
    ("op", "out", "lost"),
    [
        (DROP, [], 1),
        (RECIRCULATE, [(RECIRCULATED_TO, 2)], 0),
        (CLONE_IN_EGRESS, [(CLONED_TO, 1)], 1),
        (MULTICAST, [], 1),
        (CLONE_IN_INGRESS, [(2, 1)], 1),
    ],
)
def test_egress_runs_for_an_absent_port_and_transmission_drops(op: int, out: list[tuple[int, int]], lost: int) -> None:
    switch = loaded()
    assert switch.forward(frame(op), 1) == [(port, frame(op, passes)) for port, passes in out]
    assert packets_seen(switch) == [int(number == op) for number in range(8)]
    assert switch.state is not None
    assert switch.state.registers["E.last"].read(op) == 0xABCD
    assert switch.counters.no_port == lost


def test_an_absent_port_in_a_fabric_runs_egress_too() -> None:
    fabric = Fabric(seed=1)
    switch = loaded()
    fabric.add_switch("s1", switch)
    for number in (1, 2):
        fabric.add_host(f"h{number}")
        fabric.add_link((f"h{number}", 0), ("s1", number), rate_bps=1e9, delay_ns=1_000)
    for op in (DROP, RECIRCULATE):
        fabric.send("h1", frame(op))
    wakes = fabric.run(until_ns=1_000_000)
    assert [(wake.host, [bytes(data) for data in wake.frames]) for wake in wakes] == [("h2", [frame(RECIRCULATE, 2)])]
    assert packets_seen(switch)[:2] == [1, 1]
    assert switch.counters.no_port == 1
