"""Buckets of DistributedDataParallel and the groups that combine them, as hooks use them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from ...errors import InvalidPlan
from ..layers import inner_ends


def layer_cuts(bucket: dist.GradBucket) -> list[int]:
    """Return elements at which a bucket's layers begin, except the first."""
    return inner_ends([gradient.numel() for gradient in bucket.gradients()])


def combining_group(group: Any) -> Any:
    """Return the process group, or the world's for None.

    Raises:
        InvalidPlan: Its back end is not Weir's.
    """
    group = group or dist.group.WORLD
    if not hasattr(group, "combine"):
        backend = dist.get_backend(group)
        raise InvalidPlan(
            f'back end "{backend}" has no such operation; call init_process_group("weir")',
            place="process group",
            value=backend,
            allowed=("weir",),
        )
    return group


def completed(tensor: torch.Tensor) -> Future[torch.Tensor]:
    """Return a future that has its value."""
    future: Future[torch.Tensor] = Future()
    future.set_result(tensor)
    return future


def only_tensor(future: Any) -> Future[torch.Tensor]:
    """Return the future of the tensor itself, from that of a list with it."""
    made: Future[torch.Tensor] = future.then(lambda done: done.value()[0])
    return made
