"""A process's link into an emulated fabric: rings of frames in shared memory, against a fabric end played by hand."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.hosts.drivers.fabric_link import FabricLink
from weir.tests.support.errors import raises
from weir.wire.frame_rings import (
    FRAME_AT,
    HELLO,
    IN_HEAD,
    IN_TAIL,
    LONGEST,
    OUT_HEAD,
    OUT_TAIL,
    ROWS,
    FrameRings,
    lengths_of,
)
from weir.wire.frames import FRAME_HEADER_BYTES, Datagrams, decapsulate, encapsulate

HERE, THERE, PORT = 0x0A000101, 0x0A000102, 22346


class FabricEnd:
    """Takes what the link sends, and sends to it."""

    def __init__(self) -> None:
        self.rings = FrameRings()
        self.socket, mine = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        self.bell, self.link_bell = (os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2))
        hello = HELLO.pack(HERE, PORT, 0, 1, 2)
        descriptors = [os.dup(each) for each in (self.rings.descriptor, self.bell, self.link_bell)]
        self.link = FabricLink(mine, hello, descriptors)

    def taken(self) -> list[tuple[int, bytes]]:
        """Destination and payload of the frames that the link has sent since the last call."""
        words, found = self.rings.words, []
        while words[IN_TAIL] < words[IN_HEAD]:
            row = self.rings.inbound[words[IN_TAIL] % ROWS]
            frame = row[FRAME_AT : FRAME_AT + int(lengths_of(row[None])[0])]
            datagrams, _ = decapsulate(frame[None])
            assert len(datagrams) == 1  # checksum and lengths are right
            found.append((int.from_bytes(frame[30:34].tobytes(), "big"), datagrams.payload[0].tobytes()))
            words[IN_TAIL] += 1
        return found

    def give(self, payload: NDArray[np.uint8], port: int = PORT) -> None:
        frames = encapsulate(
            payload, source=THERE, destination=HERE, source_mac=2, destination_mac=1, source_port=port,
            destination_port=port,
        )  # fmt: skip
        for frame in frames:
            row = self.rings.outbound[self.rings.words[OUT_HEAD] % ROWS]
            row[FRAME_AT : FRAME_AT + len(frame)] = frame
            lengths_of(row[None])[:] = len(frame)
            self.rings.words[OUT_HEAD] += 1
        os.eventfd_write(self.link_bell, 1)

    def close(self) -> None:
        self.link.close()
        self.socket.close()
        self.rings.close_descriptor()
        os.close(self.bell)
        os.close(self.link_bell)


@pytest.fixture
def end() -> Iterator[FabricEnd]:
    end = FabricEnd()
    yield end
    end.close()


def batch(count: int, size: int, seed: int = 0) -> Datagrams:
    rng = np.random.default_rng(seed)
    return Datagrams(rng.integers(0, 2**32, count, np.uint32), rng.integers(0, 256, (count, size), np.uint8))


def content(datagrams: Datagrams) -> list[tuple[int, bytes]]:
    return [(int(to), row.tobytes()) for to, row in zip(datagrams.addresses, np.array(datagrams.payload), strict=True)]


def readable(link: FabricLink) -> bool:
    poll = select.poll()
    poll.register(link, select.POLLIN)
    return bool(poll.poll(0))


def test_sent_datagrams_are_whole_frames_across_the_rings_end(end: FabricEnd) -> None:
    for seed, (count, size) in enumerate([(ROWS - 5, 40), (9, 1052), (0, 8), (3, 0), (300, 40)]):
        sent = batch(count, size, seed)
        end.link.send(sent)
        assert end.taken() == content(sent)
    assert end.link.send_failures == 0
    assert os.eventfd_read(end.bell) == 4  # the empty batch wakes nobody


def test_received_frames_are_grouped_by_size_and_wake_the_reader(end: FabricEnd) -> None:
    assert not readable(end.link)
    for _ in range(3):
        payloads = [batch(ROWS - 300, 64, 1).payload, batch(5, 1052, 2).payload, batch(2, 64, 3).payload]
        for payload in payloads:
            end.give(payload)
        assert readable(end.link)
        batches = end.link.receive()
        rows = [row.tobytes() for each in batches for row in np.array(each.payload)]
        assert sorted(rows) == sorted(row.tobytes() for payload in payloads for row in payload)
        assert {int(address) for each in batches for address in each.addresses} == {THERE}
        assert all(len(np.unique(each.payload.shape[1])) == 1 for each in batches)
        assert not readable(end.link)
        assert end.link.receive() == []


def test_frames_of_another_port_are_not_received(end: FabricEnd) -> None:
    end.give(batch(4, 64).payload, port=PORT + 1)
    assert end.link.receive() == []


def test_rows_are_given_back_with_the_next_call(end: FabricEnd) -> None:
    end.give(batch(7, 64).payload)
    (received,) = end.link.receive()
    assert end.rings.words[OUT_TAIL] == 0  # `received` is a view of these rows
    assert len(received) == 7
    end.link.receive()
    assert end.rings.words[OUT_TAIL] == 7


def test_datagrams_beyond_the_ring_are_lost_and_counted(end: FabricEnd) -> None:
    sent = batch(ROWS + 76, 32)
    end.link.send(sent)
    assert end.link.send_failures == 76
    assert end.taken() == content(sent)[:ROWS]
    end.link.send(batch(1, LONGEST - FRAME_HEADER_BYTES + 1))
    assert end.link.send_failures == 77
    end.link.send(batch(1, 32, 5))
    assert end.taken() == content(batch(1, 32, 5))


def test_the_fabrics_end_is_noticed_after_its_frames(end: FabricEnd) -> None:
    end.give(batch(2, 30).payload)
    end.socket.close()
    assert readable(end.link)
    assert [len(datagram) for datagram in end.link.receive()] == [2]
    assert readable(end.link)
    with raises(OSError, errno=32):
        end.link.receive()


def test_no_fabric_at_a_path_is_said(tmp_path: Path) -> None:
    with raises(OSError, errno=2):
        FabricLink.connect(f"{tmp_path}/nobody")
