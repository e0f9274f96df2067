"""A slow rank gets fewer samples: `weir torchrun -n 2 examples/balanced.py`, or by torchrun over any back end.

The last rank is made slow here: each of its samples takes 4 ms more, where the first one's take 1 ms.
"""

import hashlib
import sys
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from weir.training.torch_steps import BalancedSampler

BATCH = 48

dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "weir")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

sampler = BalancedSampler(len(data), BATCH, model)
for inputs, wanted in DataLoader(data, batch_sampler=sampler):
    time.sleep(len(wanted) * (0.005 if rank == ranks - 1 else 0.001))
    optimizer.zero_grad()
    (sampler.scale * nn.functional.cross_entropy(model(inputs), wanted)).backward()
    sizes = sampler.sizes
    sampler.step()  # the next sizes are decided while the optimizer is at work
    optimizer.step()

weights = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters()))
print(f"rank {rank} of {ranks}: {sizes} of {BATCH} samples in the last step, weights {weights.hexdigest()[:16]}")
dist.destroy_process_group()
