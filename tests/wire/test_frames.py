"""Frames: scapy reads ours, we read scapy's, and invalid ones are rejected."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from weir.tests.support.errors import raises
from weir.wire import WireError, frames
from weir.wire.aggregation import AGGREGATION_PORT
from weir.wire.frames import Datagrams, Rejects

payloads = hnp.arrays(np.uint8, st.tuples(st.integers(1, 4), st.integers(0, 64)))
PEER, HERE = 0x0A000001, 0x0AFF0001


def frame(size: int = 28) -> NDArray[np.uint8]:
    return frames.encapsulate(
        np.arange(size, dtype=np.uint8)[None], source=PEER, destination=HERE, source_mac=1, destination_mac=2
    )


@given(
    payload=payloads,
    source=st.integers(0, 2**32 - 1),
    destination=st.integers(0, 2**32 - 1),
    mac=st.integers(0, 2**48 - 1),
    ports=st.tuples(st.integers(0, 65535), st.integers(0, 65535)),
    dscp=st.integers(0, 63),
    ttl=st.integers(0, 255),
)
def test_scapy_reads_every_field(
    payload: NDArray[np.uint8],
    source: int,
    destination: int,
    mac: int,
    ports: tuple[int, int],
    dscp: int,
    ttl: int,
) -> None:
    built = frames.encapsulate(
        payload,
        source=source,
        destination=destination,
        source_mac=mac,
        destination_mac=mac ^ 1,
        source_port=ports[0],
        destination_port=ports[1],
        dscp=dscp,
        ttl=ttl,
    )
    for row, content in zip(built, payload, strict=True):
        packet = Ether(row.tobytes())
        ip, udp = packet[IP], packet[UDP]
        assert (int(packet.src.replace(":", ""), 16), int(packet.dst.replace(":", ""), 16)) == (mac, mac ^ 1)
        assert (ip.tos >> 2, ip.tos & 3, ip.ttl, ip.flags, ip.len) == (dscp, 0, ttl, "DF", 28 + content.size)
        assert (udp.sport, udp.dport, udp.len, udp.chksum) == (*ports, 8 + content.size, 0)
        assert row.tobytes().endswith(content.tobytes())
        stored = ip.chksum
        del ip.chksum
        assert IP(bytes(ip)).chksum == stored


def test_one_value_per_row() -> None:
    rows = np.arange(3)
    built = frames.encapsulate(
        np.zeros((3, 4), np.uint8),
        source=10 + rows,
        destination=20 + rows,
        source_mac=30 + rows,
        destination_mac=40 + rows,
        source_port=50 + rows,
        destination_port=60 + rows,
        dscp=rows,
        ttl=70 + rows,
    )
    headers = frames.frame_headers(built)
    assert headers["ipv4"]["source"].tolist() == [10, 11, 12]
    assert headers["ipv4"]["destination"].tolist() == [20, 21, 22]
    assert headers["source_mac"][:, 5].tolist() == [30, 31, 32]
    assert headers["destination_mac"][:, 5].tolist() == [40, 41, 42]
    assert headers["source_port"].tolist() == [50, 51, 52]
    assert headers["destination_port"].tolist() == [60, 61, 62]
    assert headers["ipv4"]["dscp_ecn"].tolist() == [0, 4, 8]
    assert headers["ipv4"]["ttl"].tolist() == [70, 71, 72]


@given(payload=payloads, source=st.integers(0, 2**32 - 1))
def test_round_trip(payload: NDArray[np.uint8], source: int) -> None:
    built = frames.encapsulate(payload, source=source, destination=HERE, source_mac=1, destination_mac=2)
    received, rejects = frames.decapsulate(built, HERE)
    assert rejects == Rejects()
    assert received.addresses.tolist() == [source] * len(payload)
    assert np.array_equal(received.payload, payload)
    assert set(received.source_ports.tolist()) == set(received.destination_ports.tolist()) == {AGGREGATION_PORT}


@given(
    payload=payloads,
    source=st.integers(0, 2**32 - 1),
    destinations=st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4),
    mac=st.integers(1, 2**48 - 2),
)
def test_a_frame_writer_writes_what_encapsulate_does(
    payload: NDArray[np.uint8], source: int, destinations: list[int], mac: int
) -> None:
    addresses = np.array(destinations, np.uint32)[np.arange(len(payload)) % 4]
    ends = {"source": source, "source_mac": mac, "destination_mac": mac ^ 1}
    expected = frames.encapsulate(payload, destination=addresses, **ends)
    writer = frames.FrameWriter(**ends)
    for _ in range(2):
        assert np.array_equal(writer.encapsulate(Datagrams(addresses, payload)), expected)


def test_reads_scapys_frames() -> None:
    packet = Ether() / IP(src="10.0.0.1", dst="10.255.0.1") / UDP(sport=7, dport=9, chksum=0) / b"hello"
    received, rejects = frames.decapsulate(np.frombuffer(bytes(packet), np.uint8)[None])
    assert (rejects, received.addresses.tolist(), received.payload.tobytes()) == (Rejects(), [PEER], b"hello")
    assert (received.source_ports.tolist(), received.destination_ports.tolist()) == ([7], [9])


def test_every_reason_to_reject_is_counted_and_good_rows_stay() -> None:
    def fixed(row: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """`row` with its IPv4 checksum made right again."""
        row[24:26] = 0
        packet = IP(row[14:].tobytes())
        del packet.chksum
        row[24:26] = np.frombuffer(bytes(packet)[10:12], np.uint8)
        return row

    batch = np.repeat(frame(), 12, axis=0)
    batch[1, 12] = 0x86  # ethertype
    batch[2, 14] = 0x46  # IPv4 options
    batch[3, 22] ^= 0xFF  # TTL, but not the checksum
    batch[4, 21] = 5
    fixed(batch[4])  # fragment offset
    batch[5, 33] ^= 0x10
    fixed(batch[5])  # destination
    batch[6, 23] = 6
    fixed(batch[6])  # TCP
    batch[7, 17] += 1
    fixed(batch[7])  # IPv4 length
    batch[8, 39] += 1  # UDP length
    batch[9, 60] ^= 1  # payload only: not this layer's business
    batch[10, 37] ^= 1  # UDP destination port
    batch[11, 35] ^= 1  # UDP source port
    received, rejects = frames.decapsulate(batch, HERE, AGGREGATION_PORT)
    assert rejects == Rejects(
        not_ipv4=2, bad_checksum=1, fragment=1, other_address=1, not_udp=1, bad_length=2, other_port=2
    )
    assert np.array_equal(received.payload, batch[[0, 9], 42:])
    assert (rejects + rejects).total == 20
    received, rejects = frames.decapsulate(batch[[0, 9, 10]], HERE)
    assert (received.destination_ports.tolist(), rejects) == (
        [AGGREGATION_PORT] * 2 + [AGGREGATION_PORT ^ 1],
        Rejects(),
    )


@given(position=st.integers(0, 41), flip=st.integers(1, 255))
def test_one_damaged_byte_is_rejected_wherever_it_matters(position: int, flip: int) -> None:
    batch = np.repeat(frame(), 3, axis=0)
    batch[1, position] ^= flip
    received, rejects = frames.decapsulate(batch, HERE)
    free = position < 12 or 34 <= position < 38 or position >= 40  # MACs, ports, UDP checksum
    assert (len(received), rejects.total) == ((3, 0) if free else (2, 1))


def test_short_frames_are_truncated() -> None:
    received, rejects = frames.decapsulate(np.zeros((3, 41), np.uint8))
    assert (len(received), rejects) == (0, Rejects(truncated=3))


@given(data=hnp.arrays(np.uint8, st.tuples(st.integers(0, 4), st.integers(0, 80))))
def test_garbage_never_raises(data: NDArray[np.uint8]) -> None:
    received, rejects = frames.decapsulate(data)
    assert len(received) + rejects.total == len(data)


def test_oversized_payload_is_refused() -> None:
    assert frame(1472).shape == (1, 1514)
    with raises(WireError, value=1473):
        frame(1473)
