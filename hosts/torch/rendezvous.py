"""Seats of a group's ranks in one job: the first rank registers it, and the store distributes the tokens.

::

    rank k: …/host/k ─▶ store        rank 0: all hosts ─▶ Register ─▶ …/seat/k        rank k ◀─ …/seat/k

The default group's job is the parent of all later ones. With a mesh it is registered with those of the mesh's groups,
and each rank gets its seats in all of them by one key.

Keys carry torchrun's restart count and a number that each rank counts up for itself, since a store outlives both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from .. import errors
from ..collectives.mesh import check_mesh, groups_of
from ..drivers.control_client import ControlClient
from ..errors import ControlRefused, HostError, JoinTimeout
from .settings import Settings

_LOOK_S: Final = 0.005


class Rendezvous:
    """One group's meeting at the store."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        settings: Settings,
        world: Self | None = None,
        ranks: Sequence[int] = (),
    ) -> None:
        """All ranks make as many of these with one store, in the same order.

        Args:
            store: store of the group.
            rank: rank of this process in the group.
            size: number of its ranks.
            settings: this rank's settings.
            world: meeting of the default group; None: this is the one, or there is none.
            ranks: ranks of the default group that are in this one.
        """
        # a connection of its own, where there are connections: a thread that waits must not hold up the others
        self._store = store.clone() if hasattr(store, "clone") else store
        turn = self._store.add(f"weir/{settings.restart}/turn/{rank}", 1)
        self._prefix = f"weir/{settings.restart}/{turn}"
        self.rank = rank
        self.size = size
        self._settings = settings
        self._world = world
        self._groups: dict[tuple[int, ...], tuple[int, str]] = {}
        """Seats of this rank in groups that are registered and not made yet, by the groups' ranks."""
        self._seat = None if world is None else world._groups.pop(tuple(ranks), None)

    def seat_of_mesh(self, shape: Sequence[int], timeout_s: float) -> tuple[int, str]:
        """Register the default group's job with those of its mesh; return the former's number and this rank's token.

        Args:
            shape: sizes of the mesh.
            timeout_s: time limit in seconds.

        Raises:
            InvalidPlan: the mesh is not of this many ranks.
            HostError: as `seat`.
        """
        check_mesh(shape, self.size)
        return self.seat(timeout_s, lambda: None, groups_of(shape))

    def seat(self, timeout_s: float, stop: Callable[[], None], groups: Sequence[Sequence[int]] = ()) -> tuple[int, str]:
        """Return the job's number and this rank's token.

        Args:
            timeout_s: time limit in seconds.
            stop: raises an exception to end the wait.
            groups: ranks of each group whose job is registered together with this one.

        Raises:
            ControlRefused: the job is impossible; raised at every rank.
            JoinTimeout: ranks are missing; the error names them.
            HostError: the first rank's wait has ended for another reason.
        """
        if self._seat is not None:
            return self._seat
        deadline = time.monotonic() + timeout_s
        self._store.set(f"{self._prefix}/host/{self.rank}", self._settings.host)
        if self.rank == 0:
            try:
                hosts = [self._get(f"host/{rank}", deadline, stop) for rank in range(self.size)]
                seats = self._register(hosts, groups)
            except HostError as error:
                seats = [{"error": str(error), "kind": type(error).__name__}] * self.size
            for rank, seat in enumerate(seats):
                self._store.set(f"{self._prefix}/seat/{rank}", json.dumps(seat))
        answer = json.loads(self._get(f"seat/{self.rank}", deadline, stop))
        if "error" in answer:
            kind: type[HostError] = getattr(errors, answer["kind"], HostError)
            raise kind(answer["error"])
        self._groups = {tuple(ranks): (job, token) for ranks, job, token in answer["groups"]}
        self._seat = answer["job"], answer["token"]
        return self._seat

    def _register(self, hosts: list[str], groups: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        if len(set(hosts)) < len(hosts):
            raise ControlRefused(
                f"the ranks are on the hosts {', '.join(hosts)}; each needs one of its own, which WEIR_HOST names"
            )
        settings = self._settings
        parent = 0 if self._world is None else self._world.job()
        shared: dict[str, Any] = {"policy": settings.policy, "priority": settings.priority}
        with ControlClient(settings.control) as client:
            job = client.register(
                hosts, slots=settings.slots, groups=groups, parent=parent, **({} if parent else shared)
            )
        self._store.set(f"{self._prefix}/job", str(job.job))
        seats: list[dict[str, Any]] = [{"job": job.job, "token": seat.token, "groups": []} for seat in job.seats]
        for ranks, group in zip(groups, job.groups, strict=True):
            for rank, seat in zip(ranks, group.seats, strict=True):
                seats[rank]["groups"].append([list(ranks), group.job, seat.token])
        return seats

    def job(self) -> int:
        """Return the number of the group's job; 0: it has none yet."""
        name = f"{self._prefix}/job"
        return int(self._store.get(name)) if self._store.check([name]) else 0

    def _get(self, key: str, deadline: float, stop: Callable[[], None]) -> str:
        name = f"{self._prefix}/{key}"
        while not self._store.check([name]):
            stop()
            if time.monotonic() > deadline:
                raise JoinTimeout(f"rank {self.rank} waits for {key} at the store: that rank has not come so far")
            time.sleep(_LOOK_S)
        value: bytes = self._store.get(name)
        return value.decode()
