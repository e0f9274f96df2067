"""Turns of running jobs on the devices that their workers share: workers' streams, and the state machine behind them.

::

    worker ──TakeTurns: attend, ask, release──▶ TurnKeeper ──▶ DeviceTurns
           ◀──────────────── a turn ───────────────┘

A device is a worker's host, or a named device of it. A job is in the sequence as soon as all workers that take part
attend. A worker whose stream ends leaves it: its turn is free at once, and nobody waits for it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ..errors import PlanError
from ..scheduling.turns import DeviceTurns, Turn

MAX_NAME: Final = 64
"""Maximum length of a device's name."""

Send = Callable[[int, int], object]
"""Takes the number of a turn that begins, and that of the request."""


@dataclass(slots=True, eq=False)
class Attendant:
    """One worker that takes turns."""

    job: int
    host: str
    device: str
    """Name of its device in the fabric."""
    send: Send
    request: int = 0
    """Number of its last request."""
    waits: bool = False
    """True if a request has no turn yet."""


class TurnKeeper:
    """Turns of all jobs whose workers attend. A state machine without clock."""

    def __init__(self, taking_part: Callable[[int], Collection[str]]) -> None:
        """Start without workers.

        Args:
            taking_part: Returns the hosts of a job's workers that take part now; none for an unknown job.
        """
        self._taking_part = taking_part
        self._turns = DeviceTurns({})
        self._workers: dict[int, dict[str, Attendant]] = {}
        """Attending workers by job and host."""

    def attend(self, job: int, host: str, device: str, send: Send) -> Attendant:
        """Add a worker, in place of an earlier stream of it.

        Args:
            job: Number of the job.
            host: Host of the worker.
            device: Name of the device on the host; empty: the host has one.
            send: Sends a message to the worker.

        Raises:
            PlanError: The device's name is too long.
        """
        if len(device) > MAX_NAME:
            raise PlanError(f"job {job}: a device's name has at most {MAX_NAME} characters, not {len(device)}")
        workers = self._workers.setdefault(job, {})
        if host in workers:
            self.leave(workers[host])
        attendant = Attendant(job, host, f"{host}/{device}" if device else host, send)
        self._workers.setdefault(job, {})[host] = attendant
        self.renew()
        return attendant

    def ask(self, worker: Attendant, request: int) -> None:
        """Ask for a worker's next turn.

        Raises:
            PlanError: It waits for a turn or has one, or the number is not a new one.
        """
        held = self._turns.held.get(worker.device)
        if worker.waits or (held is not None and held.job == str(worker.job)):
            raise PlanError(f"job {worker.job} on {worker.device} asks again before its turn has ended")
        if request <= worker.request:
            raise PlanError(f"job {worker.job}: request {request} after request {worker.request}; numbers ascend")
        worker.request, worker.waits = request, True
        if worker.device in self._turns.devices(str(worker.job)):
            self._deliver(self._turns.request(str(worker.job), worker.device))
        else:
            self.renew()

    def release(self, worker: Attendant) -> None:
        """End a worker's turn, or withdraw its request."""
        name, worker.waits = str(worker.job), False
        held = self._turns.held.get(worker.device)
        if held is not None and held.job == name:
            self._deliver(self._turns.release(name, worker.device))
        elif worker.device in self._turns.devices(name):
            self._deliver(self._turns.leave(name, worker.device))
            self.renew()

    def leave(self, worker: Attendant) -> None:
        """Remove a worker whose stream has ended. May be repeated."""
        workers = self._workers.get(worker.job, {})
        if workers.get(worker.host) is not worker:
            return
        del workers[worker.host]
        if not workers:
            del self._workers[worker.job]
        self._deliver(self._turns.leave(str(worker.job), worker.device))
        self.renew()

    def renew(self) -> None:
        """Let jobs in whose workers attend; called again when a worker was lost that has not attended."""
        for job, workers in self._workers.items():
            name = str(job)
            missing = [worker for worker in workers.values() if worker.device not in self._turns.devices(name)]
            if not missing or (name not in self._turns.jobs and not set(self._taking_part(job)) <= workers.keys()):
                continue
            for rank in missing:
                if name in self._turns.jobs:
                    self._turns.join(name, rank.device)
                else:
                    self._turns.add(name, [rank.device])
            for rank in missing:
                if rank.waits:
                    self._deliver(self._turns.request(name, rank.device))

    def state(self, job: int) -> str:
        """Return a job's turns in words; empty if it takes none."""
        workers = self._workers.get(job, {})
        if not workers:
            return ""
        if absent := sorted(set(self._taking_part(job)) - workers.keys()):
            return f"takes no turns yet, for the worker on {', '.join(absent)} asks for none"
        held = sum(turn.job == str(job) for turn in self._turns.held.values())
        waiting = sum(worker.waits for worker in workers.values())
        others = sorted(int(other) for other in self.partners(job))
        beside = f" beside job {', '.join(map(str, others))}" if others else ""
        return f"computes on {held}, waits on {waiting} of {len(workers)} devices{beside}"

    def partners(self, job: int) -> Iterable[str]:
        """Return names of the other jobs that take turns on one of a job's devices."""
        own = self._turns.devices(str(job))
        return [name for name in self._turns.jobs if name != str(job) and self._turns.devices(name) & own]

    def _deliver(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            for worker in self._workers.get(int(turn.job), {}).values():
                if worker.device == turn.device:
                    worker.waits = False
                    worker.send(turn.number, worker.request)
