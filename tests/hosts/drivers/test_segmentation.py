"""Devices on which the kernel may cut messages, with the frames that a switch reads behind them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

from weir.hosts.drivers import segmentation
from weir.hosts.drivers.datagram_socket import DatagramSocket
from weir.hosts.drivers.segmentation import may_segment
from weir.tests.emulator.network import Network, ip, needs_namespaces, network
from weir.wire.aggregation import MESSAGE_BYTES
from weir.wire.frames import FRAME_HEADER_BYTES, Datagrams, decapsulate, frame_headers

LOOPBACK, HERE, HOST, SWITCH = 0x7F00_0F01, 0x0A00_4D01, 0x0A00_4D02, 0x0AFF_0001
PORT = 20_000 + os.getpid() % 10_000
COUNT = 100

needs_ethtool = pytest.mark.skipif(shutil.which("ethtool") is None, reason="the command ethtool is not on PATH")


@pytest.fixture
def host() -> Iterator[Network]:
    """A host 10.0.77.1 at `s1-eth1`, and everything else behind the pair."""
    with network([1]) as made:
        ip("address add 10.0.77.1/24 dev s1-eth1")
        ip("route add 10.255.0.0/16 via 10.0.77.2 dev s1-eth1")
        ip("neighbour replace 10.0.77.2 lladdr 02:00:00:00:00:02 dev s1-eth1 nud permanent")
        yield made


def leave_checksums_to_the_kernel() -> None:
    subprocess.run(["ethtool", "-K", "s1-eth1", "tx", "off"], check=True, capture_output=True)


def sent_frames(host: Network, peer: int) -> np.ndarray:
    """The frames that arrive behind the pair when the host sends a batch to a peer."""
    payload = np.random.default_rng(1).integers(0, 256, (COUNT, MESSAGE_BYTES), np.uint8)
    sender = DatagramSocket(HERE, PORT)
    try:
        sender.send(Datagrams(np.full(COUNT, peer, np.uint32), payload))
        received = [frame for frame in host.receive(1, COUNT) if len(frame) == FRAME_HEADER_BYTES + MESSAGE_BYTES]
    finally:
        sender.close()
    frames = np.frombuffer(b"".join(received), np.uint8).reshape(-1, FRAME_HEADER_BYTES + MESSAGE_BYTES)
    datagrams, rejects = decapsulate(frames, peer, PORT)
    assert not rejects.total
    assert np.array_equal(datagrams.payload, payload)
    return frames


def udp_sums(frames: np.ndarray) -> list[int]:
    """Sum of what each UDP checksum covers, with the checksum: 0xFFFF if that is right (RFC 768)."""
    words = frames[:, 26:].copy().view(">u2").astype(np.int64)  # from IPv4's addresses on
    totals = words.sum(axis=1) + 17 + 8 + MESSAGE_BYTES
    return [int((total - 1) % 0xFFFF + 1) for total in totals]


def test_loopback_may_and_an_address_of_no_device_may_not() -> None:
    assert may_segment(LOOPBACK)
    assert not may_segment(0xC633_6401)


@needs_namespaces
def test_a_virtual_pair_that_leaves_checksums_out_carries_single_datagrams(host: Network) -> None:
    """A switch at its other end could use neither buffers of many datagrams nor checksums that are not there."""
    assert not may_segment(HERE)
    assert not frame_headers(sent_frames(host, SWITCH))["udp_checksum"].any()


@needs_namespaces
@needs_ethtool
def test_a_virtual_pair_without_checksum_offload_carries_datagrams_with_checksums(host: Network) -> None:
    leave_checksums_to_the_kernel()
    assert may_segment(HERE)
    frames = sent_frames(host, SWITCH)
    assert frame_headers(frames)["udp_checksum"].all()
    assert udp_sums(frames) == [0xFFFF] * COUNT


@needs_namespaces
@needs_ethtool
def test_datagrams_to_hosts_have_no_checksum(host: Network) -> None:
    """A switch on the way may change what it covers, and INT with it."""
    leave_checksums_to_the_kernel()
    assert not frame_headers(sent_frames(host, HOST))["udp_checksum"].any()


@needs_namespaces
@needs_ethtool
def test_datagrams_that_the_device_would_fragment_are_sent_one_by_one(host: Network) -> None:
    """The kernel cuts no message into datagrams beyond the MTU."""
    leave_checksums_to_the_kernel()
    ip("link set s1-eth1 mtu 1000")
    sender = DatagramSocket(HERE, PORT)
    sender.send(Datagrams(np.full(COUNT, SWITCH, np.uint32), np.zeros((COUNT, MESSAGE_BYTES), np.uint8)))
    sender.close()
    assert sender.send_failures == 0
    assert len(host.receive(1, 2 * COUNT)) == 2 * COUNT


@needs_namespaces
@needs_ethtool
def test_a_device_that_loses_whole_buffers_gets_single_datagrams(
    host: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel here may lack netem, so another discipline takes its name."""
    leave_checksums_to_the_kernel()
    assert may_segment(HERE)
    subprocess.run(["tc", "qdisc", "replace", "dev", "s1-eth1", "root", "pfifo"], check=True)
    monkeypatch.setattr(segmentation, "_LOSSY_DISCIPLINE", "pfifo")
    assert not may_segment(HERE)
