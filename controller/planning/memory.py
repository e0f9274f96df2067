"""A job's part of each switch's memory: aggregation slots, a multicast group, and the rids of its copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...topologies.model import Topology
from ...wire.aggregation import FAN_IN
from ..errors import OutOfMemory
from .slots import NumberPool

LAST_RID: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Allotment:
    """Resources of one job in one switch."""

    slot_base: int
    slots: int
    group: int
    """The job's own number: a switch is at most one node of a job, so group and job go together."""
    first_rid: int
    """The first of the `FAN_IN` consecutive rids that it holds, one for each child bit."""


class FabricMemory:
    """The memory of all switches of a fabric. It is never given twice."""

    def __init__(self, topology: Topology) -> None:
        self._slots = {s.name: NumberPool(f"{s.name}: aggregation slots", s.slots) for s in topology.switches}
        self._rids = {s.name: NumberPool(f"{s.name}: multicast rids", LAST_RID, first=1) for s in topology.switches}

    def allot(self, job: int, switches: Iterable[str], slots: int) -> Mapping[str, Allotment]:
        """Allot S slots and 32 rids to the job in each of these switches; present allotments stay.

        All or nothing: raises OutOfMemory and leaves everything as it was.
        """
        allotments: dict[str, Allotment] = {}
        fresh: list[str] = []
        try:
            for switch in switches:
                if job not in self._slots[switch].allotments:
                    fresh.append(switch)
                base = self._slots[switch].allot(job, slots)
                allotments[switch] = Allotment(base, slots, job, self._rids[switch].allot(job, FAN_IN))
        except OutOfMemory:
            self._release(job, fresh)
            raise
        return allotments

    def reoccupy(self, job: int, allotments: Mapping[str, Allotment]) -> None:
        """Allot exactly these slots and replication ids to a job again, as after a restart.

        Args:
            job: Number of the job.
            allotments: What it held, by switch.

        Raises:
            OutOfMemory: A range is not free, or the fabric has no such switch.
        """
        for switch, held in allotments.items():
            if switch not in self._slots:
                raise OutOfMemory(
                    f"it held slots of {switch}, which this fabric does not have", place=f"job {job}", value=switch
                )
            self._slots[switch].reoccupy(job, held.slot_base, held.slots)
            self._rids[switch].reoccupy(job, held.first_rid, FAN_IN)

    @property
    def free_slots(self) -> Mapping[str, int]:
        """Number of free slots, by switch."""
        return {switch: pool.free for switch, pool in self._slots.items()}

    def held(self, job: int) -> Mapping[str, Allotment]:
        """Return allotments of a job, by switch."""
        return {
            switch: Allotment(*pool.allotments[job], job, self._rids[switch].allotments[job][0])
            for switch, pool in self._slots.items()
            if job in pool.allotments
        }

    def retain(self, job: int, switches: Iterable[str] = ()) -> None:
        """Free what the job holds in all switches except these."""
        self._release(job, self._slots.keys() - set(switches))

    def jobs_that_fit(self, slots: int, job: int | None = None) -> Mapping[str, int]:
        """Return the number of further jobs of S slots that fit each switch, given its gaps; the slots of job `job`
        count as free.
        """
        return {name: pool.pieces(slots) + (job in pool.allotments) for name, pool in self._slots.items()}

    def _release(self, job: int, switches: Iterable[str]) -> None:
        for switch in switches:
            self._slots[switch].release(job)
            self._rids[switch].release(job)
