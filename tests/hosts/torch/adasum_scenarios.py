"""Ranks that combine gradients by Adasum, AdaCons or in racks: each function is one rank's part, as in `scenarios`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weir
from weir.hosts.torch.hooks import HiTopKState, RackGroups, adacons_hook, adasum_hook, hitopk_hook
from weir.hosts.torch.hooks.adasum import start_adasum
from weir.tests.hosts.torch.hook_scenarios import Bucket
from weir.tests.hosts.torch.scenarios import begin, end, numbers

__all__ = ["end"]

Vectors = Sequence[torch.Tensor]


def pair(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    dot = a @ b
    return (1 - dot / (2 * a @ a)) * a + (1 - dot / (2 * b @ b)) * b


def tree(vectors: Vectors) -> torch.Tensor:
    """Adasum of 2^k vectors, float64."""
    wide = [vector.double() for vector in vectors]
    while len(wide) > 1:
        wide = [pair(a, b) for a, b in zip(wide[::2], wide[1::2], strict=True)]
    return wide[0]


def consensus(vectors: Vectors) -> torch.Tensor:
    """AdaCons of vectors at its first call, float64."""
    wide = torch.stack([vector.double() for vector in vectors])
    weights = wide @ wide.sum(0) / (wide**2).sum(1)
    return weights @ wide / weights.sum()


def near(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool((found.double() - wanted).norm() < 1e-5 * wanted.norm())


def model_of(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4))


def backward(model: nn.Module, rank: int) -> None:
    (model(numbers(100 + rank, 80).view(4, 20)) ** 2).sum().backward()


def gradients(model: nn.Module, rank: int, ranks: int) -> list[list[torch.Tensor]]:
    """Every rank's own gradients: by parameter, by rank."""
    model.zero_grad()
    backward(model, rank)
    return [gathered(parameter.grad, ranks) for parameter in model.parameters() if parameter.grad is not None]


def gathered(own: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    parts = [torch.empty(own.numel()) for _ in range(ranks)]
    dist.all_gather(parts, own.reshape(-1).contiguous())
    return parts


def is_same_everywhere(model: nn.Module, ranks: int, what: str) -> bool:
    flat = torch.cat(
        [(parameter.grad if what == "grad" else parameter.detach()).reshape(-1) for parameter in model.parameters()]
    )
    return all(part.equal(flat) for part in gathered(flat, ranks))


def hooks(rank: int, ranks: int, store: Any) -> Any:
    """DDP's gradients under each hook against the plain formulas, for each parameter; and the same at all ranks."""
    begin(rank, ranks, store)
    found: dict[str, list[bool]] = {}
    own = gradients(model_of(0), rank, ranks)
    racks = RackGroups([[0, 1], [2, 3]])
    wanted = {
        "adasum": [tree(parts) for parts in own],
        "racks": [tree([parts[0] + parts[1], parts[2] + parts[3]]) for parts in own],
        "adacons": [consensus([torch.cat(each) for each in zip(*own, strict=True)])],
    }
    for name, state, hook in (
        ("adasum", None, adasum_hook),
        ("racks", racks, adasum_hook),
        ("adacons", dist.group.WORLD, adacons_hook),
    ):
        model = DistributedDataParallel(model_of(0))
        model.register_comm_hook(state, hook)
        backward(model, rank)
        got = [parameter.grad.reshape(-1) for parameter in model.parameters() if parameter.grad is not None]
        if name == "adacons":
            got = [torch.cat(got)]
        found[name] = [near(*each) for each in zip(got, wanted[name], strict=True)]
        found[name].append(is_same_everywhere(model, ranks, "grad"))
        for _ in range(2):  # buckets are built anew after the first step
            model.zero_grad()
            backward(model, rank)
        found[name].append(is_same_everywhere(model, ranks, "grad"))
    return found


def optimizers(rank: int, ranks: int, store: Any) -> Any:
    """Steps of `DistributedOptimizer` against the own step's change, combined by the plain formula."""
    begin(rank, ranks, store)
    found = []
    for op, combine in (
        (weir.Adasum, tree),
        (weir.Average, lambda parts: torch.stack([*parts]).double().mean(0)),
        (weir.Sum, lambda parts: torch.stack([*parts]).double().sum(0)),
    ):
        model, alone = model_of(1), model_of(1)
        optimizer = weir.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters(), op=op
        )
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        own = torch.optim.SGD(alone.parameters(), lr=0.01)
        for _ in range(2):
            starts = [parameter.detach().clone() for parameter in model.parameters()]
            alone.load_state_dict(model.state_dict())
            for trained, stepping in ((alone, own), (model, optimizer)):
                stepping.zero_grad()
                backward(trained, rank)
                stepping.step()
            for before, after, other in zip(starts, model.parameters(), alone.parameters(), strict=True):
                change = combine(gathered((other - before).detach(), ranks))
                found.append(bool(((after - before).reshape(-1) - change).norm() < 1e-4 * change.norm()))
            schedule.step()
            own.param_groups[0]["lr"] *= 0.5
        found.append(is_same_everywhere(model, ranks, "weights"))
    return found


def passes(rank: int, ranks: int, store: Any) -> Any:
    """Two backward passes where one is announced; then two where two are."""
    begin(rank, ranks, store)
    model = model_of(2)
    one = weir.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    backward(model, rank)
    try:
        backward(model, rank)
    except Exception as error:  # noqa: BLE001 (autograd may wrap it)
        refused = type(error).__name__
    model.zero_grad()
    one.step()
    other = model_of(2)
    two = weir.DistributedOptimizer(torch.optim.SGD(other.parameters(), lr=0.01), backward_passes_per_step=2)
    backward(other, rank)
    backward(other, rank)
    two.step()
    return [refused, is_same_everywhere(other, ranks, "weights")]


def three_ranks(rank: int, ranks: int, store: Any) -> Any:
    """Adasum of three ranks."""
    begin(rank, ranks, store)
    start_adasum(torch.ones(2000), [], None)


def three_racks(rank: int, ranks: int, store: Any) -> Any:
    begin(rank, ranks, store)
    RackGroups([[0], [1], [2]])


def over_gloo(rank: int, ranks: int, store: Any) -> Any:
    begin(rank, ranks, store, "gloo")
    model = DistributedDataParallel(model_of(0))
    model.register_comm_hook(None, adasum_hook)
    backward(model, rank)


def hitopk(rank: int, ranks: int, store: Any) -> Any:
    begin(rank, ranks, store)
    return hierarchical(rank)


def hitopk_over_gloo(rank: int, ranks: int, store: Any) -> Any:
    begin(rank, ranks, store, "gloo")
    return hierarchical(rank)


def hierarchical(rank: int) -> Any:
    """HiTopKComm of four ranks in two racks against NumPy; whole numbers, so that all sums are exact."""
    racks, size, step_count = [[0, 2], [1, 3]], 2_501, 6
    draws = np.random.default_rng(7)
    steps = draws.integers(-1_000, 1_000, (step_count, 4, size)).astype(np.float32)
    length = -(-size // 2)
    sums = np.pad(np.stack([steps[0, rack].sum(0) for rack in racks]), ((0, 0), (0, 2 * length - size)))
    shards = sums.reshape(2, 2, length)
    k = round(0.1 * length)
    for shard in shards.reshape(-1, length):
        shard[np.argsort(-np.abs(shard), kind="stable")[k:]] = 0
    once = shards.sum(0).reshape(-1)[:size] / 4
    first, second = nn.Parameter(torch.zeros(500)), nn.Parameter(torch.zeros(2_001))

    def mean(state: Any, values: np.ndarray[Any, Any], *, turned: bool = False) -> np.ndarray[Any, Any]:
        parameters = [second, first] if turned else [first, second]
        values = np.concatenate([values[500:], values[:500]]) if turned else values
        result = hitopk_hook(state, Bucket(parameters, torch.from_numpy(values.copy()))).wait().numpy()
        return np.concatenate([result[2_001:], result[:2_001]]) if turned else result

    found = {"one step": np.array_equal(mean(HiTopKState(racks, 0.1, feedback=False), steps[0, rank]), once)}
    whole = mean(HiTopKState(racks, 1.0), steps[0, rank])
    found["all numbers"] = np.array_equal(whole, steps[0].sum(0) / 4)
    state = HiTopKState(racks, 0.1)
    sent = np.zeros(size, np.float32)
    for number, step in enumerate(steps):  # buckets in another order from the third step on, and a restart
        if number == 4:
            kept, state = state.state_dict(), HiTopKState(racks, 0.1)
            state.codec_state.names([first, second])
            state.load_state_dict(kept)
        sent += mean(state, step[rank], turned=number >= 2)
    own = np.concatenate([kept for name, kept in state.state_dict().items() if name.startswith("residual/")])
    missing = torch.from_numpy(own)
    dist.all_reduce(missing)
    found["nothing is lost"] = np.array_equal(sent * 4 + missing.numpy(), steps.sum((0, 1)))
    found["something is kept"] = bool(missing.abs().sum() > 0)
    broken = steps[0, rank].copy()
    broken[9] = np.inf if rank == 1 else 0
    poisoned = mean(HiTopKState(racks, 0.1), broken)
    found["an infinity is a NaN of its shard"] = bool(
        np.isnan(poisoned[:1250]).all() and np.isfinite(poisoned[1251:]).all()
    )
    model = DistributedDataParallel(model_of(0))
    model.register_comm_hook(HiTopKState(racks, 0.2), hitopk_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(numbers(100 + rank, 80).view(4, 20)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found["it trains"] = losses[-1] < 0.5 * losses[0]
    found["same weights"] = is_same_everywhere(model, 4, "weights")
    return found


def unequal_racks(rank: int, ranks: int, store: Any) -> Any:
    begin(rank, ranks, store)
    HiTopKState([[0, 1], [2]])
