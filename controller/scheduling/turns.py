"""Turns of jobs on the devices that they share: one job computes on a device at a time, in one order on all devices.

::

    worker ──ask──▶ Turns ──granted──▶ worker computes ──release──▶ Turns      communication holds no turn

A job's next turn is added to the sequence when all its workers have asked and one of its devices is free; every device
serves the sequence in its order, so that no two jobs wait for each other. A job whose workers still communicate has not
asked, so the others take the device meanwhile. Of several jobs that could be next, the one whose last turn is oldest
is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import SchedulingError


@dataclass(frozen=True, slots=True)
class Turn:
    """Permission for one job to compute on one device."""

    number: int
    """Place in the sequence, from 1; the same on all devices."""
    job: str
    device: str


@dataclass(slots=True)
class _Member:
    devices: frozenset[str]
    asked: set[str] = field(default_factory=set)
    """Devices whose worker waits without a place in the sequence."""
    last: int = 0


class DeviceTurns:
    """Turns of the jobs of one group. A state machine without clock."""

    def __init__(self, jobs: Mapping[str, Sequence[str]]) -> None:
        """Start without any turn.

        Args:
            jobs: Devices by job, one worker on each.

        Raises:
            SchedulingError: A job has no device, or names one twice.
        """
        self._jobs: dict[str, _Member] = {}
        self._held: dict[str, Turn] = {}
        """Turns under way, by device."""
        self._coming: dict[str, deque[Turn]] = {}
        """Turns with a place in the sequence, by device."""
        self._number = 0
        for job, devices in jobs.items():
            self.add(job, devices)

    def add(self, job: str, devices: Sequence[str]) -> None:
        """Add a job. Raises SchedulingError if it is in, or has no device, or names one twice."""
        if job in self._jobs or not devices or len(set(devices)) < len(devices):
            raise SchedulingError("a job joins once, with different devices", place=f"job {job}", value=tuple(devices))
        self._jobs[job] = _Member(frozenset(devices), last=self._number)
        for device in devices:
            self._coming.setdefault(device, deque())

    def join(self, job: str, device: str) -> None:
        """Add a worker to a job. Raises SchedulingError if the job is unknown, or has a worker there."""
        member = self._jobs.get(job)
        if member is None or device in member.devices:
            raise SchedulingError("a worker joins a job once", place=f"job {job} on {device}", allowed=[*self._jobs])
        member.devices |= {device}
        self._coming.setdefault(device, deque())

    def leave(self, job: str, device: str) -> list[Turn]:
        """Remove a worker with its turn and its requests; without workers the job is removed.

        Returns:
            Turns that begin now, of any job.
        """
        member = self._jobs.get(job)
        if member is None or device not in member.devices:
            return []
        if member.devices == {device}:
            return self.remove(job)
        member.devices -= {device}
        member.asked.discard(device)
        self._drop(job, device)
        return self._proceed()

    @property
    def jobs(self) -> Collection[str]:
        """Names of the jobs."""
        return self._jobs.keys()

    def devices(self, job: str) -> frozenset[str]:
        """Return the devices of a job; none if it is unknown."""
        return self._jobs[job].devices if job in self._jobs else frozenset()

    @property
    def held(self) -> Mapping[str, Turn]:
        """Turns under way, by device."""
        return self._held

    def request(self, job: str, device: str) -> list[Turn]:
        """Ask for a job's next turn on a device.

        Returns:
            Turns that begin now, of any job.

        Raises:
            SchedulingError: The job has no worker there, or that worker waits or computes already.
        """
        member = self._member(job, device)
        waits = any(turn.job == job for turn in self._coming[device])
        if device in member.asked or waits or self._holds(job, device):
            raise SchedulingError("asks again before its turn has ended", place=f"job {job} on {device}")
        member.asked.add(device)
        return self._proceed()

    def release(self, job: str, device: str) -> list[Turn]:
        """End a job's turn on a device, after its last gradient and before it waits for a sum.

        Returns:
            Turns that begin now, of any job.

        Raises:
            SchedulingError: The job has no turn there.
        """
        self._member(job, device)
        if not self._holds(job, device):
            raise SchedulingError("has no turn to release", place=f"job {job} on {device}")
        del self._held[device]
        return self._proceed()

    def remove(self, job: str) -> list[Turn]:
        """Remove a job that has ended or was killed, with its turns. Returns the turns that begin now."""
        member = self._jobs.pop(job, None)
        if member is None:
            return []
        for device in member.devices:
            self._drop(job, device)
        return self._proceed()

    def _drop(self, job: str, device: str) -> None:
        if self._holds(job, device):
            del self._held[device]
        self._coming[device] = deque(turn for turn in self._coming[device] if turn.job != job)

    def _member(self, job: str, device: str) -> _Member:
        if job not in self._jobs or device not in self._jobs[job].devices:
            raise SchedulingError("is not one of the group", place=f"job {job} on {device}", allowed=[*self._jobs])
        return self._jobs[job]

    def _holds(self, job: str, device: str) -> bool:
        return device in self._held and self._held[device].job == job

    def _idle(self, device: str) -> bool:
        return device not in self._held and not self._coming[device]

    def _proceed(self) -> list[Turn]:
        """Add turns to the sequence, and begin those whose device is free."""
        begun: list[Turn] = []
        while True:
            begun += self._begin()
            ready = [
                (member.last, job)
                for job, member in self._jobs.items()
                if member.asked == member.devices and any(self._idle(device) for device in member.devices)
            ]
            if not ready:
                return begun
            _, job = min(ready, key=lambda item: item[0])
            member = self._jobs[job]
            self._number += 1
            member.last = self._number
            member.asked.clear()
            for device in sorted(member.devices):
                self._coming[device].append(Turn(self._number, job, device))

    def _begin(self) -> list[Turn]:
        begun = []
        for device, coming in self._coming.items():
            if coming and device not in self._held:
                self._held[device] = coming.popleft()
                begun.append(self._held[device])
        return begun
