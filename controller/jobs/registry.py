"""The jobs of a fabric: running ones by number, reasons of aborted ones, and messages to their hosts.

`membership` detects lost hosts; `migrator` leads a job to its next generation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ...topologies.errors import TopologyError
from ...topologies.model import Topology
from ...wire.control import Abort
from ..errors import ControllerError, NoSuchJob, described
from ..leases import Leases
from ..options import Message
from ..planning.planner import Planner
from .job import RunningJob
from .journal import Journal
from .journal_file import JournalError

_log = logging.getLogger(__name__)

MAX_ABORTED: Final = 1_000
"""Maximum number of aborted jobs whose reasons are kept; then the oldest is removed."""


@dataclass(slots=True)
class EventCounts:
    """Counts of events since the controller began."""

    admitted: int = 0
    aborted: int = 0
    moves: int = 0
    leases_expired: int = 0
    verdicts_deferred: int = 0
    """Leases that had run out and were given again, since the network explained why."""


class JobRegistry(Mapping[int, RunningJob]):
    """The running jobs, by number. A number that none of them has raises NoSuchJob."""

    def __init__(
        self,
        topology: Topology,
        planner: Planner,
        lease_ns: int | None,
        journal: Journal,
        *,
        contains_failures: bool = False,
    ) -> None:
        """Create the registry without jobs.

        Args:
            topology: The fabric.
            planner: Planner of placements, whose memory the jobs share.
            lease_ns: Time of silence after which a host's lease ends, in ns; None: no leases.
            journal: Journal of all jobs.
            contains_failures: True if an unexpected exception in work for one job ends that job alone.
        """
        self.aborted: dict[int, str] = {}
        """Reasons of aborted jobs, by number."""
        self.outbox: list[Message] = []
        """Messages to hosts that have not been handed out yet."""
        self.ended = False
        """True if a job has ended since switches were last written: they may still hold its entries."""
        self.counts = EventCounts()
        self.leases = Leases[tuple[int, str]](lease_ns)
        """The leases of hosts, each by the number of its job and its own name."""
        self.journal = journal
        self.contains_failures = contains_failures
        """True if an unexpected exception in work for one job ends that job alone (`failing_alone`)."""
        self._jobs: dict[int, RunningJob] = {}
        self._topology = topology
        self._planner = planner
        self._host_at = {int(host.address): host.name for host in topology.hosts}

    def __getitem__(self, number: int) -> RunningJob:
        if number not in self._jobs:
            raise NoSuchJob(number, tuple(self._jobs))
        return self._jobs[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def deadline_ns(self) -> int | None:
        """When a lease runs out; 0 while hosts, switches or the journal have not been told of something yet."""
        if self.outbox or self.ended or self.journal.is_due:
            return 0
        return self.leases.deadline_ns

    def address(self, host: str) -> int:
        """Return a host's IPv4 address as an integer. Raises TopologyError for an unknown host."""
        return int(self._topology.host(host).address)

    def host_at(self, address: int) -> str:
        """Return the name of the host with an IPv4 address."""
        return self._host_at[address]

    def living(self, number: int, hosts: Iterable[str]) -> Iterator[str]:
        """Return those of a job's hosts that have been heard of within a lease; all of them where there are no
        leases.
        """
        return (h for h in hosts if self.leases.lease_ns is None or self.leases.lives((number, h)))

    def waiting_for(self, number: int, now_ns: int) -> str:
        """Return one sentence for people about the job's pending condition, and since when it lasts.

        Raises:
            NoSuchJob: The job has ended, unless it was aborted, or never existed.
        """
        if number in self.aborted:
            return f"job {number}: aborted: {self.aborted[number]}"
        job = self[number]
        expected = {*job.hosts} - {*self.living(number, job.hosts)} - job.silent.keys()
        return job.waiting_for(now_ns, self._host_at, frozenset(expected))

    # --- coming and going ---

    def add(self, job: RunningJob) -> None:
        """Add a job; undelivered messages of the previous job with this number are discarded."""
        self._jobs[job.number] = job
        self.outbox = [message for message in self.outbox if message.job != job.number]

    def withdraw(self, number: int) -> bool:
        """Forget a job that could not be admitted, or do nothing; whether it was there."""
        return self._jobs.pop(number, None) is not None

    def remove(self, number: int) -> None:
        """Remove an ended job and free its resources."""
        job = self._jobs.pop(number)
        for host in job.spec.hosts:
            self.leases.end((number, host))
        self._planner.memory.retain(number)
        self.ended = True
        self.journal.change(number)

    def abort(self, number: int, why: str) -> None:
        """End a job that cannot go on, and notify its hosts."""
        job = self[number]
        _log.error("job %d is aborted: %s", number, why)
        self.outbox += [Message(host, Abort(number, why)) for host in job.spec.hosts if host not in job.left]
        self.aborted[number] = why
        if len(self.aborted) > MAX_ABORTED:
            del self.aborted[next(iter(self.aborted))]
        self.counts.aborted += 1
        self.remove(number)

    @contextmanager
    def failing_alone(self, number: int) -> Iterator[None]:
        """Context of work for one job: an unexpected exception aborts that job, and the others go on.

        Errors of the controller and of the fabric's description pass, since callers handle them; without
        `contains_failures` all do.
        """
        try:
            yield
        except (ControllerError, TopologyError):
            raise
        except Exception as error:
            if not self.contains_failures:
                raise
            why = f"the controller failed at this job: {described(error)}"
            _log.debug("job %d: %s", number, why, exc_info=error)
            if number in self:
                self.abort(number, why)
            else:
                _log.error("job %d, which has ended: %s", number, why)

    # --- persistent state, and messages to hosts ---

    def keep(self, number: int, data: Mapping[str, Any]) -> None:
        """Store the caller's own data (JSON) with a job, also in the journal, in place of earlier data.

        Raises:
            JournalError: The data could not be written; the earlier data stay.
        """
        job = self[number]
        before, job.kept = job.kept, data
        self.journal.change(number)
        try:
            self.write_journal()
        except JournalError:
            job.kept = before
            raise

    def write_journal(self) -> None:
        """Write the jobs that have changed. Raises JournalError; the next call writes the rest."""
        self.journal.write_jobs(self._jobs)

    def pop_outbox(self) -> list[Message]:
        """Return the messages to hosts since the last call."""
        messages, self.outbox = self.outbox, []
        return messages
