"""Seats of a group's ranks in one job: the first rank registers it, and the store distributes the tokens.

::

    rank k: …/host/k ─▶ store        rank 0: all hosts ─▶ Register ─▶ …/seat/k        rank k ◀─ …/seat/k

Keys carry torchrun's restart count and a number that each rank counts up for itself, since a store outlives both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from .. import errors
from ..drivers.control_client import ControlClient
from ..errors import ControlRefused, HostError, JoinTimeout
from .settings import Settings

_LOOK_S: Final = 0.005


class Rendezvous:
    """One group's meeting at the store."""

    def __init__(self, store: Any, rank: int, size: int, settings: Settings) -> None:
        """All ranks make as many of these with one store, in the same order."""
        # a connection of its own, where there are connections: a thread that waits must not hold up the others
        self._store = store.clone() if hasattr(store, "clone") else store
        turn = self._store.add(f"weir/{settings.restart}/turn/{rank}", 1)
        self._prefix = f"weir/{settings.restart}/{turn}"
        self._rank = rank
        self._size = size
        self._settings = settings

    def seat(self, timeout_s: float, stop: Callable[[], None]) -> tuple[int, str]:
        """Return the job's number and this rank's token.

        Args:
            timeout_s: time limit in seconds.
            stop: raises an exception to end the wait.

        Raises:
            ControlRefused: the job is impossible; raised at every rank.
            JoinTimeout: ranks are missing; the error names them.
            HostError: the first rank's wait has ended for another reason.
        """
        deadline = time.monotonic() + timeout_s
        self._store.set(f"{self._prefix}/host/{self._rank}", self._settings.host)
        if self._rank == 0:
            try:
                hosts = [self._get(f"host/{rank}", deadline, stop) for rank in range(self._size)]
                seats = self._register(hosts)
            except HostError as error:
                seats = [{"error": str(error), "kind": type(error).__name__}] * self._size
            for rank, seat in enumerate(seats):
                self._store.set(f"{self._prefix}/seat/{rank}", json.dumps(seat))
        answer = json.loads(self._get(f"seat/{self._rank}", deadline, stop))
        if "error" in answer:
            kind: type[HostError] = getattr(errors, answer["kind"], HostError)
            raise kind(answer["error"])
        return answer["job"], answer["token"]

    def _register(self, hosts: list[str]) -> list[dict[str, Any]]:
        if len(set(hosts)) < len(hosts):
            raise ControlRefused(
                f"the ranks are on the hosts {', '.join(hosts)}; each needs one of its own, which WEIR_HOST names"
            )
        settings = self._settings
        with ControlClient(settings.control) as client:
            job = client.register(hosts, slots=settings.slots, policy=settings.policy)
        return [{"job": job.job, "token": seat.token} for seat in job.seats]

    def _get(self, key: str, deadline: float, stop: Callable[[], None]) -> str:
        name = f"{self._prefix}/{key}"
        while not self._store.check([name]):
            stop()
            if time.monotonic() > deadline:
                raise JoinTimeout(f"rank {self._rank} waits for {key} at the store: that rank has not come to this sum")
            time.sleep(_LOOK_S)
        value: bytes = self._store.get(name)
        return value.decode()
