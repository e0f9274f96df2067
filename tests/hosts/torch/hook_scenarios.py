"""Ranks that train with compressing communication hooks: each function is one rank's part, and returns JSON data."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
from torch.nn.parallel import DistributedDataParallel

from weir import torch_entry
from weir.hosts.compression.selective import SummationChoice
from weir.hosts.errors import InvalidTensor
from weir.tests.paths import ROOT

hooks: Any = torch_entry.hooks

STATES: dict[str, Any] = {
    "packed8": lambda: hooks.PackedState(8),
    "packed15": lambda: hooks.PackedState(15),
    "topk": lambda: hooks.TopKState(0.2),
    "dgc": lambda: hooks.DgcState(0.2, 0.8),
    "blocks": lambda: hooks.CodecState("blocks", ratio=0.3),
    "randomk": lambda: hooks.CodecState("randomk", ratio=0.3),
    "onebit": lambda: hooks.CodecState("onebit"),
    "tbq": lambda: hooks.CodecState("tbq", threshold=0.02),
}
HOOKS: dict[str, Any] = {"packed8": hooks.packed_hook, "topk": hooks.topk_hook, "dgc": hooks.dgc_hook}


def digest(model: nn.Module) -> str:
    return hashlib.sha256(
        b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    ).hexdigest()


def model_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 1))


def data(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(64, 32, generator=torch.Generator().manual_seed(rank))
    return inputs, inputs[:, :4].sum(dim=1, keepdim=True)


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> list[float]:
    """Train a model on a rank's data for 15 steps; return the loss of each."""
    inputs, targets = data(rank)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(rank: int, name: str, *, half: bool = False, buckets: float = 0.02) -> tuple[str, float, float]:
    """Train a model of several buckets; its digest, and its loss before and after."""
    model = DistributedDataParallel(model_of(1), bucket_cap_mb=buckets)
    if name == "compll":
        state, hook = None, hooks.compll_hook(str(ROOT / "examples" / "codecs" / "tbq.compll"), threshold=0.02)
    else:
        state, hook = STATES[name](), HOOKS.get(name, hooks.codec_hook)
    model.register_comm_hook(state, fp16_compress_wrapper(hook) if half else hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.04, momentum=0.0 if name == "dgc" else 0.5)
    losses = fit(model, optimizer, rank)
    return digest(model), losses[0], losses[-1]


def trained(rank: int, ranks: int) -> dict[str, Any]:
    """Results of training with every codec, and of two wrapped ones."""
    found: dict[str, Any] = {name: train(rank, name) for name in STATES}
    found["compll"] = train(rank, "compll")
    found["half packed8"] = train(rank, "packed8", half=True)
    found["half topk"] = train(rank, "topk", half=True)
    return found


class Bucket:
    """A bucket of two parameters, in place of PyTorch's."""

    def __init__(self, parameters: list[torch.Tensor], buffer: torch.Tensor, index: int = 0) -> None:
        self._parameters, self._buffer, self._index = parameters, buffer, index

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return True

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        sizes = [parameter.numel() for parameter in self._parameters]
        return [
            part.view_as(parameter) for part, parameter in zip(self._buffer.split(sizes), self._parameters, strict=True)
        ]


def residuals(rank: int, ranks: int) -> dict[str, bool]:
    """Residuals by parameter across other buckets, a NaN, state in a checkpoint, and packed sums as in NumPy."""
    first, second = nn.Parameter(torch.zeros(10)), nn.Parameter(torch.zeros(7, 100))
    gradient = torch.linspace(-1, 1, 710) * (rank + 1)
    state = hooks.TopKState(0.1)
    hooks.topk_hook(state, Bucket([first, second], gradient.clone())).wait()
    parts = {name.removeprefix("residual/"): part for name, part in state.state_dict().items() if "residual" in name}
    saved = state.state_dict()
    again = hooks.TopKState(0.1)
    again.names([first, second])
    again.load_state_dict(saved)
    results = []
    for each in (state, again):  # in the other order, as after buckets are built again
        result = hooks.topk_hook(each, Bucket([second, first], torch.zeros(710))).wait()
        results.append(result.clone())
    broken = gradient.clone()
    broken[3] = float("nan") if rank == 1 else 0.0
    poisoned = hooks.packed_hook(hooks.PackedState(8), Bucket([first, second], broken.clone())).wait()
    made_nan = []
    for codec in ("topk", "graddrop", "dgc", "onebit", "randomk", "blocks"):
        bucket = Bucket([first, second], broken.clone())
        made_nan.append(bool(torch.isnan(hooks.codec_hook(hooks.CodecState(codec), bucket).wait()).any()))
    huge = torch.full((710,), 3e38)
    beyond = hooks.packed_hook(hooks.PackedState(8), Bucket([first, second], huge)).wait()
    mean = hooks.packed_hook(hooks.PackedState(15), Bucket([first, second], gradient.clone())).wait()
    right = torch.linspace(-1, 1, 710) * (sum(range(1, ranks + 1)) / ranks)
    return {
        "sizes": sorted(part.size for part in parts.values()) == [10, 700],
        "what was not sent comes next": bool(results[0].abs().max() > 0),
        "a checkpoint continues": torch.equal(results[0], results[1]),
        "a NaN is everyone's": bool(torch.isnan(poisoned).all()),
        "no codec loses a NaN": all(made_nan),
        "beyond the range is a NaN": bool(torch.isnan(beyond).all()),
        "the mean": bool(np.allclose(mean, right, atol=2e-3)),
    }


PLAN = {96 * 32: SummationChoice("switch", True, 3, 0.0), 96 * 64: SummationChoice("switch", True, 1, 0.0)}


class Unused(nn.Module):
    """A model with a layer that gradients do not reach."""

    def __init__(self) -> None:
        super().__init__()
        self.used = model_of(1)
        self.unused = nn.Linear(32, 96)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.used(inputs)
        return result


def planned_unused(rank: int) -> str:
    """Train by a plan while DistributedDataParallel itself sums which parameters were used; the digest."""
    model = DistributedDataParallel(Unused(), bucket_cap_mb=0.02, find_unused_parameters=True)
    state = hooks.PlannedState(PLAN, "packed", bits=8)
    model.register_comm_hook(state, hooks.planned_hook)
    fit(model, torch.optim.SGD(model.parameters(), lr=0.04), rank)
    state.close()
    return digest(model)


def planned(rank: int, ranks: int) -> dict[str, Any]:
    """Training by a plan, its bits, its measured schedule, and what a plan cannot have."""
    model = DistributedDataParallel(model_of(1), bucket_cap_mb=0.02)
    state = hooks.PlannedState(PLAN, "packed", bits=8)
    model.register_comm_hook(state, hooks.planned_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.04, momentum=0.5)
    losses = fit(model, optimizer, rank)
    raw = torch.linspace(-1, 1, 710) * (rank + 1)
    small = [nn.Parameter(torch.zeros(10)), nn.Parameter(torch.zeros(7, 100))]
    mean = hooks.planned_hook(state, Bucket(small, raw.clone(), 7)).wait()
    broken = torch.zeros(96 * 32)
    broken[5] = float("inf") if rank == 1 else 0.0
    poisoned = hooks.planned_hook(state, Bucket([nn.Parameter(torch.zeros(96, 32))], broken, 8)).wait()
    spans = [
        (task.kind, span.start_ms, span.end_ms) for task, span in zip(state.last.tasks, state.last.spans, strict=True)
    ]
    state.close()
    refused = 0
    for plan, codec in (({5: SummationChoice("ring", True, 1, 0.0)}, "packed"), ({}, "topk"), ({}, "blocks")):
        try:
            hooks.PlannedState(plan, codec)
        except InvalidTensor:
            refused += 1
    return {
        "digest": digest(model),
        "unused": planned_unused(rank),
        "losses": (losses[0], losses[-1]),
        "raw mean": bool(np.allclose(mean, torch.linspace(-1, 1, 710) * (1 + ranks) / 2, atol=1e-5)),
        "an infinity is a NaN": bool(torch.isnan(poisoned).any()),
        "kinds": sorted({kind for kind, _, _ in spans}),
        "ordered": all(start <= end for _, start, end in spans),
        "refused": refused,
    }


def play(backend: str, rank: int, ranks: int, store: Any) -> dict[str, Any]:
    """Join a group by this back end and return all results."""
    dist.init_process_group(backend, store=dist.PrefixStore(backend, store), rank=rank, world_size=ranks)
    found = {"trained": trained(rank, ranks), "residuals": residuals(rank, ranks)}
    found["planned"] = planned(rank, ranks)
    carried = getattr(dist.distributed_c10d._get_default_group(), "carried", {})
    found["carried"] = dict(carried)
    dist.destroy_process_group()
    return found
