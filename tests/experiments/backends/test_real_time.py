"""The fabric on the wall clock, between links of real processes' kind."""

from __future__ import annotations

import select
import time
from collections.abc import AsyncIterator
from contextlib import closing

import numpy as np
import pytest
import pytest_asyncio

from weir.experiments.backends.live import live_fabric
from weir.experiments.backends.real_time import RealTimeFabric
from weir.hosts.drivers.fabric_link import FabricLink
from weir.hosts.drivers.heartbeat_sender import HEARTBEAT_NIC
from weir.hosts.drivers.udp_transport import TRANSPORT_NIC
from weir.topologies import leaf_spine
from weir.wire.frames import Datagrams

PATIENCE_S = 60.0

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fabric() -> AsyncIterator[RealTimeFabric]:
    async with live_fabric(leaf_spine(2, 1, 2)) as live:
        assert isinstance(live.fabric, RealTimeFabric)
        yield live.fabric


def link(fabric: RealTimeFabric, host: str, path: str = TRANSPORT_NIC) -> FabricLink:
    return FabricLink.connect(fabric.nic(host) + path)


def send(fabric: RealTimeFabric, source: FabricLink, host: str, payload: np.ndarray) -> None:
    address = int(fabric.topology.host(host).address)
    source.send(Datagrams(np.full(len(payload), address, np.uint32), payload))


def received(target: FabricLink, count: int) -> list[bytes]:
    """The next datagrams at a link, as many as these."""
    found: list[bytes] = []
    poll, until = select.poll(), time.monotonic() + PATIENCE_S
    poll.register(target, select.POLLIN)
    while len(found) < count and time.monotonic() < until:
        if poll.poll(1000):
            found += [row.tobytes() for datagram in target.receive() for row in datagram.payload]
    return found


def numbered(count: int, size: int = 600, first: int = 0) -> np.ndarray:
    payload = np.zeros((count, size), np.uint8)
    payload[:, :8] = (first + np.arange(count))[:, None].view(np.uint8)
    return payload


def rows_of(payload: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in payload]


async def test_datagrams_cross_the_fabric_in_order(fabric: RealTimeFabric) -> None:
    with closing(link(fabric, "h1")) as source, closing(link(fabric, "h4")) as target:
        for first in range(0, 2000, 100):
            payload = numbered(100, first=first)
            send(fabric, source, "h4", payload)
            assert received(target, 100) == rows_of(payload)


async def test_processes_of_a_host_receive_only_their_ports_frames(fabric: RealTimeFabric) -> None:
    with (
        closing(link(fabric, "h1")) as source,
        closing(link(fabric, "h2")) as one,
        closing(link(fabric, "h2")) as other,
        closing(link(fabric, "h2", HEARTBEAT_NIC)) as beats,
    ):
        payload = numbered(30)
        send(fabric, source, "h2", payload)
        assert received(one, 30) == received(other, 30) == rows_of(payload)
        other.close()
        send(fabric, source, "h2", payload)
        assert received(one, 30) == rows_of(payload)
        with closing(link(fabric, "h2")) as newcomer:  # in the place of the one that has ended
            send(fabric, source, "h2", payload)
            assert received(newcomer, 30) == received(one, 30) == rows_of(payload)
        assert beats.receive() == []


async def test_the_clock_does_not_stand_still_while_nothing_happens(fabric: RealTimeFabric) -> None:
    """An idle fabric sleeps: what it is late for afterwards is no lag."""
    before_s, clock = fabric.behind_s, fabric._fabric
    began_ns, fabric_ns = time.monotonic_ns(), clock.now_ns
    time.sleep(0.2)
    with closing(link(fabric, "h1")) as source, closing(link(fabric, "h3")) as target:
        send(fabric, source, "h3", numbered(1))
        assert len(received(target, 1)) == 1
    passed_s = (time.monotonic_ns() - began_ns) / 1e9
    stood_s = fabric.behind_s - before_s
    assert (clock.now_ns - fabric_ns) / 1e9 + stood_s == pytest.approx(passed_s, abs=0.15 + 0.2 * passed_s)


async def test_a_fabrics_end_is_noticed() -> None:
    async with live_fabric(leaf_spine(1, 1, 1)) as live:
        assert isinstance(live.fabric, RealTimeFabric)
        target = link(live.fabric, "h1")
    with closing(target), pytest.raises(OSError, match="ended"):
        target.receive()
