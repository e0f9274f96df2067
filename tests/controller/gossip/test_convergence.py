"""The exact rate of gossip against its definition, written out event by event."""

from __future__ import annotations

import numpy as np
import pytest

from weir.controller.gossip.convergence import decay_per_second, iterations_per_second, spectral_radius
from weir.controller.gossip.errors import GossipError
from weir.controller.gossip.policy import Floats, GossipPolicy


def drawn_policy(workers: int, seed: int) -> tuple[Floats, GossipPolicy]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(workers), workers)
    weights = rng.random((workers, workers))
    np.fill_diagonal(weights, 0)
    return rng.uniform(0.1, 2.0, (workers, workers)), GossipPolicy(probabilities, weights)


def radius_by_definition(seconds: Floats, policy: GossipPolicy) -> float:
    n = policy.workers
    centre, rates = np.eye(n) - 1 / n, 1 / (policy.probabilities * seconds).sum(axis=1)
    moment = np.zeros((n * n, n * n))
    for i in range(n):
        for m in range(n):
            step = np.eye(n)
            step[i, i] -= policy.pull_weights[i, m]
            step[i, m] += policy.pull_weights[i, m]
            projected = centre @ step @ centre
            moment += rates[i] / rates.sum() * policy.probabilities[i, m] * np.kron(projected, projected)
    return float(np.abs(np.linalg.eigvals(moment)).max())


@pytest.mark.parametrize("workers", [2, 5, 11])
def test_radius_is_that_of_the_operator_written_out(workers: int) -> None:
    seconds, policy = drawn_policy(workers, workers)
    assert spectral_radius(seconds, policy) == pytest.approx(radius_by_definition(seconds, policy), rel=1e-8)


def test_disagreement_of_played_gossip_falls_at_the_rate() -> None:
    seconds, policy = drawn_policy(4, 3)
    rates = iterations_per_second(seconds, policy)
    rng = np.random.default_rng(9)
    values, events = rng.normal(size=(4, 4000)), 60
    last = []
    for _ in range(events):
        i = rng.choice(4, p=rates / rates.sum(), size=4000)
        m = (policy.probabilities[i].cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1)
        runs = np.arange(4000)
        values[i, runs] -= policy.pull_weights[i, m] * (values[i, runs] - values[m, runs])
        last.append(np.square(values - values.mean(axis=0)).sum(axis=0).mean())
    played = (last[-1] / last[19]) ** (1 / (events - 20))
    assert played == pytest.approx(spectral_radius(seconds, policy), rel=0.02)


def test_workers_that_never_pull_do_not_converge() -> None:
    policy = GossipPolicy(np.eye(3), np.zeros((3, 3)))
    assert decay_per_second(np.ones((3, 3)), policy) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("probabilities", "weights"),
    [
        (np.full((2, 2), 0.4), np.zeros((2, 2))),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), np.zeros((2, 2))),
        (np.full((2, 2), 0.5), np.full((2, 2), 2.0)),
        (np.full((2, 2), 0.5), np.zeros((3, 3))),
    ],
)
def test_impossible_policies_are_refused(probabilities: Floats, weights: Floats) -> None:
    with pytest.raises(GossipError):
        GossipPolicy(probabilities, weights)
