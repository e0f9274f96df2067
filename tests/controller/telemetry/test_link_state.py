"""Probes see every link whatever hashing does; the link state is right for rates, resets, loss and age."""

from __future__ import annotations

import random
import struct
from collections import Counter

import numpy as np
import pytest

from weir.controller.telemetry.link_state import LinkState, own_traffic
from weir.controller.telemetry.probe_format import MAX_HOPS, SEQUENCES, probe_bytes
from weir.controller.telemetry.probe_records import REMEMBERED
from weir.controller.telemetry.probe_reports import ProbeReports
from weir.controller.telemetry.probes import (
    Probe,
    ProbeFrames,
    link_probes,
    plan_probes,
)
from weir.tests.paths import ROOT
from weir.topologies import load_topology
from weir.topologies.generators import fat_tree, leaf_spine
from weir.topologies.model import Endpoint, Topology
from weir.topologies.routing import Routes
from weir.topologies.targets import TOFINO
from weir.wire.int_md import parse_frames

PERIOD = 10_000_000
FABRICS = [leaf_spine(2, 2, 2), leaf_spine(4, 3, 2), fat_tree(4), leaf_spine(1, 0, 2)]
SHIM = 42
STACK = SHIM + 16


def walk(topology: Topology, routes: Routes, probe: Probe, rng: random.Random) -> list[Endpoint]:
    """The links that a probe really takes when equal-cost choices are made at random."""
    path = [Endpoint(probe.switch, probe.port)]
    node = topology.peer(path[0]).node
    while node != probe.destination and topology.is_switch(node):
        path.append(Endpoint(node, rng.choice(routes.next_hops(node, probe.destination))))
        node = topology.peer(path[-1]).node
    return path


class Fabric:
    """Synthetic switches: they push what the specification says, with counters and clocks that the test moves."""

    def __init__(self, topology: Topology, seed: int = 1) -> None:
        self.topology = topology
        self.routes = Routes(topology)
        self.probes = plan_probes(topology, self.routes)
        self.parts = link_probes(topology, self.probes)
        self.frames = ProbeFrames(topology, (*self.probes, *self.parts))
        self.links = LinkState(topology, period_ns=PERIOD)
        self.reports = ProbeReports(self.links, self.probes, self.parts)
        self.rng = random.Random(seed)
        self.bytes_sent: dict[Endpoint, int] = dict.fromkeys(self.links.links, 0)
        self.clock: dict[str, int] = {switch.name: 1000 * i for i, switch in enumerate(topology.switches)}
        self.queue: dict[Endpoint, int] = dict.fromkeys(self.links.links, 0)
        self.now = 0

    @property
    def due(self) -> list[Probe]:
        """The probes that are sent in this period."""
        sent = (*self.probes, *self.parts)
        return [sent[index] for index in self.reports.due.tolist()]

    def advance(self, rates: dict[Endpoint, float], ns: int = PERIOD) -> None:
        self.now += ns
        for switch in self.clock:
            self.clock[switch] += ns
        for link, rate in rates.items():
            self.bytes_sent[link] += round(rate * ns * 1e-9)

    def finished(self, probe: Probe, sequence: int) -> bytes:
        frame = self.frames.frame(probe.index, sequence)
        head, rest = bytearray(frame[:STACK]), frame[STACK:]
        stack = b""
        path = walk(self.topology, self.routes, probe, self.rng)
        for link in path:
            node_id = self.topology.switch(link.node).device_id
            bulk = self.topology.switch(link.node).target.bulk_priority
            words = [node_id, link.port, 7, bulk << 24 | self.queue[link]]
            hop = np.array(words, ">u4").tobytes()
            hop += np.array([self.clock[link.node], self.bytes_sent[link]], ">u8").tobytes()
            stack = hop + stack
        head[SHIM + 1] += len(stack) // 4
        head[16:18] = (len(frame) - 14 + len(stack)).to_bytes(2, "big")
        head[38:40] = (len(frame) - 34 + len(stack)).to_bytes(2, "big")
        head[24:26] = b"\0\0"
        words16 = np.frombuffer(bytes(head[14:34]), ">u2").astype(np.uint32).sum()
        folded = (words16 & 0xFFFF) + (words16 >> 16)
        folded = (folded & 0xFFFF) + (folded >> 16)
        head[24:26] = int(~folded & 0xFFFF).to_bytes(2, "big")
        return bytes(head) + stack + rest

    def round(self, drop: frozenset[int] = frozenset()) -> int:
        sequence = self.reports.send_all(self.now)
        frames = [self.finished(p, sequence) for p in self.due if p.index not in drop]
        self.rng.shuffle(frames)
        return self.reports.receive(frames, self.now + 50_000)


@pytest.mark.parametrize("topology", FABRICS, ids=lambda t: f"{t.name}-{len(t.switches)}")
def test_probes_cover_every_egress_port_under_any_hashing(topology: Topology) -> None:
    routes = Routes(topology)
    probes = plan_probes(topology, routes)
    wanted = {link for link in topology.directed_links if topology.is_switch(link.node)}
    assert {link for probe in probes for link in probe.certain} == wanted
    assert len(probes) < len(wanted) or len(topology.switches) == 1
    assert [probe.index for probe in probes] == list(range(len(probes)))
    for seed in range(5):
        for probe in probes:
            path = walk(topology, routes, probe, random.Random(seed))
            assert path[: len(probe.certain)] == list(probe.certain)
            assert len(path) <= MAX_HOPS


def test_rates_queues_and_ages_follow_the_reports() -> None:
    fabric = Fabric(leaf_spine(2, 2, 2))
    busy, quiet = Endpoint("s1", 3), Endpoint("s4", 1)
    fabric.round()
    assert fabric.links.snapshot(fabric.now).unmeasured == set(fabric.links.links)  # one count is no rate
    for _ in range(3):
        fabric.queue[busy] = 12
        fabric.advance({busy: 50e6})
        assert fabric.round() >= len(fabric.links.links)
    seen = fabric.links.snapshot(fabric.now + 50_000)
    assert seen.is_fresh
    assert seen.links[busy].background_bps == pytest.approx(400e6)
    assert seen.links[busy].queue_packets == pytest.approx(12 * (1 - 0.5**3))
    assert seen.links[busy].latency_us == 7
    assert seen.links[busy].age_ns == 50_000
    assert seen.links[quiet].background_bps == 0
    assert (fabric.reports.rejected, fabric.reports.unknown_hops) == (0, 0)


def test_cells_and_nanoseconds_become_packets_and_microseconds() -> None:
    """A message of 32 lanes has 198 bytes: three cells of 80."""
    fabric = Fabric(leaf_spine(2, 2, 2, target=TOFINO))
    busy = Endpoint("s1", 3)
    for _ in range(2):
        fabric.advance({busy: 50e6})
        fabric.round()
        fabric.queue[busy] = 60
    at = fabric.links.links.index(busy)
    seen = fabric.links.snapshot(fabric.now).links[busy]
    assert seen.queue_packets == pytest.approx(10)
    assert seen.latency_us == pytest.approx(0.007)
    record = fabric.links.queues[at, 0]
    assert (record["depth"], record["high"]) == (20, 20)
    assert (record["average"], record["sojourn_us"]) == (seen.queue_packets, seen.latency_us)
    assert fabric.links.pop_peaks()[at].tolist() == [20] + [0] * 7


def test_averages_weigh_a_sample_by_the_time_it_stands_for() -> None:
    fabric = Fabric(leaf_spine(2, 1, 1))
    link = Endpoint("s1", 2)
    fabric.round()
    fabric.advance({link: 10e6})
    fabric.round()
    fabric.advance({link: 90e6}, PERIOD // 2)  # T is two periods: weight 1/4
    fabric.round()
    assert fabric.links.snapshot(fabric.now).links[link].background_bps == pytest.approx(8 * (10e6 + 80e6 / 4))
    fabric.advance({link: 20e6}, 5 * PERIOD)  # longer than T: the sample alone
    fabric.round()
    assert fabric.links.snapshot(fabric.now).links[link].background_bps == pytest.approx(8 * 20e6)


def test_restarts_give_no_absurd_rate_and_wraps_the_right_one() -> None:
    fabric = Fabric(leaf_spine(2, 1, 1))
    link = Endpoint("s1", 2)
    fabric.bytes_sent[link] = 10**9
    fabric.round()
    fabric.advance({link: 30e6})
    fabric.round()
    fabric.bytes_sent = dict.fromkeys(fabric.bytes_sent, 0)
    fabric.clock["s1"] = 5
    fabric.now += PERIOD
    fabric.round()
    assert fabric.links.snapshot(fabric.now).links[link].background_bps == pytest.approx(240e6)
    for _ in range(8):
        fabric.advance({link: 5e6})
        fabric.round()
    assert fabric.links.snapshot(fabric.now).links[link].background_bps == pytest.approx(40e6, rel=0.2)
    position = fabric.links.links.index(link)
    assert fabric.links.state["resets"][position] == 1

    fabric.bytes_sent[link] = 2**63 - 1000  # the largest that the decoder's signed 64 bits hold
    fabric.advance({})
    fabric.round()
    before = fabric.links.state["resets"][position]
    fabric.advance({link: 5e6})
    fabric.bytes_sent[link] &= 2**64 - 1
    fabric.round()
    assert fabric.links.state["resets"][position] == before


def test_stale_links_keep_their_last_good_value_and_are_named() -> None:
    fabric = Fabric(leaf_spine(2, 2, 2))
    link = Endpoint("s1", 3)
    for _ in range(3):
        fabric.advance({link: 40e6})
        fabric.round()
    blind = frozenset(p.index for p in fabric.probes if link in p.certain)
    for _ in range(3):
        fabric.advance({})
        fabric.round(drop=blind)
    assert link not in fabric.links.snapshot(fabric.now).stale  # three periods old, not older
    seen = fabric.links.snapshot(fabric.now + 1)
    assert link in seen.stale
    assert not seen.is_fresh
    assert seen.links[link].background_bps == pytest.approx(320e6)
    assert seen.links[link].age_ns == 3 * PERIOD + 1
    assert "stale, last good values used" in str(seen)


def test_a_link_never_measured_is_given_the_mean_load_and_named() -> None:
    fabric = Fabric(leaf_spine(2, 2, 2))
    link = Endpoint("s1", 3)
    blind = frozenset(p.index for p in fabric.probes if link in walk_all(fabric, p))
    for _ in range(4):
        fabric.advance(dict.fromkeys(fabric.links.links, 25e6))
        fabric.round(drop=blind)
    seen = fabric.links.snapshot(fabric.now)
    assert link in seen.unmeasured
    assert seen.links[link].age_ns is None
    assert seen.links[link].background_bps == pytest.approx(200e6)
    assert "never measured, uniform load assumed" in str(seen)


def walk_all(fabric: Fabric, probe: Probe) -> set[Endpoint]:
    return {e for s in range(20) for e in walk(fabric.topology, fabric.routes, probe, random.Random(s))}


def test_loss_is_not_blamed_on_links_other_probes_cross_well() -> None:
    fabric = Fabric(leaf_spine(2, 2, 2))
    victim = next(p for p in fabric.probes if len(p.certain) > 1)
    for turn in range(8):
        fabric.advance({})
        fabric.round(drop=frozenset({victim.index}) if turn % 2 else frozenset())
    fabric.now += 4 * PERIOD
    seen = fabric.links.snapshot(fabric.now)
    only_victim = {
        link for link in fabric.links.links if {p.index for p in fabric.probes if link in p.certain} == {victim.index}
    }
    assert only_victim
    assert {link for link, view in seen.links.items() if view.loss} == only_victim
    assert all(seen.links[link].loss == 0.5 for link in only_victim)


def test_probes_behind_a_full_queue_are_late_and_not_lost() -> None:
    """Each takes twenty periods. Then none comes back any more."""
    fabric, link = Fabric(leaf_spine(2, 2, 2)), Endpoint("s1", 3)
    at, under_way = fabric.links.links.index(link), list[list[bytes]]()
    fabric.queue[link] = 256
    for _ in range(45):
        fabric.advance({link: 10e6})
        sequence = fabric.reports.send_all(fabric.now)
        under_way.append([fabric.finished(probe, sequence) for probe in fabric.due])
        if len(under_way) > 20:
            fabric.reports.receive(under_way.pop(0), fabric.now)
    assert fabric.reports.rejected == 0
    assert fabric.links.depths[at] == 256
    seen = fabric.links.snapshot(fabric.now).links
    assert {view.loss for view in seen.values()} == {0.0}
    assert seen[link].rate_bps == pytest.approx(80e6)
    for _ in range(24 + 16 + 8):
        fabric.advance({})
        fabric.reports.send_all(fabric.now)
    assert fabric.links.snapshot(fabric.now).links[link].loss == 1.0


@pytest.mark.parametrize(("loss", "tolerance"), [(0.4, 0.08), (1.0, 0.02)])
def test_lost_probes_count_on_the_links_up_to_the_lossy_one(loss: float, tolerance: float) -> None:
    """A link of one probe's path loses packets; more periods pass than are remembered, and the plan is made again."""
    fabric = Fabric(leaf_spine(3, 2, 2))
    path = next(probe.certain for probe in fabric.probes if len(probe.certain) > 2)
    lossy, carried = path[1], np.zeros((len(fabric.links.links), 2))
    for _ in range(4 * REMEMBERED):
        fabric.advance({})
        sequence = fabric.reports.send_all(fabric.now)
        for probe in fabric.due:
            lost = lossy in probe.certain and fabric.rng.random() < loss
            for hop, link in enumerate(probe.certain, 1):
                carried[fabric.links.links.index(link)] += [1, probe_bytes(hop)]
                if lost and link == lossy:
                    break
            if not lost:
                fabric.reports.receive([fabric.finished(probe, sequence)], fabric.now)
    fabric.reports.expect(fabric.probes, fabric.parts)
    on_path = [fabric.links.links.index(link) for link in path]
    assert fabric.reports.cost[on_path].sum(axis=0) == pytest.approx(carried[on_path].sum(axis=0), rel=tolerance)
    others = np.setdiff1d(np.arange(len(carried)), on_path)
    assert (fabric.reports.cost[others] >= carried[others]).all(), "links by which hashing may send it on count, too"


def test_copies_that_links_make_count_behind_them() -> None:
    fabric = Fabric(leaf_spine(2, 2, 2))
    probe = next(probe for probe in fabric.probes if len(probe.certain) > 2)
    sequence = fabric.reports.send_all(0)
    first = fabric.finished(probe, sequence)
    fabric.bytes_sent[probe.certain[-1]] += 100
    copy = fabric.finished(probe, sequence)
    fabric.reports.receive([first, first, copy], 1)
    at = [fabric.links.links.index(link) for link in probe.certain]
    assert fabric.reports.cost[at, 0].tolist() == [1] * (len(at) - 1) + [2]
    assert fabric.reports.rejected == 2


@pytest.mark.parametrize(("name", "step"), [("leaf_spine.yaml", 1), ("fat_tree.yaml", 7)])
def test_links_beside_a_dead_one_keep_their_readings(name: str, step: int) -> None:
    """Links between switches die in turn, in both directions, and come back. No link has more probes than planned."""
    fabric = Fabric(load_topology(ROOT / "topologies" / name))
    planned = Counter(link for probe in fabric.probes for link in probe.certain)
    links = [link for link in fabric.topology.links if all(fabric.topology.is_switch(end.node) for end in link.ends)]
    for _ in range(3):
        fabric.advance({})
        fabric.round()
    for dead in links[::step]:
        for alive, periods in ((False, 12), (True, 9)):
            for _ in range(periods):
                fabric.advance({})
                sequence, arriving = fabric.reports.send_all(fabric.now), list[bytes]()
                assert Counter(link for probe in fabric.due for link in probe.certain) <= planned
                for probe in fabric.due:
                    path = walk(fabric.topology, fabric.routes, probe, random.Random(probe.index))
                    if alive or not {*dead.ends} & {*path}:
                        fabric.rng = random.Random(probe.index)
                        arriving.append(fabric.finished(probe, sequence))
                fabric.reports.receive(arriving, fabric.now)
            assert fabric.links.stale(fabric.now) == (frozenset() if alive else {*dead.ends}), dead
            loss = {link: view.loss for link, view in fabric.links.snapshot(fabric.now).links.items() if view.loss}
            assert max(loss.values()) < 0.5 if alive else loss.keys() == {*dead.ends}, dead


def test_doubled_late_unknown_and_malformed_packets_are_ignored() -> None:
    fabric = Fabric(leaf_spine(2, 2, 2))
    sequence = fabric.reports.send_all(0)
    frames = [fabric.finished(p, sequence) for p in fabric.probes]
    foreign = fabric.finished(fabric.probes[0], sequence + 9)
    fabric.reports.receive([*frames, frames[0], frames[0]], 1)
    assert fabric.reports.rejected == 2
    before = fabric.links.state
    fabric.reports.receive([frames[1], foreign, b"", b"\x00" * 60, frames[0][:50]], 2)
    assert fabric.reports.rejected == 7
    assert (fabric.links.state == before).all()


def test_own_traffic_is_left_out_of_the_background() -> None:
    fabric = Fabric(leaf_spine(2, 2, 2))
    link = Endpoint("s1", 3)
    for _ in range(4):
        fabric.advance({link: 60e6})
        fabric.round()
    own = own_traffic({link: 1.0, Endpoint("h1", 0): 1.0}, rounds_per_second=30_000, round_bytes=1000)
    assert own[link] == 240e6
    assert fabric.links.snapshot(fabric.now, own).links[link].background_bps == pytest.approx(240e6)
    more = own_traffic({link: 3.0}, rounds_per_second=30_000, round_bytes=1000)
    assert fabric.links.snapshot(fabric.now, more).links[link].background_bps == 0


def test_probe_frames_carry_their_identity() -> None:
    fabric = Fabric(leaf_spine(2, 2, 2))
    probes = parse_frames([fabric.finished(p, 5) for p in fabric.probes])
    assert (probes.rejected, len(probes)) == (0, len(fabric.probes))
    identities = [struct.unpack("!II", probes.payload(index)) for index in range(len(probes))]
    assert identities == [(probe.index, 5) for probe in fabric.probes]


def test_numbers_of_probes_begin_again_and_all_are_heard() -> None:
    fabric = Fabric(FABRICS[0])
    fabric.reports._next_sequence = SEQUENCES - 2
    for number in range(2 * REMEMBERED):
        sequence = fabric.reports.send_all(fabric.now)
        assert sequence == (SEQUENCES - 2 + number) % SEQUENCES
        frames = [fabric.finished(probe, sequence) for probe in fabric.probes]
        fabric.advance({}, 1000)
        assert fabric.reports.receive(frames, fabric.now) >= len(fabric.probes)
        fabric.advance({})
    assert fabric.reports.rejected == 0
