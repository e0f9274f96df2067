"""Packets of a connection that may be in the network."""

from __future__ import annotations

import numpy as np

from weir.hosts.transport.messages import MessageStream
from weir.hosts.transport.options import TransportOptions
from weir.hosts.transport.outgoing import Outgoing

MS = 1_000_000
LIFE_NS = 500 * MS


def sending(packets: int, window: int) -> Outgoing:
    """A connection with a message of `packets` packets to send."""
    outgoing = Outgoing(TransportOptions(window=window, payload_bytes=256, life_ns=LIFE_NS))
    outgoing.queue(MessageStream(np.zeros((packets, 256), np.uint8), 256), None)
    outgoing.limit = packets
    return outgoing


def sent(outgoing: Outgoing, now_ns: int) -> list[int]:
    return [order for rows in outgoing.pop_due(now_ns) for order in rows.orders.tolist()]


def test_timed_out_packets_count_in_the_window_for_their_life() -> None:
    outgoing = sending(packets=6, window=4)
    assert sent(outgoing, 0) == [0, 1, 2, 3]
    outgoing.expire(100 * MS)
    assert not sent(outgoing, 100 * MS), "all four may be in the network still"
    assert outgoing.expires_ns == LIFE_NS
    outgoing.expire(LIFE_NS)
    assert sent(outgoing, LIFE_NS) == [4]


def test_late_acknowledgement_frees_window_for_earlier_packets() -> None:
    outgoing = sending(packets=6, window=4)
    sent(outgoing, 0)
    outgoing.expire(100 * MS)
    assert outgoing.acknowledge(120 * MS, 0, 2, np.array([False, False, True]), 6)
    assert sent(outgoing, 120 * MS) == [4, 5, 6], "order 3 may be in the network still"
