"""A rank's process is killed in mid-step; its restarted process continues with the others, and no step is lost.

`weir torchrun -n 3 --max-restarts 1 examples/rejoin.py`, or by a torchrun on each machine (docs/pytorch.md).
"""

import hashlib
import os
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from weir.torch_entry import rejoining

STEPS = 40

images, labels = load_digits(return_X_y=True)
inputs, wanted = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
anew = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def train(progress: Any) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if anew:
        print(f"rank {rank} of {ranks} is back at step {progress.step}")
    model = DistributedDataParallel(net)
    while progress.step < STEPS:
        rows = (torch.arange(32) * ranks + rank + 32 * ranks * progress.step) % len(inputs)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[rows]), wanted[rows])
        if rank == ranks - 1 and progress.step == STEPS // 2 and not anew:
            os.abort()  # no exception, no word to anybody
        loss.backward()
        optimizer.step()
        progress.step += 1


rejoining(train, {"net": net, "optimizer": optimizer})
weights = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters()))
loss = nn.functional.cross_entropy(net(inputs), wanted).item()
print(f"rank {dist.get_rank()}: loss {loss:.4f} after {STEPS} steps, weights {weights.hexdigest()[:16]}")
dist.destroy_process_group()
