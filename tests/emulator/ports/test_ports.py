"""A switch on real interfaces: frames through veth pairs, queues in wall-clock time, and events of interfaces."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.utils import rdpcap

from weir.emulator.entries import ActionCall, ActionSet, Exact, Lpm, Replica, TableEntry, WeightedAction
from weir.emulator.port import PortConfig
from weir.emulator.ports.reasons import STEPPED, describe
from weir.emulator.ports.sockets import PortError
from weir.emulator.ports.wired import WiredSwitch
from weir.emulator.switch import Switch
from weir.tests.emulator.network import Network, eventually, ip, needs_namespaces, network
from weir.tests.paths import PROGRAMS, ROOT, STF
from weir.tests.support.errors import raises

pytestmark = needs_namespaces

PAIRS = PROGRAMS / "pairs.json"
FABRIC = ROOT / "p4src" / "build" / "fabric.json"


@pytest.fixture
def net() -> Iterator[Network]:
    with network([1, 2, 3]) as made:
        yield made


@pytest.fixture(params=["ring", "calls"])
def ring(request: pytest.FixtureRequest) -> bool:
    """Both ways of receiving."""
    return bool(request.param == "ring")


def pairs(**config: Any) -> Switch:
    switch = Switch(1, ports=[1, 2, 3], port=PortConfig(**config))
    switch.load(PAIRS.read_bytes())
    return switch


def fabric(*, traced: bool = False, **config: Any) -> Switch:
    """Routes 10.0.0.n to port n; the control class goes first."""
    switch = Switch(1, ports=[1, 2, 3], port=PortConfig(**config), traced=traced)
    switch.load(FABRIC.read_bytes())
    state: Any = switch.state
    for port in (1, 2, 3):
        forward = ActionCall("FabricIngress.routing.forward", (port, 0x0200000000AA, 0x020000000000 + port))
        state.tables["FabricIngress.routing.routes"].insert(
            TableEntry((Lpm(0x0A000000 + port, 32),), ActionSet((WeightedAction(forward),)))
        )
    state.tables["FabricIngress.traffic_class"].insert(
        TableEntry((Exact(48),), ActionCall("FabricIngress.set_class", (7,)))
    )
    return switch


def packet(port: int, mark: int = 0, size: int = 200, dscp: int = 0) -> bytes:
    header = Ether(src="02:00:00:00:00:09", dst="02:00:00:00:00:0a") / IP(
        src="10.0.0.9", dst=f"10.0.0.{port}", tos=dscp << 2
    )
    header /= UDP(sport=1000, dport=2000, chksum=0) / mark.to_bytes(4, "big")
    return bytes(header / bytes(size - len(header)))


def mark(frame: bytes) -> int:
    return int.from_bytes(frame[42:46], "big")


def numbered(count: int, size: int = 100) -> list[bytes]:
    head = bytes.fromhex("0200000000020200000000010900")
    return [head + i.to_bytes(4, "big") + bytes(size - 18) for i in range(count)]


def test_the_fabric_program_forwards_as_in_memory(net: Network) -> None:
    sent = [packet(port, mark=i, size=60 + 7 * i) for i, port in enumerate([2, 3] * 40)]
    memory = fabric()
    expected: dict[int, list[bytes]] = {2: [], 3: []}
    for frame in sent:
        for port, out in memory.forward(frame, 1):
            expected[port].append(out)
    with WiredSwitch(fabric(), net.interfaces) as wired:
        net.send(1, *sent)
        assert {port: net.receive(port, 40) for port in (2, 3)} == expected
        net.send(1, packet(9))
        assert eventually(lambda: wired.switch.counters.ingress_drops == 1)
    counters = wired.counters()
    assert [counters[port].port.tx_packets for port in (1, 2, 3)] == [0, 40, 40]
    assert counters[1].port.rx_packets == 81
    # A switch does not receive its own frames.
    assert counters[2].port.rx_packets == counters[3].port.rx_packets == 0


def test_a_plain_program_keeps_frames_and_their_order(net: Network, ring: bool) -> None:
    """More frames than the ring, the pool or a batch hold, both ways at once, of every size up to the MTU."""
    forth = [frame[: 18 + i % 1497] for i, frame in enumerate(numbered(3000, 1514))]
    back = [frame[::-1] for frame in forth]
    with WiredSwitch(pairs(), net.interfaces, ring=ring):
        received: dict[int, list[bytes]] = {1: [], 2: []}
        for i in range(0, len(forth), 100):
            net.send(1, *forth[i : i + 100])
            net.send(2, *back[i : i + 100])
            received[2] += net.receive(2, 100)
            received[1] += net.receive(1, 100)
    assert received[2] == forth
    assert received[1] == back


def test_jumbo_frames_pass_whole_and_vlan_tags_beside_the_mtu(net: Network, ring: bool) -> None:
    """Frames that a page cannot hold reach the kernel in another way than the rest."""
    for port in (1, 2, 3):
        ip(f"link set far{port} mtu 9000")
        ip(f"link set s1-eth{port} mtu 9000")
    content = random.Random(7).randbytes(9014)
    frames = [
        frame[:18] + content[: size - 18] for size, frame in zip(range(100, 9015, 71), numbered(126), strict=True)
    ]
    tagged = frames[0][:12] + b"\x81\0\0\7" + content[:9002]
    assert (len(frames[-1]), len(tagged)) == (8975, 9018)
    with WiredSwitch(pairs(), net.interfaces, ring=ring) as wired:
        for i in range(0, len(frames), 20):
            net.send(1, *frames[i : i + 20])
            assert net.receive(2, len(frames[i : i + 20])) == frames[i : i + 20]
        assert wired.counters()[2].port.lost_packets == 0
        net.send(1, tagged)
        assert net.receive(2, 1) == [tagged[:12] + tagged[16:]]  # the kernel of the receiver takes the tag off


def test_a_full_queue_drops_and_the_rest_leaves_at_the_rate(net: Network) -> None:
    """A frame of 1000 bytes takes 80 ms at 100 kbit/s; 64 of them arrive within a few."""
    frames = numbered(64, 1000)
    with WiredSwitch(pairs(rate_bps=1e5, queue_packets=4), net.interfaces) as wired:
        net.send(1, *frames)
        assert eventually(lambda: wired.counters()[1].port.rx_packets == 64)
        drops = wired.counters()[2].port.drops[0]
        received = net.receive(2, 64 - drops)
        assert received[:5] == frames[:5]
        assert len(received) + drops == 64
        assert drops > 40
        assert net.receive(2, 1, 0.1) == []
        assert wired.counters()[2].port.max_depth_packets == 4


def test_a_queue_is_limited_in_bytes_too(net: Network) -> None:
    frames = numbered(32, 1000)
    with WiredSwitch(pairs(rate_bps=1e4, queue_bytes=2500), net.interfaces) as wired:
        net.send(1, *frames)
        assert eventually(lambda: wired.counters()[1].port.rx_packets == 32)
        assert wired.counters()[2].port.max_depth_bytes == 2000
        assert wired.counters()[2].port.drops[0] > 20


def test_a_higher_priority_overtakes(net: Network) -> None:
    with WiredSwitch(fabric(rate_bps=2e4), net.interfaces):
        net.send(1, *(packet(2, mark=i, size=1000) for i in range(2)), packet(2, mark=9, dscp=48))
        assert [mark(frame) for frame in net.receive(2, 3)] == [0, 9, 1]


def test_packets_between_controller_and_ports(net: Network) -> None:
    switch = pairs()
    seen: list[bytes] = []
    switch.on_packet_in = seen.append

    def have_seen(number: int) -> Callable[[], bool]:
        return lambda: len(seen) == number

    frames = numbered(500)
    with WiredSwitch(switch, net.interfaces) as wired:
        for i in range(0, 500, 50):
            net.send(3, *frames[i : i + 50])
            assert eventually(have_seen(i + 50))
        assert seen == frames
        assert wired.packet_in_drops == 0
    switch = fabric()
    with WiredSwitch(switch, net.interfaces):
        for frame in frames:
            switch.packet_out((2 << 7).to_bytes(2, "big") + frame)
        assert net.receive(2, 500) == frames


def test_controller_packets_do_not_outlive_their_program(net: Network) -> None:
    """The first packet-in has the program replaced, while more wait in the mailbox, and a packet-out in the other."""
    switch = pairs()
    frames = numbered(6)
    seen: list[bytes] = []

    def receive(frame: bytes) -> None:
        seen.append(frame)
        if frame == frames[0]:
            eventually(lambda: switch.port_counters(switch.cpu_port).tx_packets == 5)
            with switch.paused():
                switch.packet_out(frame)
                switch.load(PAIRS.read_bytes())

    switch.on_packet_in = receive
    with WiredSwitch(switch, net.interfaces):
        net.send(3, *frames[:5])
        assert eventually(lambda: switch.counters.stale_packet_outs)
        net.send(3, frames[5])
        assert eventually(lambda: len(seen) == 2)
    assert seen == [frames[0], frames[5]]
    assert (switch.counters.stale_packet_ins, switch.counters.stale_packet_outs) == (4, 1)


def test_a_controller_that_fails_on_a_packet_gets_the_next(net: Network) -> None:
    switch = pairs()
    seen: list[bytes] = []

    def receive(frame: bytes) -> None:
        seen.append(frame)
        raise ValueError(len(seen))

    switch.on_packet_in = receive
    with WiredSwitch(switch, net.interfaces):
        net.send(3, *numbered(3))
        assert eventually(lambda: len(seen) == 3)
    assert seen == numbered(3)


def test_a_loop_that_breaks_down_says_so(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    """Here the pool cannot grow."""
    failures = []
    with WiredSwitch(pairs(rate_bps=1e4, queue_packets=None), net.interfaces) as wired:
        wired.on_failure = lambda: failures.append("failed")

        def refuse(more: int) -> None:
            raise MemoryError(more)

        wired._engine._grow_pool = refuse  # type: ignore[method-assign]
        for frame in numbered(1500):
            net.send(1, frame)
        assert eventually(lambda: failures == ["failed"])
    assert "the packet loop of switch 1 has failed" in caplog.text
    assert wired.counters()[1].port.rx_packets < 1500


def test_the_control_plane_changes_a_running_switch(net: Network) -> None:
    """Groups, port settings and programs, again and again from several threads, while packets flow."""
    switch = pairs()
    frames = numbered(400)
    with WiredSwitch(switch, net.interfaces):

        def change(number: int) -> None:
            for i in range(50):
                switch.replication.set_group(number, tuple(Replica(1, instance) for instance in range(i % 7 + 1)))
                switch.set_port(2, overhead_bytes=i % 3)

        threads = [threading.Thread(target=change, args=(number,)) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        received = []
        for i in range(0, 400, 20):
            net.send(1, *frames[i : i + 20])
            received += net.receive(2, 20)
        for thread in threads:
            thread.join()
        assert received == frames
        switch.load(FABRIC.read_bytes())
        net.send(1, frames[0])
        assert net.receive(2, 1, 0.1) == []


def test_a_tag_that_the_kernel_took_off_is_back(net: Network, ring: bool) -> None:
    tagged = bytes(Ether(dst="02:00:00:00:00:01") / Dot1Q(vlan=5, prio=3) / IP(dst="10.0.0.1") / bytes(40))
    with WiredSwitch(pairs(), net.interfaces, ring=ring) as wired:
        net.send(1, tagged)
        assert eventually(lambda: wired.switch.counters.egress_packets == 1)
        # The far end's kernel takes the tag off again: look at what was sent there.
        counters = wired.counters()
        assert (counters[1].tags_restored, counters[2].port.tx_bytes) == (1, len(tagged))


def test_checksums_left_to_a_hosts_hardware_are_completed(net: Network, ring: bool) -> None:
    ip("addr add 10.1.0.1/24 dev far1")
    ip("neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev far1")
    with (
        WiredSwitch(pairs(), net.interfaces, ring=ring) as wired,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as host,
    ):
        for size in (1, 64, 333):
            host.sendto(bytes(range(256))[:size] * 2, ("10.1.0.2", 7))
        for frame in net.receive(2, 3):
            shown = Ether(frame)
            found = shown[UDP].chksum
            del shown[UDP].chksum
            assert found == Ether(bytes(shown))[UDP].chksum
        assert wired.counters()[1].checksums_completed == 3


def test_frames_beyond_the_mtu_are_counted(net: Network, ring: bool) -> None:
    with WiredSwitch(pairs(), net.interfaces, ring=ring) as wired:
        for name in ("far1", "s1-eth1"):
            ip(f"link set {name} mtu 4000")
        net.send(1, numbered(1, 3000)[0], *numbered(2))
        assert net.receive(2, 2) == numbered(2)
        assert (wired.counters()[1].oversize, wired.counters()[1].port.rx_packets) == (1, 2)
    with WiredSwitch(pairs(), net.interfaces, ring=ring) as wired:
        net.send(1, numbered(1, 3000)[0], *numbered(2))
        assert net.receive(2, 2) == numbered(2)
        assert (wired.counters()[2].too_long, wired.counters()[2].port.lost_packets) == (1, 1)


def test_an_mtu_that_changes_while_the_switch_runs(net: Network, ring: bool) -> None:
    """Frames that the interface no longer takes are counted; frames that it takes now are sent, as far as the ring
    holds them.
    """
    switch = fabric()
    with WiredSwitch(switch, net.interfaces, ring=ring) as wired:

        def send(mtu: int, size: int) -> bool:
            """Return whether a frame of this size leaves through port 2 at this MTU."""
            ip(f"link set far2 mtu {mtu}")
            ip(f"link set s1-eth2 mtu {mtu}")
            assert eventually(lambda: wired._interfaces[2].mtu == mtu)
            lost = wired.counters()[2].too_long
            frame = numbered(1, size)[0]
            switch.packet_out((2 << 7).to_bytes(2, "big") + frame)
            assert eventually(lambda: wired.counters()[2].too_long > lost or net.receive(2, 1, 0.01) == [frame])
            return wired.counters()[2].too_long == lost

        assert send(1500, 1514)
        assert not send(1000, 1015)
        assert send(1000, 1014)
        assert send(1900, 1914)
        assert send(9000, 2040) != ring


def test_a_long_queue_outgrows_the_pool_and_nothing_is_lost(net: Network) -> None:
    frames = numbered(3000)
    with WiredSwitch(pairs(rate_bps=1e4, queue_packets=None), net.interfaces) as wired:

        def has_received(number: int) -> Callable[[], bool]:
            return lambda: wired.counters()[1].port.rx_packets == number

        for i in range(0, len(frames), 100):
            net.send(1, *frames[i : i + 100])
            assert eventually(has_received(i + 100))
        assert wired.counters()[2].port.max_depth_packets > 2900
        wired.switch.set_port(2, rate_bps=1e8)
        assert net.receive(2, len(frames)) == frames
    assert wired.counters()[2].port.drops == (0,) * 8


@pytest.mark.parametrize("copies", [500, 508])
def test_frames_that_turn_into_many_wait_for_the_pool_to_grow(net: Network, ring: bool, copies: int) -> None:
    """Each takes half of the packets that are kept free for it; these are almost all of the pool, or all. The frames
    have come before the first is looked at.
    """
    switch = Switch(1, ports=[1, 2, 3], port=PortConfig(queue_packets=None))
    switch.load((STF / "replication.json").read_bytes())
    switch.replication.set_group(1, tuple(Replica(2, instance) for instance in range(copies)))
    switch.set_port(2, rate_bps=1e4)
    multicast = bytes([3, 1])
    wired = WiredSwitch(switch, net.interfaces, ring=ring)
    net.send(1, *(multicast + bytes([0] * 12 + [number] * 46) for number in range(8)))
    with wired:
        assert eventually(lambda: wired.counters()[1].port.rx_packets == 8)
        switch.set_port(2, rate_bps=2e7)
        received = [frame[-1] for frame in net.receive(2, 8 * copies)]
    assert received == [number for number in range(8) for _ in range(copies)]


@pytest.mark.parametrize(("limit", "sent"), [(1 << 24, 1500), (5000, 50)])
def test_a_slow_interface_fills_the_queues_or_drops_by_itself(net: Network, limit: int, sent: int) -> None:
    """The kernel makes the switch wait for memory if the interface has a long queue; with a short one it refuses."""
    shaper = f"tc qdisc add dev s1-eth2 root tbf rate 50mbit burst 4kb limit {limit}"
    if shutil.which("tc") is None or subprocess.run(shaper.split(), check=False).returncode != 0:
        pytest.skip("no tc on PATH, or no token bucket filter (sch_tbf) in the kernel")
    frames = numbered(sent, 1000)
    with WiredSwitch(pairs(queue_packets=None), net.interfaces) as wired:
        net.send(1, *frames)
        assert eventually(lambda: wired.counters()[1].port.rx_packets == sent)
        assert eventually(lambda: wired.counters()[2].port.depth_packets == 0)
        counters = wired.counters()[2]
        received = net.receive(2, sent - counters.refused)
    assert len(received) == sent - counters.refused
    assert received == [frame for frame in frames if frame in set(received)]
    assert (counters.waits > 0, counters.refused > 0) == (limit > 5000, limit == 5000)
    assert counters.port.lost_packets == counters.refused


def test_an_interface_that_goes_down_and_comes_back(net: Network, ring: bool, caplog: pytest.LogCaptureFixture) -> None:
    frames = numbered(3)
    with WiredSwitch(pairs(), net.interfaces, ring=ring) as wired:
        net.send(1, frames[0])
        assert net.receive(2, 1) == frames[:1]
        ip("link set s1-eth2 down")
        net.send(1, frames[1])
        assert eventually(lambda: wired.counters()[2].unreachable == 1)
        ip("link set s1-eth1 down")
        assert eventually(lambda: wired.counters()[1].outages == 1)
        net.up(1, 2)
        net.send(1, frames[2])
        assert net.receive(2, 1) == frames[2:]
        ip("link del s1-eth2")
        net.send(1, frames[0])
        assert eventually(lambda: wired.counters()[2].unreachable == 2)
        gone = "port 2: interface s1-eth2 is down, without carrier, or gone"
        assert eventually(lambda: caplog.messages.count(gone) == 2)
        assert "port 2: interface s1-eth2 is up" in caplog.messages


def test_flows_avoid_a_port_whose_link_is_down(net: Network) -> None:
    """Half of the flows leave each of two ports, until one loses its carrier, goes down, and comes back."""
    switch = fabric()
    state: Any = switch.state
    paths = tuple(
        WeightedAction(
            ActionCall("FabricIngress.routing.forward", (port, 0x0200000000AA, 0x020000000000 + port)),
            watch_port=bytes([port]),
        )
        for port in (2, 3)
    )
    state.tables["FabricIngress.routing.routes"].insert(TableEntry((Lpm(0x0A010000, 16),), ActionSet(paths)))
    flows = [
        bytes(
            Ether(dst="02:00:00:00:00:0a")
            / IP(src="10.0.0.9", dst=f"10.1.0.{i}")
            / UDP(sport=1000 + i, dport=9, chksum=0)
            / bytes(20)
        )
        for i in range(40)
    ]

    def leave_by(*ports: int) -> bool:
        """Return whether flows eventually leave through all of these ports."""

        def found() -> bool:
            net.send(1, *flows)
            counts = [len(net.receive(port, len(flows), 0.2)) for port in ports]
            return sum(counts) == len(flows) and all(counts)

        return eventually(found)

    with WiredSwitch(switch, net.interfaces):
        assert leave_by(2, 3)
        ip("link set far2 down")  # s1-eth2 is up, without carrier
        assert leave_by(3)
        ip("link set far2 up")
        assert leave_by(2, 3)
        ip("link set s1-eth3 down")
        assert leave_by(2)


def test_a_log_of_packets(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    """Arrivals, departures, and drops with reasons, in order; nothing is logged if logging is off."""
    made = fabric(rate_bps=1e3, queue_packets=1)
    with caplog.at_level("DEBUG", logger="packets"), WiredSwitch(made, net.interfaces) as wired:
        net.send(1, packet(2, size=100), packet(9, size=90))
        assert len(net.receive(2, 1)) == 1
        net.send(1, *(packet(3, size=1000) for _ in range(3)))
        assert eventually(lambda: wired.counters()[1].port.rx_packets == 5)
    said = [record.getMessage().split("] ")[1] for record in caplog.records if record.name == "packets"]
    assert said[:5] == [
        "packet of 100 bytes received on port 1",
        "packet of 100 bytes leaves through port 2",
        "packet of 90 bytes received on port 1",
        "packet dropped for the program's wish, in ingress",
        "packet of 1000 bytes received on port 1",
    ]
    assert said.count("packet dropped for a full queue") == 1
    caplog.clear()
    with WiredSwitch(pairs(), net.interfaces):
        net.send(1, *numbered(3))
        assert len(net.receive(2, 3)) == 3
    assert not caplog.records


def test_a_log_of_what_tables_do(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    """The program is traced. Notes of a program that has been replaced meanwhile cannot be resolved."""
    made = fabric(traced=True)
    with caplog.at_level("DEBUG", logger="packets"), WiredSwitch(made, net.interfaces):
        net.send(1, packet(2, size=100))
        assert len(net.receive(2, 1)) == 1
        net.send(1, packet(9, size=90))
        assert eventually(lambda: made.counters.ingress_drops == 1)
    said = [record.getMessage().split("] ")[1] for record in caplog.records if record.name == "packets"]
    names = ("start", "parse_ethernet", "look_at_ipv4", "parse_ipv4", "parse_udp", "look_at_marker", "behind_udp")
    states = [f"parser state {name}" for name in names]
    assert said == [
        "packet of 100 bytes received on port 1",
        *states,
        "table FabricIngress.traffic_class: miss for hdr.ipv4.dscp=0x0: FabricIngress.set_class(priority=0x1)",
        "table FabricIngress.policing.policers: miss for standard_metadata.ingress_port=0x1, priority=0x1, "
        "is_message=0x0: NoAction()",
        "table FabricIngress.node_address: miss for hdr.ipv4.dst_addr=0xa000002: NoAction()",
        "table FabricIngress.admission.hosts: miss for standard_metadata.ingress_port=0x1: NoAction()",
        "table FabricIngress.routing.routes: hit for hdr.ipv4.dst_addr=0xa000002: "
        "FabricIngress.routing.forward(port=0x2, src_mac=0x200000000aa, dst_mac=0x20000000002)",
        "table FabricEgress.congestion.marking: miss for standard_metadata.egress_port=0x2: NoAction()",
        "table FabricEgress.int_source.watchlist: miss for src_addr=0xa000009, dst_addr=0xa000002, protocol=0x11, "
        "src_port=0x3e8, dst_port=0x7d0: NoAction()",
        "table FabricEgress.int_events.queue_watch: miss for egress_port=0x2, priority=0x1: NoAction()",
        "packet of 100 bytes leaves through port 2",
        "packet of 90 bytes received on port 1",
        *states,
        "table FabricIngress.traffic_class: miss for hdr.ipv4.dscp=0x0: FabricIngress.set_class(priority=0x1)",
        "table FabricIngress.policing.policers: miss for standard_metadata.ingress_port=0x1, priority=0x1, "
        "is_message=0x0: NoAction()",
        "table FabricIngress.node_address: miss for hdr.ipv4.dst_addr=0xa000009: NoAction()",
        "table FabricIngress.admission.hosts: miss for standard_metadata.ingress_port=0x1: NoAction()",
        "table FabricIngress.routing.routes: miss for hdr.ipv4.dst_addr=0xa000009: no action",
        "table FabricIngress.drop_watch: miss for reason=0x5, src_addr=0xa000009, dst_addr=0xa000009, protocol=0x11, "
        "src_port=0x3e8, dst_port=0x7d0: NoAction()",
        "packet dropped for the program's wish, in ingress",
    ]
    note = [0, STEPPED, 1, 0, *[0] * 12]
    assert describe(note, made.state.steps) == "a note of a program that has been replaced"  # type: ignore[union-attr]


def test_captures_of_what_came_and_went(net: Network, tmp_path: Path) -> None:
    frames = [frame[: 60 + i] for i, frame in enumerate(numbered(50))]
    with WiredSwitch(pairs(), net.interfaces, capture=tmp_path):
        net.send(1, *frames)
        net.receive(2, 50)
    found = {path.name: [bytes(frame) for frame in rdpcap(str(path))] for path in tmp_path.iterdir()}
    empty: dict[str, list[bytes]] = {f"s1-eth{port}_{way}.pcap": [] for port in (1, 2, 3) for way in ("in", "out")}
    assert found == empty | {"s1-eth1_in.pcap": frames, "s1-eth2_out.pcap": frames}
    times = [float(frame.time) for frame in rdpcap(str(tmp_path / "s1-eth1_in.pcap"))]
    assert times == sorted(times)
    assert abs(times[0] - (tmp_path / "s1-eth1_in.pcap").stat().st_mtime) < 5


def test_two_switches_in_a_row_leave_nothing_open(net: Network) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(2):
        with WiredSwitch(pairs(), net.interfaces):
            net.send(1, *numbered(3))
            assert net.receive(2, 3) == numbered(3)
    assert descriptors() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("switch-")]


def test_interfaces_that_do_not_serve(net: Network) -> None:
    with raises(PortError, place="port 2", value="nowhere"):
        WiredSwitch(pairs(), {1: "s1-eth1", 2: "nowhere"})
    with raises(PortError, value="s1-eth1"):
        WiredSwitch(pairs(), {1: "s1-eth1", 2: "s1-eth1"})
    with raises(PortError, place="capture file /nowhere/s1-eth1_in.pcap", value=2):
        WiredSwitch(pairs(), net.interfaces, capture=Path("/nowhere"))


def test_an_idle_switch_sleeps(net: Network) -> None:
    """Turns of the loop are counted: one that did not sleep would take some hundreds of thousands."""
    with WiredSwitch(pairs(), net.interfaces) as wired:
        loop = wired._engine.loop
        assert eventually(lambda: loop.sleeps)
        before = loop.turns
        time.sleep(0.3)
        assert loop.turns - before < 100
