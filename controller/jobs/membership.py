"""Members of each job: hosts' heartbeats, and the detection of lost hosts. Pure.

::

    heartbeat, leave, fail ──▶ RunningJob, leases ──▶ end_leases, remove_departed ──▶ Migrator.lose, Migrator.go_without
                                                        └─ SlowPaths: the network explains the silence ─▶ another lease
"""

from __future__ import annotations

import logging
from typing import Final

from ...wire.control import Abort
from ..options import Message
from ..planning.plan import FailurePolicy
from .job import RunningJob, WorkerProgress
from .migrator import Migrator
from .registry import JobRegistry
from .slow_paths import SlowPaths

_log = logging.getLogger(__name__)

MAX_DOUBTS: Final = 9
"""Maximum number of successive extra leases of a host while the network explains its silence."""


def longest_silence_ns(lease_ns: int) -> int:
    """Return the maximum silence of a living host that telemetry can explain."""
    return (1 + MAX_DOUBTS) * lease_ns


class JobMembers:
    """The hosts of all running jobs."""

    def __init__(self, jobs: JobRegistry, moves: Migrator, paths: SlowPaths | None = None) -> None:
        """Create the state machine; `paths` reads the telemetry of heartbeats' paths (None: they do not use the
        fabric).
        """
        self._jobs = jobs
        self._moves = moves
        self._paths = paths

    def heartbeat(self, job: int, host: str, rounds: int, now_ns: int, *, waiting: bool = True) -> None:
        """Handle a heartbeat: its host is alive. A worker's also has its progress.

        A worker's lease begins with the first heartbeat. From two of a worker's heartbeats the controller knows the
        job's
        speed, so that the job's own traffic is not taken for others' in a new placement, and whether it is stuck
        (`Options.stuck_ns`). A host that is no longer a member is notified.

        Args:
            job: Number of the job.
            host: Name of the host.
            rounds: Rounds that a worker has completed.
            now_ns: Present time, in ns.
            waiting: True if a worker waits for more rounds, False while it computes.

        Raises:
            ControllerError: The host was never a member of the job.
        """
        running = self._jobs[job]
        running.check_part(host)
        if (why := running.gone.get(host)) is not None:
            if host not in running.left:
                self._jobs.outbox.append(
                    Message(host, Abort(job, f"{why}; the job went on without {running.named(host)}"))
                )
            return
        if host in running.left:  # it was on its way when the host left
            return
        self._jobs.leases.renew((job, host), now_ns)
        if host not in running.joined:
            running.joined.add(host)
            self._jobs.journal.change(job)
        running.silent.pop(host, None)
        running.doubts.pop(host, None)
        if host not in running.ranks:
            return
        seen = running.progress.get(host)
        if seen is None:
            running.progress[host] = WorkerProgress(rounds, now_ns, now_ns, waiting)
        else:
            seen.report(rounds, now_ns, waiting, self._moves.outlook.average_ns)

    def leave(self, job: int, host: str) -> None:
        """Note that a host is done with the job, which ends when its last worker leaves.

        While others wait for sums that lack it, the job goes on without it or is aborted, by its policy. Raises
        ControllerError for a host that was never in the job.
        """
        running = self._jobs[job]
        running.check_part(host)
        self._jobs.leases.end((job, host))
        running.silent.pop(host, None)
        running.left.add(host)
        self._jobs.journal.change(job)

    def fail(self, job: int, host: str, why: str, now_ns: int) -> None:
        """Handle a host's failure: the job's policy lets the others continue without it, or aborts the job with the
        reason.

        Args:
            job: Number of the job.
            host: Name of the host.
            why: Reason, for people.
            now_ns: Present time, in ns.

        Raises:
            ControllerError: The host was never a member of the job.
        """
        running = self._jobs[job]
        running.check_part(host)
        if host not in running.left:
            self._moves.mark_lost(running, {host: f"{running.named(host)} failed: {why}"}, now_ns)

    def end_leases(self, now_ns: int) -> None:
        """Find the hosts that have been silent for a lease: their jobs wait for them, or go on without them. Where
        telemetry says that their heartbeats cannot have come in time, they get another lease before that.
        """
        if (lease_ns := self._jobs.leases.lease_ns) is None:
            return
        lost: dict[int, dict[str, str]] = {}
        for number, host in self._jobs.leases.expire(now_ns):
            if number not in self._jobs:  # its controller's failure has just ended it
                continue
            with self._jobs.failing_alone(number):
                if why := self._end_lease(self._jobs[number], host, lease_ns, now_ns):
                    lost.setdefault(number, {})[host] = why
        for number, hosts in lost.items():
            if number in self._jobs:
                with self._jobs.failing_alone(number):
                    self._moves.mark_lost(self._jobs[number], hosts, now_ns)

    def _end_lease(self, job: RunningJob, host: str, lease_ns: int, now_ns: int) -> str:
        """Handle a host's silence; return why the host is lost, and an empty text where its job waits for it."""
        doubts = job.doubts.get(host, 0)
        if doubts < MAX_DOUBTS and (why := self._why_slow(host, lease_ns, now_ns)):
            job.doubts[host] = doubts + 1
            self._jobs.counts.verdicts_deferred += 1
            self._jobs.leases.renew((job.number, host), now_ns)
            _log.warning("job %d: %s is silent, but %s: it is not taken for lost yet", job.number, job.named(host), why)
            return ""
        self._jobs.counts.leases_expired += 1
        silent_ns = (1 + job.doubts.pop(host, 0)) * lease_ns
        if job.must_wait_for(host):
            job.silent[host] = now_ns - silent_ns
            self._moves.begin(job.number, now_ns, why=f"{job.named(host)} is silent")
            return ""
        return f"{job.named(host)} was silent for {silent_ns / 1e9:g} s"

    def _why_slow(self, host: str, lease_ns: int, now_ns: int) -> str:
        return "" if self._paths is None else self._paths.why_slow(host, lease_ns, now_ns)

    def remove_departed(self, now_ns: int) -> None:
        """Process hosts that have left: end jobs without workers, continue those in which a host waits."""
        for number, job in list(self._jobs.items()):
            with self._jobs.failing_alone(number):
                self._remove_departed_of(job, now_ns)

    def _remove_departed_of(self, job: RunningJob, now_ns: int) -> None:
        left = {host: f"{job.named(host)} has left" for host in sorted(job.left - job.gone.keys())}
        if not left:
            return
        if job.left.issuperset(job.active):
            self._jobs.remove(job.number)
        elif job.someone_waits and job.spec.policy is not FailurePolicy.CONTINUE and job.ranks.keys() & left:
            who = ", ".join(job.named(host) for host in left if host in job.ranks)
            policy = job.spec.policy.value
            self._jobs.abort(
                job.number, f"{who} left the job, others wait for sums, and the job's policy is to {policy}"
            )
        elif job.move is not None or job.someone_waits or job.spec.server in left:
            self._moves.go_without(job, left, now_ns)
