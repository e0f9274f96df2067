"""Gossip policies against each other, by the exact rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weir.controller.gossip.convergence import (
    decay_per_second,
    influence,
    iterations_per_second,
    seconds_to_shrink,
)
from weir.controller.gossip.errors import GossipError
from weir.controller.gossip.policies import POLICIES
from weir.controller.gossip.policies.steady import BUSY, FLOOR
from weir.controller.gossip.policy import Floats, GossipPolicy
from weir.controller.gossip.program import MAX_WAITING, largest_bound

from .networks import COMPUTE_S, drawn, one_slow_worker

SLACK = 1 + 1e-6


def rates_of(seconds: Floats) -> dict[str, float]:
    return {name: decay_per_second(seconds, POLICIES[name].compute(seconds)) for name in ("exact", "netmax", "uniform")}


def assert_exact_is_best(numbers: range, workers: int) -> None:
    for number in numbers:
        rates = rates_of(drawn(number, workers))
        assert rates["exact"] * SLACK >= rates["netmax"], f"draw {number}"
        assert rates["exact"] * SLACK >= rates["uniform"], f"draw {number}"


def test_exact_converges_fastest_in_drawn_networks() -> None:
    assert_exact_is_best(range(4), 8)


@pytest.mark.long(minutes=2)
@pytest.mark.timeout(3600)
def test_exact_converges_fastest_in_a_hundred_networks() -> None:
    assert_exact_is_best(range(100), 8)
    assert_exact_is_best(range(100, 112), 16)


@pytest.mark.parametrize("name", ["exact", "netmax"])
def test_every_worker_iterates_equally_often(name: str) -> None:
    seconds = drawn(1, 5)
    rates = iterations_per_second(seconds, POLICIES[name].compute(seconds))
    assert rates == pytest.approx(np.full(5, rates[0]), rel=1e-4)


@pytest.mark.parametrize("name", ["exact", "netmax"])
def test_mean_of_weights_is_preserved_in_expectation(name: str) -> None:
    policy = POLICIES[name].compute(drawn(1, 5))
    mass = policy.probabilities * policy.pull_weights
    assert mass == pytest.approx(mass.T, abs=1e-5)


@pytest.mark.parametrize("name", list(POLICIES))
def test_all_workers_data_count_alike(name: str) -> None:
    seconds = drawn(1, 5)
    assert influence(seconds, POLICIES[name].compute(seconds)) == pytest.approx(np.full(5, 1 / 5), rel=1e-3)


def test_uniform_gossip_agrees_faster_than_the_program_beside_a_slow_worker() -> None:
    """The limit of the program's one-step bound, which docs/gossip.md states; `exact` then is uniform gossip."""
    seconds = one_slow_worker(8, np.random.default_rng(1))
    exact, uniform, netmax = (POLICIES[name].compute(seconds) for name in ("exact", "uniform", "netmax"))
    program = largest_bound(seconds)
    rates = [decay_per_second(seconds, policy) for policy in (exact, uniform, program, netmax)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == rates[1]
    assert rates[1] > 1.2 * rates[2]


def test_steady_gossip_computes_at_least_half_of_the_time() -> None:
    for number in range(9):
        seconds = drawn(number, 8)
        rates = iterations_per_second(seconds, POLICIES["steady"].compute(seconds))
        assert rates.min() * COMPUTE_S >= FLOOR - 1e-4, f"draw {number}"


def test_steady_gossip_leaves_half_of_a_slow_workers_link_free() -> None:
    seconds = np.full((8, 8), 0.1)
    seconds[7], seconds[:, 7] = 2.0, 2.0
    seconds[7, 7] = 0.1
    policy = POLICIES["steady"].compute(seconds)
    pulls = iterations_per_second(seconds, policy)[:, None] * policy.probabilities
    assert 0.1 < (pulls * seconds)[:7, 7].sum() <= BUSY / (1 - MAX_WAITING) + 1e-4
    assert influence(seconds, policy) == pytest.approx(np.full(8, 1 / 8), rel=1e-3)
    eager = POLICIES["uniform"].compute(seconds)
    pulls = iterations_per_second(seconds, eager)[:, None] * eager.probabilities
    assert (pulls * seconds)[:7, 7].sum() > 4


def test_slightly_different_machines_have_a_steady_policy() -> None:
    """Case in which a fast worker that cannot wait would have to pull over the slow link."""
    seconds = np.repeat(np.array([0.0039, 0.004, 0.004, 0.0038]), 4).reshape(4, 4)
    seconds[3, :3], seconds[:3, 3] = 2.2, 0.044
    policy = POLICIES["steady"].compute(seconds)
    assert iterations_per_second(seconds, policy).min() * 0.004 >= FLOOR - 1e-3
    assert 0 < policy.probabilities[0, 3] < 0.1


@pytest.mark.parametrize(
    "limits", [{"floor": 1.0}, {"floor": -0.1}, {"floor": np.nan}, {"busy": 0.0}, {"busy": np.nan}]
)
def test_impossible_limits_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(GossipError) as refused:
        largest_bound(np.ones((2, 2)), **limits)
    assert refused.value.place == next(iter(limits))


def test_damped_weights_never_swap_a_pair_and_keep_symmetry() -> None:
    policy = POLICIES["netmax"].compute(drawn(1, 6))
    damped = policy.damped()
    assert (damped.pull_weights + damped.pull_weights.T).max() <= 1 + 1e-12
    mass = damped.probabilities * damped.pull_weights
    assert mass == pytest.approx(mass.T, abs=1e-9)
    slow = GossipPolicy(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0, 0.4], [0.2, 0]]))
    assert slow.damped().pull_weights.tolist() == slow.pull_weights.tolist()


def test_netmax_has_one_mixing_mass_for_all_pairs() -> None:
    policy = POLICIES["netmax"].compute(drawn(1, 5))
    mass = (policy.probabilities * policy.pull_weights)[~np.eye(5, dtype=bool)]
    assert mass == pytest.approx(np.full(20, mass[0]), rel=1e-6)


def test_exact_is_a_local_optimum_among_symmetric_policies() -> None:
    seconds = drawn(4, 5)
    policy = POLICIES["exact"].compute(seconds)
    best, rng = bound_per_second(seconds, policy.probabilities, policy), np.random.default_rng(5)
    for _ in range(200):
        noise = 1 + 0.05 * rng.normal(size=(5, 5))
        probabilities = np.abs(policy.probabilities * noise)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        # `bound_per_second` averages the rates of workers, so unequal means are no advantage that the program lacks
        assert bound_per_second(seconds, probabilities, policy) <= best * (1 + 2e-3)


def bound_per_second(seconds: Floats, probabilities: Floats, policy: GossipPolicy) -> float:
    """Least eigenvalue of the expected Laplacian per second, with the slowest worker's rate for all."""
    n = len(seconds)
    rate = (1 / (probabilities * seconds).sum(axis=1)).min()
    mass = policy.probabilities * policy.pull_weights
    mass = (mass + mass.T) / 2
    inverse = np.divide(1, probabilities, out=np.zeros((n, n)), where=probabilities > 1e-6)
    weight = 2 * mass - (1 - 1 / n) * mass**2 * (inverse + inverse.T)
    np.fill_diagonal(weight, 0)
    laplacian = np.diag(weight.sum(axis=1)) - weight
    return float(rate * np.linalg.eigvalsh(laplacian)[1])


def test_program_lets_slow_workers_iterate_less_often() -> None:
    seconds = np.repeat([0.1, 0.1, 0.1, 0.5], 4).reshape(4, 4)  # computing takes longer than any pull
    policy = POLICIES["steady"].compute(seconds)
    rates = iterations_per_second(seconds, policy)
    assert rates == pytest.approx([10, 10, 10, 2])
    mass = rates[:, None] * policy.probabilities * policy.pull_weights
    assert mass == pytest.approx(mass.T, abs=1e-4)
    with pytest.raises(GossipError):
        POLICIES["netmax"].compute(seconds)


def test_exact_avoids_a_slow_pair() -> None:
    seconds = drawn(0, 8)
    slow = np.unravel_index(np.argmax(seconds), seconds.shape)
    assert POLICIES["exact"].compute(seconds).probabilities[slow] < 1e-3
    assert POLICIES["netmax"].compute(seconds).probabilities[slow] > 1e-3


@pytest.mark.parametrize("name", list(POLICIES))
def test_pairs_that_may_not_exchange_are_never_chosen(name: str) -> None:
    seconds = np.full((4, 4), 0.2)
    np.fill_diagonal(seconds, 0.1)
    seconds[0, 2] = np.inf
    policy = POLICIES[name].compute(seconds)
    assert policy.probabilities[0, 2] == policy.probabilities[2, 0] == 0
    assert np.isfinite(seconds_to_shrink(seconds, policy))


@pytest.mark.parametrize("name", list(POLICIES))
@pytest.mark.parametrize(
    "seconds",
    [
        np.ones((2, 3)),
        np.zeros((2, 2)),
        np.array([[1.0, np.inf], [np.inf, 1.0]]),
        np.array([[np.inf, 1.0], [1.0, 1.0]]),
        np.full((2, 2), np.nan),
        np.array([[1.0, np.nan], [1.0, 1.0]]),
        np.kron(np.eye(2), np.ones((2, 2))) + np.kron(1 - np.eye(2), np.full((2, 2), np.inf)),
    ],
)
def test_impossible_times_are_refused(name: str, seconds: Floats) -> None:
    with pytest.raises(GossipError):
        POLICIES[name].compute(seconds)


def test_a_file_of_the_users_is_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "ring.py"
    path.write_text(
        "import numpy as np\n"
        "from weir.controller.gossip.policy import PolicyDescription, GossipPolicy\n"
        "def compute(seconds):\n"
        "    following = np.roll(np.eye(len(seconds)), 1, axis=1)\n"
        "    return GossipPolicy(following, following / 2)\n"
        'DESCRIPTION = PolicyDescription("ring", "ring", "the next worker", compute)\n'
    )
    assert POLICIES.describe(str(path)).compute(np.ones((3, 3))).probabilities[0, 1] == 1
