"""Scenarios of ranks: each function is one rank's part, and returns JSON data."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.masked import MaskedTensor
from torch.nn.parallel import DistributedDataParallel

from weir import torch_entry
from weir.hosts import ControlClient, HostError, reference_sum
from weir.hosts.torch import process_group, staging
from weir.hosts.torch.relay_client import end_relay
from weir.hosts.torch.work import completers
from weir.tests.hosts.torch import hook_scenarios
from weir.tests.hosts.torch.rig import DIES_AT, EVERYONE, TOGETHER
from weir.training.torch_steps import BalancedSampler

FLOATS = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def end() -> None:
    """Do the work of the interpreter's end, which a forked process lacks."""
    end_relay()
    completers.close()


def begin(rank: int, ranks: int, store: Any, backend: str = "weir", name: str = "a") -> Any:
    torch_entry.register()
    dist.init_process_group(backend, store=dist.PrefixStore(name, store), rank=rank, world_size=ranks)
    return dist.group.WORLD


def numbers(seed: int, count: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(kind)


def expected(tensors: list[torch.Tensor], **how: Any) -> torch.Tensor:
    """Result that the fabric must return, bit for bit."""
    kind = tensors[0].dtype
    bits = {torch.float16: torch.float16, torch.bfloat16: torch.int16}.get(kind, kind)
    arrays = [tensor.view(bits).numpy() for tensor in tensors]
    if kind == torch.bfloat16:
        arrays = [array.view(np.uint16) for array in arrays]
    result = reference_sum(arrays, dtype=FLOATS[kind], nonfinite="poison", **how)
    return torch.from_numpy(result.view(np.int16) if kind == torch.bfloat16 else result).view(kind)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.view(torch.uint8).equal(b.view(torch.uint8)))


def sums(rank: int, ranks: int, store: Any) -> Any:
    """Every type and form of sum, against the reference; then what went which way."""
    group = begin(rank, ranks, store)
    wrong = []
    for kind in FLOATS:
        for op, mean in ((dist.ReduceOp.SUM, False), (dist.ReduceOp.AVG, True)):
            parts = [numbers(each, 5000, kind) for each in range(ranks)]
            mine = parts[rank].clone()
            work = dist.all_reduce(mine, op, async_op=True)
            work.wait()
            if not (same(mine, expected(parts, mean=mean)) and work.is_completed() and work.is_success()):
                wrong.append(f"all_reduce {kind} {op}")
    parts = [numbers(each, 6000) for each in range(ranks)]
    total = expected(parts)
    strided = parts[rank].clone().view(60, 100).t().contiguous().t()
    dist.all_reduce(strided)
    if not same(strided.contiguous().view(-1), total):
        wrong.append("a tensor in another layout")
    mine = parts[rank].clone()
    dist.reduce(mine, 1)
    if not same(mine, total if rank == 1 else parts[rank]):
        wrong.append("reduce")
    own = torch.empty(6000 // ranks)
    alone = expected([part.chunk(ranks)[rank] for part in parts])
    dist.reduce_scatter_tensor(own, parts[rank].clone())
    if not same(own, alone):
        wrong.append("reduce_scatter_tensor")
    own.zero_()
    dist.reduce_scatter(own, list(parts[rank].clone().chunk(ranks)))
    if not same(own, alone):
        wrong.append("reduce_scatter")
    chunks = list(parts[rank].chunk(ranks))
    for output, given in ((own[1:], parts[rank].clone()), (own[1:], chunks), (own, chunks[1:])):
        how: Any = dist.reduce_scatter if isinstance(given, list) else dist.reduce_scatter_tensor
        try:
            how(output, given)
        except ValueError:
            continue
        wrong.append("parts of other sizes are refused")
    pieces = [numbers(rank, 6000)[:1000] * 1e-6, numbers(rank, 6000)[1000:]]
    with dist._coalescing_manager():
        for piece in pieces:
            dist.all_reduce(piece)
    apart = [expected([part[:1000] * 1e-6 for part in parts]), expected([part[1000:] for part in parts])]
    if not all(same(got, want) for got, want in zip(pieces, apart, strict=True)):
        wrong.append("coalesced")
    for size in (1, 3000):
        half = torch.full((size,), 60000.0, dtype=torch.float16)
        dist.all_reduce(half, dist.ReduceOp.AVG)
        if half.unique().tolist() != [60000.0]:
            wrong.append(f"the float16 mean of {size} numbers")
    poisoned = parts[rank].clone()
    poisoned[rank] = float("nan")
    dist.all_reduce(poisoned)
    if not (poisoned[:256].isnan().all() and same(poisoned[256:].clone(), total[256:].clone())):
        wrong.append("NaN")
    future = dist.all_reduce(parts[rank].clone(), async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    if not same(future.wait(), total * 2):
        wrong.append("future")
    integers = torch.arange(5000) + rank
    dist.all_reduce(integers)
    if not integers.equal(torch.arange(5000) * ranks + sum(range(ranks))):
        wrong.append("integers")
    objects: list[Any] = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    if objects != [{"rank": each} for each in range(ranks)]:
        wrong.append("objects")
    return wrong, dict(group.carried), dist.get_backend()


class Accelerator:
    """A runtime like `torch.cuda`, whose memory is the CPU's.

    Work on the script's stream is done when the event behind it is awaited, and not before. The log records the order
    in which streams were used.
    """

    def __init__(self) -> None:
        self.launched: list[Callable[[], object]] = []
        self.noted: list[str] = []
        self.current = "script"
        self.pinned: dict[int, int] = {}

    def launch(self, kernel: Callable[[], object]) -> None:
        self.launched.append(kernel)

    def current_stream(self, device: torch.device) -> Accelerator:
        assert self.current == "script", "asked for the script's stream on another"
        return self

    def record_event(self) -> list[Callable[[], object]]:
        """Event: the work launched before it."""
        launched, self.launched = self.launched, []
        return launched

    def Stream(self, device: torch.device) -> AcceleratorStream:
        return AcceleratorStream(self)

    @contextmanager
    def stream(self, stream: AcceleratorStream) -> Iterator[None]:
        self.noted.append("on a stream beside")
        yield
        self.noted.append("off it")

    def cudart(self) -> Accelerator:
        return self

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        assert address not in self.pinned
        self.pinned[address] = size
        return 0


class AcceleratorStream:
    """Stream other than the script's."""

    def __init__(self, runtime: Accelerator) -> None:
        self.runtime = runtime

    def wait_event(self, event: list[Callable[[], object]]) -> None:
        while event:
            event.pop(0)()
        self.runtime.noted.append("waited for the script")

    def synchronize(self) -> None:
        self.runtime.noted.append("copied")


def staged(rank: int, ranks: int, store: Any) -> Any:
    """Tensors of an accelerator: work launched before the call is in the sum; copies are done on another stream,
    through memory that is pinned once, before a waiting thread continues.
    """
    runtime = Accelerator()
    staging.runtime_of = lambda device: runtime
    begin(rank, ranks, store)
    parts = [numbers(each, 6000) for each in range(ranks)]
    mine = torch.zeros(6000)
    found = []
    for step in range(3):
        runtime.noted.clear()
        runtime.launch(partial(mine.copy_, parts[rank] * (step + 1)))
        work = dist.all_reduce(mine, async_op=True)
        work.wait()
        order = ["waited for the script", "on a stream beside", "off it", "copied"]
        found.append(same(mine, expected([part * (step + 1) for part in parts])) and runtime.noted == 2 * order)
    return found, sorted(runtime.pinned.values())


def threads_at_the_end(rank: int, ranks: int, store: Any) -> Any:
    """Threads of the back end that exist while it is at work, and when the interpreter may end."""
    begin(rank, ranks, store)
    dist.all_reduce(torch.ones(6000))
    at_work = _own_threads()
    dist.destroy_process_group()
    end()
    return at_work, _own_threads()


def _own_threads() -> list[str]:
    return sorted({thread.name.split("_")[0] for thread in threading.enumerate() if thread.name.startswith("weir")})


def groups(rank: int, ranks: int, store: Any) -> Any:
    """Groups of two, each a job of its own, and a mesh."""
    begin(rank, ranks, store)
    found = []
    for members in ([0, 1], [1, 2], [2, 0]):
        group = dist.new_group(members)
        if rank in members:
            mine = numbers(rank, 3000)
            dist.all_reduce(mine, group=group)
            found.append(same(mine, expected([numbers(each, 3000) for each in members])))
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,))
    mine = numbers(rank, 3000)
    dist.all_reduce(mine, group=mesh.get_group())
    found.append(same(mine, expected([numbers(each, 3000) for each in range(ranks)])))
    return found


def mesh(rank: int, ranks: int, store: Any) -> Any:
    """A mesh whose jobs are registered before any sum, by `WEIR_MESH` or in the script.

    Returns these jobs, later ones, and whether sums are right. A second mesh of the same ranks gets jobs of its own.
    """
    group = begin(rank, ranks, store)
    made = [] if os.environ.get("WEIR_MESH") else [torch_entry.init_device_mesh("cpu", (2, ranks // 2))]
    control, world, _ = group._sums.place
    with ControlClient(control) as client:
        first = {state.job: state.parent for state in client.jobs()}
        dist.barrier()
        right = []
        for number in range(2):
            grid = made[0] if made and not number else init_device_mesh("cpu", (2, ranks // 2))
            for along in range(2):
                mine = numbers(rank, 3000)
                dist.all_reduce(mine, group=grid.get_group(along))
                members = dist.get_process_group_ranks(grid.get_group(along))
                right.append(same(mine, expected([numbers(each, 3000) for each in members])))
        mine = numbers(rank, 3000)
        dist.all_reduce(mine)
        right.append(same(mine, expected([numbers(each, 3000) for each in range(ranks)])))
        dist.barrier()
        later = {state.job: state.parent for state in client.jobs() if state.job not in first}
        dist.barrier()
    return [parent == world for job, parent in first.items() if job != world], [*later.values()] == [world] * 4, right


def mesh_with_a_failure(rank: int, ranks: int, store: Any) -> Any:
    """The last rank gives up its row; returns what a sum of all ranks raises."""
    begin(rank, ranks, store)
    row = init_device_mesh("cpu", (2, ranks // 2)).get_group(1)
    dist.all_reduce(torch.ones(3000), group=row)
    dist.all_reduce(torch.ones(3000))
    if rank == ranks - 1:
        row.abort()
    try:
        while True:
            dist.all_reduce(torch.ones(3000))
    except HostError as error:
        return str(error)


ENOUGH: Final = 64 << 10
"""Bytes from which broadcasts of these tests go through the switches."""


def broadcasts(rank: int, ranks: int, store: Any) -> Any:
    """Large tensors of many types and layouts, from every root, bit by bit; then what went which way."""
    group = begin(rank, ranks, store)
    wrong = []
    enough = process_group.COPY_BYTES = ENOUGH
    for root, kind in enumerate((torch.float32, torch.bool, torch.int64, torch.complex64, torch.bfloat16)):
        drawn = torch.randint(256, (enough + 24,), generator=torch.Generator().manual_seed(root), dtype=torch.uint8)
        source = (drawn > 99) if kind is torch.bool else drawn.view(kind)
        mine = source.clone() if rank == root % ranks else torch.zeros_like(source)
        dist.broadcast(mine, root % ranks)
        if not same(mine, source):
            wrong.append(str(kind))
    odd = torch.arange(enough + 3, dtype=torch.int32).to(torch.uint8)
    mine = odd.clone() if rank == 1 else torch.zeros_like(odd)
    work = dist.broadcast(mine, 1, async_op=True)
    work.wait()
    if not same(mine, odd):
        wrong.append("a number of bytes that is no multiple of four")
    whole = torch.full((enough // 4, 3), rank)
    dist.broadcast(whole[:, 1], 2)
    if not torch.equal(whole, torch.tensor([rank, 2, rank]).expand_as(whole)):
        wrong.append("a column")
    dist.broadcast(torch.zeros(enough - 1, dtype=torch.uint8), 0)
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.broadcast(torch.zeros(enough), 0, group=pair)
    carried = {name: calls for name, calls in group.carried.items() if "broadcast" in name}
    return wrong, carried, pair.carried["gloo broadcast"] if rank < 2 else 1


def broadcasts_after_a_loss(rank: int, ranks: int, store: Any) -> Any:
    """A tensor of a rank that is there, then one of the rank that was killed."""
    begin(rank, ranks, store)
    dist.all_reduce(torch.ones(5000))
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(5000))
    process_group.COPY_BYTES = ENOUGH
    mine = torch.full((ENOUGH,), rank, dtype=torch.uint8)
    dist.broadcast(mine, 1)
    return bool((mine == 1).all()), outcome(lambda: dist.broadcast(mine, 2))["result"][0]


# --- training ---


class Scales(nn.Module):
    """Layers whose gradients are of very different sizes."""

    def __init__(self, unused: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(40, 57)
        self.norm = nn.BatchNorm1d(57)
        self.second = nn.Linear(57, 33)
        self.last = nn.Linear(33, 5)
        self.unused = nn.Linear(50, 50) if unused else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        result: torch.Tensor = self.last(self.second(hidden * 1e-3) * 1e-3) * 1e3 + x[:, :5] * 1e-3
        return result


def fixed_point_hook(ranks: int, bucket: Any) -> Any:
    """The sums of a bucket done locally, layer by layer, over any back end that can gather."""
    buffer = bucket.buffer().mul_(1.0 / ranks)
    gathered = [torch.empty_like(buffer) for _ in range(ranks)]
    dist.all_gather(gathered, buffer)
    layers = [[gradients[first : first + size] for gradients in gathered] for first, size in _layers(bucket)]
    buffer.copy_(torch.cat([expected(layer) for layer in layers]))
    future: Any = torch.futures.Future()
    future.set_result(buffer)
    return future


def _layers(bucket: Any) -> list[tuple[int, int]]:
    places, place = [], 0
    for gradient in bucket.gradients():
        places.append((place, gradient.numel()))
        place += gradient.numel()
    return places


def train(rank: int, ranks: int, how: str, local: bool) -> str:
    """A digest of the weights after a few steps."""
    torch.manual_seed(3)
    options: dict[str, Any] = {}
    if "small" in how:
        options["bucket_cap_mb"] = 0.008
    if "unused" in how:
        options["find_unused_parameters"] = True
    if "view" in how:
        options["gradient_as_bucket_view"] = True
    model = DistributedDataParallel(Scales("unused" in how), **options)
    if local:
        model.register_comm_hook(ranks, lambda state, bucket: fixed_point_hook(state, bucket))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    steps = rank if "join early" in how else 4 + rank if "join" in how else 4
    with Join([model]) if "join" in how else nullcontext():
        for _ in range(steps):
            optimizer.zero_grad()
            for turn in range(2 if "no_sync" in how else 1):
                inputs = torch.randn(16, 40, generator=generator)
                wanted = torch.randint(0, 5, (16,), generator=generator)
                with model.no_sync() if "no_sync" in how and turn == 0 else nullcontext():
                    nn.functional.cross_entropy(model(inputs), wanted).backward()
            optimizer.step()
    return digest(model)


def digest(model: nn.Module) -> str:
    """Digest of the weights' bits."""
    return hashlib.sha256(b"".join(value.detach().numpy().tobytes() for value in model.parameters())).hexdigest()


class Normed(nn.Module):
    """A layer, and the buffers of a normalisation, which DistributedDataParallel broadcasts before each pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(40, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 5))

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layers(inputs)


def compiled(rank: int, ranks: int, store: Any) -> Any:
    """Weights after steps of a model that is compiled with DistributedDataParallel around it, inside it, or not."""
    begin(rank, ranks, store)
    found = []
    for order in ("plain", "around", "inside"):
        model: Any = Normed()
        if order == "inside":
            model = torch.compile(model, backend="eager")
        model = DistributedDataParallel(model)
        step: Any = torch.compile(model, backend="eager") if order == "around" else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(3):
            optimizer.zero_grad()
            step(torch.randn(16, 40, generator=generator)).square().mean().backward()
            optimizer.step()
        found.append(digest(model))
    dist.destroy_process_group()
    return found


def training(rank: int, ranks: int, store: Any) -> Any:
    """The same training over the fabric, and with its sums done locally."""
    hows = ["plain", "small", "small unused view", "no_sync", "join", "join early small"]
    digests = {}
    for backend in ("weir", "gloo"):
        begin(rank, ranks, store, backend, backend)
        digests[backend] = [train(rank, ranks, how, backend == "gloo") for how in hows]
        if backend == "weir":
            carried = dict(dist.group.WORLD.carried)
        dist.destroy_process_group()
    return digests, carried["fabric all_reduce"]


SCALES: Final = tuple(10.0**-power for power in range(7))


class ScaledSum(nn.Module):
    """Its gradient is its inputs, of each layer by a scale of its own."""

    def __init__(self, sizes: Sequence[int] = (300,) * len(SCALES)) -> None:
        super().__init__()
        self.layers = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in sizes])

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        terms = [(layer * each).sum() for layer, each in zip(self.layers, inputs, strict=True)]
        return torch.stack(terms).sum()


def scaled_bucket(rank: int, ranks: int, store: Any) -> Any:
    """One bucket of DistributedDataParallel with layers of scales 1e-6 … 1, in its first steps: the buckets in use, and
    by layer whether its gradients have the bits that they have alone.
    """
    begin(rank, ranks, store)

    def inputs(of: int) -> list[torch.Tensor]:
        return [scale * numbers(of, 300 * len(SCALES))[300 * at :][:300] for at, scale in enumerate(SCALES)]

    model = DistributedDataParallel(ScaledSum())
    found = []
    for _ in range(3):
        model.zero_grad()
        model(inputs(rank)).backward()
        for at, layer in enumerate(model.module.layers):
            found.append(same(layer.grad, expected([inputs(each)[at] * (1.0 / ranks) for each in range(ranks)])))
    buckets = model._get_ddp_logging_data()["bucket_sizes"]
    dist.destroy_process_group()
    return buckets, found


def equal_buckets(rank: int, ranks: int, store: Any) -> Any:
    """Two models whose buckets have one size and other layers, the first of them small, and then a sum of that size.

    For each model and step, and for the sum, whether it has the bits of its layers alone, or of one flat tensor.
    """
    group = begin(rank, ranks, store)
    models = [([700, 100, 400], [1e-6, 1e3, 1e-3]), ([250, 400, 550], [1e3, 1e-6, 1.0]), ([40, 60], [1e-6, 1e3])]
    replicated = [DistributedDataParallel(ScaledSum(sizes)) for sizes, _ in models]

    def inputs(of: int, sizes: Sequence[int], scales: Sequence[float]) -> list[torch.Tensor]:
        return [scale * numbers(10 * of + at, size) for at, (size, scale) in enumerate(zip(sizes, scales, strict=True))]

    found = []
    for _ in range(3):
        for model, layout in zip(replicated, models, strict=True):
            model.zero_grad()
            model(inputs(rank, *layout)).backward()
            for at, layer in enumerate(model.module.layers):
                alone = [inputs(each, *layout)[at] * (1.0 / ranks) for each in range(ranks)]
                found.append(same(layer.grad, expected(alone)))
    before = group.carried["fabric all_reduce"]
    flat = [torch.cat(inputs(each, *models[0])) for each in range(ranks)]
    mine = flat[rank].clone()
    dist.all_reduce(mine)
    found += [same(mine, expected(flat)), group.carried["fabric all_reduce"] == before + 1]
    return found


def parts_of_many_scales(rank: int, ranks: int, store: Any) -> Any:
    """Reduce-scatter of parts of scales 1e-6 and 1e6 in every form, and FSDP2's of layers of scales 1e-8 to 1e2.

    Largest relative error of a part, by form; then of a layer, by scale, with layers kept apart.
    """
    from torch.distributed.fsdp import fully_shard

    begin(rank, ranks, store)

    def relative(got: torch.Tensor, parts: Sequence[torch.Tensor]) -> float:
        exact = torch.stack([part.double() for part in parts]).sum(0)
        return float((got.double() - exact).norm() / exact.norm())

    scales = [1e6, 1e-6, 1.0]
    given = [[scale * numbers(10 * each + at, 1100) for at, scale in enumerate(scales)] for each in range(ranks)]
    mine = [parts[rank] for parts in given]
    found = {}
    own = torch.empty(1100)
    dist.reduce_scatter(own, [part.clone() for part in given[rank]])
    found["list"] = relative(own, mine)
    dist.reduce_scatter_tensor(own.zero_(), torch.cat(given[rank]))
    found["tensor"] = relative(own, mine)
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(own.zero_(), torch.cat(given[rank]))
    found["coalesced"] = relative(own, mine)

    layers = [1.0, 1e-8, 1e2, 1e-5, 1e-3, 1e-8]
    sizes = [(600,), (7, 90), (50,), (600,), (33, 5), (1,)]
    inputs = [
        [
            scale * numbers(20 * each + at, int(np.prod(size))).view(size)
            for at, (scale, size) in enumerate(zip(layers, sizes, strict=True))
        ]
        for each in range(ranks)
    ]
    for name, shape in (("sharded", (ranks,)), ("replicated", (ranks, 1))):
        model = nn.Module()
        model.layers = nn.ParameterList([nn.Parameter(torch.ones(size)) for size in sizes])

        def forward(unused: int, model: Any = model) -> torch.Tensor:
            used = enumerate(zip(model.layers, inputs[rank], strict=True))
            return torch.stack([(layer * part).sum() for at, (layer, part) in used if at != unused]).sum()

        model.forward = forward
        names = ("replicas", "shards")[-len(shape) :]
        fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names))
        for unused in (-1, 3, 0):
            model.zero_grad()
            model(unused).backward()
            for at, layer in enumerate(model.layers):
                if at != unused:
                    exact = [tensor[at] for tensor in inputs]
                    found[f"{name} layer {at}, without {unused}"] = relative(layer.grad.full_tensor() * ranks, exact)
    return found


def hooks(rank: int, ranks: int, store: Any) -> Any:
    """Communication hooks, FSDP2 and ZeroRedundancyOptimizer train, to the same weights at all ranks.

    The hook for bf16 is called by one of another name: PyTorch refuses its own without NCCL.
    """
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    group = begin(rank, ranks, store)
    found = {}

    def steps(model: Any, optimizer: Any) -> None:
        generator = torch.Generator().manual_seed(rank)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 64, generator=generator)).square().mean().backward()
            optimizer.step()

    def layers() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

    def agreed(model: Any) -> bool:
        flat = torch.cat([p.detach().view(-1) for p in model.parameters()])
        everywhere = [torch.empty_like(flat) for _ in range(ranks)]
        dist.all_gather(everywhere, flat)
        return bool(flat.isfinite().all()) and all(flat.equal(tensor) for tensor in everywhere)

    registering: dict[str, Any] = {
        "fp16": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook),
        "bf16": lambda model: model.register_comm_hook(
            None, lambda state, bucket: default_hooks.bf16_compress_hook(state, bucket)
        ),
        "power": lambda model: model.register_comm_hook(
            powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook
        ),
    }
    for name, register in registering.items():
        model = DistributedDataParallel(layers())
        register(model)
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
        found[name] = agreed(model)
    model = DistributedDataParallel(layers())
    steps(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1))
    found["zero"] = agreed(model)
    before = group.carried["fabric reduce_scatter"]
    sharded = layers()
    shard: Any = fully_shard
    shard(sharded)
    steps(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1))
    found["fsdp2"] = group.carried["fabric reduce_scatter"] - before == 4
    return found


def balanced(rank: int, ranks: int, store: Any) -> Any:
    """Everyone's sizes in each step, where the last rank takes six times as long for a sample.

    No rank waits for the others within `step`: the others call it when the first one has.
    """
    begin(rank, ranks, store)
    model = DistributedDataParallel(nn.Linear(64, 64))
    sampler = BalancedSampler(4000, 90, model)
    found = []
    for rows in itertools.islice(iter(sampler), 12):
        found.append(sampler.sizes)
        assert len(rows) == sampler.sizes[rank]
        time.sleep(len(rows) * (0.006 if rank == ranks - 1 else 0.001))
        (sampler.scale * model(numbers(rank, len(rows) * 64).view(-1, 64)).mean()).backward()
        if rank:
            store.wait([f"step {len(found)}"])
        sampler.step()
        store.set(f"step {len(found)}", "")
    return found


def reported(rank: int, ranks: int, store: Any) -> Any:
    """Report before and after the first sum; return what the controller lists of it at rank 0."""
    group = begin(rank, ranks, store)
    torch_entry.report(step=0, loss=9.0)  # no job yet
    mine = torch.ones(5000)
    dist.all_reduce(mine)
    torch_entry.report(step=3, stage="decay", loss=mine[0] / 2, accuracy=0.5, exposed_ns=4_000)
    listed = None
    if rank == 0:
        control, job, _ = group._sums.place
        with ControlClient(control) as client:
            while listed is None:
                told = next(state.report for state in client.jobs() if state.job == job)
                if told.step:
                    listed = [told.step, told.stage, told.loss, told.accuracy, told.exposed_ns, told.bytes]
    dist.barrier()
    return listed


def phases(rank: int, ranks: int, store: Any) -> Any:
    """Compute and wait for a late rank; return the times that rank 0 has reported, and the time that all has taken."""
    group = begin(rank, ranks, store)
    mine = torch.ones(5000)
    begun_ns = time.monotonic_ns()
    dist.all_reduce(mine)
    time.sleep(0.2)
    if rank == 1:
        store.wait(["begun"])
        time.sleep(0.3)
    work = dist.all_reduce(mine, async_op=True)
    if rank == 0:
        store.set("begun", "")
    work.wait()
    listed = None
    if rank == 0:
        torch_entry.report(step=1)
        whole_ns = time.monotonic_ns() - begun_ns
        control, job, _ = group._sums.place
        with ControlClient(control) as client:
            while listed is None:
                told = next(state.report for state in client.jobs() if state.job == job)
                if told.step:
                    listed = [told.compute_ns, told.exposed_ns, whole_ns]
    dist.barrier()
    return listed


def integers(rank: int, ranks: int, store: Any) -> Any:
    """Sum integers up to the ends of int32 and beyond, and of other types; return what is wrong, and the ways taken."""
    group = begin(rank, ranks, store)
    wrong = []
    ends = torch.iinfo(torch.int32)
    for name, low, high in (("exact", ends.min // ranks, ends.max // ranks), ("wrapping", ends.min, ends.max)):
        parts = [
            torch.randint(low, high + 1, (5000,), generator=torch.Generator().manual_seed(each), dtype=torch.int64)
            for each in range(ranks)
        ]
        total = sum(parts).to(torch.int32)  # modulo 2^32
        mine = parts[rank].to(torch.int32)
        dist.all_reduce(mine)
        if not mine.equal(total):
            wrong.append(name)
    through_switches = group.carried["fabric all_reduce"]
    for kind in (torch.uint8, torch.int8, torch.int64):
        mine = torch.ones(5000, dtype=kind)
        dist.all_reduce(mine)
        if not mine.eq(ranks).all():
            wrong.append(str(kind))
    return wrong, through_switches, group.carried["fabric all_reduce"]


def _column(value: int, count: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix (count, 2), and its first column."""
    whole = torch.arange(2 * count).reshape(count, 2) + value
    return whole, whole[:, 0]


def strided(rank: int, ranks: int, store: Any) -> Any:
    """Every collective over Gloo of columns of matrices: names of those whose result or neighbours are wrong."""
    begin(rank, ranks, store)
    wrong: list[str] = []

    def mine(value: int, count: int = 7) -> torch.Tensor:
        return torch.arange(0, 2 * count, 2) + value

    def check(name: str, whole: torch.Tensor, value: int, want: torch.Tensor) -> None:
        neighbours = torch.arange(1, 2 * len(whole), 2) + value
        if not (torch.equal(whole[:, 0], want) and torch.equal(whole[:, 1], neighbours)):
            wrong.append(name)

    total = torch.stack([mine(each) for each in range(ranks)]).sum(0)
    whole, column = _column(rank)
    dist.all_reduce(column)
    check("all_reduce", whole, rank, total)
    whole, column = _column(rank)
    dist.all_reduce(column, dist.ReduceOp.MAX)
    check("all_reduce MAX", whole, rank, mine(ranks - 1))
    whole, column = _column(rank)
    work = dist.all_reduce(column, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    check("is_completed", whole, rank, total)
    whole, column = _column(rank)
    future = dist.all_reduce(column, async_op=True).get_future()
    future.wait()
    check("get_future", whole, rank, total)
    if not torch.equal(future.value()[0], total):
        wrong.append("the future's value")
    whole, column = _column(rank)
    dist.broadcast(column, 1)
    check("broadcast", whole, rank, mine(1))
    whole, column = _column(rank)
    dist.reduce(column, 0)
    check("reduce", whole, rank, total if rank == 0 else mine(rank))
    whole, column = _column(9)
    dist.scatter(column, [_column(each)[1] for each in range(ranks)] if rank == 1 else None, 1)
    check("scatter", whole, 9, mine(rank))
    parts = [_column(9) for _ in range(ranks)]
    dist.all_gather([part for _, part in parts], _column(rank)[1])
    for each, (whole, _) in enumerate(parts):
        check("all_gather", whole, 9, mine(each))
    parts = [_column(9) for _ in range(ranks)]
    dist.gather(_column(rank)[1], [part for _, part in parts] if rank == 0 else None, 0)
    for each, (whole, _) in enumerate(parts if rank == 0 else []):
        check("gather", whole, 9, mine(each))
    whole, column = _column(9, 7 * ranks)
    dist.all_to_all_single(column, _column(rank, 7 * ranks)[1])
    of_all = torch.cat([mine(each, 7 * ranks)[7 * rank : 7 * rank + 7] for each in range(ranks)])
    check("all_to_all_single", whole, 9, of_all)
    whole, column = _column(9)
    dist.reduce_scatter(column, [_column(rank + each)[1] for each in range(ranks)])
    check("reduce_scatter", whole, 9, total + ranks * rank)
    whole, column = _column(9)
    if rank == 0:
        dist.send(_column(0)[1], 1)
    elif rank == 1:
        dist.recv(column, 0)
        check("recv", whole, 9, mine(0))
    return wrong


# --- failures ---


def composed(rank: int, ranks: int, store: Any) -> Any:
    """Tensors that hold their numbers in others: the errors' types by kind, and what was wrong."""
    begin(rank, ranks, store)
    mesh = init_device_mesh("cpu", (ranks,))
    makers: dict[str, Callable[[torch.Tensor], Any]] = {
        "DTensor": lambda numbers: DTensor.from_local(numbers, mesh, [Replicate()], run_check=False),
        "MaskedTensor": lambda numbers: MaskedTensor(numbers, torch.ones_like(numbers, dtype=torch.bool)),
    }
    errors: dict[str, list[str]] = {}
    wrong = []
    for kind, make in makers.items():
        found = set()
        for size in (10 * ranks, 2000 * ranks, 1 << 18):
            part = torch.zeros(size // ranks)
            calls: dict[str, Callable[[], Any]] = {
                "all_reduce": lambda: dist.all_reduce(make(torch.ones(size))),  # noqa: B023
                "mean": lambda: dist.all_reduce(make(torch.ones(size)), dist.ReduceOp.AVG),  # noqa: B023
                "maximum": lambda: dist.all_reduce(make(torch.ones(size)), dist.ReduceOp.MAX),  # noqa: B023
                "broadcast": lambda: dist.broadcast(make(torch.ones(size)), 0),  # noqa: B023
                "reduce": lambda: dist.reduce(make(torch.ones(size)), 0),  # noqa: B023
                "input": lambda: dist.reduce_scatter_tensor(part, make(torch.ones(size // ranks * ranks))),  # noqa: B023
                "output": lambda: dist.reduce_scatter_tensor(make(part), torch.ones(len(part) * ranks)),  # noqa: B023
                "list": lambda: dist.reduce_scatter(part, [make(part)] * ranks),  # noqa: B023
                "gather": lambda: dist.all_gather([torch.zeros(size)] * ranks, make(torch.ones(size))),  # noqa: B023
            }
            for name, call in calls.items():
                result = outcome(call)["result"]
                found.add(result[0] if result else f"{name} of {size} is not refused")
                total = torch.ones(2000)
                dist.all_reduce(total)
                if total.unique().tolist() != [ranks]:
                    wrong.append(f"the sum after {name} of {size} {kind}")
        errors[kind] = sorted(found)
    for size in (10, 5000):
        late = all_reduce(torch.ones(size), "sum", dist.group.WORLD)
        dist.all_reduce(late)
        if late.unique().tolist() != [ranks * ranks]:
            wrong.append(f"{type(late).__name__} of {size}")
    return errors, wrong


def outcome(call: Any) -> Any:
    """Outcome of a call: its result, or its error's type and text, and the time limit in seconds that it kept."""
    began = time.monotonic()
    try:
        result: Any = call()
    except Exception as error:  # noqa: BLE001 (it is the outcome)
        result = [type(error).__name__, str(error)]
    return {"result": result, "seconds": time.monotonic() - began}


def mismatch(rank: int, ranks: int, store: Any) -> Any:
    """One rank's tensor has another size."""
    begin(rank, ranks, store)
    dist.all_reduce(torch.ones(3000))
    size = 2001 if rank == 1 else 2000
    return [outcome(lambda: dist.all_reduce(torch.ones(size))), outcome(lambda: dist.all_reduce(torch.ones(2000)))]


def refused(rank: int, ranks: int, store: Any) -> Any:
    """Rank 1 goes on after a call that was refused there alone: the outcome of its and the others' next sum, by call.

    Before, each call was refused at all ranks, with the error's type, and the sum after it was right.
    """
    group: Any = None
    integers, part = torch.ones(2000, dtype=torch.int64), torch.ones(1000)
    calls: dict[str, Callable[[], object]] = {
        "masked": lambda: dist.all_reduce(MaskedTensor(torch.ones(2000), torch.ones(2000, dtype=torch.bool))),
        "small": lambda: dist.all_reduce(MaskedTensor(torch.ones(7), torch.ones(7, dtype=torch.bool))),
        "gathered": lambda: dist.all_gather([part], MaskedTensor(part, part > 0)),
        "float8": lambda: dist.all_reduce(torch.ones(2000).to(torch.float8_e4m3fn)),
        "adasum": lambda: group.combine(integers, "adasum", ()),
        "parts": lambda: dist.reduce_scatter_tensor(part, torch.ones(2000 * ranks)),
        "bucket": lambda: group.sum_bucket(MaskedTensor(part, part > 0), ()),
    }
    found = {}
    for name, call in calls.items():
        group = begin(rank, ranks, store, name=name)
        kind, _ = outcome(call)["result"]
        total = torch.ones(2000)
        dist.all_reduce(total)
        if rank == 1:
            outcome(call)
        found[name] = kind, total.unique().tolist(), outcome(lambda: dist.all_reduce(torch.ones(2000)))["result"]
        dist.destroy_process_group()
    return found


def uneven(rank: int, ranks: int, store: Any) -> Any:
    """Rank 0 has three batches and leaves, the others have five: the outcome of each of their steps."""
    begin(rank, ranks, store)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(200, 50))

    def step() -> None:
        model.zero_grad()
        model(torch.ones(4, 200)).sum().backward()

    found = [outcome(step) for _ in range(3 if rank == 0 else 5)]
    if rank:
        store.add("through", 1)
    dist.destroy_process_group()
    while store.add("through", 0) < ranks - 1:  # Gloo's peers are there until all are through
        time.sleep(0.05)
    return found


def ways_differ(rank: int, ranks: int, store: Any) -> Any:
    """One rank calls over Gloo what the others call through the switches: before a first sum, and behind one."""
    torch_entry.register()
    found = []
    for name in ("first", "later"):
        dist.init_process_group(
            "weir",
            store=dist.PrefixStore(name, store),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=8),  # so that they compare after two
        )
        if name == "later":
            dist.all_reduce(torch.ones(3000))
        if rank == 1:
            found.append(outcome(lambda: dist.broadcast(torch.ones(7, dtype=torch.int64), 0)))
        else:
            found.append(outcome(lambda: dist.all_reduce(torch.ones(5000))))
        dist.destroy_process_group()
    return found


def waits_over_gloo(rank: int, ranks: int, store: Any) -> Any:
    """Rank 0 waits for a barrier: SIGINT ends that, and the others may come; then an abort does."""
    group = begin(rank, ranks, store)
    found = []
    if rank == 0:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            dist.barrier()
        except KeyboardInterrupt:
            found.append("interrupted")
    else:
        time.sleep(1)
        dist.barrier()
    dist.barrier()
    if rank == 0:
        threading.Timer(0.5, group.abort).start()
        found += outcome(dist.barrier)["result"]
    store.add("through", 1)
    while store.add("through", 0) < ranks:  # Gloo's peers are there until all are through
        time.sleep(0.05)
    return found


def killed(rank: int, ranks: int, store: Any) -> Any:
    """The last rank is killed, without a word, while the others sum."""
    begin(rank, ranks, store)
    mine = torch.full((3000,), float(rank + 1))
    dist.all_reduce(mine)
    store.add("summed", 1)
    if rank == ranks - 1:
        while store.add("summed", 0) < ranks:  # nobody waits for this sum any more
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    mine = torch.full((3000,), float(rank + 1))
    ended = outcome(lambda: dist.all_reduce(mine))
    later = torch.full((3000,), float(rank + 1))
    after = outcome(lambda: dist.all_reduce(later, dist.ReduceOp.AVG))
    return ended, mine.unique().tolist(), after, later.unique().tolist()


def bucket_sized(rank: int, ranks: int, store: Any) -> Any:
    """A rank is lost between the steps of a DistributedDataParallel: a gradient, and a sum of its bucket's size."""
    begin(rank, ranks, store)
    model = DistributedDataParallel(ScaledSum([2000, 550]), broadcast_buffers=False)
    ones = [torch.ones(2000), torch.ones(550)]
    for _ in range(2):
        model(ones).backward()
    if rank == ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3000))  # comes when the rank is known to be lost
    model.zero_grad()
    model(ones).backward()
    total = torch.ones(2550)
    dist.all_reduce(total)
    gradients = torch.cat([layer.grad for layer in model.module.layers])
    return gradients.unique().tolist(), total.unique().tolist()


def silent(rank: int, ranks: int, store: Any) -> Any:
    """The last rank makes no call, and lives: the others' call ends by its time-out, which says so."""
    begin(rank, ranks, store)
    dist.all_reduce(torch.ones(3000))
    if rank == ranks - 1:
        time.sleep(4)
        return None
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=2)
    group: Any = dist.group.WORLD
    return outcome(lambda: group.allreduce([torch.ones(3000)], options).wait())


def aborted(rank: int, ranks: int, store: Any) -> Any:
    """Rank 0 aborts from another thread while it waits for a sum that the others have not come to."""
    group = begin(rank, ranks, store)
    dist.all_reduce(torch.ones(3000))
    if rank == 0:
        threading.Timer(0.5, group.abort).start()
        return outcome(lambda: dist.all_reduce(torch.ones(3000)) or "summed"), str(group.errored())
    time.sleep(1)
    return outcome(lambda: dist.all_reduce(torch.ones(3000))), str(group.errored())


def interrupted(rank: int, ranks: int, store: Any) -> Any:
    """SIGINT reaches a rank that waits."""
    begin(rank, ranks, store)
    dist.all_reduce(torch.ones(3000))
    if rank == 0:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            dist.all_reduce(torch.ones(3000))
        except KeyboardInterrupt:
            dist.all_reduce(torch.ones(4000))  # the group goes on
            return "interrupted"
    time.sleep(1)
    dist.all_reduce(torch.ones(3000))
    dist.all_reduce(torch.ones(4000))
    return "summed"


def configured_anew(rank: int, ranks: int, store: Any) -> Any:
    """Recovery like torchft's: one rank is gone; the others configure the same group without it, then with it again."""
    from weir.hosts.torch.process_group import WeirProcessGroup

    torch_entry.register()
    port = int(os.environ["STORE_PORT"])
    server = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    found: list[Any] = []
    group = WeirProcessGroup(dist.PrefixStore("q0", server), rank, ranks, timedelta(seconds=60))

    def total(size: int) -> list[float]:
        options = dist.AllreduceOptions()
        mine = torch.full((3000,), 10.0**rank)
        group.allreduce([mine], options).wait()
        result: list[float] = mine.unique().tolist()
        return [*result, size]

    found.append(total(ranks))
    if rank == ranks - 1:
        group.abort()  # as a crash does
    else:
        found.append(outcome(lambda: total(ranks))["result"][0])
        found.append(group.errored() is not None)
        group.configure(f"127.0.0.1:{port}/q1", "replica", rank, ranks - 1, quorum_id=1)
        found.append(group.errored() is None)
        found.append(total(ranks - 1))
    group.configure(f"127.0.0.1:{port}/q2", "replica", rank, ranks, quorum_id=2)
    found.append(total(ranks))
    group.shutdown()
    dist.PrefixStore("end", server).add("done", 1)
    while dist.PrefixStore("end", server).add("done", 0) < ranks and rank == 0:
        time.sleep(0.05)
    return found


def destroyed_early(rank: int, ranks: int, store: Any) -> Any:
    """Rank 0 starts a sum without the others, and destroys its group."""
    begin(rank, ranks, store)
    dist.barrier()
    if rank:
        time.sleep(2)  # Gloo's peers are there until all are through its barrier
        return None
    dist.all_reduce(torch.ones(3000), async_op=True)
    return outcome(dist.destroy_process_group)


# --- ranks that come again ---


def comes_back(rank: int, ranks: int, store: Any) -> Any:
    """The last rank's process is killed in mid-step, and a restarted one takes its place without torchft.

    Returns the result of `rejoins` for each rank, and the exit of both of the last rank's processes.
    """
    if "DIES" in os.environ and rank == ranks - 1:
        awaited = "gone on" if os.environ["WEIR_POLICY"] == "continue" else ""
        answer = _in_lives(_rejoining_process, rank, ranks, store, awaited)
    else:
        answer = rejoins(rank, ranks, store, dies=False)
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < ranks:
        time.sleep(0.05)
    return answer


def _in_lives(live: Any, rank: int, ranks: int, store: Any, awaited: str) -> Any:
    """Result of a process that replaces a killed one as soon as that key is in the store, and the exit of both."""
    context = get_context("fork")
    statuses = []
    for dies in (True, False):
        if not dies and awaited:
            store.get(awaited)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=live, args=(rank, ranks, store, dies, theirs))
        process.start()
        theirs.close()
        if not dies:
            answer = ours.recv()
        process.join()
        statuses.append(process.exitcode)
    return {**answer, "statuses": statuses}


def _rejoining_process(rank: int, ranks: int, store: Any, dies: bool, answers: Any) -> None:
    answers.send(rejoins(rank, ranks, store, dies))
    dist.destroy_process_group()
    end()


def rejoins(rank: int, ranks: int, store: Any, dies: bool) -> Any:
    """Training that ranks come back to: the steps that this process made, each with the sum of all ranks' numbers.

    It ends when all have made `TOGETHER` steps together, and as many after the one at which a process dies.
    """
    torch_entry.register()
    torch.manual_seed(10 * (rank == ranks - 1 and not dies))  # a returning rank starts with other weights
    model = nn.Linear(60, 40)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    made: list[list[Any]] = []

    def train(progress: Any) -> int:
        replicated = DistributedDataParallel(model)
        together = 0
        while progress.step < DIES_AT + TOGETHER or together < TOGETHER:
            optimizer.zero_grad()
            loss = (replicated(numbers(100 * progress.step + rank, 8 * 60).view(8, 60)) ** 2).mean()
            if dies and progress.step == DIES_AT:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            mine = torch.full((3000,), 10.0**rank)
            dist.all_reduce(mine)
            optimizer.step()
            (total,) = mine.unique().tolist()
            made.append([progress.step, total])
            progress.step += 1
            together = together + 1 if total == EVERYONE else 0
            if total != EVERYONE:
                store.set("gone on", "")
        return int(progress.step)

    steps = torch_entry.rejoining(
        train,
        {"model": model, "optimizer": optimizer},
        store=store,
        rank=rank,
        size=ranks,
        timeout=timedelta(seconds=60),
    )
    return {"steps": steps, "made": made, "weights": digest(model)}


def recovered(rank: int, ranks: int, store: Any) -> Any:
    """torchft's own flow: the last replica's process is killed in mid-step, and a restarted one takes its part."""
    if rank == 0:
        from torchft.coordination import LighthouseServer

        lighthouse = LighthouseServer(
            "127.0.0.1:0", min_replicas=ranks - 1, join_timeout_ms=10_000, quorum_tick_ms=50, heartbeat_timeout_ms=4000
        )
        store.set("lighthouse", lighthouse.address())
    if rank < ranks - 1:
        answer = replica(rank, ranks, store, dies=False)
    else:
        answer = _in_lives(_replica_process, rank, ranks, store, f"with {ranks - 1}")
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < ranks:  # the others speak with its lighthouse
        time.sleep(0.05)
    return answer


def _replica_process(rank: int, ranks: int, store: Any, dies: bool, answers: Any) -> None:
    answers.send(replica(rank, ranks, store, dies))
    end()


def replica(rank: int, ranks: int, store: Any, dies: bool) -> Any:
    """One replica of a model, until all have made some steps together after one was lost and has come again.

    For each step that was committed its number and how many took part; and the weights in the end.
    """
    from torchft import DistributedDataParallel as Replicated
    from torchft import Manager, Optimizer

    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(rank + 10 * dies)  # a returning rank has other weights, until a survivor's reach it
    model = nn.Linear(60, 40)
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    group = torch_entry.unconfigured(timedelta(seconds=30))
    manager = Manager(
        pg=group,
        load_state_dict=lambda state: (model.load_state_dict(state["model"]), inner.load_state_dict(state["inner"])),
        state_dict=lambda: {"model": model.state_dict(), "inner": inner.state_dict()},
        min_replica_size=ranks - 1,
        use_async_quorum=False,
        timeout=timedelta(seconds=30),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=own.port,
        lighthouse_addr=store.get("lighthouse").decode(),
        replica_id=f"replica_{rank}",
        hostname="127.0.0.1",
    )
    store.add("ready", 1)
    while store.add("ready", 0) < ranks:  # all are known to the lighthouse, which waits for them at the first step
        time.sleep(0.05)
    replicated = Replicated(manager, model)
    optimizer = Optimizer(manager, inner)
    committed: list[list[int]] = []
    while [took for _, took in committed[-TOGETHER:]] != [ranks] * TOGETHER or committed[-1][0] < 2 * DIES_AT:
        optimizer.zero_grad()
        step = manager.current_step()
        loss = (replicated(numbers(100 * step + rank, 8 * 60).view(8, 60)) ** 2).mean()
        if dies and step == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        if manager.current_step() > step:
            committed.append([step, manager.num_participants()])
            store.set(f"with {manager.num_participants()}", "")
        time.sleep(0.02)
    manager.shutdown(wait=False)
    group.shutdown()
    return {"committed": committed, "weights": digest(model), "sums": group.carried["fabric all_reduce"]}


def compressed(rank: int, ranks: int, store: Any) -> Any:
    """Results of training with compressing hooks over both back ends."""
    torch_entry.register()
    return {backend: hook_scenarios.play(backend, rank, ranks, store) for backend in ("weir", "gloo")}
