"""Parts of the ranks of the tests of tensor parallelism, which `weir.tests.hosts.torch.rig` forks.

WEIR_TEST_BACKEND, WEIR_TEST_MESH ("q,d") and WEIR_TEST_TYPE say where each runs.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

from weir import torch_entry
from weir.hosts.torch.relay_client import end_relay
from weir.hosts.torch.work import completers
from weir.training.parallel.character_model import CharacterModel
from weir.training.parallel.layers import Linear2p5D
from weir.training.parallel.loss import cross_entropy
from weir.training.parallel.mesh import Mesh
from weir.training.parallel.plan import distributed_state, megatron_plan, parallelize, parts
from weir.training.parallel.products import gradient_of_weight, multiply, multiply_transposed
from weir.training.parallel.traffic import linear_traffic

SYMBOLS, CONTEXT, WIDTH, INNER, HEAD, BLOCKS = 36, 6, 24, 48, 2, 2
SAMPLES = 36
STEPS = 3


_stores: Final[list[Any]] = []
"""Kept to the end of the process: a store of PyTorch's that ends removes its file, which the rig removes itself."""


def end() -> None:
    """End the relay that a process of the back end "weir" has."""
    end_relay()
    completers.close()


def begin(rank: int, ranks: int, store: Any) -> tuple[int, int, torch.dtype]:
    """Make the default process group; return q, d and the type of numbers."""
    torch_entry.register()
    _stores.append(store)
    dist.init_process_group(os.environ["WEIR_TEST_BACKEND"], store=store, rank=rank, world_size=ranks)
    q, d = map(int, os.environ["WEIR_TEST_MESH"].split(","))
    return q, d, getattr(torch, os.environ["WEIR_TEST_TYPE"])


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the numbers of collectives where PyTorch is called."""
    found: Counter[str] = Counter()
    before = {name: getattr(dist, name) for name in ("broadcast", "reduce", "all_reduce")}

    def counting(name: str) -> Any:
        def call(tensor: Any, *words: Any, **named: Any) -> Any:
            at = words[0] == dist.get_rank() if words else False
            found[f"{name}{' at its end' if at else ''}"] += tensor.numel()
            return before[name](tensor, *words, **named)

        return call

    for name in before:
        setattr(dist, name, counting(name))
    try:
        yield found
    finally:
        for name, call in before.items():
            setattr(dist, name, call)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the largest difference relative to the largest number wanted."""
    return float((found - wanted).abs().max() / wanted.abs().max())


def products(rank: int, ranks: int, store: Any) -> Any:
    """Y, dX and dW of one layer beside the whole products, and the numbers that moved."""
    q, d, kind = begin(rank, ranks, store)
    mesh = Mesh(q, d)
    rows, inputs, outputs = 5 * q * d, 3 * q, 7 * q
    drawn = torch.Generator().manual_seed(7)
    x, y = (torch.randn(rows, size, generator=drawn, dtype=torch.float64) for size in (inputs, outputs))
    weight = torch.randn(outputs, inputs, generator=drawn, dtype=torch.float64)
    own = [mesh.block_of(x), mesh.weight_of(weight), mesh.block_of(y)]
    block, part, gradient = (tensor.to(kind).contiguous() for tensor in own)
    whole = [x @ weight.t(), y @ weight, y.t() @ x]
    wanted = [mesh.block_of(whole[0]), mesh.block_of(whole[1]), mesh.weight_of(whole[2])]
    with counted_calls() as calls:
        found = [
            multiply(mesh, block, part),
            multiply_transposed(mesh, gradient, part),
            gradient_of_weight(mesh, block, gradient),
        ]
    errors = [error(one.double(), two) for one, two in zip(found, wanted, strict=True)]
    formula = linear_traffic(q, d, rows, inputs, outputs).step
    up = calls["broadcast at its end"] + calls["reduce"] + calls["all_reduce"]
    down = calls["broadcast"] + calls["reduce at its end"] + calls["all_reduce"]
    trees = Fraction((q - 1) * (sum(calls.values()) - calls["all_reduce"]), q)
    trees += Fraction(2 * (d - 1) * calls["all_reduce"], d)
    return {
        "errors": errors,
        "counted": mesh.traffic == formula,
        "called": [up == formula.up, down == formula.down, trees == formula.by_hosts],
    }


def whole_model(kind: torch.dtype) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Return a model, its input and its targets, the same at every rank."""
    torch.manual_seed(3)
    model = CharacterModel(SYMBOLS, CONTEXT, WIDTH, INNER, HEAD, BLOCKS).to(kind)
    text = torch.randint(SYMBOLS, (SAMPLES, CONTEXT + 1))
    return model, text[:, :-1], text[:, 1:]


def train_whole(model: Any, characters: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """Train for some steps; return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(characters).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_blocks(model: Any, mesh: Mesh, characters: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """Train as `train_whole`, on blocks."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    characters, targets = mesh.rows_of(characters), mesh.rows_of(targets)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(model(characters).flatten(0, 1), targets.flatten(), mesh)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def training(rank: int, ranks: int, store: Any) -> Any:
    """Losses and weights on blocks beside those of one process, and a checkpoint that goes back into a whole model."""
    q, d, kind = begin(rank, ranks, store)
    mesh = Mesh(q, d)
    whole, characters, targets = whole_model(kind)
    divided = parallelize(copy.deepcopy(whole), mesh)
    losses = train_blocks(divided, mesh, characters, targets)
    wanted = train_whole(whole, characters, targets)
    state = distributed_state(divided)
    errors = [error(state[name].full_tensor(), part.detach()) for name, part in whole.named_parameters()]
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder)
        dcp.save(state, checkpoint_id=folder[0])
        loaded = {name: torch.zeros_like(part) for name, part in whole.state_dict().items()}
        dcp.load(loaded, checkpoint_id=folder[0])
        back = [torch.equal(loaded[name], state[name].full_tensor()) for name in loaded]
        with torch.no_grad():
            for _, part, _ in parts(divided):
                part.zero_()
        dcp.load(state, checkpoint_id=folder[0])
        again = [error(state[name].full_tensor(), loaded[name]) for name in loaded]
        dist.barrier()
        written = [str(path) for path in Path(folder[0]).iterdir()]
        dist.barrier()  # rank 0 deletes the folder
    return {
        "losses": [abs(loss - two) / two for loss, two in zip(losses, wanted, strict=True)],
        "fell": wanted[-1] < wanted[0],
        "weights": max(errors),
        "loaded": back,
        "again": max(again),
        "files": len(written) > 1,
        "bytes": sum(part.numel() for part in divided.parameters()) / sum(part.numel() for part in whole.parameters()),
    }


def megatron(rank: int, ranks: int, store: Any) -> Any:
    """Losses of the 1-D division by PyTorch's own styles beside those of one process."""
    _, _, kind = begin(rank, ranks, store)
    whole, characters, targets = whole_model(kind)
    divided = parallelize_module(copy.deepcopy(whole), init_device_mesh("cpu", (ranks,)), megatron_plan(BLOCKS))
    losses = train_whole(divided, characters, targets)
    wanted = train_whole(whole, characters, targets)
    return [abs(loss - two) / two for loss, two in zip(losses, wanted, strict=True)]


def refused(rank: int, ranks: int, store: Any) -> Any:
    """Types of the errors of wrong meshes, sizes and layers."""
    begin(rank, ranks, store)
    mesh = Mesh(2)
    attempts = (
        lambda: Mesh(2, 2),
        lambda: Mesh(0, 4),
        lambda: Linear2p5D(nn.Linear(5, 4), mesh),
        lambda: Linear2p5D(nn.Linear(4, 5), mesh),
        lambda: parallelize(nn.Sequential(nn.Bilinear(2, 2, 2)), mesh),
        lambda: mesh.rows_of(torch.zeros(3, 2)),
    )
    found = []
    for attempt in attempts:
        try:
            attempt()
        except Exception as refusal:  # noqa: BLE001 (its type is the answer)
            found.append(type(refusal).__name__)
    return found
