"""GraphSAGE on a graph whose features four hosts hold: `weir launch -n 4 examples/graphs.py`.

The graph connects each of the digits with its ten nearest others. Each worker trains with a part of the nodes, holds a
part of the features and reads the rest from the other workers through the fabric, past a cache of its own.
"""

import hashlib
import time

import numpy as np
import torch
from sklearn.datasets import load_digits

import weir
from weir.training.graphs.features import SharedFeatures
from weir.training.graphs.loader import GraphLoader
from weir.training.graphs.made import nearest_neighbours
from weir.training.graphs.models import GraphSage
from weir.training.graphs.partition import partition

EPOCHS = 3
images, labels = load_digits(return_X_y=True)
rows = (images / 16).astype(np.float32)
graph, wanted = nearest_neighbours(rows), torch.from_numpy(labels)
held_out = np.arange(0, len(rows), 5)
training = np.setdiff1d(np.arange(len(rows)), held_out)
torch.manual_seed(0)
model = GraphSage([64, 32, 10])
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

with weir.join(transport=weir.TransportOptions(lower_effort=True)) as communicator:
    rank, size = communicator.rank, communicator.size
    owner = np.arange(len(rows)) % size
    own = np.flatnonzero(owner == rank)
    part = partition(graph, training, size, hops=2)[rank]
    with SharedFeatures(communicator.transport, owner, own, rows[own]) as features:
        loader = GraphLoader(graph, features.fetch, part, [5, 5], 40, cache="degree", capacity=400)
        steps = int(communicator.allreduce(np.eye(size, dtype=np.int32)[rank] * len(loader)).min())
        for epoch in range(EPOCHS):
            began, waited, remote = time.monotonic(), 0.0, features.remote_rows
            for step, batch in zip(range(steps), loader, strict=False):
                waited += loader.loading_s
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(batch), wanted[batch.seeds]).backward()
                flat = torch.cat([each.grad.reshape(-1) for each in model.parameters()])
                mean = communicator.allreduce(flat, op="mean", name=f"epoch {epoch}, step {step}")
                for each, values in zip(
                    model.parameters(), mean.split([each.numel() for each in model.parameters()]), strict=True
                ):
                    each.grad.copy_(values.view_as(each))
                optimizer.step()
            print(
                f"rank {rank}: epoch {epoch + 1} in {time.monotonic() - began:.2f} s, {waited:.2f} s of it waiting for "
                f"batches, {features.remote_rows - remote} rows from other hosts",
                flush=True,
            )
        communicator.barrier()
    whole = next(iter(GraphLoader(graph, rows, held_out, [10, 10], len(held_out))))
    accuracy = (model(whole).argmax(1) == wanted[whole.seeds]).float().mean().item()
    weights = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest()
    print(f"rank {rank}: accuracy {accuracy:.3f}, weights {weights[:16]}", flush=True)
