"""Adasum of gradients, tensor by tensor: among all ranks, or among racks whose ranks are summed first.

::

    rack group   all_reduce in its switches ─▶ first rank ─┐                       ┌─▶ broadcast to the rack
    leaders                                                └─▶ Adasum by messages ─┘
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from ...collectives.halving import check_power_of_two
from ...collectives.operations import Adasum
from .agreement import check_alike, device_of_world
from .buckets import combining_group, completed, layer_cuts, only_tensor
from .racks import CallThread, check_racks, racks_named


class RackGroups:
    """Groups of ranks that are summed before Adasum is taken among them."""

    def __init__(self, racks: Sequence[Sequence[int]]) -> None:
        """Make the groups. All ranks of the world make them alike.

        Args:
            racks: The ranks of each rack; every rank of the world is in one.

        Raises:
            InvalidPlan: The number of racks is no power of two, or a rank is in none or in several.
            CallMismatch: The ranks' racks differ; raised at every rank.
        """
        check_alike(f"Adasum among {racks_named(racks)}", None, device_of_world())
        check_racks(racks)
        check_power_of_two(len(racks), "racks", "racks")
        rank = dist.get_rank()
        groups = [dist.new_group(list(rack)) for rack in racks]
        leaders = [rack[0] for rack in racks]
        self._leaders = dist.new_group(leaders)
        own = next(number for number, rack in enumerate(racks) if rank in rack)
        self._rack, self._leader = groups[own], leaders[own]
        self._several = len(racks) > 1
        self._leads = rank == self._leader
        self._calls = CallThread("weir racks")

    def combine(self, tensor: torch.Tensor, cuts: Sequence[int]) -> Future[torch.Tensor]:
        """Start to combine a tensor in place."""
        return self._calls.start(lambda: self._combine(tensor, cuts))

    def _combine(self, tensor: torch.Tensor, cuts: Sequence[int]) -> torch.Tensor:
        alone = dist.get_world_size(self._rack) == 1
        if not alone:
            combining_group(self._rack).sum_bucket(tensor, cuts).wait()
        if self._leads and self._several:
            combining_group(self._leaders).combine(tensor, Adasum, cuts).wait()
        if not alone:
            dist.broadcast(tensor, self._leader, group=self._rack)
        return tensor


def start_adasum(tensor: torch.Tensor, cuts: Sequence[int], among: Any) -> Future[torch.Tensor]:
    """Start to take Adasum of a tensor in place.

    Args:
        tensor: Floating, contiguous.
        cuts: Elements at which its layers begin, except the first.
        among: `RackGroups`, a process group of 2^k ranks, or None for the world.

    Returns:
        The future of the tensor.

    Raises:
        InvalidPlan: The group's back end is not Weir's, or its ranks are not 2^k.
    """
    if isinstance(among, RackGroups):
        return among.combine(tensor, cuts)
    group = combining_group(among)
    check_power_of_two(group.size(), "ranks", "process group")
    if group.size() == 1:
        return completed(tensor)
    return only_tensor(group.combine(tensor, Adasum, cuts).get_future())


def adasum_hook(state: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Replace DDP's mean of gradients by Adasum, for each parameter.

    Args:
        state: `RackGroups`, a process group of 2^k ranks, or None for the world.
        bucket: DDP's gradients.

    Returns:
        The future of the bucket's buffer.

    Raises:
        InvalidPlan: The group's back end is not Weir's, or its ranks are not 2^k.
    """
    return start_adasum(bucket.buffer(), layer_cuts(bucket), state)
