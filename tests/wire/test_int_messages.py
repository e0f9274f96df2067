"""Messages behind INT-MD: headers that hosts add and remove, and the links' data in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether

from weir.tests.wire.int_stacks import Said, int_header, int_headers
from weir.wire.frames import FRAME_HEADER_BYTES, Datagrams, FrameWriter
from weir.wire.int_md import INT_PORT
from weir.wire.int_messages import carry_int, depths, embed, extract, link_request, max_hops, read_links
from weir.wire.scapy_layers import IntMd, IntShim

PORT = 22341
HOST = 0x0A000001
SAID = st.builds(
    Said,
    *(st.integers(0, 2**bits - 1) for bits in (32, 16, 24, 64, 64, 16, 8)),
)
WAYS = st.integers(0, 14).flatmap(
    lambda hops: st.lists(st.lists(SAID, min_size=hops, max_size=hops), min_size=1, max_size=5)
)


def writer(source: int = 7, port: int = PORT, destination_port: int = INT_PORT) -> FrameWriter:
    return FrameWriter(source=source, source_mac=3, destination_mac=4, port=port, destination_port=destination_port)


def framed(headers: np.ndarray, payload: np.ndarray) -> np.ndarray:
    sent = Datagrams(np.full(len(payload), HOST, np.uint32), payload, int_headers=headers)
    return writer().encapsulate(embed(sent))


def test_the_request_field_by_field() -> None:
    assert link_request(PORT, 9) == int_header([])
    headers = np.frombuffer(link_request(PORT, 12), np.uint8)[None]
    packet = Ether(framed(headers, np.zeros((1, 28), np.uint8)).tobytes())
    shim, header = packet[IntShim], packet[IntMd]
    assert (shim.type, shim.npt, shim.length, shim.original_port) == (1, 1, 3, PORT)
    assert (header.version, header.discard, header.hop_words, header.remaining_hops) == (2, 0, 7, 12)
    assert (header.instructions, header.domain, header.domain_instructions) == (0xD400, 0x5745, 0x8000)


@given(WAYS)
def test_link_data_is_read_as_pushed(ways: list[list[Said]]) -> None:
    hops, whole = read_links(int_headers(ways), PORT)
    assert whole.all()
    names = ("node_id", "egress_port", "egress_ns", "bytes_sent", "ingress_port", "queue_id")
    columns = [hops[name].tolist() for name in names] + [depths(hops).tolist()]
    expected = [
        [[getattr(said, name) for said in way] for way in ways]
        for name in ("node", "port", "egress_ns", "bytes_sent", "ingress_port", "queue_id", "queue_packets")
    ]
    assert columns == expected


@given(WAYS, st.integers(0, 100))
def test_a_host_takes_off_what_another_put_in_front(ways: list[list[Said]], size: int) -> None:
    headers = int_headers(ways)
    payload = np.random.default_rng(1).integers(0, 256, (len(ways), size), np.uint8)
    frames = framed(headers, payload)
    assert carry_int(frames).all()
    [got], rejects = extract(frames, HOST, PORT)
    assert not rejects.total
    assert got.int_headers is not None
    assert np.array_equal(got.int_headers, headers)
    assert np.array_equal(got.payload, payload)
    assert got.addresses.tolist() == [7] * len(ways)


@pytest.mark.parametrize("port", [INT_PORT - 1, INT_PORT + 1])
def test_frames_to_other_ports_are_not_marked(port: int) -> None:
    [packet] = writer(destination_port=port).encapsulate(
        Datagrams(np.array([HOST], np.uint32), np.zeros((1, 20), np.uint8))
    )
    assert not carry_int(packet[None]).any()


def test_a_request_alone_is_a_message_of_nothing() -> None:
    [got], rejects = extract(
        framed(int_headers([[]]), np.zeros((1, 0), np.uint8))[:, : FRAME_HEADER_BYTES + 16], HOST, PORT
    )
    assert (len(got), got.payload.shape, rejects.total) == (1, (1, 0), 0)


def test_frames_of_one_length_may_have_stacks_of_several() -> None:
    near, far = [Said(1, 2, 3, 4, 5)], [Said(1, 2, 3, 4, 5), Said(6, 7, 8, 9, 10)]
    short = framed(int_headers([near]), np.full((1, 64), 1, np.uint8))
    long = framed(int_headers([far]), np.full((1, 36), 2, np.uint8))
    got, rejects = extract(np.concatenate([short, long, short]), HOST, PORT)
    assert not rejects.total
    assert [(len(each), each.payload.shape[1], int(each.payload[0, 0])) for each in got] == [(2, 64, 1), (1, 36, 2)]


def test_messages_for_another_port_or_host_are_rejected() -> None:
    payload, headers = np.zeros((1, 40), np.uint8), int_headers([[]])
    datagram = embed(Datagrams(np.array([HOST], np.uint32), payload, int_headers=headers))
    long = np.frombuffer(int_header([]), np.uint8)[None].copy()
    long[0, 1] = 200
    for frames, address, reason in (
        (writer(port=9).encapsulate(datagram), HOST, "other_port"),
        (writer(port=PORT + 1).encapsulate(datagram), HOST, "other_port"),
        (writer(destination_port=INT_PORT - 1).encapsulate(datagram), HOST, "other_port"),
        (writer(destination_port=INT_PORT + 1).encapsulate(datagram), HOST, "other_port"),
        (writer(port=9, destination_port=9).encapsulate(datagram), HOST, "other_port"),
        (writer(port=9).encapsulate(Datagrams(datagram.addresses, payload)), HOST, "other_port"),
        (framed(long, payload), HOST, "bad_int"),
        (framed(np.full((1, 16), 200, np.uint8), payload), HOST, "bad_int"),
        (framed(np.frombuffer(int_header([], port=PORT + 1), np.uint8)[None], payload), HOST, "bad_int"),
        (framed(headers, payload), HOST + 1, "other_address"),
        (framed(np.frombuffer(int_header([], port=9), np.uint8)[None], payload), HOST, "bad_int"),
        (framed(np.zeros((1, 12), np.uint8), np.zeros((1, 3), np.uint8)), HOST, "bad_int"),
    ):
        found, rejects = extract(frames, address, PORT)
        assert found == []
        assert (rejects.total, getattr(rejects, reason)) == (1, 1), reason


@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 255)), min_size=1, max_size=4))
def test_garbled_int_never_raises_and_all_frames_are_counted(hops: int, flips: list[tuple[int, int]]) -> None:
    headers = int_headers([[Said(number, 1, 2, 3, 4) for number in range(hops)]] * 3)
    frames = framed(headers, np.zeros((3, 28), np.uint8))
    for at, flip in flips:
        frames[1, FRAME_HEADER_BYTES + at % (frames.shape[1] - FRAME_HEADER_BYTES)] ^= flip
    found, rejects = extract(frames, HOST, PORT)
    assert sum(map(len, found)) + rejects.total == 3
    assert rejects.total == rejects.bad_int
    for each in found:
        assert each.int_headers is not None
        hops_read, whole = read_links(each.int_headers, PORT)
        assert len(hops_read) == len(whole) == len(each)


@pytest.mark.parametrize(
    ("at", "flip"),
    [
        (0, 0x20),
        (0, 0x04),
        (1, 7),
        (3, 1),
        (4, 0x08),
        (4, 0x04),
        (4, 0x02),
        (6, 1),
        (8, 0x80),
        (11, 1),
        (12, 0x40),
        (13, 1),
    ],
)
def test_a_stack_of_another_make_or_not_whole_is_not_read(at: int, flip: int) -> None:
    """Shim, version, D, E, M, hop ML and bitmaps: 1 of 2 rows."""
    headers = int_headers([[Said(1, 2, 3, 4, 5)]] * 2)
    headers[1, at] ^= flip
    assert read_links(headers, PORT)[1].tolist() == [True, False]


def test_remaining_hops_and_domain_flags_are_the_switches_own() -> None:
    headers = int_headers([[Said(1, 2, 3, 4, 5)]])
    headers[0, 7], headers[0, 14:] = 0, [0x80, 1, *headers[0, 16:]]
    assert read_links(headers, PORT)[1].all()


@pytest.mark.parametrize("size", [0, 15, 30])
def test_half_a_header_or_hop_says_nothing(size: int) -> None:
    hops, whole = read_links(int_headers([[Said(1, 2, 3, 4, 5)]])[:, :size], PORT)
    assert (hops.shape, whole.tolist()) == ((1, 0), [False])


def test_as_many_hops_as_the_mtu_has_room_for() -> None:
    assert [max_hops(size) for size in (28 + 1024, 28 + 128)] == [14, 36]
    full = int_headers([[Said(1, 2, 3, 4, 5)] * 14])
    assert framed(full, np.zeros((1, 1052), np.uint8)).shape[1] <= 14 + 1500
