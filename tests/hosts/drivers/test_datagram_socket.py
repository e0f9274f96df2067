"""Whole batches through a real socket: grouping by size, losses, errors."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.hosts.drivers.datagram_socket import BATCH, DatagramSocket
from weir.tests.support.errors import raises
from weir.wire.aggregation import HEADER_BYTES, MESSAGE_BYTES
from weir.wire.frames import Datagrams
from weir.wire.message_batch import MAX_SEGMENTED_BYTES, SOL_UDP

HERE, THERE, NOBODY = 0x7F00_0E01, 0x7F00_0E02, 0x7F00_0E03
PORT = 20_000 + os.getpid() % 10_000
SO_NO_CHECK, UDP_GRO = 11, 104


@pytest.fixture
def pair() -> Iterator[tuple[DatagramSocket, DatagramSocket]]:
    here, there = DatagramSocket(HERE, PORT), DatagramSocket(THERE, PORT)
    yield here, there
    here.close()
    there.close()


def rows(count: int, size: int, seed: int = 1) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, size), np.uint8)


def to(address: int, payload: NDArray[np.uint8]) -> Datagrams:
    return Datagrams(np.full(len(payload), address, np.uint32), payload)


def all_received(receiver: DatagramSocket, count: int) -> list[tuple[int, bytes]]:
    """(source, payload) in order, once `count` have come."""
    taken: list[tuple[int, bytes]] = []
    while len(taken) < count:
        assert select.select([receiver], [], [], 10)[0], f"{len(taken)} of {count} came"
        for datagrams in receiver.receive():
            taken += zip(datagrams.addresses.tolist(), (row.tobytes() for row in datagrams.payload), strict=True)
    return taken


def test_batches_beyond_a_system_call_arrive_whole_and_in_order(
    pair: tuple[DatagramSocket, DatagramSocket],
) -> None:
    here, there = pair
    payload = rows(BATCH + 100, MESSAGE_BYTES)
    here.send(to(THERE, payload))
    assert all_received(there, len(payload)) == [(HERE, row.tobytes()) for row in payload]
    assert there.receive() == []


def test_each_batch_has_its_own_code_point(pair: tuple[DatagramSocket, DatagramSocket]) -> None:
    """Batches of several classes over one socket, as the kernel shows their TOS octets to a plain receiver."""
    here, there = pair
    with socket.socket(fileno=os.dup(there.fileno())) as receiver:
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        receiver.settimeout(10)
        dscps = [None, 40, 40, 0, 16, None]
        for dscp in dscps:
            here.send(to(THERE, rows(2, HEADER_BYTES)), dscp)
        seen = [receiver.recvmsg(2048, 64)[1] for _ in range(2 * len(dscps))]
    assert [[control[-1][0] for control in message] for message in seen] == [
        [(dscp or 0) << 2] for dscp in dscps for _ in range(2)
    ]


def test_rows_of_a_larger_array_are_sent_as_they_are(pair: tuple[DatagramSocket, DatagramSocket]) -> None:
    here, there = pair
    payload = rows(9, MESSAGE_BYTES)
    here.send(to(THERE, payload[::2, :HEADER_BYTES]))
    assert all_received(there, 5) == [(HERE, row[:HEADER_BYTES].tobytes()) for row in payload[::2]]


def test_arrivals_are_grouped_by_size_in_order_of_the_first(
    pair: tuple[DatagramSocket, DatagramSocket],
) -> None:
    here, there = pair
    sizes = (MESSAGE_BYTES, HEADER_BYTES, MESSAGE_BYTES, 0, MESSAGE_BYTES + 400)
    for seed, size in enumerate(sizes):
        here.send(to(THERE, rows(1, size, seed)))
    batches: list[tuple[int, int]] = []
    while sum(count for count, _ in batches) < len(sizes):
        assert select.select([there], [], [], 10)[0]
        batches += [(len(batch), batch.payload.shape[1]) for batch in there.receive()]
    # a datagram beyond the longest message shows by its size
    assert batches == [(2, MESSAGE_BYTES), (1, HEADER_BYTES), (1, 0), (1, MESSAGE_BYTES + 4)]


def test_a_batch_has_a_destination_for_each_row(pair: tuple[DatagramSocket, DatagramSocket]) -> None:
    here, there = pair
    payload = rows(4, HEADER_BYTES)
    here.send(Datagrams(np.array([THERE, HERE, THERE, HERE], np.uint32), payload))
    assert all_received(there, 2) == [(HERE, payload[0].tobytes()), (HERE, payload[2].tobytes())]
    assert all_received(here, 2) == [(HERE, payload[1].tobytes()), (HERE, payload[3].tobytes())]


def test_datagrams_from_another_port_are_dropped_and_counted(pair: tuple[DatagramSocket, DatagramSocket]) -> None:
    """Another process of a member's host has its address, but not its port."""
    here, there = pair
    payload = rows(3, MESSAGE_BYTES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((str(IPv4Address(HERE)), 0))
        for sender, row in ((stranger, 0), (None, 1), (stranger, 2), (stranger, 0)):
            if sender is None:
                here.send(to(THERE, payload[row : row + 1]))
            else:
                sender.sendto(payload[row].tobytes(), (str(IPv4Address(THERE)), PORT))
    assert all_received(there, 1) == [(HERE, payload[1].tobytes())]
    here.send(to(THERE, payload))
    assert all_received(there, 3) == [(HERE, row.tobytes()) for row in payload]
    assert there.foreign_ports == 3


def test_a_closed_port_costs_only_what_is_sent_there(pair: tuple[DatagramSocket, DatagramSocket]) -> None:
    """The kernel reports a closed port on a later call, which then sends nothing: that datagram is lost, not the
    endpoint.
    """
    here, there = pair
    for _ in range(3):
        here.send(to(NOBODY, rows(2, HEADER_BYTES)))
    here.receive()
    payload = rows(5, HEADER_BYTES)
    here.send(to(THERE, payload))
    assert len(all_received(there, 5 - here.send_failures)) == 5 - here.send_failures


def test_an_unreachable_destination_costs_only_its_own_datagrams(
    pair: tuple[DatagramSocket, DatagramSocket],
) -> None:
    """A stranger chooses it: answers go to whatever source a question gives."""
    here, there = pair
    payload = rows(3, HEADER_BYTES)
    here.send(Datagrams(np.array([THERE, 0xFFFF_FFFF, THERE], np.uint32), payload))  # broadcast without leave
    assert all_received(there, 2) == [(HERE, payload[0].tobytes()), (HERE, payload[2].tobytes())]
    assert here.send_failures == 1
    assert here.last_send_failure is not None
    assert here.last_send_failure.errno in (errno.EACCES, errno.EINVAL, errno.ENETUNREACH)


def test_a_socket_that_is_closed_is_an_error() -> None:
    closed = DatagramSocket(HERE, PORT)
    closed.close()
    with raises(OSError, errno=9):
        closed.send(to(THERE, rows(1, HEADER_BYTES)))


def checksums_are_off(sending: DatagramSocket) -> bool:
    with socket.socket(fileno=os.dup(sending.fileno())) as same:
        return same.getsockopt(socket.SOL_SOCKET, SO_NO_CHECK) == 1


def test_datagrams_to_one_peer_pass_the_kernel_together(pair: tuple[DatagramSocket, DatagramSocket]) -> None:
    """A receiver that takes merged datagrams gets the messages as they passed: as many whole rows as one may have."""
    here, there = pair
    payload = rows(100, MESSAGE_BYTES)
    with socket.socket(fileno=os.dup(there.fileno())) as receiver:
        receiver.setsockopt(SOL_UDP, UDP_GRO, 1)
        receiver.settimeout(10)
        here.send(to(THERE, payload))
        received = [receiver.recv(1 << 16) for _ in range(2)]
    most = MAX_SEGMENTED_BYTES // MESSAGE_BYTES
    assert [len(message) for message in received] == [most * MESSAGE_BYTES, (100 - most) * MESSAGE_BYTES]
    assert b"".join(received) == payload.tobytes()
    assert not checksums_are_off(here)  # the kernel cuts no datagrams without


def test_a_message_has_no_more_rows_than_the_kernel_cuts(pair: tuple[DatagramSocket, DatagramSocket]) -> None:
    here, there = pair
    payload = rows(BATCH + 3, HEADER_BYTES)
    here.send(to(THERE, payload))
    assert all_received(there, len(payload)) == [(HERE, row.tobytes()) for row in payload]
    assert here.send_failures == 0


@pytest.mark.parametrize("seed", range(4))
def test_runs_to_several_peers_arrive_in_order(pair: tuple[DatagramSocket, DatagramSocket], seed: int) -> None:
    here, there = pair
    draws = np.random.default_rng(seed)
    addresses = np.repeat(draws.permutation([HERE, THERE] * 4), draws.integers(1, 90, 8)).astype(np.uint32)
    payload = rows(len(addresses), MESSAGE_BYTES, seed)
    here.send(Datagrams(addresses, payload))
    for receiver, address in ((here, HERE), (there, THERE)):
        expected = [row.tobytes() for row in payload[addresses == address]]
        assert [data for _, data in all_received(receiver, len(expected))] == expected


def test_what_the_kernel_does_not_cut_is_sent_one_by_one(pair: tuple[DatagramSocket, DatagramSocket]) -> None:
    """The kernel refuses to cut messages without checksums, which another process that shares the socket may set."""
    here, there = pair
    with socket.socket(fileno=os.dup(here.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    payload = rows(BATCH + 100, MESSAGE_BYTES)
    here.send(to(THERE, payload))
    assert all_received(there, len(payload)) == [(HERE, row.tobytes()) for row in payload]
    assert here.send_failures == 0


def test_an_unreachable_destination_leaves_the_others_their_messages(
    pair: tuple[DatagramSocket, DatagramSocket],
) -> None:
    here, there = pair
    payload = rows(6, HEADER_BYTES)
    here.send(Datagrams(np.array([THERE, THERE, 0xFFFF_FFFF, 0xFFFF_FFFF, THERE, THERE], np.uint32), payload))
    assert all_received(there, 4) == [(HERE, payload[row].tobytes()) for row in (0, 1, 4, 5)]
    assert here.send_failures == 2


def test_where_messages_are_not_cut_no_udp_checksum_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches change what it would cover."""
    monkeypatch.setattr("weir.hosts.drivers.datagram_socket.may_segment", lambda _: False)
    here = DatagramSocket(HERE, PORT)
    assert not here.segments
    assert checksums_are_off(here)
    here.close()


def test_another_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with raises(OSError, errno=38):
        DatagramSocket(HERE, PORT)
