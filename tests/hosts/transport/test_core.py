"""The transport's core: refused input, the cost of a lost peer, and the limits of strangers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weir.hosts.errors import InvalidMessage, InvalidPlan, PeerLost
from weir.hosts.transport.core import TransportCore
from weir.hosts.transport.messages import MessageKind, encode, parse_head
from weir.hosts.transport.options import TransportOptions, TransportPlan
from weir.hosts.transport.pending import Pending
from weir.tests.hosts.transport.network import FORGER, KEY, MS, Faults, Network
from weir.wire.frames import Datagrams
from weir.wire.transport import HEADER_BYTES, FrameCheck, PacketType, packets

SMALL = TransportOptions(payload_bytes=256, patience_ns=2_000 * MS)


@pytest.mark.parametrize(
    "changes",
    [{"job": 0}, {"epoch": 0}, {"address": 9}, {"peers": (1, 1)}, {"key": "5a"}],
)
def test_a_plan_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {"job": 1, "address": 1, "peers": (1, 2), "epoch": 1, "key": KEY}
    TransportPlan(**good)
    with pytest.raises(InvalidPlan):
        TransportPlan(**good | changes)


@pytest.mark.parametrize(
    "changes",
    [{"window": 0}, {"window": 8193}, {"payload_bytes": 255}, {"payload_bytes": 1445}, {"patience_ns": 0}],
)
def test_options_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidPlan):
        TransportOptions(**changes)


@pytest.mark.parametrize("value", [np.array([object()]), np.zeros(2, [("a", "u1")]), {"a": 1}, np.zeros((1,) * 17)])
def test_values_that_no_message_carries_are_refused(value: object) -> None:
    with pytest.raises(InvalidMessage):
        Network(1, 2).cores[0].send(1, value)


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1])
def test_a_head_with_a_huge_axis_of_no_bytes_is_malformed(size: int) -> None:
    """NumPy makes no such array, so that an error would end the host's transport."""
    payload = encode(MessageKind.VALUE, np.empty((0, 5), "<i4"), 1000).rows[0]
    assert parse_head(payload) is not None
    forged = payload.tobytes().replace((5).to_bytes(8, "big"), size.to_bytes(8, "big"))
    assert forged != payload.tobytes()
    assert parse_head(np.frombuffer(forged, np.uint8)) is None


def test_a_head_with_items_of_no_width_is_malformed() -> None:
    """Such items would be read from memory that no byte of the message fills."""
    payload = encode(MessageKind.VALUE, np.empty(0, "S1"), 1000).rows[0]
    forged = payload.tobytes().replace(b"|S1", b"|S0")
    assert parse_head(payload) is not None
    assert parse_head(np.frombuffer(forged, np.uint8)) is None


@pytest.mark.parametrize("peer", [-1, 0, 2])
def test_peers_that_are_not_there_are_refused(peer: int) -> None:
    with pytest.raises(InvalidMessage) as caught:
        Network(1, 2).cores[0].send(peer, b"x")
    assert caught.value.peer == peer


def test_the_value_is_what_it_was_at_the_call() -> None:
    network = Network(1, 2)
    array = np.arange(5000)
    sent = network.cores[0].send(1, array)
    array[:] = 0
    received = network.cores[1].receive_message(0)
    network.settle([sent, received])
    assert np.array_equal(received.result(), np.arange(5000))


@pytest.mark.parametrize("call", ["send", "receive", "request", "pull"])
def test_a_dead_peer_is_an_error_after_the_patience(call: str) -> None:
    network = Network(1, 2, options=SMALL)
    core = network.cores[0]
    first = core.send(1, b"x")
    network.settle([first])
    network.faults = Faults(loss=1.0)
    begun_ns = network.now_ns
    calls: dict[str, Callable[[], Pending[Any]]] = {
        "send": lambda: core.send(1, bytes(5000)),
        "receive": lambda: core.receive_message(1),
        "request": lambda: core.request(1, "q", b""),
        "pull": lambda: core.pull(1, "q"),
    }
    pending = calls[call]()
    network.settle([pending])
    with pytest.raises(PeerLost) as caught:
        pending.result()
    assert caught.value.peer == 1
    assert SMALL.patience_ns <= network.now_ns - begun_ns <= SMALL.patience_ns + MS
    network.faults = Faults()
    again = core.send(1, b"it is there again")
    network.settle([again])
    assert again.result() is None


def test_a_peer_that_reads_nothing_gets_at_most_its_inbox() -> None:
    options = TransportOptions(payload_bytes=256, inbox_bytes=2000, window=4, patience_ns=2_000 * MS)
    network = Network(1, 2, options=options)
    sends = [network.cores[0].send(1, bytes([number]) * 1000) for number in range(10)]
    network.at(10_000 * MS, lambda: None)
    network.run(lambda: network.now_ns >= 10_000 * MS)
    assert [each.done for each in sends].count(True) in (2, 3), "the peer answers all the time, so it is not lost"
    received = [network.cores[1].receive_message(0) for _ in range(10)]
    network.settle([*sends, *received])
    assert [each.result() for each in received] == [bytes([number]) * 1000 for number in range(10)]


def random_packets(seed: int, plan: TransportPlan) -> list[Datagrams]:
    """Arbitrary packets, and packets that are right except for their key."""
    rng = np.random.default_rng(seed)
    found = []
    for size in (0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 30, 2000):
        rows = rng.integers(0, 256, (4, size), np.uint8)
        if size:
            rows[:2, 0] = rng.integers(0x11, 0x15, 2)
        if size > 3:
            rows[:2, 2:4] = [0, plan.job]
        found.append(Datagrams(np.array([*plan.peers, 1, 2], np.uint32), rows))
    for kind in PacketType:
        made = packets(
            rng.integers(0, 256, (1, 40), np.uint8), kind=kind, job=plan.job, epoch=77, peer_epoch=plan.epoch, flags=3
        )
        ends = {"source": plan.peers[1], "destination": plan.peers[0]}
        FrameCheck(FORGER).seal(made, **ends, sequences=np.zeros(1, np.int64))
        found.append(Datagrams(np.array([plan.peers[1]], np.uint32), made))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_strangers_packets_are_counted_and_change_nothing(seed: int) -> None:
    plan = TransportPlan(7, 1, (1, 2), 5, KEY)
    core = TransportCore(plan)
    total = 0
    for datagrams in random_packets(seed, plan):
        core.receive(1000, datagrams)
        total += len(datagrams)
    assert sum(core.counters.drops.values()) == total == core.counters.received
    assert core.poll(2000) == []
    assert core.deadline_ns is None


def test_a_recorded_opening_does_not_replace_a_connection() -> None:
    """The peer has restarted since: its earlier packets, all of them authentic, change nothing."""
    network = Network(3, 2, faults=Faults(replayed=0.01))
    network.settle([network.cores[0].send(1, b"first")])
    old = [row for source, to, row in network._recorded if (source, to) == (0, 1)]
    network.restart(0)
    again = network.cores[0].send(1, b"second")
    network.settle([again])
    peer = network.cores[1]
    stale = peer.counters.stale_epoch
    for row in old:
        peer.receive(network.now_ns, Datagrams(np.array([peer.plan.peers[0]], np.uint32), row[None]))
    assert peer.counters.stale_epoch == stale + len(old)
    last = network.cores[0].send(1, b"third")
    network.settle([last])
    assert last.result() is None
