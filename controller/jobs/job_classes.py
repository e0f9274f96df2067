"""Traffic classes of running jobs: a change reaches switches first, then hosts, without a pause.

::

    order ─▶ rankings ─▶ wanted class ─▶ the job's plan ─▶ switches admit the class, and the one before it
                                                             └─ all of them hold that ─▶ TrafficClass to every host

A host sends in its new class when it hears of it; packets of the former class may be under way until then, so both are
admitted. A job changes again only when no packet of the class before that is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from ...wire.control import TrafficClass
from ..options import Message
from ..planning.plan import JobPlan, JobSpec
from .registry import JobRegistry

_log = logging.getLogger(__name__)


class JobClasses:
    """Changes of running jobs' traffic classes. It reads no clock."""

    def __init__(self, jobs: JobRegistry, longest_life_ns: Callable[[JobPlan], int]) -> None:
        """Prepare changes.

        Args:
            jobs: The running jobs.
            longest_life_ns: Returns the longest time in ns that a packet of a job is under way, its hosts' delay in
                hearing of a change included.
        """
        self._jobs = jobs
        self._longest_life_ns = longest_life_ns
        self._changed_ns: dict[int, int] = {}
        """Time of each job's last change."""
        self._untold: set[int] = set()
        """Jobs whose hosts have not been told yet."""
        self.is_due = False
        """True from a change until the next `notify`."""
        self.changes = 0
        """Number of changes since the controller began."""

    def change(self, wanted: Mapping[int, int], now_ns: int) -> None:
        """Put jobs into other classes, by number. Call before switches are written.

        A job whose last change may still have packets under way keeps its class.

        Raises:
            PlanError: A class is not one of jobs.
        """
        for number, priority in wanted.items():
            job = self._jobs[number]
            if priority == job.spec.traffic_class:
                continue
            since_ns = self._changed_ns.get(number)
            if number in self._untold or (since_ns is not None and now_ns < since_ns + self._longest_life_ns(job.plan)):
                continue
            _log.info("job %d: traffic class %d, was %d", number, priority, job.spec.traffic_class)
            job.plan = replace(job.plan, spec=job.spec.in_class(priority))
            self._changed_ns[number] = now_ns
            self._untold.add(number)
            self.is_due = True
            self._jobs.journal.change(number)
            self.changes += 1

    def notify(self, troubled: Callable[[JobSpec], bool], now_ns: int) -> None:
        """Tell hosts of changed classes. Call after switches are written.

        Args:
            troubled: Returns whether a switch at one of the job's hosts does not hold what it should.
            now_ns: Present time.
        """
        self.is_due = False
        for number in sorted(self._untold):
            if number not in self._jobs:
                self._untold.discard(number)
                self._changed_ns.pop(number, None)
                continue
            job = self._jobs[number]
            if troubled(job.spec):
                continue
            self._untold.discard(number)
            self._changed_ns[number] = now_ns
            change = TrafficClass(number, job.spec.traffic_class)
            self._jobs.outbox += [Message(host, change) for host in job.plan.host_plans()]
