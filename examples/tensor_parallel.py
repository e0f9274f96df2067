"""A character-level transformer in blocks over a mesh of ranks.

`weir torchrun -n 8 --mesh 2x2x2 examples/tensor_parallel.py 2 2`: [2, 2, 2] ranks, 2.5-D (Tesseract), in groups that
are placed together; so does `weir run examples/tensor_parallel.yaml`. `2 1` on 4 ranks: 2-D (Optimus); `1d` on any
number that divides the 12 heads: Megatron-LM's division by PyTorch's own styles. All print the losses of one process.
A last argument is the number of steps.
"""

import copy
import sys
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

from weir.training.parallel.character_model import CharacterModel
from weir.training.parallel.loss import cross_entropy
from weir.training.parallel.mesh import Mesh
from weir.training.parallel.plan import megatron_plan, parallelize
from weir.training.parallel.traffic import block_traffic, linear_traffic
from weir.training.workloads.transformer import CONTEXT, SYMBOLS, load_windows

SAMPLES, BLOCKS, WIDTH, INNER = 72, 2, 96, 192
division = sys.argv[1:2] if sys.argv[1] == "1d" else sys.argv[1:3]
steps = int(sys.argv[1 + len(division)]) if len(sys.argv) > 1 + len(division) else 30
symbols = -(-SYMBOLS // 12) * 12  # a multiple of 2, 3 and 4, so that meshes divide it


def train(model: torch.nn.Module, loss_of: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]) -> Iterator[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        yield loss.item()


def whole_loss(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def loss_on_mesh(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    rows = mesh.rows_of(batch)
    return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten(), mesh)


dist.init_process_group("weir")
rank = dist.get_rank()
torch.manual_seed(0)
model = CharacterModel(symbols, CONTEXT, width=WIDTH, inner=INNER, head=8, blocks=BLOCKS)
windows = torch.from_numpy(load_windows())
batches = [windows[torch.randint(len(windows), (SAMPLES,))] for _ in range(steps)]  # the same at every rank
alone = list(train(copy.deepcopy(model), whole_loss)) if rank == 0 else []
if division == ["1d"]:
    parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), megatron_plan(BLOCKS))
else:
    mesh = Mesh(*map(int, division))
    parallelize(model, mesh)
losses = train(model, whole_loss if division == ["1d"] else loss_on_mesh)
for step, loss in enumerate(losses, start=1):
    if rank == 0 and (step % 10 == 0 or step == steps):
        print(f"step {step}: loss {loss:.4f}, in one process {alone[step - 1]:.4f}", flush=True)
if division != ["1d"]:
    moved = mesh.traffic
    print(
        f"rank {rank} at {mesh.layer, mesh.row, mesh.column}: {float(moved.by_hosts / steps):.0f} numbers a "
        f"step in and out by hosts alone; if switches copy and add {float(moved.up / steps):.0f} out, "
        f"{float(moved.down / steps):.0f} in\n",
        end="",
        flush=True,
    )
if division != ["1d"] and rank == 0:
    rows = SAMPLES * CONTEXT
    blocks = block_traffic(mesh.q, mesh.d, rows, WIDTH, INNER).scaled(BLOCKS)
    formula = blocks + linear_traffic(mesh.q, mesh.d, rows, WIDTH, symbols).step
    print(
        f"by the formulas, which are of the linear layers alone: {float(formula.by_hosts):.0f} by hosts alone; "
        f"{float(formula.up):.0f} out, {float(formula.down):.0f} in",
        flush=True,
    )
dist.destroy_process_group()
