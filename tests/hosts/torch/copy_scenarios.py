"""Scenarios of ranks that gather tensors, and that need parts of sums: each function is one rank's part."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from weir import torch_entry
from weir.hosts.torch import process_group
from weir.tests.hosts.torch.scenarios import begin, digest, end, numbers, outcome, same

__all__ = ["end"]

ENOUGH: Final = 8 << 10
"""Bytes of a result from which copies of these tests go through the switches."""


def drawn(seed: int, count: int, kind: torch.dtype) -> torch.Tensor:
    """Tensor of any bits."""
    generator = torch.Generator().manual_seed(seed)
    if kind is torch.bool:
        return torch.rand(count, generator=generator) > 0.5
    size = torch.empty(0, dtype=kind).element_size()
    return torch.randint(256, (count * size,), generator=generator, dtype=torch.uint8).view(kind)


def gathers(rank: int, ranks: int, store: Any) -> Any:
    """Every form of all_gather, of drawn types, sizes and layouts: names of the wrong ones, and the paths."""
    group = begin(rank, ranks, store)
    process_group.COPY_BYTES = ENOUGH
    rng = torch.Generator().manual_seed(5)
    wrong: list[str] = []
    kinds = (torch.float32, torch.bool, torch.int64, torch.complex64, torch.bfloat16, torch.uint8, torch.float64)
    for number, kind in enumerate(kinds):
        count = int(torch.randint(ENOUGH // 3 + 1, ENOUGH, (1,), generator=rng))
        parts = [drawn(10 * number + each, count, kind) for each in range(ranks)]
        listed = [torch.zeros_like(part) for part in parts]
        dist.all_gather(listed, parts[rank])
        whole = torch.zeros(ranks * count, dtype=kind)
        dist.all_gather_into_tensor(whole, parts[rank])
        if not all(same(got, want) for got, want in zip(listed, parts, strict=True)) or not same(
            whole, torch.cat(parts)
        ):
            wrong.append(f"{count} {kind}")
    count = ENOUGH // 4
    parts = [drawn(each, count, torch.int32) for each in range(ranks)]
    whole = torch.zeros(ranks * count, dtype=torch.int32)
    own = whole[rank * count : (rank + 1) * count]
    own.copy_(parts[rank])
    dist.all_gather_into_tensor(whole, own)
    if not same(whole, torch.cat(parts)):
        wrong.append("a part in place")
    columns = [torch.full((count, 2), 9, dtype=torch.int32) for _ in range(ranks)]
    dist.all_gather([column[:, 1] for column in columns], parts[rank].repeat_interleave(2)[::2])
    if not all(
        torch.equal(column, torch.stack([torch.full_like(part, 9), part], 1))
        for column, part in zip(columns, parts, strict=True)
    ):
        wrong.append("columns")
    matrix = torch.zeros(count, ranks, dtype=torch.int32).t()
    dist.all_gather_into_tensor(matrix, parts[rank].view(1, -1))
    if not torch.equal(matrix, torch.stack(parts)):
        wrong.append("a transposed result")
    sizes = [(3, torch.uint8), (count, torch.float32), (7, torch.int16), (count + 1, torch.float64)]
    sources = [[drawn(20 * at + each, *size) for at, size in enumerate(sizes)] for each in range(ranks)]
    outputs = [torch.zeros(ranks * count, dtype=kind) for count, kind in sizes]
    with dist._coalescing_manager():
        for output, source in zip(outputs, sources[rank], strict=True):
            dist.all_gather_into_tensor(output, source)
    if not all(same(output, torch.cat(each)) for output, each in zip(outputs, zip(*sources, strict=True), strict=True)):
        wrong.append("coalesced")
    before, behind = numbers(rank, 9000), numbers(rank + 7, 9000)
    works = [
        dist.all_reduce(before, async_op=True),
        dist.all_gather_into_tensor(whole.zero_(), parts[rank], async_op=True),
        dist.all_reduce(behind, async_op=True),
    ]
    for work in reversed(works):
        work.wait()
    if not (same(whole, torch.cat(parts)) and all(work.is_success() for work in works)):
        wrong.append("between sums")
    (value,) = dist.all_gather_into_tensor(whole.zero_(), parts[rank], async_op=True).get_future().wait()
    if not same(value, torch.cat(parts)):
        wrong.append("the future's value")
    if not same(all_gather_tensor(parts[rank], 0, dist.group.WORLD) + 0, torch.cat(parts)):
        wrong.append("functional")
    dist.all_gather_into_tensor(torch.zeros(3 * ranks), torch.zeros(3))
    carried = {name: calls for name, calls in group.carried.items() if "gather" in name}
    return wrong, carried


def sharded(rank: int, ranks: int, store: Any) -> Any:
    """DTensors that are redistributed, uneven ones too; and by back end the weights after steps of FSDP2 and ZeRO."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    process_group.COPY_BYTES = 4 << 10
    found: dict[str, Any] = {}
    for backend in ("weir", "gloo"):
        group = begin(rank, ranks, store, backend, backend)
        torch_entry.register()
        mesh = init_device_mesh("cpu", (ranks,))
        wrong = []
        for shape in ((90, 40), (91, 40), (ranks - 1, 9000)):
            whole = numbers(3, shape[0] * shape[1]).view(shape)
            for dim in (0, 1):
                tensor = distribute_tensor(whole, mesh, [Shard(dim)])
                if not same(tensor.redistribute(mesh, [Replicate()]).to_local().contiguous(), whole):
                    wrong.append(f"{shape} by {dim}")
                if not same(tensor.redistribute(mesh, [Shard(1 - dim)]).full_tensor().contiguous(), whole):
                    wrong.append(f"{shape} from {dim} to the other")
        weights = []
        for two_groups in (False, True):
            torch.manual_seed(1)
            model: Any = nn.Sequential(nn.Linear(64, 65), nn.ReLU(), nn.Linear(65, 64))
            shard: Any = fully_shard
            for layer in (*model[::2], model):
                shard(layer)
            if two_groups and hasattr(model, "set_separate_reduce_scatter_group"):  # PyTorch 2.13 and later
                model.set_separate_reduce_scatter_group()
            _train(model, torch.optim.Adam(model.parameters(), lr=0.01), rank)
            weights.append(torch.cat([parameter.full_tensor().detach().view(-1) for parameter in model.parameters()]))
        fsdp2, apart = weights
        if not same(fsdp2, apart):
            wrong.append("two groups")
        torch.manual_seed(1)
        replicated = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 65), nn.ReLU(), nn.Linear(65, 64)))
        _train(replicated, ZeroRedundancyOptimizer(replicated.parameters(), torch.optim.Adam, lr=0.01), rank)
        zero = torch.cat([parameter.detach().view(-1) for parameter in replicated.parameters()])
        carried = group.carried["fabric all_gather"] if backend == "weir" else 0
        found[backend] = fsdp2, zero, wrong, carried, digest(replicated)
        dist.destroy_process_group()
    ours, theirs = found["weir"], found["gloo"]
    return [float((a - b).abs().max()) for a, b in zip(ours[:2], theirs[:2], strict=True)], ours[2:], theirs[2]


def _train(model: Any, optimizer: Any, rank: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 64, generator=generator)).square().mean().backward()
        optimizer.step()


def one_call(rank: int, ranks: int, store: Any) -> Any:
    """One large call, named by the environment; the number of bytes of its tensor."""
    begin(rank, ranks, store)
    process_group.COPY_BYTES = ENOUGH
    count = ranks * (32 << 10)
    mine, part = torch.ones(count), torch.ones(count // ranks)
    calls: dict[str, Any] = {
        "all_reduce": lambda: dist.all_reduce(mine),
        "reduce": lambda: dist.reduce(mine, 1),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, mine),
        "all_gather": lambda: dist.all_gather_into_tensor(mine, part),
        "broadcast": lambda: dist.broadcast(mine, 1),
    }
    calls[os.environ["CALL"]]()
    return mine.nbytes


def gathers_after_a_loss(rank: int, ranks: int, store: Any) -> Any:
    """A gather that a rank never comes to, since it is killed."""
    begin(rank, ranks, store)
    process_group.COPY_BYTES = ENOUGH
    part, whole = torch.ones(ENOUGH), torch.zeros(ranks * ENOUGH)
    dist.all_gather_into_tensor(whole, part)
    if rank == ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return outcome(lambda: dist.all_gather_into_tensor(whole, part))["result"]


def gathers_differ(rank: int, ranks: int, store: Any) -> Any:
    """One rank gathers another size, as the group's first call."""
    begin(rank, ranks, store)
    process_group.COPY_BYTES = ENOUGH
    count = ENOUGH + 64 * (rank == 1)
    return outcome(lambda: dist.all_gather_into_tensor(torch.zeros(ranks * count), torch.ones(count)))["result"]
