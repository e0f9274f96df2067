"""The path from a switch's queue to the controller's state: entries by the controller, traffic, reports by UDP, state.

All entries come from the controller. The collector's state is compared with the record of the emulator's own runtime at
each switch.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from weir.controller.int_config.settings import TELLING_DROPS, IntConfig, WatchedFlows, WatchMode
from weir.controller.telemetry.link_records import REPORT
from weir.controller.telemetry.link_state import LinkState
from weir.tests.controller.int_config.watched_fabric import MS, WatchedFabric, watched_fabric
from weir.tests.p4src.int_fabric import Departure, as_delivered, tcp_frame, udp_frame
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.topologies.schema import load_topology
from weir.wire.int_shim import Presence

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=50_000_000, queue_packets=2000)
COLLECTOR = "h4"
_HEADERS = 16
"""Bytes of the shim and of the INT-MD header."""
_MD, _M = 46, 0x02
"""Offset of the INT-MD header in a frame that the UDP port marks; its bit for an MTU without room."""
SENDERS = ("h1", "h2", "h3")


def seeded() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    return random.Random(seed)


def address(name: str) -> int:
    return int(TOPOLOGY.node(name).address)


def random_packets(rng: random.Random, count: int) -> list[tuple[str, str, bytes]]:
    """(source, destination, frame), numbered from 1 on by the IPv4 identification; half of them TCP."""
    packets = []
    for number in range(1, count + 1):
        source, destination = rng.sample(SENDERS, 2)
        ends, payload = (address(source), address(destination)), rng.randbytes(rng.choice([0, 40, 700, 1300]))
        if rng.random() < 0.5:
            frame = tcp_frame(*ends, payload, number, source_port=rng.randint(2000, 2003), destination_port=80)
        else:
            frame = udp_frame(*ends, payload, number, checksum=rng.random() < 0.7, source_port=rng.randint(3000, 3003))
        packets.append((source, destination, frame))
    return packets


def send(fabric: WatchedFabric, packets: list[tuple[str, str, bytes]]) -> None:
    for source, _, frame in packets:
        fabric.emulated.fabric.send(source, np.frombuffer(frame, np.uint8)[None])


def ways(fabric: WatchedFabric) -> dict[int, list[Departure]]:
    """Each packet's departures, in order, by its number."""
    found: dict[int, list[Departure]] = defaultdict(list)
    for departure in fabric.data:
        found[departure.packet].append(departure)
    return found


def assert_delivered(fabric: WatchedFabric, packets: list[tuple[str, str, bytes]]) -> None:
    """Assert that every packet is at its host unchanged, except for its TTL."""
    hops = {number: len(way) for number, way in ways(fabric).items()}
    for host in SENDERS:
        sent = [as_delivered(each, hops[n]) for n, (_, to, each) in enumerate(packets, 1) if to == host]
        assert sorted(frame[14:] for frame in fabric.received[host]) == sorted(sent)


CASES = [
    (WatchMode.MD, Presence.UDP_PORT),
    pytest.param(WatchMode.MD, Presence.PROBE_MARKER, marks=pytest.mark.long),
    (WatchMode.MX, Presence.DSCP),
    pytest.param(WatchMode.XD, Presence.UDP_PORT, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("mode", "presence"), CASES, ids=lambda each: str(each.value))
async def test_watched_packets_are_collected_and_delivered_unchanged(mode: WatchMode, presence: Presence) -> None:
    rng = seeded()
    watching = IntConfig((WatchedFlows(mode),), presence, COLLECTOR, drops=TELLING_DROPS)
    async with watched_fabric(TOPOLOGY, watching, rng.randrange(1 << 31)) as fabric:
        assert await fabric.controller.verify() == {}
        fabric.tap()
        packets = random_packets(rng, 150)
        send(fabric, packets)
        lost = udp_frame(address("h1"), 0x0A09_0909, b"to nobody", len(packets) + 1)
        send(fabric, [("h1", "", lost)])
        await fabric.run(300 * MS)

        assert_delivered(fabric, packets)
        collector, truth = fabric.collector, ways(fabric)
        assert (collector.datagrams, collector.faults, collector.unknown_links) == (len(fabric.payloads), {}, 0)
        assert {stream.lost for stream in collector.streams()} == {0}
        assert collector.drops == {("s1", 5): 1}  # no_route
        expected = reports_of(mode, truth)
        assert collector.reports == expected + 1
        paths = {
            (int(flow.source), int(flow.destination), flow.protocol, flow.source_port): tuple(
                (hop.switch, hop.ingress_port, hop.egress_port) for hop in flow.path
            )
            for flow in collector.flows(fabric.now_ns)
            if int(flow.destination) != 0x0A09_0909
        }
        assert paths == {key_of(packets[number - 1][2]): path_of(way) for number, way in truth.items()}
        assert set(collector.free_slots) == set()  # nobody asked

        cost = fabric.controller.telemetry_cost(fabric.now_ns)
        assert {end: load for end, load in fabric.emulated.int_load().items() if load[0]} == int_on_links(
            truth, packets
        )
        assert (cost.int_packets, cost.int_bytes) == total(int_on_links(truth, packets))
        assert (mode is WatchMode.XD) == (cost.int_bytes == 0)
        assert cost.reports == len(fabric.payloads)
        assert cost.reports <= cost.report_packets <= 4 * cost.reports  # on the links that they cross


MIXED = """
name: mixed
links:
  - {ends: [h1, s1-p1]}
  - {ends: [h2, s2-p1]}
  - {ends: [s1-p2, s3-p1], mtu: 9000}
  - {ends: [s2-p2, s3-p2], mtu: NARROW}
hosts: {h1: , h2: }
switches: {s1: , s2: , s3: }
"""


@pytest.mark.parametrize("hops", [0, *(pytest.param(hops, marks=pytest.mark.long) for hops in (1, None))])
async def test_int_has_the_room_that_the_narrowest_link_has(hops: int | None, tmp_path: Path) -> None:
    """Packets of 1500 bytes: a link has room for INT of one hop, of none (the M bit says so), or lacks a byte for that.
    Then there is no INT on the wide link either, for the next one would lose the packet.
    """
    watching = IntConfig((WatchedFlows(WatchMode.MD),))
    hop = 4 * watching.flows[0].words
    room = {1: _HEADERS + 2 * hop - 1, 0: _HEADERS + hop - 1, None: _HEADERS - 1}[hops]
    added = 0 if hops is None else _HEADERS + hop * hops
    (tmp_path / "mixed.yaml").write_text(MIXED.replace("NARROW", str(1500 + room)))
    topology = load_topology(tmp_path / "mixed.yaml")
    hosts = [int(topology.host(name).address) for name in ("h1", "h2")]
    there = udp_frame(hosts[0], hosts[1], bytes(1472), 1)
    back = udp_frame(hosts[1], hosts[0], bytes(1472), 2)
    assert len(there) == len(back) == 14 + 1500
    async with watched_fabric(topology, watching) as fabric:
        fabric.tap()
        send(fabric, [("h1", "h2", there), ("h2", "h1", back)])
        await fabric.run(50 * MS)
        sizes = {
            number: [(departure.switch, len(departure.frame)) for departure in way]
            for number, way in ways(fabric).items()
        }
        assert sizes[1] == [("s1", len(there) + added), ("s3", len(there) + added), ("s2", len(there))]
        assert sizes[2] == [("s2", len(back) + added), ("s3", len(back) + added), ("s1", len(back))]
        if hops is not None:
            bits = [0 if hops == 1 else _M, _M]
            assert [[departure.frame[_MD] & _M for departure in ways(fabric)[number][:2]] for number in (1, 2)] == [
                bits,
                bits,
            ]
        assert not any(link.oversized_packets for link in fabric.emulated.links())
        assert [frame[14:] for frame in fabric.received["h2"]] == [as_delivered(there, 3)]
        assert [frame[14:] for frame in fabric.received["h1"]] == [as_delivered(back, 3)]


def int_on_links(
    truth: dict[int, list[Departure]], packets: list[tuple[str, str, bytes]]
) -> dict[Endpoint, tuple[int, int]]:
    """Number of packets that left each switch's port longer than they were sent, and the sum of the differences."""
    found: dict[Endpoint, tuple[int, int]] = {}
    for number, way in truth.items():
        for departure in way:
            end, longer = Endpoint(departure.switch, departure.port), len(departure.frame) - len(packets[number - 1][2])
            count, size = found.get(end, (0, 0))
            if longer:
                found[end] = count + 1, size + longer
    return found


def total(loads: dict[Endpoint, tuple[int, int]]) -> tuple[int, int]:
    return sum(count for count, _ in loads.values()), sum(size for _, size in loads.values())


def reports_of(mode: WatchMode, truth: dict[int, list[Departure]]) -> int:
    """Number of reports by the specification.

    One per node (XD, MX); the stack's and the sink's own (MD); for MX none for a stack. A packet that stays at one
    switch is reported by that switch alone.
    """
    count = 0
    for way in truth.values():
        alone = len(way) == 1
        count += len(way) if mode is WatchMode.XD or alone else (2 if mode is WatchMode.MD else len(way) + 1)
    return count


def key_of(frame: bytes) -> tuple[int, int, int, int]:
    ends = int.from_bytes(frame[26:30], "big"), int.from_bytes(frame[30:34], "big")
    return *ends, frame[23], int.from_bytes(frame[34:36], "big")


def path_of(way: list[Departure]) -> tuple[tuple[str, int, int], ...]:
    return tuple((departure.switch, departure.ingress_port, departure.port) for departure in way)


async def test_the_state_of_links_is_what_the_emulator_recorded() -> None:
    """One state is fed by reports through the socket, another with the runtime's own records: they are the same."""
    watching = IntConfig((WatchedFlows(WatchMode.XD),), collector=COLLECTOR)
    async with watched_fabric(TOPOLOGY, watching, period_ns=500 * MS) as fabric:
        fabric.tap()
        await fabric.run(10 * MS)
        await fabric.run(11 * MS)  # the first probes have been taken, and no others come
        links = fabric.controller.links
        mirror = LinkState(TOPOLOGY, period_ns=500 * MS)
        mirror._state[:], mirror._queues[:] = links.state, links.queues
        for number, (source, rate) in enumerate((("h1", 30e6), ("h2", 25e6))):
            fabric.emulated.add_flow(
                source, "h3", payload_bytes=700, rate_bps=rate, source_port=number, start_ns=11 * MS, stop_ns=300 * MS
            )
        await fabric.run(450 * MS)
        assert fabric.collector.reports == len(fabric.data) > 3000
    index = {link: at for at, link in enumerate(mirror.links)}
    records = np.zeros(len(fabric.data), REPORT)
    for record, departure in zip(records, sorted(fabric.data, key=lambda each: each.egress_us), strict=True):
        record["link"] = index[Endpoint(departure.switch, departure.port)]
        record["at_ns"] = record["heard_ns"] = record["egress_ns"] = 1000 * departure.egress_us
        record["bytes_sent"], record["queue_packets"] = departure.sent_before, departure.depth
        record["latency_us"] = departure.egress_us - departure.ingress_us
        record["queue_id"] = departure.priority
    mirror.update(records)
    arrival = ["at_ns", "heard_ns"]  # on the controller's clock, a little later than the truth
    for told, truth, but in ((links.state, mirror.state, arrival), (links.queues, mirror.queues, [])):
        for name in told.dtype.names or ():
            if name not in but:
                np.testing.assert_array_equal(told[name], truth[name], name)
    assert links.queues["high"].max() >= 20
    assert links.state["rate"].max() > 3e6


async def test_a_switch_that_lost_its_entries_gets_them_again() -> None:
    """Reports come by packet-ins here: no host is named to send them to."""
    watching = IntConfig((WatchedFlows(WatchMode.XD, protocol=17),), drops=TELLING_DROPS)
    async with watched_fabric(TOPOLOGY, watching) as fabric:
        await fabric.controller.switches.sessions["s1"].claim(99, forgetful=True)  # loads the program: all is empty
        assert set(await fabric.controller.verify()) == {"s1"}
        await fabric.controller.start(fabric.now_ns)
        assert await fabric.controller.verify() == {}
        send(fabric, [("h1", "h2", udp_frame(address("h1"), address("h2"), b"b", 2))] * 4)
        await fabric.run(40 * MS)
        await fabric.run(41 * MS)
        (stream,) = fabric.collector.streams()
        assert (stream.switch, stream.received, stream.lost) == ("s1", 4, 0)
        assert fabric.collector.reports == 4
        assert fabric.payloads == []
        assert fabric.controller.prober.reports.rejected == 0
