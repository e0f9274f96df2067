"""The sampler and the call a step of PyTorch scripts, by torchrun over Gloo and over an emulated fabric."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weir.tests.paths import ROOT

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)

SCRIPT = ROOT / "examples" / "balanced.py"
WEIR = Path(sys.executable).with_name("weir")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(*words: object, **options: Any) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*TORCHRUN, SCRIPT, "gloo"], id="gloo"),
        pytest.param([WEIR, "torchrun", "-n", 2, SCRIPT], id="weir", marks=pytest.mark.long),
    ],
)
def test_the_slow_rank_gets_fewer_samples(command: list[object]) -> None:
    """Sleeps make one rank five times as slow, on any machine.

    Ranks share a pipe, and torchrun has them write a line and its end apart, so that one line may begin in another.
    """
    line = r"rank (\d) of 2: \[(\d+), (\d+)\] of 48 samples in the last step, weights ([0-9a-f]{16})"
    said = re.findall(line, run(*command))
    assert sorted(rank for rank, *_ in said) == ["0", "1"]
    (first, second, _), *others = {(int(first), int(second), weights) for _, first, second, weights in said}
    assert others == [], "both ranks have the same sizes and weights"
    assert first + second == 48
    assert second < first


ALONE = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from weir.training.torch_steps import BalancedSampler
dist.init_process_group("gloo")
torch.manual_seed(1)
inputs, outputs = torch.randn(90, 5, dtype=torch.float64), torch.randn(90, 1, dtype=torch.float64)
model = DistributedDataParallel(nn.Linear(5, 1).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = BalancedSampler(90, 12, model)
shares = [[3, 9], [10, 2], [6, 6], [1, 11]]
for step, rows in zip(range(4), sampler):
    optimizer.zero_grad()
    (sampler.scale * ((model(inputs[rows]) - outputs[rows]) ** 2).mean()).backward()
    optimizer.step()
    assert len(rows) == sampler.sizes[dist.get_rank()]
    sampler.step()
    sampler._manager._sizes = shares[step]
if dist.get_rank() == 0:
    torch.save((inputs, outputs, model.module.state_dict()), sys.argv[1])
dist.destroy_process_group()
"""


def test_unequal_batches_train_as_one_process_does(tmp_path: Path) -> None:
    import torch

    from weir.training.samples import Samples

    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    run(*TORCHRUN, script, tmp_path / "state.pt", cwd=tmp_path)
    inputs, outputs, state = torch.load(tmp_path / "state.pt")
    torch.manual_seed(1)
    for columns in (5, 1):  # the script's data come before its weights
        torch.randn(90, columns, dtype=torch.float64)
    model = torch.nn.Linear(5, 1).double()
    samples = Samples(90, (0,))
    for step in range(4):
        rows = samples.rows(12 * step, 12)
        model.zero_grad()
        ((model(inputs[rows]) - outputs[rows]) ** 2).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    for name, parameter in model.state_dict().items():
        np.testing.assert_allclose(state[name].numpy(), parameter.numpy(), rtol=1e-9)


class TwoRanks:
    """Stand-in for torch.distributed: two ranks in this process, by turns, with computation in virtual time."""

    group = SimpleNamespace(WORLD=None)

    def __init__(self) -> None:
        self.rank = 0
        self.now_s = 100.0
        self._reports: list[list[Any]] = [[], []]

    def monotonic(self) -> float:
        return self.now_s

    def process_time(self) -> float:
        return 0.0

    def get_rank(self, _: Any) -> int:
        return self.rank

    def get_world_size(self, _: Any) -> int:
        return 2

    def all_gather(self, reports: list[Any], own: Any, **_: Any) -> Any:
        step = len(self._reports[self.rank])
        self._reports[self.rank].append(own)

        def wait() -> None:
            for report, said in zip(reports, self._reports, strict=True):
                report[:] = said[step]

        return SimpleNamespace(wait=wait)


@pytest.mark.parametrize("ahead", [0, 4])
def test_sizes_follow_speeds_for_any_prefetch_of_batches(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader with two processes of its own has drawn four batches before the first step."""
    import torch

    from weir.training import torch_steps

    world = TwoRanks()
    monkeypatch.setattr(torch_steps, "dist", world)
    monkeypatch.setattr(torch_steps, "time", world)
    models = [torch.nn.Linear(1, 1) for _ in range(2)]
    samplers, drawn = [], []
    for world.rank, model in enumerate(models):
        samplers.append(torch_steps.BalancedSampler(100_000, 96, model))
        drawn.append(iter(samplers[-1]))
    fetched: list[list[list[int]]] = [[], []]

    def fetch() -> None:
        for world.rank, batches in enumerate(drawn):
            fetched[world.rank].append(next(batches))

    for _ in range(ahead):
        fetch()
    sizes, speeds = [], [4000, 800]  # samples a second
    for step in range(120):
        if step == 60:
            speeds.reverse()
        fetch()
        begun_s, ended_s = world.now_s, 0.0
        for world.rank, model in enumerate(models):
            world.now_s = begun_s + 0.002 + len(fetched[world.rank].pop(0)) / speeds[world.rank]
            ended_s = max(ended_s, world.now_s)
            model(torch.ones(1)).backward()
        world.now_s = ended_s + 0.001
        sizes.append(samplers[0].sizes)
        for world.rank, sampler in enumerate(samplers):
            sampler.step()
    for found, best in ((sizes[59], [80, 16]), (sizes[119], [16, 80])):
        assert found == pytest.approx(best, abs=3)


@pytest.mark.parametrize(("apart", "expected"), [(True, [48, 48]), (False, [80, 16])])
def test_a_slow_loader_takes_no_samples_from_its_rank(
    apart: bool, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ranks compute 2,000 samples a second; the loader of one takes 2 ms for each sample."""
    import torch

    from weir.training import torch_steps

    world = TwoRanks()
    monkeypatch.setattr(torch_steps, "dist", world)
    monkeypatch.setattr(torch_steps, "time", world)
    models = [torch.nn.Linear(1, 1) for _ in range(2)]
    samplers = []
    for world.rank, model in enumerate(models):
        samplers.append(torch_steps.BalancedSampler(100_000, 96, model))

    def loaded(rank: int) -> Iterator[list[int]]:
        for rows in samplers[rank]:
            world.now_s += 0.002 * len(rows) * rank
            yield rows

    batches = [sampler.batches(loaded(rank)) if apart else loaded(rank) for rank, sampler in enumerate(samplers)]
    for _ in range(60):
        begun_s, ended_s = world.now_s, 0.0
        for world.rank, model in enumerate(models):
            world.now_s = begun_s
            rows = next(batches[world.rank])
            assert samplers[world.rank].loading_s == pytest.approx(0.002 * len(rows) * world.rank * apart)
            world.now_s += len(rows) / 2000
            ended_s = max(ended_s, world.now_s)
            model(torch.ones(1)).backward()
        world.now_s = ended_s + 0.001
        sizes = samplers[0].sizes
        for world.rank, sampler in enumerate(samplers):
            sampler.step()
    assert sizes == pytest.approx(expected, abs=3)
