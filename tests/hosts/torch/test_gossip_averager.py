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
from weir.hosts.errors import EndpointClosed, InvalidPlan, InvalidTensor, NotPublished, PeerLost, Withdrawn
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
        self.withdrawn = set[tuple[int, str]]()
        self.lost = set[int]()
        self.starts = [1] * ranks
        """Number of each rank's connection to the others, which grows when it begins again."""


class Call:
    def __init__(self, answer: Callable[[], Published], seconds: float, board: Board) -> None:
        self._answer, self._due_s, self._board = answer, board.now_s + seconds, board
        try:
            self._value: Published | Exception = answer()
        except (PeerLost, NotPublished) as error:  # Withdrawn too
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
        self.farewells: list[Callable[[], object]] = []

    def publish(self, name: str, value: Any) -> int:
        version = self.board.values.get((self.rank, name), (0, None))[0] + 1
        self.board.values[self.rank, name] = version, np.array(value)
        return version

    def withdraw(self, name: str) -> None:
        self.board.withdrawn.add((self.rank, name))

    def before_close(self, function: Callable[[], object]) -> None:
        self.farewells.append(function)

    def connection(self, peer: int) -> int:
        return 0 if peer in self.board.lost else self.board.starts[peer]

    def pull_async(self, peer: int, name: str) -> Call:
        def answer() -> Published:
            if peer in self.board.lost:
                raise PeerLost(f"peer {peer} is lost", peer, self.board.starts[peer])
            if (peer, name) in self.board.withdrawn:
                raise Withdrawn(f"{peer} has withdrawn {name}", peer, self.board.starts[peer])
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


def test_parameters_added_later_are_averaged_once_both_ranks_have_them(caplog: pytest.LogCaptureFixture) -> None:
    import torch

    scene = Scene(2)
    for _ in range(3):
        scene.turn()
    added = [torch.nn.Parameter(torch.full((2,), float(rank))) for rank in range(2)]
    averagers = scene.averagers

    def step(rank: int, *more: torch.nn.Parameter) -> int:
        before = averagers[rank].pulls
        averagers[rank].average_parameters([{"params": [scene.models[rank]]}, {"params": list(more)}])
        return averagers[rank].pulls - before

    assert [step(0, added[0]), step(1), step(0, added[0]), step(1)] == [0, 1, 0, 0]  # rank 1 has not added them yet
    assert [message for message in caplog.messages if "7 parameters" in message] == [
        "gossip: rank 0 has 7 parameters and this one 5; averaged again once both have as many"
    ]
    for rank in (1, 0, 1):
        step(rank, added[rank])
    before = np.ptp([each.detach().numpy() for each in added], axis=0).max()
    assert [step(0, added[0]), step(1, added[1])] == [1, 1]
    assert np.ptp([each.detach().numpy() for each in added], axis=0).max() < before


def test_weights_that_are_not_finite_are_not_averaged_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    import torch

    scene = Scene(4)
    for value in (np.nan, np.inf):
        with torch.no_grad():
            scene.models[1][2] = value
        for _ in range(10):
            scene.turn()
        for rank in (0, 2, 3):
            assert torch.isfinite(scene.models[rank]).all()
    averagers = [scene.averagers[rank] for rank in (0, 2, 3)]
    assert all(each.nonfinite > 0 and each.pulls > 0 for each in averagers)
    assert all(each.pulls + each.missed + each.nonfinite == 19 for each in averagers)
    assert [message for message in caplog.messages if "finite" in message] == [
        "gossip: rank 1 has weights that are not finite; they are not averaged"
    ] * 3


def test_a_rank_that_ends_is_drawn_no_more_and_another_one_leads(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(4, policy_period=3)
    for _ in range(10):
        scene.turn()
        scene.settle()
    versions = scene.averagers[1].version
    ended = scene.averagers.pop(0)
    ended.end()
    ended.end()
    with pytest.raises(EndpointClosed):
        ended.average_parameters([scene.models[0]])
    missed = [averager.missed for averager in scene.averagers]
    for _ in range(30):
        for averager, model in zip(scene.averagers, scene.models[1:], strict=True):
            scene.board.now_s += 0.001
            averager.average_parameters([model])
            averager._thread.submit(int).result()
    assert [averager.lost for averager in scene.averagers] == [{0}] * 3
    assert all(averager.missed - before <= 1 for averager, before in zip(scene.averagers, missed, strict=True))
    assert all(averager.version > versions + 2 for averager in scene.averagers)
    assert sum("rank 0, which has ended" in message for message in caplog.messages) == 3


def test_all_averagers_end_with_their_transport_and_the_last_rank_goes_on_alone() -> None:
    scene = Scene(3, policy_period=2)
    for _ in range(5):
        scene.turn()
        scene.settle()
    for averager in scene.averagers[:2]:  # two at once, with pulls of each other in flight
        for farewell in averager._transport.farewells:  # type: ignore[attr-defined]
            farewell()
    last = scene.averagers[2]
    for _ in range(10):
        last.average_parameters([scene.models[2]])
    pulls, missed = last.pulls, last.missed
    for _ in range(10):
        last.average_parameters([scene.models[2]])
    assert last.lost == {0, 1}
    assert (last.pulls, last.missed) == (pulls, missed)


def test_a_rank_that_comes_back_is_drawn_again_and_leads_with_a_newer_version() -> None:
    from weir.hosts.torch.gossip import GossipAverager

    scene = Scene(3, policy_period=2)
    board = scene.board
    for number in range(60):
        if number == 20:
            board.lost.add(0)
        if number == 40:
            assert all(averager.lost == {0} for averager in scene.averagers[1:])
            version = scene.averagers[1].version
            board.lost.clear()
            board.starts[0] += 1
            board.values = {key: value for key, value in board.values.items() if key[0] != 0}
            transport: Any = BoardTransport(board, 0)
            scene.averagers[0] = GossipAverager(transport, uniform, clock=lambda: board.now_s, policy_period=2)
        scene.turn()
        scene.settle()
    assert all(averager.lost == set() for averager in scene.averagers)
    assert min(averager.version for averager in scene.averagers) > version
    assert (scene.averagers[1]._probabilities[:, 0] > 0).any()
    assert np.ptp(scene.values(), axis=0).max() < 1e-3


def test_a_checkpoint_drops_the_pull_of_the_weights_before_it() -> None:
    import torch

    scene = Scene(2)
    for _ in range(3):
        scene.turn()
    with torch.no_grad():
        scene.models[0].copy_(torch.full((5,), 100.0))
    scene.averagers[0].step = 40  # as PostLocalSGDOptimizer.load_state_dict does
    scene.averagers[0].average_parameters([scene.models[0]])
    assert scene.models[0].tolist() == [100.0] * 5
    assert scene.averagers[0].step == 41


def test_a_period_longer_than_the_training_is_told(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(2, period=50)
    for _ in range(3):
        scene.turn()
    for averager in scene.averagers:
        averager.end()
    assert caplog.messages == ["gossip: 3 steps and no exchange, because the period is 50"] * 2


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
    ("name", "value"),
    [
        ("period", 0),
        ("period", 1.5),
        ("period", "2"),
        ("period", 1_000_001),
        ("policy_period", -1),
        ("policy_period", 10**30),
        ("seed", -1),
        ("seed", "x"),
    ],
)
def test_options_out_of_range_are_refused(name: str, value: Any) -> None:
    with raises(InvalidPlan, place="gossip", value=value):
        Scene(2, **{name: value})


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


def test_schedulers_and_new_parameters_act_after_a_checkpoint_is_loaded() -> None:
    import torch

    from weir.hosts.torch.gossip import GossipOptimizer

    scene = Scene(2)
    model = torch.nn.Linear(3, 2)
    optimizer = GossipOptimizer(torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9), scene.averagers[0])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    hooked: list[object] = []
    optimizer.register_step_post_hook(lambda *_: hooked.append(1))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(3)).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() != 0
    optimizer.load_state_dict(optimizer.state_dict())
    assert scene.averagers[0].step == 1
    schedule.step()
    added = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [added]})
    wrapped = optimizer.optim
    assert [group["lr"] for group in wrapped.param_groups] == [0.5, 1.0]
    before = model.bias.detach().clone()
    closure()
    optimizer.step()
    assert torch.allclose(model.bias.detach(), before - 0.5 * 1.9)  # momentum of two gradients of 1
    assert scene.board.values[0, scene.averagers[0]._weights_name][1].size == 3 * 2 + 2 + 2
    assert len(hooked) == 2
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)


def test_only_optimisers_are_wrapped_and_only_once() -> None:
    import torch

    from weir import torch_entry
    from weir.hosts.torch.gossip import GossipOptimizer

    model = torch.nn.Linear(3, 2)
    once = GossipOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), Scene(2).averagers[0])
    for wrong in (None, model, "sgd", once):
        with raises(InvalidPlan, place="gossip", value=wrong):
            torch_entry.gossip(wrong)


_ENDS = """
import sys

import torch

import weir
from weir import torch_entry

torch.set_num_threads(1)
communicator = weir.join(linger_s=3600)
models = [torch.nn.Linear(4, 2) for _ in range(2)]
communicator.broadcast(models[0].weight.detach())
optimizers = [
    torch_entry.gossip(torch.optim.SGD(model.parameters(), 0.1), "uniform", communicator=communicator, policy_period=2)
    for model in models
]
averagers = [optimizer.averager for optimizer in optimizers]
versions = None
while versions is None or any(
    each.version <= version and len(each.lost) < 2 for each, version in zip(averagers, versions)
):
    for model, optimizer in zip(models, optimizers):
        optimizer.zero_grad()
        model(torch.ones(4)).sum().backward()
        optimizer.step()
    if communicator.rank == 0 and all(each.version for each in averagers):
        sys.exit()
    if versions is None and all(each.lost == {0} for each in averagers):
        versions = [each.version + 1 for each in averagers]
print("went on")
communicator.close()
"""


def test_a_rank_whose_script_ends_early_neither_waits_nor_is_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(_ENDS)
    weir = Path(sys.executable).with_name("weir")
    done = subprocess.run(
        [str(weir), "launch", "-n", "3", str(script)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.count("went on") == 2, done.stdout + done.stderr
    assert done.stderr.count("gossip goes on without rank 0, which has ended") == 4
