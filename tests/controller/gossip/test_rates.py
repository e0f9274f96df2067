"""Iteration times of pairs from telemetry and from measurements, and the publication of policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from weir.controller.gossip.errors import GossipError
from weir.controller.gossip.policies import POLICIES
from weir.controller.gossip.publisher import PolicyPublisher
from weir.controller.gossip.rates import MIN_FREE_SHARE, EndToEndAverages, pair_seconds, transfer_seconds
from weir.controller.telemetry.snapshot import LinkView, Snapshot
from weir.topologies import Endpoint, Topology, load_topology

FABRIC = """
name: pair
hosts: {h1: , h2: , h3: }
switches: {s1: , s2: }
links:
  - {ends: [h1, s1-p1], rate: 1Gbit, delay: 1us}
  - {ends: [h2, s2-p1], rate: 1Gbit, delay: 1us}
  - {ends: [h3, s2-p2], rate: 1Gbit, delay: 1us}
  - {ends: [s1-p2, s2-p3], rate: 100Mbit, delay: 10us}
"""


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    path = tmp_path / "pair.yaml"
    path.write_text(FABRIC)
    return load_topology(path)


def snapshot(loads: Mapping[Endpoint, float], latency_us: float = 0.0) -> Snapshot:
    views = {link: LinkView(load, load, 0, latency_us, 0, 0, 1) for link, load in loads.items()}
    return Snapshot(views, frozenset(), frozenset())


def between(topology: Topology, node: str, far: str) -> Endpoint:
    return next(Endpoint(node, port) for port, end in topology.neighbours(node).items() if end.node == far)


def test_a_pull_takes_bytes_over_the_free_rate_and_latency(topology: Topology) -> None:
    towards_h1 = between(topology, "s2", "s1")
    seconds = transfer_seconds(topology, snapshot({towards_h1: 60e6}, 5.0), ["h1", "h2"], 125_000)
    there_and_back = 2 * 12e-6
    assert seconds[0, 1] == pytest.approx(1e6 / 40e6 + there_and_back + 5e-6)
    assert seconds[1, 0] == pytest.approx(1e6 / 100e6 + there_and_back + 5e-6)
    assert seconds[0, 0] == 0


def test_a_full_link_is_slow_and_finite(topology: Topology) -> None:
    seconds = transfer_seconds(topology, snapshot({between(topology, "s2", "s1"): 1e9}), ["h1", "h2"], 125_000)
    assert seconds[0, 1] == pytest.approx(1e6 / (MIN_FREE_SHARE * 100e6), rel=1e-3)


def test_given_paths_are_used(topology: Topology) -> None:
    direct = Endpoint("h2", 0)
    seconds = transfer_seconds(topology, snapshot({}), ["h1", "h2"], 125_000, lambda *_: [direct])
    assert seconds[0, 1] == pytest.approx(1e6 / 1e9 + 2e-6)


def test_an_empty_message_is_refused(topology: Topology) -> None:
    with pytest.raises(GossipError) as refused:
        transfer_seconds(topology, snapshot({}), ["h1", "h2"], 0)
    assert refused.value.place == "message_bytes"


def test_iterations_overlap_pulls_with_computing() -> None:
    seconds = pair_seconds(np.array([0.2, 0.1]), np.array([[0.0, 0.5], [0.05, 0.0]]))
    assert seconds.tolist() == [[0.2, 0.5], [0.1, 0.1]]
    with pytest.raises(GossipError):
        pair_seconds(np.ones(3), np.ones((2, 2)))


def test_averages_weight_old_measurements_and_fill_gaps() -> None:
    averages = EndToEndAverages(2, keep=0.75)
    assert averages.transfers_s.tolist() == [[0, 0], [0, 0]]
    averages.observe(0, 1, 1.0)
    averages.observe(0, 1, 5.0)
    assert averages.transfers_s.tolist() == [[0, 2.0], [2.0, 0]]
    with pytest.raises(GossipError):
        EndToEndAverages(2, keep=1)


def test_policies_are_published_after_changes_of_ten_percent() -> None:
    publisher = PolicyPublisher(POLICIES["uniform"].compute)
    seconds = np.full((3, 3), 0.2)
    first = publisher.update(seconds)
    assert first is not None
    assert first.version == 1
    seconds[0, 1] *= 1.09
    assert publisher.update(seconds) is None
    seconds[0, 1] *= 1.05  # together more than 10 % beyond what the policy is based on
    second = publisher.update(seconds)
    assert second is not None
    assert second.version == 2
    seconds[0, 1] = np.inf
    assert publisher.update(seconds) is not None


def test_a_failed_computation_leaves_the_policy_in_force() -> None:
    publisher = PolicyPublisher(POLICIES["uniform"].compute)
    first = publisher.update(np.full((3, 3), 0.2))
    with pytest.raises(GossipError):
        publisher.update(np.zeros((3, 3)))
    assert publisher.policy is first
    assert publisher.update(np.zeros((3, 3))) is None
    assert publisher.update(np.full((3, 3), 0.2)) is not None
