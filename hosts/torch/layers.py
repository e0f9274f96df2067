"""Where the layers lie in the buckets of DistributedDataParallel: gradients of many scales are put into one tensor.

PyTorch's hook for the registration of modules tells of each such module when it is made; a forward hook of that module
looks at its buckets, at the first step and whenever the ranks have told each other a new order of parameters. All ranks
do so at the same calls, so that all cut alike.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

_modules: Final[list[weakref.ref[Any]]] = []
_hooked: Final[list[object]] = []


def watch_modules() -> None:
    """Note modules of that kind from now on. May be repeated."""
    if not _hooked:
        _hooked.append(register_module_module_registration_hook(_registered))


def _registered(module: nn.Module, name: str, submodule: nn.Module | None) -> None:
    if isinstance(module, DistributedDataParallel) and name == "module":
        _modules.append(weakref.ref(module, _modules.remove))
        module.register_forward_hook(_after_forward)


def _after_forward(module: Any, inputs: Any, output: Any) -> None:
    """Look at the buckets before the backward pass: in it, whoever asks for them waits for its end."""
    group = module.process_group
    layers = getattr(group, "layers", None)
    if isinstance(layers, BucketLayers):
        layers.look(module)


class BucketLayers:
    """What one process group knows of the buckets that come to it."""

    def __init__(self) -> None:
        self._told = 0
        """How often the ranks may have told each other a new order."""
        self._looked: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._buckets: weakref.WeakKeyDictionary[Any, list[list[int]]] = weakref.WeakKeyDictionary()
        """Of each module its buckets, and of each of them the sizes of its layers."""
        self._next: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def new_order(self) -> None:
        """The ranks may have told each other a new order of parameters."""
        self._told += 1

    def look(self, module: Any) -> None:
        """Note a module's buckets, where they may have changed."""
        if self._looked.get(module) == self._told:
            return
        self._looked[module] = self._told
        self._next[module] = 0
        read = getattr(module.reducer, "_get_zeros_like_grad_buckets", None)
        self._buckets[module] = (
            [[layer.numel() for layer in bucket.gradients()] for bucket in read()] if read is not None else []
        )

    def cuts(self, size: int) -> Sequence[int] | None:
        """Where the layers of a bucket of this size begin but for the first; None where it is no bucket's size.

        Of several buckets of one size it is the next one's turn, as buckets come in their order.
        """
        for reference in reversed(_modules):
            module = reference()
            buckets = self._buckets.get(module) if module is not None else None
            if not buckets:
                continue
            turn = self._next[module]
            for step in range(len(buckets)):
                index = (turn + step) % len(buckets)
                if sum(buckets[index]) == size:
                    self._next[module] = (index + 1) % len(buckets)
                    return [end for end in accumulate(buckets[index][:-1]) if 0 < end < size]
        return None
