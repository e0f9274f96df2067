"""Digits by DistributedDataParallel: nothing of Weir in it but the back end's name.

`weir torchrun -n 4 examples/ddp.py`, or by torchrun where a fabric runs (docs/pytorch.md).
"""

import hashlib

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("weir")
torch.manual_seed(0)

images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
training, held_out = torch.utils.data.random_split(data, [1400, 397])
sampler = DistributedSampler(training)
batches = DataLoader(training, batch_size=25, sampler=sampler)

model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
for epoch in range(4):
    sampler.set_epoch(epoch)
    for inputs, wanted in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), wanted).backward()
        optimizer.step()

model.eval()
inputs, wanted = next(iter(DataLoader(held_out, batch_size=len(held_out))))
accuracy = (model(inputs).argmax(dim=1) == wanted).float().mean().item()
weights = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters()))
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: accuracy {accuracy:.3f}, weights {weights.hexdigest()[:16]}")
dist.destroy_process_group()
