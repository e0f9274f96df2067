"""Features that hosts read from each other over sockets, and hot rows by broadcast."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from weir.hosts import Communicator, PeerLost, TransportOptions, connect
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.support.errors import raises
from weir.training.errors import TrainingError
from weir.training.graphs.features import SharedFeatures, fill_by_broadcast

PORTS = itertools.count(31_000 + os.getpid() % 10_000)
ADDRESSES = [0x7F00_0D01 + rank for rank in range(3)]
ROWS = np.random.default_rng(0).standard_normal((100, 7)).astype(np.float32)
OWNER = np.random.default_rng(1).integers(0, 3, 100)


def at_each(stack: ExitStack, call: Callable[[SharedFeatures, int], Any]) -> list[Any]:
    port = next(PORTS)
    options = TransportOptions(lower_effort=True)
    held = []
    for rank in range(3):
        transport = stack.enter_context(connect(9, ADDRESSES, rank, port=port, options=options))
        own = np.flatnonzero(rank == OWNER)[::-1]
        held.append(stack.enter_context(SharedFeatures(transport, OWNER, own, ROWS[own])))
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(call, held, range(3)))


def test_rows_of_all_hosts_come_in_the_order_asked() -> None:
    def call(features: SharedFeatures, rank: int) -> tuple[bool, tuple[int, ...], int]:
        nodes = np.random.default_rng(rank + 5).permutation(100)[:60]
        same = features.fetch(nodes).tobytes() == ROWS[nodes].tobytes()
        return (
            same,
            features.fetch(np.empty(0, np.int64)).shape,
            features.remote_rows - int((OWNER[nodes] != rank).sum()),
        )

    with ExitStack() as stack:
        assert at_each(stack, call) == [(True, (0, 7), 0)] * 3


def test_a_host_that_is_gone_is_an_error() -> None:
    port = next(PORTS)
    options = TransportOptions(patience_ns=200_000_000)
    own = np.flatnonzero(OWNER == 0)
    with connect(9, ADDRESSES, 0, port=port, options=options) as transport:
        features = SharedFeatures(transport, OWNER, own, ROWS[own])
        with pytest.raises(PeerLost):
            features.fetch(np.arange(100))


def test_a_host_serves_on_behind_bad_requests_and_lost_askers() -> None:
    """Rank 1 asks by values that are no nodes, and dies; rank 2 then has its rows all the same."""
    port = next(PORTS)
    options = TransportOptions(patience_ns=300_000_000)
    own = np.flatnonzero(OWNER == 0)
    with connect(9, ADDRESSES, 0, port=port, options=options) as served, SharedFeatures(served, OWNER, own, ROWS[own]):
        with connect(9, ADDRESSES, 1, port=port, options=options) as bad:
            for value in (b"abc", np.array([0.5]), np.array([[0]]), np.array([-1, 1000]), np.array(["x"])):
                assert bad.request(0, "features", value).shape == (0, 7)
            bad.request_async(0, "features", own)
        with connect(9, ADDRESSES, 2, port=port, options=options) as good:
            assert good.request(0, "features", own).tobytes() == ROWS[own].tobytes()


def test_rows_that_are_not_those_of_the_host_are_refused() -> None:
    with connect(9, ADDRESSES, 0, port=next(PORTS)) as transport, raises(TrainingError, place="features"):
        SharedFeatures(transport, OWNER, np.arange(5), ROWS[:5])


def test_hot_rows_reach_all_workers_bit_by_bit() -> None:
    job, nodes = MemoryJob(2), np.array([4, 2])

    class Sender:
        """A worker whose broadcast is complete once the other one has called, too."""

        def __init__(self, communicator: Communicator) -> None:
            self._communicator = communicator

        def broadcast(self, *words: Any, **named: Any) -> Any:
            return self._communicator.broadcast_async(*words, **named)

    handles = [
        fill_by_broadcast(Sender(Communicator(driver)), nodes, ROWS[nodes] if driver.rank == 0 else None, 7)
        for driver in job.drivers
    ]
    assert [handle.wait().tobytes() for handle in handles] == [ROWS[nodes].tobytes()] * 2  # type: ignore[attr-defined]
