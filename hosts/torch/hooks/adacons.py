"""AdaCons of gradients: a mean of each bucket that counts those ranks more which agree with the sum."""

from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from ...collectives.operations import AdaCons
from .buckets import combining_group, completed, layer_cuts, only_tensor


def adacons_hook(state: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Replace DDP's mean of gradients by the adaptive consensus of each bucket.

    Coefficients are smoothed from step to step, apart for each bucket; a bucket that DDP has built anew begins anew.

    Args:
        state: A process group, or None for the world.
        bucket: DDP's gradients.

    Returns:
        The future of the bucket's buffer.

    Raises:
        InvalidPlan: The group's back end is not Weir's.
    """
    group, buffer = combining_group(state), bucket.buffer()
    if group.size() == 1:
        return completed(buffer)
    key = f"bucket {bucket.index()} of {buffer.numel()}"
    return only_tensor(group.combine(buffer, AdaCons, layer_cuts(bucket), key=key).get_future())
