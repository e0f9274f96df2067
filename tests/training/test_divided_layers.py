"""Layers' rates divided over ranks: the weights of every rank have the bits of a serial step."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.hosts.collectives.communicator import Communicator
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.support.errors import raises
from weir.training.divided_layers import DividedLayers, divided
from weir.training.errors import TrainingError
from weir.training.optimiser import Floats, Optimiser
from weir.training.optimisers import make_divided_optimiser, make_optimiser

RESNET_LIKE = [int(size) for size in np.random.default_rng(0).integers(1, 2000, 161)]


class Together:
    """One rank's gatherings among threads, each of which waits for all."""

    def __init__(self, communicator: Communicator, barrier: threading.Barrier, lock: threading.Lock) -> None:
        self.rank, self.size = communicator.rank, communicator.size
        self._communicator, self._barrier, self._lock = communicator, barrier, lock

    def all_gather(self, array: Any, *, name: str) -> Any:
        with self._lock:
            handle = self._communicator.all_gather_async(array, name=name)
        self._barrier.wait(60)
        return handle.wait()


def at_each(ranks: int, sizes: list[int], name: str, steps: int, gradients: np.ndarray) -> list[bytes]:
    """The weights of every rank after some steps."""
    job, barrier, lock = MemoryJob(ranks), threading.Barrier(ranks), threading.Lock()
    members = [Together(Communicator(driver), barrier, lock) for driver in job.drivers]

    def train(member: Together) -> bytes:
        return trained(make_divided_optimiser(name, sizes, 0.1, member), steps, gradients)

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(train, members))


def trained(optimiser: Optimiser, steps: int, gradients: np.ndarray) -> bytes:
    weights: Floats = np.random.default_rng(1).standard_normal(gradients.shape[1:]).astype(np.float32)
    for step in range(steps):
        weights = optimiser.step(weights, gradients[step])
    return weights.tobytes()


@pytest.mark.parametrize("name", ["lars", "lamb"])
@pytest.mark.parametrize(("ranks", "sizes"), [(4, RESNET_LIKE), (3, [5, 1]), (2, [7, 7, 1, 900])])
def test_divided_rates_give_the_bits_of_serial_steps(name: str, ranks: int, sizes: list[int]) -> None:
    gradients = np.random.default_rng(2).standard_normal((3, sum(sizes))).astype(np.float32)
    gradients[:, : sizes[0]] = 0  # a layer that has the ratio 1
    serial = trained(make_optimiser(name, sizes, 0.1), 3, gradients)
    assert at_each(ranks, sizes, name, 3, gradients) == [serial] * ranks


@settings(max_examples=50)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 9))
def test_every_layer_has_one_rank_and_ranks_have_similar_parts(sizes: list[int], ranks: int) -> None:
    shares = divided(sizes, ranks)
    assert sorted(layer for share in shares for layer in share) == list(range(len(sizes)))
    fullest = max(sum(sizes[layer] for layer in share) for share in shares)
    assert fullest <= sum(sizes) / ranks + max(sizes)


def test_a_rank_reads_a_quarter_of_161_layers_for_its_rates() -> None:
    loads = [sum(RESNET_LIKE[layer] for layer in share) for share in divided(RESNET_LIKE, 4)]
    assert max(loads) <= 1.01 * sum(RESNET_LIKE) / 4


def test_an_optimiser_without_rates_by_layer_is_refused() -> None:
    with raises(TrainingError, place="ranks", value="adam", allowed=("lamb", "lars")):
        make_divided_optimiser("adam", [3], 0.1, Communicator(MemoryJob(1).drivers[0]))


def test_layers_without_parameters_are_refused() -> None:
    with pytest.raises(TrainingError):
        DividedLayers([3, 0], Communicator(MemoryJob(1).drivers[0]))
