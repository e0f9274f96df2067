"""A host's link into an emulated fabric: batches come as they were sent, and both ends notice the other's."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from weir.hosts.drivers.batch_socket import BatchSocket
from weir.tests.support.errors import raises
from weir.wire.frames import Datagrams

Pair = tuple[BatchSocket, BatchSocket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = (BatchSocket(each) for each in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    with closing(here), closing(there):
        yield here, there


def batch(count: int, size: int, seed: int = 0) -> Datagrams:
    rng = np.random.default_rng(seed)
    return Datagrams(rng.integers(0, 2**32, count, np.uint32), rng.integers(0, 256, (count, size), np.uint8))


def content(batches: list[Datagrams]) -> list[tuple[list[int], bytes]]:
    """Content of datagrams regardless of their batches."""
    return [
        ([int(address)], row.tobytes())
        for each in batches
        for address, row in zip(each.addresses, each.payload, strict=True)
    ]


@pytest.mark.parametrize("sizes", [[(1, 28)], [(60, 1052)], [(3, 28), (150, 1052), (1, 0), (2, 27)]])
def test_batches_come_as_they_were_sent_and_in_order(pair: Pair, sizes: list[tuple[int, int]]) -> None:
    here, there = pair
    sent = [batch(count, size, seed) for seed, (count, size) in enumerate(sizes)]
    received = []
    for packet in sent:
        here.send(packet)
    while batches := there.receive():
        received += content(batches)  # before the next call, which takes the views' memory
    assert received == content(sent)
    assert here.send_failures == 0


def test_datagrams_beyond_the_buffer_are_lost_and_counted(pair: Pair) -> None:
    here, there = pair
    total = 3000
    here.send(batch(total, 1052))
    received = 0
    while batches := there.receive():
        received += sum(len(each) for each in batches)
    assert 0 < here.send_failures < total
    assert received + here.send_failures == total
    here.send(batch(1, 1052))
    assert sum(len(datagram) for datagram in there.receive()) == 1


def test_the_other_ends_end_is_noticed_after_what_it_had_sent(pair: Pair) -> None:
    here, there = pair
    here.send(batch(2, 30))
    here.close()
    assert content(there.receive()) == content([batch(2, 30)])
    with raises(OSError, errno=32):
        there.receive()


@pytest.mark.parametrize("message", [b"12345678", np.array([2, 100, 7], np.uint32).tobytes()])
def test_an_invalid_batch_is_refused(message: bytes) -> None:
    raw, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with closing(raw), closing(BatchSocket(end)) as there:
        raw.send(message)
        with raises(OSError, errno=71):
            there.receive()


def test_no_fabric_at_a_path_is_said(tmp_path: Path) -> None:
    with raises(OSError, errno=2):
        BatchSocket.connect(f"{tmp_path}/nobody")
