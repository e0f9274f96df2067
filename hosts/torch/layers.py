"""Layers of a flat tensor: which sums are buckets of DistributedDataParallel, and where the layers of FSDP2 lie.

::

    DistributedDataParallel ─ forward hook ─▶ its Reducer is given a ReducerGroup
    Reducer ─ bucket ─▶ ReducerGroup ─ bucket, cuts ─▶ WeirProcessGroup       any other call ─▶ WeirProcessGroup
    FSDP2 ─ flat tensor ─▶ WeirProcessGroup ─▶ sizes_of_shards

The caller is known by the process group or the function that it calls from, never by the size of what it sums. The
layout of the buckets is read after a forward pass, at the first one and whenever the ranks have broadcast a new order
of parameters. A rank that has joined early, by `Join`, reads it before it takes its part in the others' backward pass.
All ranks do so at the same calls, so that all cut alike.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from types import FunctionType, MethodType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import JoinHook
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

_FSDP: Final = "torch.distributed.fsdp._fully_shard._fsdp_collectives"
_hooked: Final[list[object]] = []
distributed_modules: Final[weakref.WeakSet[nn.Module]] = weakref.WeakSet()
"""Each DistributedDataParallel of this process."""
_kept: Final[set[type[Any]]] = set()
"""Classes whose operations the compiler does not trace."""
_reducers: Final[weakref.WeakKeyDictionary[Any, ReducerGroup]] = weakref.WeakKeyDictionary()
"""Per DistributedDataParallel, the process group of its reducer; C++ keeps the group, but not its Python methods."""


def watch_modules(group: type[Any]) -> None:
    """Install the hook on each DistributedDataParallel that is made from now on. May be repeated.

    Args:
        group: Class of the process groups that sum the buckets.
    """
    if not _hooked:
        _hooked.append(register_module_module_registration_hook(partial(_registered, group)))


def _registered(group: type[Any], module: nn.Module, name: str, submodule: nn.Module | None) -> None:
    if isinstance(module, DistributedDataParallel) and name == "module":
        distributed_modules.add(module)
        for kind in (group, ReducerGroup):
            _keep_from_compiler(kind)
        module.register_forward_hook(torch.compiler.disable(_after_forward))
        module.join_hook = MethodType(_join_hook, module)


def _keep_from_compiler(kind: type[Any]) -> None:
    """Exclude a process group's operations from torch.compile.

    A compiled DistributedDataParallel broadcasts its buffers in C++, which calls these methods while the compiler
    traces. It is done with the first module, not at import, since it loads the compiler, as that module does anyway.
    """
    if kind not in _kept:
        _kept.add(kind)
        for name, method in list(vars(kind).items()):
            operation = not name.startswith("__") and callable(getattr(dist.ProcessGroup, name, None))
            if operation and isinstance(method, FunctionType):
                setattr(kind, name, torch.compiler.disable(method))


def _after_forward(module: Any, inputs: Any, output: Any) -> None:
    """Look at the buckets before the backward pass, in which the reducer's lock is held."""
    _begin_buckets(module)


def _join_hook(module: Any, **options: Any) -> JoinHook:
    """Return the hook by which the module takes part in `Join`; the options are PyTorch's."""
    return _EarlyRank(module, DistributedDataParallel.join_hook(module, **options))


class _EarlyRank(JoinHook):
    """Part of a rank without further batches in the others' steps: DistributedDataParallel's own, with buckets cut as
    theirs are.
    """

    def __init__(self, module: Any, inner: JoinHook) -> None:
        self._module = module
        self._inner = inner

    def main_hook(self) -> None:
        """Add zeros to the others' sums of one step."""
        self._module.reducer._rebuild_buckets()  # the inner hook's first call, which does nothing the second time
        _begin_buckets(self._module)
        self._inner.main_hook()

    def post_hook(self, is_last_joiner: bool) -> None:
        self._inner.post_hook(is_last_joiner)


def _begin_buckets(module: Any) -> None:
    """Let the module's reducer sum its buckets by a ReducerGroup that knows their layers."""
    group = module.process_group
    if not hasattr(group, "sum_bucket"):
        return
    reducer_group = _reducers.get(module)
    if reducer_group is None or reducer_group.group is not group:
        reducer_group = _reducers[module] = ReducerGroup(group)
        module.reducer._update_process_group(reducer_group)
    reducer_group.begin(module.reducer)


class ReducerGroup(dist.ProcessGroup):
    """The process group that one DistributedDataParallel's reducer calls: its floating sums are buckets.

    Buckets come in their order, all of them in each backward pass. A communication hook of the user's calls its own
    process group instead.
    """

    def __init__(self, group: Any) -> None:
        super().__init__(group.rank(), group.size())
        self.group = group
        """The WeirProcessGroup that sums them."""
        self._is_read = False
        self._layers: list[list[int]] = []
        """Per bucket, the numbers of elements of its layers."""
        self._next = 0

    def begin(self, reducer: Any) -> None:
        """Start with the first bucket; read the layout again if the order of parameters has changed."""
        self._next = 0
        if not self._is_read:
            self._is_read = True
            buckets = reducer._get_zeros_like_grad_buckets()
            self._layers = [[layer.numel() for layer in bucket.gradients()] for bucket in buckets]

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Sum one bucket of DDP in chunks that end with its layers.

        The map of used parameters, which has integers, is summed by the group itself.
        """
        (tensor,) = tensors
        if not tensor.is_floating_point():
            return self.group.allreduce(tensors, opts)
        layers = self._layers[self._next] if self._layers else []
        self._next = (self._next + 1) % max(len(self._layers), 1)
        cuts = inner_ends(layers) if sum(layers) == tensor.numel() else []
        return self.group.sum_bucket(tensor, cuts, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Broadcast a new order of parameters, the only thing that a reducer broadcasts."""
        self._is_read = False
        return self.group.broadcast(tensors, opts)

    def getBackendName(self) -> str:
        """Return the name of the wrapped group's back end."""
        name: str = self.group.getBackendName()
        return name

    def getRank(self) -> int:
        rank: int = self.group.rank()
        return rank

    def getSize(self) -> int:
        size: int = self.group.size()
        return size


def inner_ends(sizes: Sequence[int]) -> list[int]:
    """Return elements at which parts of these sizes begin in one flat tensor, except the first; empty parts have
    none.
    """
    total = sum(sizes)
    return sorted({end for end in accumulate(sizes) if 0 < end < total})


def sizes_of_shards(numbers: int) -> list[int]:
    """Return sizes of the layers' shards in the flat tensor that FSDP2 is summing, one after the other.

    FSDP2 copies the gradients of a parameter group into one tensor, whose layout it knows and does not pass on. It is
    read from the call in which it sums them, on this thread. Parameters without a gradient in this step are not in it.

    Args:
        numbers: elements of one rank's part of the tensor.

    Returns:
        Elements of each layer's shard, the same at every rank; empty if the caller is not FSDP2.
    """
    frame = sys._getframe() if _FSDP in sys.modules else None
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != ("foreach_reduce", _FSDP):
        frame = frame.f_back
    if frame is None:
        return []
    sizes = frame.f_locals.get("padded_unsharded_sizes", ())
    shards = [size.numel() // frame.f_locals["world_size"] for size in sizes]
    return shards if sum(shards) == numbers else []
