"""Racks of ranks, whose members are near each other, as hierarchical hooks use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.futures import Future

from ...errors import InvalidPlan


def check_racks(racks: Sequence[Sequence[int]]) -> None:
    """Raise InvalidPlan unless each rank of the world is in exactly one rack."""
    ranks = sorted(rank for rack in racks for rank in rack)
    if ranks != list(range(dist.get_world_size())) or not all(racks):
        raise InvalidPlan(
            f"{racks_named(racks)}: each rank of 0…{dist.get_world_size() - 1} is in one rack",
            place="racks",
            value=ranks,
        )


def racks_named(racks: Sequence[Sequence[int]]) -> str:
    """Return racks as messages name them."""
    return f"racks {[list(rack) for rack in racks]}"


class CallThread:
    """A thread that makes the blocking calls of one tensor after those of another, as all ranks do."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    def start(self, call: Callable[[], torch.Tensor]) -> Future[torch.Tensor]:
        """Make a call after all that were started before, without gradients; return the future of its result."""
        future: Future[torch.Tensor] = Future()

        def run() -> None:
            try:
                with torch.no_grad():
                    result = call()
            except Exception as error:  # noqa: BLE001 (raised by `future.wait`)
                future.set_exception(error)
            else:
                future.set_result(result)

        self._thread.submit(run)
        return future
