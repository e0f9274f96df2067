"""The switch and the fabric with a compiled program: the project's own, as p4c compiled it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from weir.emulator.datapath import Datapath
from weir.emulator.entries import ActionCall, ActionSet, Exact, Lpm, TableEntry, WeightedAction
from weir.emulator.fabric import Fabric
from weir.emulator.program import UnsupportedProgram
from weir.emulator.switch import Switch
from weir.p4src import FABRIC_JSON

PROGRAM = FABRIC_JSON.read_bytes()
MAC = "02:00:00:00:00:{:02x}"


def route(switch: Switch, host: int, port: int) -> None:
    """Everything for 10.0.0.`host` leaves through `port`; control traffic has its class."""
    state: Any = switch.state
    forward = ActionCall("FabricIngress.routing.forward", (port, 0x02000000_00AA, 0x020000000000 + host))
    state.tables["FabricIngress.routing.routes"].insert(
        TableEntry((Lpm(0x0A000000 + host, 32),), ActionSet((WeightedAction(forward),)))
    )


def loaded(device_id: int = 1) -> Switch:
    switch = Switch(device_id, ports=range(1, 5))
    switch.load(PROGRAM)
    return switch


def packet(host: int, size: int = 200, ttl: int = 64, dscp: int = 0) -> bytes:
    header = Ether(src=MAC.format(9), dst=MAC.format(10)) / IP(
        src="10.0.0.9", dst=f"10.0.0.{host}", ttl=ttl, tos=dscp << 2
    )
    header /= UDP(sport=1000, dport=2000, chksum=0)
    return bytes(header / bytes(size - len(header)))


def test_a_switch_is_a_datapath() -> None:
    datapath: Datapath = loaded()
    assert datapath.program is not None
    assert datapath.state is not None


def test_a_routed_packet() -> None:
    switch = loaded()
    route(switch, 2, 3)
    sent = packet(2)
    [(port, data)] = switch.forward(sent, 1)
    expected = Ether(sent)
    expected.src, expected.dst = MAC.format(0xAA), MAC.format(2)
    expected[IP].ttl = 63
    del expected[IP].chksum
    assert port == 3
    assert data == bytes(expected)
    assert switch.forward(packet(3), 1) == []
    assert switch.forward(packet(2, ttl=1), 1) == []
    assert switch.counters.ingress_drops == 2


def test_a_packet_out_leaves_through_the_port_it_names() -> None:
    switch = loaded()
    frame = packet(2)
    fabric = Fabric()
    fabric.add_switch("s1", switch)
    fabric.add_host("h1")
    fabric.add_link(("h1", 0), ("s1", 4), rate_bps=1e9)
    switch.packet_out((4 << 7).to_bytes(2, "big") + frame)
    [wake] = fabric.run(10**6)
    assert wake.frames[0].tobytes() == frame


def test_loading_again_resets_and_a_bad_program_changes_nothing() -> None:
    switch = loaded()
    route(switch, 2, 3)
    with pytest.raises(UnsupportedProgram):
        switch.load(b"{}")
    assert [port for port, _ in switch.forward(packet(2), 1)] == [3]
    switch.load(PROGRAM)
    assert switch.forward(packet(2), 1) == []


def test_a_class_of_its_own_overtakes_in_the_queue() -> None:
    switch = loaded()
    state: Any = switch.state
    route(switch, 2, 2)
    state.tables["FabricIngress.traffic_class"].insert(
        TableEntry((Exact(48),), ActionCall("FabricIngress.set_class", (7,)))
    )
    fabric = Fabric()
    fabric.add_switch("s1", switch)
    fabric.add_host("h1")
    fabric.add_host("h2", poll_ns=10**6)
    fabric.add_link(("h1", 0), ("s1", 1))
    fabric.add_link(("s1", 2), ("h2", 0), rate_bps=1e8)
    bulk = np.frombuffer(packet(2, size=1000), np.uint8)
    fabric.send("h1", np.tile(bulk, (5, 1)))
    fabric.send("h1", packet(2, size=100, dscp=48))
    [wake] = fabric.run(10**6)
    # One bulk frame is on the wire (80 µs), then the small one takes its 8 µs.
    assert [(group.shape, times.tolist()) for group, times in zip(wake.frames, wake.times_ns, strict=True)] == [
        ((5, 1000), [80_000, 168_000, 248_000, 328_000, 408_000]),
        ((1, 100), [88_000]),
    ]


def test_flows_avoid_a_link_of_the_fabric_that_is_down() -> None:
    switch = Switch(1)
    switch.load(PROGRAM)
    state: Any = switch.state
    forward = "FabricIngress.routing.forward"
    paths = tuple(WeightedAction(ActionCall(forward, (port, 1, port)), watch_port=bytes([port])) for port in (2, 3))
    state.tables["FabricIngress.routing.routes"].insert(TableEntry((Lpm(0x0A010000, 16),), ActionSet(paths)))
    fabric = Fabric()
    fabric.add_switch("s1", switch)
    for port in (1, 2, 3):
        fabric.add_host(f"h{port}")
        fabric.add_link((f"h{port}", 0), ("s1", port))

    def through() -> dict[str, int]:
        for i in range(40):
            datagram = (
                Ether(dst="02:00:00:00:00:0a")
                / IP(src="10.0.0.9", dst=f"10.1.0.{i}")
                / UDP(sport=i, chksum=0)
                / bytes(20)
            )
            fabric.send("h1", bytes(datagram))
        wakes = fabric.run(fabric.now_ns + 1_000_000)
        return {wake.host: sum(len(frames) for frames in wake.frames) for wake in wakes}

    both = through()
    assert both.keys() == {"h2", "h3"}
    fabric.set_link(("h3", 0), up=False)
    assert through() == {"h2": 40}
    fabric.set_link(("s1", 3), up=True)
    assert through() == both
