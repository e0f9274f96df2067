"""Slow networks and dead workers told apart: links on a heartbeat's way, by telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from weir.controller.jobs.slow_paths import SlowPaths
from weir.controller.leases import HEARTBEATS_IN_A_LEASE
from weir.controller.placement.strategies import strategy
from weir.controller.planning.planner import Planner
from weir.controller.telemetry.link_state import LinkState
from weir.controller.telemetry.snapshot import LinkView, Snapshot
from weir.topologies import Endpoint, Routes, TopologyError, leaf_spine

TOPOLOGY = leaf_spine(2, 1, 2)
WAY = [Endpoint("s1", 3), Endpoint("s3", 2)]
"""Ports from h1's leaf through the spine to h3's; the hosts' own links are not measured."""
IDLE = LinkView(0.0, 0.0, queue_packets=0, latency_us=0, loss=0, age_ns=0, confidence=1)
LEASE_NS = 1_000_000


@dataclass
class Told(LinkState):
    """Telemetry with given values."""

    said: Snapshot

    def snapshot(self, now_ns: int, exclude: Mapping[Endpoint, float] | None = None) -> Snapshot:
        return self.said


def why(host: str = "h1", stale: frozenset[Endpoint] = frozenset(), **on_the_way: LinkView) -> str:
    """`on_the_way`: of the first and of the last link between the switches."""
    views = dict(zip(WAY, (on_the_way.get("first", IDLE), on_the_way.get("last", IDLE)), strict=True))
    planner = Planner(TOPOLOGY, Routes(TOPOLOGY), strategy("ps"), 0)
    return SlowPaths(planner, Told(Snapshot(views, stale, frozenset())), "h3").why_slow(host, LEASE_NS, 0)


def test_a_network_that_is_known_to_be_well_explains_nothing() -> None:
    assert why() == ""


def test_a_link_that_nothing_was_heard_of_explains_silence() -> None:
    assert why(stale=frozenset(WAY[1:])) == "nothing was heard of s3-p2 of late"
    assert why("h2", stale=frozenset({Endpoint("s2", 3)})) == "", "it is not on the way"


def test_loss_of_a_leases_heartbeats_explains_silence() -> None:
    limit = 1e-6 ** (1 / HEARTBEATS_IN_A_LEASE)
    assert why(last=replace(IDLE, loss=0.99 * limit)) == ""
    assert why(last=replace(IDLE, loss=1.01 * limit)).startswith("s3-p2 may lose ")
    lossy = why(first=replace(IDLE, loss=0.25), last=replace(IDLE, loss=1.0))
    assert lossy == "s1-p3, s3-p2 may lose 100 % of packets"


def test_queues_that_delay_heartbeats_by_their_share_explain_it() -> None:
    """Waits of both links add up: each takes half of a heartbeat's part of a lease."""
    half_us = LEASE_NS / 1e3 / HEARTBEATS_IN_A_LEASE / 2
    slow = replace(IDLE, latency_us=half_us)
    assert why(first=slow, last=slow) == f"packets wait for {2 * half_us / 1e3:.3g} ms on the way from h1"
    assert why(first=slow, last=replace(slow, latency_us=0.999 * half_us)) == ""
    assert why(first=replace(IDLE, latency_us=9990.0)) == "packets wait for 9.99 ms on the way from h1"


def test_the_controllers_own_host_and_one_that_no_way_leads_from() -> None:
    assert why("h3", stale=frozenset(WAY)) == ""
    planner = Planner(TOPOLOGY, Routes(TOPOLOGY, frozenset({Endpoint("s1", 3), Endpoint("s3", 1)})), strategy("ps"), 0)
    paths = SlowPaths(planner, Told(Snapshot({}, frozenset(), frozenset())), "h3")
    assert paths.why_slow("h1", LEASE_NS, 0) == "no way leads from h1 to h3"


def test_a_host_that_the_fabric_lacks() -> None:
    planner = Planner(TOPOLOGY, Routes(TOPOLOGY), strategy("ps"), 0)
    with pytest.raises(TopologyError, match="h9"):
        SlowPaths(planner, Told(Snapshot({}, frozenset(), frozenset())), "h9")
