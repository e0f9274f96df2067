"""Queue of jobs that name how many workers they need instead of hosts: order, choice of hosts, and reasons to wait.

Pure: the caller passes the time and the room that running jobs leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from ...topologies.model import Topology
from ...topologies.units import format_memory
from ..errors import PlanError
from ..planning.plan import HIGHEST

AGE_NS: Final = 600_000_000_000
"""A job that has waited this long counts as one priority higher, so that none waits forever."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources that each worker of a job takes of its host."""

    accelerators: int = 1
    memory_bytes: int = 0

    def __str__(self) -> str:
        accelerators = f"{self.accelerators} accelerator{'s' if self.accelerators != 1 else ''}"
        return f"{accelerators} and {format_memory(self.memory_bytes)} of memory" if self.memory_bytes else accelerators


class Room:
    """Accelerators and memory of every host that no running job has."""

    def __init__(self, topology: Topology, taken: Iterable[tuple[Collection[str], Needs]]) -> None:
        """Subtract what is taken.

        Args:
            topology: The fabric.
            taken: Each running job's workers' hosts, with the needs of one worker.
        """
        self._topology = topology
        self._accelerators = {host.name: host.accelerators for host in topology.hosts}
        self._memory = {host.name: host.memory_bytes for host in topology.hosts}
        for hosts, needs in taken:
            for host in hosts:
                self._accelerators[host] -= needs.accelerators
                self._memory[host] -= needs.memory_bytes

    def hosts(self, needs: Needs, without: Collection[str] = ()) -> list[str]:
        """Hosts with room for one worker, in the order of the topology, except those in `without`."""
        return [
            host.name
            for host in self._topology.hosts
            if host.name not in without
            and self._accelerators[host.name] >= needs.accelerators
            and (not needs.memory_bytes or self._memory[host.name] >= needs.memory_bytes)
        ]

    def choose(self, count: int, needs: Needs, without: Collection[str] = ()) -> list[str] | None:
        """Choose hosts for a job's workers in few racks, which keeps sums at few switches.

        The smallest rack that holds all of them is taken; without one, the racks with the most room.

        Returns:
            Names of `count` hosts in the order of the topology; None if there is no room.
        """
        racks: dict[str, list[str]] = {}
        free = self.hosts(needs, without)
        for host in free:
            racks.setdefault(self._topology.neighbours(host)[0].node, []).append(host)
        if len(free) < count:
            return None
        fitting = [rack for rack in racks.values() if len(rack) >= count]
        order = [min(fitting, key=len)] if fitting else sorted(racks.values(), key=len, reverse=True)
        chosen = set([host for rack in order for host in rack][:count])
        return [host for host in free if host in chosen]


def check_needs(topology: Topology, job: int, count: int, needs: Needs, without: Collection[str] = ()) -> list[str]:
    """Return `count` hosts that have room for the job in an idle fabric. Raises PlanError if there are fewer."""
    possible = Room(topology, ()).hosts(needs, without)
    if len(possible) < count:
        raise PlanError(
            f"{count} workers do not fit: {len(possible)} hosts have {needs} in all",
            place=f"job {job}",
            value=count,
        )
    return possible[:count]


@dataclass(slots=True, eq=False)
class Entry(Generic[T]):
    """One waiting job; `value` is the caller's."""

    job: int
    count: int
    needs: Needs
    priority: int
    since_ns: int
    value: T
    reason: str = ""
    """Reason why it does not start, as found last."""

    def rank(self, now_ns: int) -> tuple[int, int]:
        """Place in the order of the queue: priority raised by age, then age."""
        return -min(HIGHEST, self.priority + (now_ns - self.since_ns) // AGE_NS), self.since_ns


@dataclass(slots=True)
class JobQueue(Generic[T]):
    """Waiting jobs. No job starts before one that is ahead of it, so that small ones do not starve a large one."""

    entries: list[Entry[T]] = field(default_factory=list)

    def ordered(self, now_ns: int) -> list[Entry[T]]:
        """All entries, the next one to start first."""
        return sorted(self.entries, key=lambda entry: entry.rank(now_ns))


def reason_to_wait(entry: Entry[T], room: Room, without: Collection[str]) -> str:
    """Sentence about the room that a job lacks."""
    free = len(room.hosts(entry.needs, without))
    return f"{entry.count} hosts with {entry.needs} are needed, {free} are free"
