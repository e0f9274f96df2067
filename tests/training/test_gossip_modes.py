"""Modes without a server: convergence, preserved means, lost workers, and no deadlock in drawn schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.training import LossCurve, Machine, Processes, Training, TrainingError, TrainingPlan, Workload, make_mode
from weir.training.exchanges.ideal_peers import DelayCarrier, IdealNetwork
from weir.training.exchanges.peers import partners
from weir.training.ideal import IdealClock, IdealJob, run
from weir.training.mode import PeerEnds, PeerMode
from weir.training.samples import Shard, label_shards
from weir.training.workload import Floats
from weir.training.workloads.synthetic import LeastSquares

from .ideal_run import train

PEER_MODES = ["gossip", "d-psgd", "ad-psgd", "prague", "pairs", "rack-gossip"]
RACK = 2


@dataclass
class UniformPolicies:
    """All others alike, with weight ½."""

    workers: int
    every: int = 1
    """Only ranks that are multiples of this exchange."""
    pulls: list[tuple[int, int, int]] = field(default_factory=list)

    def row(self, rank: int, policy: str, source: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        probabilities = np.zeros(self.workers)
        probabilities[:: self.every] = 1
        probabilities[rank] = 0
        return probabilities / probabilities.sum(), np.full(self.workers, 0.5)

    def pulling(self, rank: int, peer: int) -> None: ...

    def failed(self, rank: int, peer: int) -> None: ...

    def pulled(self, rank: int, peer: int, duration_ns: int) -> None:
        self.pulls.append((rank, peer, duration_ns))


class Still(LeastSquares):
    """No gradient, so that only exchanges change weights."""

    def gradient(self, weights: Floats, batch: Any) -> Floats:
        return np.zeros_like(weights)


@dataclass
class Played:
    curve: LossCurve
    training: Training
    network: IdealNetwork
    clock: IdealClock
    policies: UniformPolicies


def play(
    name: str,
    workers: int = 6,
    *,
    speeds: list[float] | None = None,
    delay_ns: Callable[[int, int, int], int] = lambda *_: 1_000_000,
    lost: Mapping[int, int] | None = None,
    done: Callable[[LossCurve], bool] = lambda curve: curve.updates >= 120,
    workload: Workload | None = None,
    start: NDArray[np.float32] | None = None,
    seed: int = 1,
) -> Played:
    """Train on least squares; `lost` has the instants in ns at which workers are cut off."""
    clock, mode = IdealClock(), make_mode(name)
    assert isinstance(mode, PeerMode)
    workload = workload or LeastSquares(8, 256, seed=1)
    machines = [Machine(speed) for speed in speeds or [1000.0] * workers]
    plan = TrainingPlan(mode, workers, 8 * workers, 0.1, seed=seed)
    curve = LossCurve(workload.loss, every=mode.updates_per_step(workers))
    training = Training(plan, workload, curve, machines)
    if start is not None:
        training.weights[:] = list(start)
    network = IdealNetwork(clock, DelayCarrier(clock, delay_ns), workers, patience_ns=50_000_000)
    policies = UniformPolicies(workers, RACK if mode.racks else 1)
    racks = [IdealJob(clock, RACK) for _ in range(0, workers, RACK)] if mode.racks else []
    sums = [communicator for rack in racks for communicator in rack.communicators]
    ends = [PeerEnds(network.ends[r], policies, sums[r] if mode.racks else None) for r in range(workers)]
    running = Processes(training.gossiping(ends), training.cost_ns)
    cuts = sorted((at, rank) for rank, at in (lost or {}).items())

    def over() -> bool:
        while cuts and cuts[0][0] <= clock.now_ns:
            network.mark_lost(cuts.pop(0)[1])
        return done(curve)

    run(running, clock, [*racks, network], over)
    return Played(curve, training, network, clock, policies)


@pytest.mark.parametrize("name", PEER_MODES)
def test_loss_falls_with_workers_of_different_speeds(name: str) -> None:
    played = play(name, speeds=[1000.0, 900, 800, 500, 400, 300], done=lambda curve: curve.updates >= 400)
    assert played.curve.losses[-1].loss < 0.5 * played.curve.losses[0].loss


@pytest.mark.parametrize("name", ["d-psgd", "ad-psgd", "prague", "pairs"])
def test_exchanges_preserve_the_mean_of_all_weights(name: str) -> None:
    still = Still(8, 256, seed=1)
    start = np.random.default_rng(3).normal(size=(6, still.parameters)).astype(np.float32)
    played = play(name, workload=still, start=start, done=lambda curve: curve.updates >= 60)
    assert np.mean(played.training.weights, axis=0) == pytest.approx(start.mean(axis=0), abs=1e-5)
    assert np.var(played.training.weights, axis=0).sum() < 0.2 * np.var(start, axis=0).sum()


def test_a_pull_moves_by_its_weight_and_leaves_the_other_alone() -> None:
    still = Still(8, 256, seed=1)
    start = np.stack([np.zeros(still.parameters), np.ones(still.parameters)]).astype(np.float32)
    played = play("gossip", 2, workload=still, start=start, done=lambda curve: curve.updates >= 2)
    assert played.training.weights[0] == pytest.approx(np.full(still.parameters, 0.5))
    assert played.training.weights[1] == pytest.approx(np.full(still.parameters, 0.5))


def test_workers_of_a_rack_have_the_same_bits() -> None:
    played = play("rack-gossip", done=lambda curve: curve.updates >= 60)
    for first in range(0, 6, RACK):
        assert (played.training.weights[first] == played.training.weights[first + 1]).all()


@pytest.mark.parametrize("name", ["gossip", "ad-psgd", "d-psgd", "prague", "pairs"])
def test_a_lost_worker_costs_each_other_one_timeout(name: str) -> None:
    played = play(name, lost={3: 30_000_000}, done=lambda curve: curve.updates >= 400)
    blamed = [pair for pair in played.network.timeouts if pair[1] == 3 and pair[0] != 3]
    seen_by = {rank for rank, _ in blamed}
    answering = 1 if name == "ad-psgd" else 0  # odd workers of AD-PSGD listen to each even one besides
    assert len(blamed) <= len(seen_by) * (1 + answering)
    living = [iteration.clock for iteration in played.curve.iterations if iteration.worker == 0]
    assert max(living) > 30


def test_a_pull_longer_than_computing_is_measured() -> None:
    played = play("gossip", delay_ns=lambda *_: 20_000_000, done=lambda curve: curve.updates >= 30)
    assert {duration for *_, duration in played.policies.pulls} == {20_000_000}


def play_drawn_schedule(number: int) -> None:
    """Any speeds, any delays, and up to half of the workers cut off; all that are left make ten iterations."""
    rng = np.random.default_rng((10, number))
    name = ["gossip", "ad-psgd", "d-psgd", "prague", "pairs"][number % 5]
    workers = int(rng.integers(2, 7))
    delays = rng.integers(0, 30_000_000, (workers, workers))
    gone = rng.choice(workers, rng.integers(0, workers // 2 + 1), replace=False)
    lost = {int(rank): int(rng.integers(0, 60_000_000)) for rank in gone}
    living = set(range(workers)) - set(lost)

    def done(curve: LossCurve) -> bool:
        ended = [iteration.worker for iteration in curve.iterations if iteration.ended_ns >= 0]
        return all(ended.count(rank) >= 10 for rank in living)

    play(
        name,
        workers,
        speeds=rng.uniform(300, 3000, workers).tolist(),
        delay_ns=lambda source, destination, _: int(delays[source, destination]),
        lost=lost,
        done=done,
        workload=LeastSquares(2, 16, seed=1),
        seed=number,
    )


def test_no_drawn_schedule_with_lost_workers_deadlocks() -> None:
    for number in range(60):
        play_drawn_schedule(number)


@pytest.mark.long(minutes=12)
@pytest.mark.timeout(2 * 3600)
def test_no_schedule_of_ten_thousand_deadlocks() -> None:
    for number in range(60, 10_060):
        play_drawn_schedule(number)


def test_partners_of_an_exchange_are_a_partition() -> None:
    groups = partners(1, 5, 10, 4)
    assert sorted(rank for group in groups for rank in group) == list(range(10))
    assert [len(group) for group in groups] == [4, 4, 2]
    assert groups == partners(1, 5, 10, 4)
    assert groups != partners(1, 6, 10, 4)


def test_diloco_without_momentum_is_local_sgd() -> None:
    machines = [Machine(1000.0)] * 4
    modes = [make_mode("diloco", period=3, momentum=0.0, step=1.0), make_mode("local", period=3)]
    ends = [train(mode, machines, lambda curve: curve.updates >= 8)[0].losses[-1].loss for mode in modes]
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)


def test_label_shards_hold_every_row_once() -> None:
    labels = np.random.default_rng(2).integers(0, 10, 100)
    shards = label_shards(labels, 5, 0.0, seed=1)
    assert sorted(np.concatenate(shards).tolist()) == list(range(100))
    assert all(len(set(labels[shard])) <= 4 for shard in shards)
    alike = label_shards(labels, 5, 1.0, seed=1)
    assert all(len(set(labels[shard])) > 4 for shard in alike)
    assert set(Shard(shards[0], (1,)).rows(0, 50).tolist()) == set(shards[0].tolist())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gossip", {"source": "rumours"}),
        ("prague", {"group": 1}),
        ("pairs", {"period": 0}),
        ("pairs", {"pull": 2.0}),
        ("diloco", {"period": 0}),
        ("diloco", {"momentum": 1.0}),
        ("diloco", {"step": float("inf")}),
        ("pairs", {"step": float("inf")}),
        ("lb-bsp", {"sizes": "rumours"}),
        ("lb-bsp", {"size_step": 0}),
        ("lb-bsp", {"size_step": 2**32}),
    ],
)
def test_impossible_options_are_refused(name: str, options: Mapping[str, Any]) -> None:
    with pytest.raises(TrainingError):
        make_mode(name, **options)


def test_impossible_jobs_are_refused() -> None:
    with pytest.raises(TrainingError):
        make_mode("ad-psgd").check(1)
    with pytest.raises(TrainingError):
        make_mode("gossip").check(1)
    with pytest.raises(TrainingError):
        TrainingPlan(make_mode("bsp"), 2, 8, 0.1, shards=[np.arange(3)])
    with pytest.raises(TrainingError):
        label_shards(np.zeros(3), 4, 0.0, seed=1)
