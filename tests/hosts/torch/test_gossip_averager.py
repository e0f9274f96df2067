"""Gossip averaging of PyTorch models over a board in place of the network: moves, policies, lost ranks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.controller.gossip.policies import POLICIES
from weir.hosts.errors import InvalidPlan, InvalidTensor, NotPublished, PeerLost
from weir.hosts.transport.core import Published
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)


class Board:
    """Published values of all ranks; a pull takes `seconds[puller, source]` of the clock."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.now_s = 0.0
        self.seconds = np.full((ranks, ranks), 0.01)
        self.values: dict[tuple[int, str], tuple[int, Any]] = {}
        self.lost = set[int]()


class Call:
    def __init__(self, answer: Callable[[], Published], seconds: float, board: Board) -> None:
        self._answer, self._due_s, self._board = answer, board.now_s + seconds, board
        try:
            self._value: Published | Exception = answer()
        except (PeerLost, NotPublished) as error:
            self._value = error

    def done(self) -> bool:
        return self._board.now_s >= self._due_s

    def wait_or_cancel(self) -> Published:
        self._board.now_s = max(self._board.now_s, self._due_s)
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class BoardTransport:
    """One rank's end, in place of the transport."""

    def __init__(self, board: Board, rank: int) -> None:
        self.board, self.rank, self.size = board, rank, board.ranks

    def publish(self, name: str, value: Any) -> int:
        version = self.board.values.get((self.rank, name), (0, None))[0] + 1
        self.board.values[self.rank, name] = version, np.array(value)
        return version

    def pull_async(self, peer: int, name: str) -> Call:
        def answer() -> Published:
            if peer in self.board.lost:
                raise PeerLost(f"peer {peer} is lost", peer)
            if (peer, name) not in self.board.values:
                raise NotPublished(f"{peer} has no {name}")
            version, value = self.board.values[peer, name]
            return Published(version, value.copy())

        return Call(answer, self.board.seconds[self.rank, peer], self.board)


class Scene:
    """Ranks with a model of one vector each, which they average in turn."""

    def __init__(self, ranks: int, compute: Any = None, size: int = 5, **options: Any) -> None:
        import torch

        from weir.hosts.torch.gossip import GossipAverager

        self.board = Board(ranks)
        draws = np.random.default_rng(ranks)
        self.models = [torch.nn.Parameter(torch.from_numpy(draws.standard_normal(size)).float()) for _ in range(ranks)]
        transports: list[Any] = [BoardTransport(self.board, rank) for rank in range(ranks)]
        self.averagers = [
            GossipAverager(transport, compute or uniform, clock=lambda: self.board.now_s, **options)
            for transport in transports
        ]

    def turn(self, computing_s: float = 0.001) -> None:
        """One step of every living rank."""
        for rank, averager in enumerate(self.averagers):
            if rank not in self.board.lost:
                self.board.now_s += computing_s
                averager.average_parameters([{"params": [self.models[rank]]}])

    def values(self) -> NDArray[np.float64]:
        living = [model for rank, model in enumerate(self.models) if rank not in self.board.lost]
        return np.stack([model.detach().double().numpy() for model in living])

    def settle(self) -> None:
        """Wait for policies that threads compute."""
        for averager in self.averagers:
            averager._thread.submit(int).result()


def uniform(seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    policy = POLICIES["uniform"].compute(seconds)
    return policy.probabilities, policy.pull_weights


def test_rank_moves_half_way_from_weights_before_the_step() -> None:
    import torch

    scene = Scene(2)
    first, second = scene.values()
    scene.turn()  # rank 0 asks before rank 1 has published
    with torch.no_grad():
        scene.models[1] += 1  # a step of its own
    scene.turn()
    assert scene.averagers[0].missed == 1
    assert np.allclose(scene.values(), [first, second + 1 - 0.5 * (second - first)], atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_weights_come_together_also_beside_a_lost_rank(seed: int) -> None:
    scene = Scene(6, seed=seed, policy_period=4)
    before = np.ptp(scene.values(), axis=0).max()
    for number in range(60):
        if number == 20:
            scene.board.lost.add(int(np.random.default_rng(seed).integers(6)))
        scene.turn()
        scene.settle()
    assert np.ptp(scene.values(), axis=0).max() < 1e-4 * before
    for rank, averager in enumerate(scene.averagers):
        if rank not in scene.board.lost:
            assert averager.lost <= scene.board.lost
            assert averager.pulls + averager.missed == 59


def test_policies_follow_measured_times_and_a_new_leader() -> None:
    asked: list[NDArray[np.float64]] = []

    def compute(seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        asked.append(seconds.copy())
        return uniform(seconds)

    scene = Scene(4, compute, policy_period=5)
    scene.board.seconds[2, 1] = 3.0
    for _ in range(40):
        scene.turn()
        scene.settle()
    versions = {averager.version for averager in scene.averagers}
    assert max(versions) >= 3
    assert max(versions) - min(versions) <= 1
    last = asked[-1]
    assert last[2, 1] == last.max() >= 3
    assert (np.diagonal(last) < last[2, 1]).all()
    scene.board.lost.add(0)
    asked.clear()
    for _ in range(60):
        scene.turn()
        scene.settle()
    assert {seconds.shape for seconds in asked[-2:]} == {(3, 3)}
    assert len({averager.version for averager in scene.averagers[1:]}) <= 2
    assert (scene.averagers[1]._probabilities[:, 0] == 0).all()


def test_a_slow_rank_without_times_is_part_of_the_policy() -> None:
    scene = Scene(3, policy_period=4)
    for number in range(12):
        for rank in (0, 1, 2) if number % 6 == 0 else (0, 1):  # rank 2 makes two steps, and publishes no times
            scene.board.now_s += 0.001
            scene.averagers[rank].average_parameters([scene.models[rank]])
        scene.settle()
    assert (2, scene.averagers[2]._times_name) not in scene.board.values
    leader = scene.averagers[0]
    assert leader.version > 0
    assert (leader._probabilities + np.eye(3) > 0).all()


def test_pull_weights_keep_two_ranks_from_swapping() -> None:
    scene = Scene(2, policy_period=2)
    for _ in range(8):
        scene.turn()
        scene.settle()
    assert scene.averagers[0].version > 0
    weights = scene.averagers[0]._pull_weights
    assert (weights + weights.T).max() == pytest.approx(1)


def test_a_policy_that_fails_leaves_the_last_one_in_force() -> None:
    def broken(seconds: NDArray[np.float64]) -> Any:
        raise ValueError("no policy today")

    scene = Scene(3, broken, policy_period=2)
    for _ in range(12):
        scene.turn()
        scene.settle()
    assert {averager.version for averager in scene.averagers} == {0}
    assert np.ptp(scene.values()) > 0


def test_models_of_other_sizes_are_refused() -> None:
    import torch

    scene = Scene(2)
    scene.models[1] = torch.nn.Parameter(torch.zeros(7))
    scene.turn()
    with raises(InvalidTensor, value=5):
        scene.turn()


def test_a_model_that_changes_its_size_is_refused() -> None:
    import torch

    scene = Scene(2)
    scene.turn()
    scene.models[1] = torch.nn.Parameter(torch.zeros(7))
    with raises(InvalidTensor, value=7):
        scene.averagers[1].average_parameters([scene.models[1]])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([[1 / 3, 1e-50, 1e300], [2 / 3, 3e-50, -1e300]], "float64"),
        ([[1 + 2j, 3 - 4j], [5 - 6j, 7 + 8j]], "complex64"),
        ([[1 / 3 + 1e-50j], [1e300 + 1j]], "complex128"),
        ([[0.5, 3.0], [1.5, -1.0]], "bfloat16"),
    ],
)
def test_parameters_of_each_kind_move_half_way(values: list[list[complex]], dtype: str) -> None:
    import torch

    scene = Scene(2)
    scene.models = [torch.nn.Parameter(torch.tensor(each, dtype=getattr(torch, dtype))) for each in values]
    first, second = (model.detach().clone() for model in scene.models)
    scene.averagers[1].average_parameters([scene.models[1]])
    for _ in range(2):
        scene.averagers[0].average_parameters([scene.models[0]])
    assert torch.equal(scene.models[0], first - 0.5 * (first - second))
    assert torch.equal(scene.models[1], second)


def test_integer_parameters_stay_as_they_are() -> None:
    import torch

    scene = Scene(2)
    counts = [torch.nn.Parameter(torch.tensor([2**31 + 1 + rank]), requires_grad=False) for rank in range(2)]
    for _ in range(4):
        for averager, count, model in zip(scene.averagers, counts, scene.models, strict=True):
            averager.average_parameters([count, model])
    assert [count.item() for count in counts] == [2**31 + 1, 2**31 + 2]
    assert scene.averagers[0].pulls > 0


def test_two_averagers_of_one_transport_never_mix_their_models() -> None:
    import torch

    from weir.hosts.torch.gossip import GossipAverager

    board = Board(2)
    transports: list[Any] = [BoardTransport(board, rank) for rank in range(2)]
    averagers = [[GossipAverager(transport, uniform) for _ in range(2)] for transport in transports]
    models = [[torch.nn.Parameter(torch.full((3,), 100.0 * number)) for number in range(2)] for _ in range(2)]
    for _ in range(6):
        for rank in range(2):
            for averager, model in zip(averagers[rank], models[rank], strict=True):
                averager.average_parameters([model])
    assert all(averager.pulls > 0 for each in averagers for averager in each)
    assert [[model.tolist() for model in each] for each in models] == [[[0.0] * 3, [100.0] * 3]] * 2


def test_a_policy_of_another_size_leaves_the_last_one_in_force() -> None:
    scene = Scene(4, lambda seconds: (np.full((2, 2), 0.5), np.full((2, 2), 0.5)), policy_period=2)
    for _ in range(12):
        scene.turn()
        scene.settle()
    assert {averager.version for averager in scene.averagers} == {0}


@pytest.mark.parametrize(
    ("place", "value"),
    [("period", 0), ("period", 1.5), ("period", "2"), ("policy_period", -1), ("seed", -1), ("seed", "x")],
)
def test_options_out_of_range_are_refused(place: str, value: Any) -> None:
    with raises(InvalidPlan, place=place, value=value):
        Scene(2, **{place: value})


def test_jobs_of_one_worker_are_refused() -> None:
    with raises(InvalidPlan, place="workers", value=1):
        Scene(1)


def test_the_example_learns_without_an_all_reduce_of_gradients() -> None:
    weir = Path(sys.executable).with_name("weir")
    done = subprocess.run(
        [str(weir), "launch", "-n", "2", "examples/gossip_training.py", "uniform"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = re.findall(r"(\d+)% of held-out digits right, .* (\d+) pulls", done.stdout)
    assert len(found) == 2, done.stdout + done.stderr
    for right, pulls in found:
        assert int(right) > 60
        assert int(pulls) > 50
