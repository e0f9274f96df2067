"""Groups of a job's workers, which have collectives of their own.

A group is a job: it has a number, slots and a tree of its own, and shares links and switches with all others. So
as many groups as the switches have slots for go on side by side, and none waits for another.

::

    world rank 0 ──register──▶ registrar            every member ──join by its ticket──▶ registrar ──▶ driver
          └──────broadcast the tickets over the world──────▲
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from ..errors import HostError, InvalidPlan
from .communicator import Communicator, WorkerDriver


class Registrar(Protocol):
    """Source of new jobs, such as the control service."""

    def register(self, groups: Sequence[Sequence[int]]) -> list[list[str]]:
        """Register a job for each group of ranks of the world; return a ticket for each rank.

        Raises:
            HostError: One of them is impossible; then none is registered.
        """

    def join(self, ticket: str) -> WorkerDriver:
        """Take the ticket's seat in its job."""


def new_groups(
    world: Communicator, groups: Sequence[Sequence[int]], registrar: Registrar, *, name: str = "groups"
) -> list[Communicator | None]:
    """Make a communicator for each group of ranks. All workers of the world make the same call.

    The tickets go over the fabric, as all else does: who can read its packets could take a seat.

    Args:
        world: Communicator of all workers.
        groups: Ranks of each group; a member's rank in its group is its place in the list.
        registrar: Registers the groups' jobs, at rank 0 of the world.
        name: Name of the call, the same at all workers.

    Returns:
        The groups' communicators in their order, None for a group without this worker.

    Raises:
        InvalidPlan: A group is empty, or its ranks are equal or outside of the world.
        CallMismatch: The workers' calls differ.
        HostError: The registrar failed; raised at every worker.
    """
    wanted = [list(ranks) for ranks in groups]
    for ranks in wanted:
        wrong = [rank for rank in ranks if not 0 <= rank < world.size]
        if wrong or not ranks or len(set(ranks)) < len(ranks):
            raise InvalidPlan(
                f"group {ranks} must have distinct ranks of 0…{world.size - 1}", place="groups", value=ranks
            )
    answer = b""
    if world.rank == 0:
        try:
            answer = json.dumps(registrar.register(wanted)).encode()
        except HostError as error:
            answer = json.dumps(str(error)).encode()
    tickets = json.loads(world.broadcast_bytes(answer, name=f"{name} {wanted}"))
    if isinstance(tickets, str):
        raise HostError(f"no groups {wanted}: {tickets}", place=name, value=wanted)
    return [
        Communicator(registrar.join(own[ranks.index(world.rank)]), timeout_s=world.timeout_s)
        if world.rank in ranks
        else None
        for ranks, own in zip(wanted, tickets, strict=True)
    ]
