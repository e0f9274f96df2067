"""Jobs in turns: each function is one rank's part. Computation and communication are pauses of a fixed length."""

import os
import signal
import time
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from weir import torch_entry
from weir.hosts.torch import turns
from weir.tests.hosts.torch.scenarios import begin, digest, end

__all__ = ["crossing", "end"]


class Paused(nn.Module):
    """A model whose forward pass takes a fixed time."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s = pause_s
        self.dies = False
        self.layers = nn.Sequential(nn.Linear(40, 57), nn.ReLU(), nn.Linear(57, 5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.pause_s)
        found: torch.Tensor = self.layers(inputs)
        return found


def crossing(rank: int, ranks: int, store: Any) -> Any:
    """Train; return the ends of steps in s, losses, a digest of the weights, and whether a turn was held in a sum."""
    way, seed = os.environ["WAY"], int(os.environ["SEED"])
    compute_s, exposed_s = float(os.environ["COMPUTE_S"]), float(os.environ["EXPOSED_S"])
    steps, dies_at = int(os.environ["STEPS"]), int(os.environ.get("DIES_AT", "-1"))
    begin(rank, ranks, store)
    torch.manual_seed(seed)
    model = DistributedDataParallel(Paused(compute_s))
    held_in_sums: list[bool] = []

    def slow_sum(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        work = dist.all_reduce(bucket.buffer().div_(ranks), async_op=True)

        def wait(future: Any) -> Any:
            time.sleep(exposed_s)
            held_in_sums.append(turns._turn.held)
            return future.value()[0]

        return work.get_future().then(wait)

    model.register_comm_hook(None, slow_sum)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(100 * seed + rank)
    hooks = torch_entry.take_turns(model) if way == "hooks" else None
    ends, losses = [], []
    for step in range(steps):
        model.module.dies = (step, seed, rank) == (dies_at, 0, 0)  # in its turn
        optimizer.zero_grad()
        inputs = torch.randn(16, 40, generator=generator)
        wanted = torch.randint(0, 5, (16,), generator=generator)
        with torch_entry.turn() if way == "block" else nullcontext():
            loss = nn.functional.cross_entropy(model(inputs), wanted)
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
        ends.append(time.monotonic())
        torch_entry.report(step=step, loss=losses[-1])
    if hooks is not None:
        hooks.remove()
    return {"ends": ends, "losses": losses, "digest": digest(model), "held": any(held_in_sums[1:])}
