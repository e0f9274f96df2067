"""Policies that workers of a run get, as the state of the links changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.controller.gossip.policies import POLICIES
from weir.controller.gossip.policy import GossipPolicy
from weir.controller.telemetry.snapshot import LinkView, Snapshot
from weir.experiments.backends.gossip_policies import PublishedPolicies
from weir.experiments.config import RunConfig
from weir.topologies import Endpoint
from weir.topologies.generators import leaf_spine

from ..paths import ROOT

PERIOD_NS = 10


class Network:
    """Two leaves with two hosts each; `load` is others' traffic into h1."""

    def __init__(self, compute_s: list[float]) -> None:
        self.topology = leaf_spine(2, 1, 2)
        self.now_ns = 0
        self.load = 0.0
        self.compute_s = np.array(compute_s)
        self.own: Mapping[Endpoint, float] = {}
        self.shown: list[tuple[str, list[str], GossipPolicy]] = []
        self.policies = PublishedPolicies(
            self.topology,
            ["h1", "h2", "h3", "h4"],
            12_500_000,
            now_ns=lambda: self.now_ns,
            snapshot=self.snapshot,
            compute_s=lambda: self.compute_s,
            period_ns=PERIOD_NS,
            measured_period_ns=10 * PERIOD_NS,
            show=lambda name, hosts, policy: self.shown.append((name, list(hosts), policy)),
        )

    def snapshot(self, own_bps: Mapping[Endpoint, float]) -> Snapshot:
        self.own = own_bps
        into_h1 = self.topology.peer(Endpoint("h1", 0))
        return Snapshot({into_h1: LinkView(self.load, self.load, 0, 0, 0, 0, 1)}, frozenset(), frozenset())

    def row(self, source: str) -> NDArray[np.float64]:
        return self.policies.row(0, "steady", source)[0]


def test_telemetry_changes_the_policy_at_the_next_look() -> None:
    network = Network([0.01] * 4)
    before = network.row("telemetry")
    network.load = 990e6
    assert network.row("telemetry").tolist() == before.tolist()
    network.now_ns += PERIOD_NS
    assert 1 - network.row("telemetry")[0] < 0.1 * (1 - before[0])
    assert [policy.version for _, _, policy in network.policies.published] == [1, 2]
    assert [(name, hosts) for name, hosts, _ in network.shown] == [("steady", ["h1", "h2", "h3", "h4"])] * 2
    assert [policy for _, _, policy in network.shown] == [policy for _, _, policy in network.policies.published]


def test_own_pulls_are_left_out_of_others_traffic() -> None:
    network = Network([0.01] * 4)
    network.policies.pulling(0, 1)
    network.now_ns += 2 * PERIOD_NS
    network.row("telemetry")
    assert network.own[network.topology.peer(Endpoint("h1", 0))] > 0
    network.policies.failed(0, 1)
    network.now_ns += 200 * PERIOD_NS
    network.row("telemetry")
    assert network.own == {}


def test_workers_never_swap_weights() -> None:
    network = Network([0.01] * 4)
    rows = [network.policies.row(rank, "uniform", "telemetry")[1] for rank in range(4)]
    weights = np.stack(rows)
    assert POLICIES["uniform"].compute(np.full((4, 4), 0.1)).pull_weights.max() > 0.6
    assert (weights + weights.T).max() <= 1 + 1e-9


def test_measurements_change_the_policy_after_a_longer_period() -> None:
    network = Network([0.01] * 4)
    before = network.row("measured")
    for peer in range(1, 4):
        network.policies.pulled(0, peer, 10_000_000_000)
    network.now_ns += PERIOD_NS
    assert network.row("measured").tolist() == before.tolist()
    network.now_ns += 9 * PERIOD_NS
    assert network.row("measured").tolist() != before.tolist()


def test_workers_gossip_uniformly_while_a_policy_has_no_answer() -> None:
    network = Network([0.2, 0.2, 0.2, 2.0])  # no mean time suits all
    probabilities, _ = network.policies.row(0, "netmax", "telemetry")
    assert probabilities == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    assert network.policies.published == []
    assert [(name, policy.version) for name, _, policy in network.shown] == [("uniform", 0)]


@pytest.mark.parametrize("name", ["slow-worker", "slow-host-link", "moving-link", "label-shards"])
def test_run_files_compare_gossip_with_sums(name: str) -> None:
    config = RunConfig.load(ROOT / "experiments" / "gossip" / f"{name}.yaml")
    assert config.synchronisation is not None
    assert {"bsp", "ad-psgd", "gossip"} <= {mode.name for mode in config.synchronisation.modes}
