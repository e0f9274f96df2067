"""Which packets fabric.p4 marks on bmv2: by the depth that they meet, by how long they wait, by the virtual queue."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import pytest

from weir import p4src
from weir.emulator.entries import ActionCall, Exact, TableEntry
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.fabric_node import PORTS, WORKERS, entities, frame
from weir.tests.bmv2.harness import Compiled, needs_bmv2

pytestmark = [pytest.mark.bmv2, needs_bmv2]

BUILD: Final = p4src.ROOT / "build"
PORT: Final = 2
"""A worker's, which the node's own entries do not bound."""
NOT_ECT, ECT_1, ECT_0, CE = range(4)
MOST_DEPTH, MOST_US, MOST_COST, MOST_BACKLOG = (1 << 19) - 1, (1 << 32) - 1, (1 << 32) - 1, (1 << 63) - 1
RATE_PPS: Final = 100
BURST: Final = 40
EARLY: Final = 2
"""Packets that may have left before the burst is complete: bmv2 sends the first at once."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(Compiled.read(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb"), PORTS) as pair:
        pair.insert(*entities(pair.encoder))
        yield pair


def bound(
    pair: Pair, *, depth: int = MOST_DEPTH, us: int = MOST_US, cost: int = 0, backlog: int = MOST_BACKLOG
) -> None:
    """Mark at so many packets, after such a wait, or from this backlog on where a byte costs that, in 2⁻¹⁶ µs."""
    call = ActionCall("FabricEgress.congestion.bound_queue", (depth, us, cost, backlog, 9, 3))
    entry = TableEntry((Exact(PORT),), call)
    pair.insert(pair.encoder.table_entry("FabricEgress.congestion.marking", entry))


def packet(ecn: int, length: int = 60) -> tuple[int, bytes]:
    return 1, frame(bytes(length), WORKERS[0], WORKERS[1], destination_port=9, ecn=ecn)


def marked_in_burst(pair: Pair) -> list[bool]:
    """Of a burst that bmv2 takes at once and sends at RATE_PPS."""
    pair.bmv2.set_queue_rate(PORT, RATE_PPS)
    found = pair.bmv2.inject([packet(ECT_0)] * BURST)
    return [output.frame[15] & 3 == CE for (output,) in found]


def assert_from(marks: list[bool], first: int) -> None:
    """All are marked from about the first on, and none before."""
    assert marks == sorted(marks)
    assert first <= marks.index(True) <= first + EARLY


def test_marks_begin_at_the_depth(pair: Pair) -> None:
    bound(pair, depth=12)
    assert_from(marked_in_burst(pair), 12)


def test_marks_begin_with_the_wait(pair: Pair) -> None:
    """A packet waits for those before it, 10 ms each."""
    bound(pair, us=145_000)
    assert_from(marked_in_burst(pair), 14)


@pytest.mark.parametrize("seed", range(3))
def test_marks_begin_where_the_virtual_queue_is_full(pair: Pair, seed: int) -> None:
    """With bytes so dear that nothing to speak of drains meanwhile: by the bytes of all packets so far, whoever they
    are, and only those that know ECN are marked.
    """
    rng = random.Random(seed)
    lengths, ecns = [rng.randrange(40, 1400) for _ in range(60)], [rng.randrange(4) for _ in range(60)]
    sent = [packet(*each) for each in zip(ecns, lengths, strict=True)]
    full = rng.randrange(10, 50)
    until = sum(len(each) for _, each in sent[:full]) + len(sent[full][1]) // 2
    bound(pair, cost=MOST_COST, backlog=until * MOST_COST)
    found = pair.compare(sent)
    for number, (ecn, (output,)) in enumerate(zip(ecns, found, strict=True)):
        is_marked = ecn == CE or (number >= full and ecn != NOT_ECT)
        assert output.frame[15] & 3 == (CE if is_marked else ecn)
