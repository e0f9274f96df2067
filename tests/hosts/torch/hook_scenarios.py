"""Ranks that train with compressing communication hooks: each function is one rank's part, and returns JSON data."""

from __future__ import annotations

import hashlib
import logging
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
from torch.nn.parallel import DistributedDataParallel

from weir import torch_entry
from weir.hosts.compression.selective import SummationChoice
from weir.hosts.errors import CallMismatch, InvalidTensor
from weir.hosts.numerics.draws import mixed
from weir.hosts.numerics.tensors import reference_sum
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
        made_nan.append(bool(torch.isnan(hooks.codec_hook(hooks.CodecState(codec), bucket).wait()).all()))
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


def tails(rank: int, ranks: int) -> dict[str, bool]:
    """Hooks against the sum that fabrics return, for arrays that fill no chunk: the scales are those of the numbers."""
    found = {}
    for codec, options in (("vote", {}), ("terngrad", {}), ("packed", {"bits": 6})):
        for size in (1, 100, 5_001):
            drawn = [np.random.default_rng([size, each]).standard_normal(size) for each in range(ranks)]
            arrays = [array.astype(np.float32) for array in drawn]
            state = hooks.CodecState(codec, feedback=False, **options)
            bucket = Bucket([nn.Parameter(torch.zeros(size))], torch.from_numpy(arrays[rank].copy()))
            mean = hooks.codec_hook(state, bucket).wait().numpy()
            total = reference_sum(arrays, dtype=state.codec.kind, seed=mixed(0, 0, 1))
            found[f"{codec} of {size}"] = mean.tobytes() == (total / np.float32(ranks)).tobytes()
    return found


def warnings_of(values: torch.Tensor, rank: int, codec: str = "packed", planned: bool = False) -> list[str]:
    """Warnings of a hook that rank 1 gives these numbers twice, and the others zeros."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(hooks.CodecState.__module__)
    logger.addHandler(handler)
    plan = {values.numel(): SummationChoice("switch", True, 1, 0.0)}
    state = hooks.PlannedState(plan, codec) if planned else hooks.CodecState(codec)
    for _ in range(2):
        buffer = values.clone() if rank == 1 else torch.zeros_like(values)
        bucket = Bucket([nn.Parameter(torch.zeros(values.numel()))], buffer)
        result = (hooks.planned_hook if planned else hooks.codec_hook)(state, bucket).wait()
        assert torch.isnan(result).all()
    if planned:
        state.close()
    logger.removeHandler(handler)
    return told


def out_of_range(rank: int) -> dict[str, list[str]]:
    """Warnings about numbers that become NaN: finite ones beyond the scale or float32, and others."""
    beyond = torch.full((50,), 1e300, dtype=torch.float64)
    return {
        "scale": warnings_of(torch.full((1024,), 3e38), rank),
        "planned scale": warnings_of(torch.full((1024,), 3e38), rank, planned=True),
        "float32": warnings_of(beyond, rank),
        "float32 gathered": warnings_of(beyond, rank, "topk"),
        "float32 summed": warnings_of(beyond, rank, "randomk"),
        "no number": warnings_of(torch.full((50,), float("nan")), rank),
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


TERNGRAD = (ROOT / "examples" / "codecs" / "terngrad.compll").read_text()
HALVES = """from weir.hosts.compression.codec import CodecDescription, GatheredCodec

class Halves(GatheredCodec):
    name = "halves"

    def encode(self, values, context):
        return (values * {factor}).astype("float16")

    def decode(self, code, context):
        return code.astype("float32")

    def code_bytes(self, size):
        return 2 * size

def make(power: float = 1.0):
    return Halves()

DESCRIPTION = CodecDescription("halves", "float16", make, feedback=False)
"""


def differing(rank: int, folder: Path) -> dict[str, Any]:
    """States and hooks that rank 1 has otherwise than the others, by the words that its error has."""
    odd = rank == 1
    (folder / "tern.compll").write_text(TERNGRAD + ("// other\n" if odd else ""))
    (folder / "halves.py").write_text(HALVES.format(factor=2 if odd else 1))
    (folder / "one.py").write_text(HALVES.format(factor=1))
    plan = {710: SummationChoice("switch", True, 2 if odd else 3, 0.0)}
    loaded = hooks.PackedState(8)
    if odd:
        loaded.load_state_dict({**loaded.state_dict(), "calls/0": np.array(4)})
    return {
        "packed10+feedback, seed 0": (hooks.PackedState(10 if odd else 8), hooks.packed_hook),
        "packed8+feedback, seed 5": (hooks.PackedState(8, seed=5 if odd else 0), hooks.packed_hook),
        "packed8-unrotated": (hooks.PackedState(8, rotated=not odd), hooks.packed_hook),
        "topk(0.1000001)": (hooks.TopKState(0.1000001 if odd else 0.1), hooks.topk_hook),
        "dgc(0.01, 0.8)": (hooks.DgcState(momentum=0.8 if odd else 0.9), hooks.dgc_hook),
        "terngrad(2.5)": (hooks.CodecState("terngrad" if odd else "vote"), hooks.codec_hook),
        "calls before: 4 of bucket 0": (loaded, hooks.packed_hook),
        "tern.compll()#": (None, hooks.compll_hook(str(folder / "tern.compll"))),
        "halves(power=1.0)#": (hooks.CodecState(str(folder / "halves.py")), hooks.codec_hook),
        "halves(power=2.0)#": (hooks.CodecState(str(folder / "one.py"), power=2.0 if odd else 1.0), hooks.codec_hook),
        "parts of sizes: 710: 2": (hooks.PlannedState(plan), hooks.planned_hook),
        "planned packed8": (
            hooks.PlannedState({}) if odd else hooks.PackedState(8),
            hooks.planned_hook if odd else hooks.packed_hook,
        ),
    }


def mismatches(rank: int, folder: Path) -> dict[str, str]:
    """Errors of hooks whose states differ, by what rank 1 said; the group is of use afterwards."""
    errors = {}
    for words, (state, hook) in differing(rank, folder).items():
        for _ in range(2):  # the second call compares again
            try:
                hook(state, Bucket([nn.Parameter(torch.zeros(710))], torch.ones(710))).wait()
                errors[words] = "none"
            except CallMismatch as error:
                errors[words] = str(error)
    model = DistributedDataParallel(model_of(1))
    model.register_comm_hook(hooks.PackedState(8, seed=rank), hooks.packed_hook)
    try:
        model(data(rank)[0]).sum().backward()
    except CallMismatch as error:
        errors["in a backward pass"] = str(error)
    for words, racks in (("racks [[0, 1], [2]]", [[0, 1], [2]]), ("racks [[0], [1], [2]]", [[0], [1], [2]])):
        try:
            hooks.HiTopKState(racks if rank == 1 else [[0, 1, 2]])
        except CallMismatch as error:
            errors[words] = str(error)
        try:
            hooks.RackGroups(racks if rank == 1 else [[0, 1, 2]])
        except CallMismatch as error:
            errors[f"Adasum among {words}"] = str(error)
    total = torch.ones(3)
    dist.all_reduce(total)
    errors["after them"] = str(total.tolist())
    return errors


def together(rank: int, ranks: int) -> dict[str, Any]:
    """Digests of models with hooks of one group, of backward passes apart and of common ones."""

    def course(both: bool) -> list[str]:
        plan = {96 * 32: SummationChoice("switch", True, 3, 0.0), 96 * 64: SummationChoice("switch", True, 2, 0.0)}
        states = [hooks.PlannedState(plan), hooks.PlannedState(plan, "uniform", bits=8), hooks.PackedState(8)]
        found = [hooks.planned_hook, hooks.planned_hook, hooks.packed_hook]
        models = [DistributedDataParallel(model_of(seed), bucket_cap_mb=0.01) for seed in range(3)]
        for model, state, hook in zip(models, states, found, strict=True):
            model.register_comm_hook(state, hook)
        inputs, targets = data(rank)
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.02) for model in models]
        for _ in range(6):
            losses = [nn.functional.mse_loss(model(inputs), targets) for model in models]
            for optimizer in optimizers:
                optimizer.zero_grad()
            if both:
                torch.stack(losses).sum().backward()
            else:
                for loss in losses:
                    loss.backward()
            for optimizer in optimizers:
                optimizer.step()
        for state in states[:2]:
            state.close()
        return [digest(model) for model in models]

    return {"apart": course(False), "at once": course(True)}


def accumulated(rank: int) -> dict[str, Any]:
    """Digests after steps with `no_sync` and with a static graph, and the group's small calls."""
    found = {}
    for name, options in (("no_sync", {}), ("static", {"static_graph": True})):
        model = DistributedDataParallel(model_of(1), bucket_cap_mb=0.02, **options)
        model.register_comm_hook(hooks.PackedState(8), hooks.packed_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        inputs, targets = data(rank)
        for _ in range(4):
            optimizer.zero_grad()
            with nullcontext() if name == "static" else model.no_sync():
                nn.functional.mse_loss(model(inputs), targets).backward()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        found[name] = digest(model)
    return found


def play(backend: str, rank: int, ranks: int, store: Any) -> dict[str, Any]:
    """Join a group by this back end and return all results."""
    dist.init_process_group(backend, store=dist.PrefixStore(backend, store), rank=rank, world_size=ranks)
    found = {"trained": trained(rank, ranks), "residuals": residuals(rank, ranks)}
    found["planned"] = planned(rank, ranks)
    found["tails"] = tails(rank, ranks)
    found["out of range"] = out_of_range(rank)
    found["together"] = together(rank, ranks)
    found["accumulated"] = accumulated(rank)
    carried = getattr(dist.distributed_c10d._get_default_group(), "carried", {})
    found["carried"] = dict(carried)
    with TemporaryDirectory() as folder:
        found["mismatches"] = mismatches(rank, Path(folder))
    dist.destroy_process_group()
    return found
