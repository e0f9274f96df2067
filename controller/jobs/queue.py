"""Queue of jobs that say what their workers need: order, choice of hosts, and reasons to wait.

Pure: the caller passes the time, the room that running jobs leave, and the hosts that can be reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Hosts that a job asks for."""

    count: int
    """Number of workers."""
    needs: Needs
    workers: tuple[str, ...] = ()
    """Named hosts of the workers; empty: the controller chooses them."""
    others: tuple[str, ...] = ()
    """Hosts of its servers, which are none of its workers' and have to reach them."""


class FreeCapacity:
    """Accelerators and memory of every host that no running job has."""

    def __init__(
        self,
        topology: Topology,
        taken: Iterable[tuple[Collection[str], Needs]] = (),
        groups: Sequence[Collection[str]] | None = None,
    ) -> None:
        """Subtract what is taken.

        Args:
            topology: The fabric.
            taken: Each running job's workers' hosts, with the needs of one worker.
            groups: Hosts that reach each other, of which some are to be chosen first; None: all hosts do.
        """
        self._topology = topology
        self._accelerators = {host.name: host.accelerators for host in topology.hosts}
        self._memory = {host.name: host.memory_bytes for host in topology.hosts}
        self._groups = [self._accelerators.keys()] if groups is None else groups
        for hosts, needs in taken:
            for host in hosts:
                self._accelerators[host] -= needs.accelerators
                self._memory[host] -= needs.memory_bytes

    def has(self, host: str, needs: Needs) -> bool:
        """Return True if a host has room for one worker."""
        memory = not needs.memory_bytes or self._memory[host] >= needs.memory_bytes
        return memory and self._accelerators[host] >= needs.accelerators

    def left(self, host: str) -> Needs:
        """Return resources of a host that no job has; jobs that share a host do not make them negative."""
        return Needs(max(0, self._accelerators[host]), max(0, self._memory[host]))

    def hosts(self, wanted: Wanted) -> list[str]:
        """Return hosts with room for one worker, whether they can be reached or not, in the order of the topology."""
        return [
            host.name
            for host in self._topology.hosts
            if host.name not in wanted.others and self.has(host.name, wanted.needs)
        ]

    def choose(self, wanted: Wanted) -> list[str] | None:
        """Return the named hosts, or choose hosts in few racks, which keeps sums at few switches.

        The smallest rack that holds all workers is taken; without one, the racks with the most room.

        Returns:
            Names of the hosts, chosen ones in the order of the topology; None if there is no room on hosts that reach
            each other.
        """
        free = self.hosts(wanted)
        for group in self._groups:
            if not set(wanted.others) | set(wanted.workers) <= set(group):
                continue
            near = [host for host in free if host in group]
            if wanted.workers:
                return list(wanted.workers) if set(wanted.workers) <= set(near) else None
            if len(near) >= wanted.count:
                return self._in_few_racks(near, wanted.count)
        return None

    def _in_few_racks(self, free: Sequence[str], count: int) -> list[str]:
        racks: dict[str, list[str]] = {}
        for host in free:
            racks.setdefault(self._topology.neighbours(host)[0].node, []).append(host)
        fitting = [rack for rack in racks.values() if len(rack) >= count]
        order = [min(fitting, key=len)] if fitting else sorted(racks.values(), key=len, reverse=True)
        chosen = set([host for rack in order for host in rack][:count])
        return [host for host in free if host in chosen]

    def reason_to_wait(self, wanted: Wanted) -> str:
        """Return the sentence about the room, or the hosts, that a job lacks."""
        reached = {host for group in self._groups for host in group}
        parts = [f"{host} cannot be reached" for host in (*wanted.others, *wanted.workers) if host not in reached]
        free = self.hosts(wanted)
        if wanted.workers:
            full = [host for host in wanted.workers if host not in free]
            parts += [f"{host}: {wanted.needs} needed, {self.left(host)} free" for host in full]
        else:
            parts.append(f"{wanted.count} hosts with {wanted.needs} are needed, {len(free)} are free")
            if absent := len(set(free) - reached):
                parts.append(f"{absent} of these cannot be reached")
        return "; ".join(parts) or "its hosts do not reach each other"


def check_needs(topology: Topology, job: int, wanted: Wanted) -> list[str]:
    """Return hosts that have room for the job in an idle fabric. Raises PlanError if there are too few."""
    room = FreeCapacity(topology)
    if (hosts := room.choose(wanted)) is not None:
        return hosts
    if not wanted.workers:
        raise PlanError(
            f"{wanted.count} workers do not fit: {len(room.hosts(wanted))} hosts have {wanted.needs} in all",
            place=f"job {job}",
            value=wanted.count,
        )
    full = [host for host in wanted.workers if not room.has(host, wanted.needs)]
    raise PlanError(
        "; ".join(f"{host} has {room.left(host)} in all, and a worker needs {wanted.needs}" for host in full)
        or "a worker's host is also a server's",
        place=f"job {job}",
        value=tuple(full or wanted.workers),
    )


@dataclass(slots=True, eq=False)
class QueueEntry(Generic[T]):
    """One waiting job; `value` is the caller's."""

    job: int
    wanted: Wanted
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
    """Waiting jobs. No job starts before one that is ahead of it and waits for room, so that small ones do not starve a
    large one.
    """

    entries: list[QueueEntry[T]] = field(default_factory=list)

    def ordered(self, now_ns: int) -> list[QueueEntry[T]]:
        """Return all entries, the next one to start first."""
        return sorted(self.entries, key=lambda entry: entry.rank(now_ns))
