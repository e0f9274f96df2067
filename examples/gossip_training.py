"""A PyTorch model trained by gossip: `weir launch -n 4 examples/gossip_training.py` (POLICY as an argument: uniform).

Each rank has a quarter of scikit-learn's digits. There is no all-reduce: after each step a rank moves towards the
weights of one other rank, which it has pulled while it computed.
"""

import sys

import numpy as np
import torch
from sklearn.datasets import load_digits

import weir
from weir import torch_entry

torch.set_num_threads(1)
torch.manual_seed(0)  # all ranks begin with the same weights
images, digits = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
images = images.float() / 16

with weir.join() as communicator:
    rank, ranks = communicator.rank, communicator.size
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch_entry.gossip(
        torch.optim.SGD(model.parameters(), lr=0.3),
        sys.argv[1] if len(sys.argv) > 1 else "exact",
        communicator=communicator,
    )
    mine = torch.arange(rank, 1347, ranks)  # the last quarter of all images is held out
    draws = torch.Generator().manual_seed(rank)
    for _ in range(150):
        batch = mine[torch.randint(len(mine), (32,), generator=draws)]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[batch]), digits[batch]).backward()
        optimizer.step()
    right = (model(images[1347:]).argmax(dim=1) == digits[1347:]).float().mean().item()
    weights = np.concatenate([each.detach().numpy().ravel() for each in model.parameters()])
    apart = np.abs(weights - communicator.allreduce(weights, op="mean")).max()
    averager = optimizer.averager
    print(
        f"rank {rank}: {right:.0%} of held-out digits right, weights at most {apart:.3f} from the mean, "
        f"{averager.pulls} pulls, policy {averager.version}"
    )
