"""Marks of fabric.p4 on bmv2: by the depth at arrival, by the waiting time, by the virtual queue."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from weir import p4src
from weir.emulator.entries import ActionCall, Exact, TableEntry
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.fabric_node import PORTS, SWITCH, WORKERS, entities, frame, mac
from weir.tests.bmv2.harness import Compiled, needs_bmv2
from weir.tests.p4src.tofino_traffic import with_ecn
from weir.wire import int_md
from weir.wire.int_md import Instruction

pytestmark = [pytest.mark.bmv2, needs_bmv2]

BUILD: Final = p4src.ROOT / "build"
PORT: Final = 2
"""A worker's, which the node's own entries do not bound."""
NOT_ECT, ECT_1, ECT_0, CE = range(4)
MAX_DEPTH, MAX_US, MAX_COST, MAX_BACKLOG = (1 << 19) - 1, (1 << 32) - 1, (1 << 32) - 1, (1 << 63) - 1
RATE_PPS: Final = 50
BURST: Final = 40


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(Compiled.read(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb"), PORTS) as pair:
        pair.insert(*entities(pair.encoder))
        yield pair


def bound(pair: Pair, *, depth: int = MAX_DEPTH, us: int = MAX_US, cost: int = 0, backlog: int = MAX_BACKLOG) -> None:
    """Mark at a depth in packets, after a wait, or from a backlog on if a byte costs `cost`, in 2⁻¹⁶ µs."""
    call = ActionCall("FabricEgress.congestion.bound_queue", (depth, us, cost, backlog, 9, 3))
    entry = TableEntry((Exact(PORT),), call)
    pair.insert(pair.encoder.table_entry("FabricEgress.congestion.marking", entry))


def packet(ecn: int, length: int = 60) -> tuple[int, bytes]:
    return 1, frame(bytes(length), WORKERS[0], WORKERS[1], destination_port=9, ecn=ecn)


@dataclass(frozen=True, slots=True)
class Sent:
    """INT data of one packet of a burst, and whether the switch marked it."""

    came_ns: int
    left_ns: int
    behind: int
    """Packets in the queue as it left."""
    marked: bool


def probe() -> tuple[int, bytes]:
    """A packet that says how it fared, of a transport that knows ECN."""
    sent = int_md.probe_frame(
        source=WORKERS[0],
        destination=WORKERS[1],
        source_mac=mac(WORKERS[0]),
        destination_mac=mac(SWITCH),
        instructions=Instruction.QUEUE | Instruction.INGRESS_TIMESTAMP | Instruction.EGRESS_TIMESTAMP,
    )
    return 1, with_ecn(sent, ECT_0)


def sent_in_burst(pair: Pair) -> list[Sent]:
    """Results of packets that arrive together, as far as this machine allows, and leave at RATE_PPS."""
    pair.bmv2.set_queue_rate(PORT, RATE_PPS)
    left = [output.frame for (output,) in pair.bmv2.inject([probe()] * BURST)]
    hops = int_md.parse_frames(left).hops
    assert len(hops) == BURST
    said = zip(hops["ingress_ns"].tolist(), hops["egress_ns"].tolist(), hops["queue_packets"].tolist(), strict=True)
    return [Sent(*each, data[15] & 3 == CE) for each, data in zip(said, left, strict=True)]


def left_before(sent: list[Sent]) -> list[int]:
    """Number of packets that had left the queue at each arrival: those that left fewer behind than were still to come.

    If the queue has n packets behind the one that leaves as the j-th, j + 1 + n have arrived.
    """
    come = [j + 1 + each.behind for j, each in enumerate(sent)]
    return [sum(count <= i for count in come) for i in range(BURST)]


def test_marks_begin_at_the_depth(pair: Pair) -> None:
    """bmv2 looks at the depth behind a packet a moment after it has taken that, so one packet is in doubt."""
    threshold = 12
    bound(pair, depth=threshold)
    sent = sent_in_burst(pair)
    assert {each.marked for each in sent} == {False, True}
    for i, (each, left) in enumerate(zip(sent, left_before(sent), strict=True)):
        assert each.marked or i - left < threshold + 1
        assert not each.marked or i - left >= threshold - 1


def test_marks_begin_with_the_wait(pair: Pair) -> None:
    """A packet waits from some time after it comes, and before the next one leaves, until it leaves itself."""
    threshold_us = 290_000
    bound(pair, us=threshold_us)
    sent = sent_in_burst(pair)
    assert {each.marked for each in sent} == {False, True}
    for each, left in zip(sent, left_before(sent), strict=True):
        next_to_leave = sent[min(left + 1, BURST - 1)]  # and one, for the depth in doubt
        longest, shortest = each.left_ns - each.came_ns, each.left_ns - next_to_leave.left_ns
        assert each.marked or shortest < threshold_us * 1000
        assert not each.marked or longest >= threshold_us * 1000


@pytest.mark.parametrize("seed", range(3))
def test_marks_begin_where_the_virtual_queue_is_full(pair: Pair, seed: int) -> None:
    """Bytes cost so much that almost nothing drains meanwhile: marks follow the bytes of all packets so far, and only
    packets with ECN are marked.
    """
    rng = random.Random(seed)
    lengths, ecns = [rng.randrange(40, 1400) for _ in range(60)], [rng.randrange(4) for _ in range(60)]
    sent = [packet(*each) for each in zip(ecns, lengths, strict=True)]
    full = rng.randrange(10, 50)
    until = sum(len(each) for _, each in sent[:full]) + len(sent[full][1]) // 2
    bound(pair, cost=MAX_COST, backlog=until * MAX_COST)
    found = pair.compare(sent)
    for number, (ecn, (output,)) in enumerate(zip(ecns, found, strict=True)):
        is_marked = ecn == CE or (number >= full and ecn != NOT_ECT)
        assert output.frame[15] & 3 == (CE if is_marked else ecn)
