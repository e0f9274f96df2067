"""Layers of a flat tensor: which sums are buckets of DistributedDataParallel, and where the layers of FSDP2 lie.

::

    DistributedDataParallel ─ forward hook ─▶ its Reducer is given a ReducerGroup
    Reducer ─ bucket ─▶ ReducerGroup ─ bucket, cuts ─▶ WeirProcessGroup       any other call ─▶ WeirProcessGroup

The caller is known by the process group that it calls, never by the size of what it sums. The layout of the buckets is
read after a forward pass, at the first one and whenever the ranks have broadcast a new order of parameters. All ranks
do so at the same calls, so that all cut alike.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from types import FunctionType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from ..errors import InvalidTensor

_hooked: Final[list[object]] = []
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
        for kind in (group, ReducerGroup):
            _keep_from_compiler(kind)
        module.register_forward_hook(torch.compiler.disable(_after_forward))


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
        """Sum a bucket, cut at its layers; or the map of used parameters, which is of integers."""
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
        name: str = self.group.getBackendName()
        return name

    def getRank(self) -> int:
        rank: int = self.group.rank()
        return rank

    def getSize(self) -> int:
        size: int = self.group.size()
        return size


def inner_ends(sizes: Sequence[int]) -> list[int]:
    """Elements at which parts of these sizes begin in one flat tensor, except the first; empty parts have none."""
    total = sum(sizes)
    return sorted({end for end in accumulate(sizes) if 0 < end < total})


def keep_layers_apart(model: nn.Module) -> None:
    """Give each layer of an FSDP2 model exponents of its own in the sums of gradients.

    FSDP2 copies the gradients of all parameters of a group (one `fully_shard` call) into one flat tensor. Without this
    call a gradient below 2^(r − 31) of the largest of its 256 neighbours becomes 0, for n ranks and r = ⌈log₂ n⌉. Call
    it once at every rank, after `fully_shard` and before the first step. Other back ends are not affected.

    Args:
        model: a module that `fully_shard` was applied to, or that has such submodules.

    Raises:
        InvalidTensor: no submodule was sharded by `fully_shard`.
    """
    from torch.distributed.fsdp import FSDPModule

    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise InvalidTensor(f"{type(model).__name__}: no module was sharded; call fully_shard first")
    for module in sharded:
        if (parameters := module._get_fsdp_state()._fsdp_param_group) is not None:
            module.set_custom_reduce_scatter(LayerReduceScatter(parameters))


class LayerReduceScatter:
    """The reduce-scatter of one FSDP2 parameter group, with cuts at the ends of its parameters' shards."""

    def __init__(self, parameters: Any) -> None:
        """Take the `FSDPParamGroup` whose gradients are summed."""
        self._parameters = weakref.ref(parameters)

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> Any:
        parameters = self._parameters()
        shards = [each.padded_sharded_param_size.numel() for each in parameters.fsdp_params] if parameters else []
        if hasattr(group, "reduce_scatter_layers"):
            # parameters without a gradient in this step are left out by FSDP2, which does not tell which
            layers = shards if sum(shards) == output_tensor.numel() else []
            work = group.reduce_scatter_layers(output_tensor, input_tensor, layers, op)
        else:
            work = dist.reduce_scatter_tensor(output_tensor, input_tensor, op, group, async_op=True)
        if async_op:
            return work
        work.wait()
        return None
