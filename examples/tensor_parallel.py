"""A character-level transformer in blocks over a mesh of ranks.

`weir torchrun -n 8 --mesh 2x2x2 examples/tensor_parallel.py 2 2`: [2, 2, 2] ranks, 2.5-D (Tesseract), in groups that
are placed together. `2 1` on 4 ranks: 2-D (Optimus); `1d` on any number that divides the 12 heads: Megatron-LM's
division by PyTorch's own styles. All print the same losses.
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

from weir.training.parallel.character_model import CharacterModel
from weir.training.parallel.loss import cross_entropy
from weir.training.parallel.mesh import Mesh
from weir.training.parallel.plan import megatron_plan, parallelize
from weir.training.workloads.transformer import CONTEXT, SYMBOLS, load_windows

STEPS, SAMPLES, BLOCKS = 30, 72, 2
symbols = -(-SYMBOLS // 12) * 12  # a multiple of 2, 3 and 4, so that meshes divide it
windows = torch.from_numpy(load_windows())

dist.init_process_group("weir")
torch.manual_seed(0)
model = CharacterModel(symbols, CONTEXT, width=96, inner=192, head=8, blocks=BLOCKS)
one_dimension = sys.argv[1] == "1d"
if one_dimension:
    parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), megatron_plan(BLOCKS))
else:
    mesh = Mesh(int(sys.argv[1]), int(sys.argv[2]))
    parallelize(model, mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
for step in range(STEPS):
    batch = windows[torch.randint(len(windows), (SAMPLES,))]  # the same at every rank
    optimizer.zero_grad()
    if one_dimension:
        logits = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    else:
        rows = mesh.rows_of(batch)
        loss = cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten(), mesh)
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0 and step % 10 == 9:
        print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
if not one_dimension:
    moved = mesh.traffic
    print(
        f"rank {dist.get_rank()} at {mesh.layer, mesh.row, mesh.column}: {float(moved.by_hosts / STEPS):.0f} numbers a "
        f"step in and out by hosts alone; if switches copy and add {float(moved.up / STEPS):.0f} out, "
        f"{float(moved.down / STEPS):.0f} in",
        flush=True,
    )
dist.destroy_process_group()
