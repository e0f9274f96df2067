"""Steps of the controller and of competing jobs, at instants at which virtual time stands still.

::

    EventList ─due─▶ messages arrive ─▶ jobs come and go ─▶ progress of the workers ─▶ Controller.tick ─▶ watch, moves
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ...controller.controller import Controller
from .competing_jobs import OtherJobs
from .event_queue import EventList
from .placements import Moves
from .trained_job import TrainedJob
from .virtual_control import VirtualControl

if TYPE_CHECKING:
    from ...controller.live.watch import Watch


class ControlSteps:
    """Steps of one run, in their order."""

    def __init__(
        self,
        controller: Controller,
        control: VirtualControl,
        events: EventList,
        job: TrainedJob,
        others: OtherJobs,
        *,
        report_period_ns: int | None,
        watch: Watch | None,
        drops: Callable[[], Awaitable[Mapping[str, int]]],
    ) -> None:
        """Take the parts of the run.

        Args:
            controller: The fabric's controller.
            control: Its messages to switches and hosts.
            events: What is due outside the fabric.
            job: The trained job.
            others: The competing jobs.
            report_period_ns: Minimum time between two reports of the workers' progress, in ns; None: heartbeats
                through the fabric carry it.
            watch: Observer of the run.
            drops: Returns the packets dropped so far by reason, for the observer.
        """
        self.moves = Moves()
        """Moves of the trained job's shards."""
        self._controller = controller
        self._control = control
        self._events = events
        self._job = job
        self._others = others
        self._report_period_ns = report_period_ns
        self._reported_ns = 0
        self._watch = watch
        self._drops = drops

    @property
    def next_ns(self) -> int:
        """Time of the controller's next step, in ns; it may have passed."""
        due_ns = [self._controller.deadline_ns, *self._others.due_ns]
        if (next_ns := self._events.next_ns) is not None:
            due_ns.append(next_ns)
        return min(due_ns)

    def competing_jobs(self, now_ns: int) -> int | None:
        """Let competing jobs with complete sums start the next ones.

        Returns:
            The time at which to call this again at the latest, in ns; None if the run has no such jobs.
        """
        if not self._others:
            return None
        return self._others.go_on(self._controller.jobs, self._job.workers, now_ns)

    async def controller(self) -> None:
        """Deliver what is due between controller and hosts, then let the controller act."""
        now_ns = self._control.now_ns
        self._events.run(now_ns)
        asking = self._others.asking(now_ns)
        if self._controller.deadline_ns > now_ns and not asking:
            return
        await self._control.drain()
        for other in asking:
            await self._others.admit_or_finish(other, now_ns)
        if self._report_period_ns is not None and now_ns >= self._reported_ns + self._report_period_ns:
            self._reported_ns = now_ns
            self._report_progress(now_ns)
        await self._control.tick()
        if self._watch is not None and self._watch.is_due:
            self._watch.update_drops(await self._drops(), now_ns)
            self._watch.refresh(self._controller, now_ns, "virtual time")
        self.moves.update(self._controller.jobs, self._control.now_ns)

    def _report_progress(self, now_ns: int) -> None:
        """Report the workers' progress; the controller derives jobs' traffic from it, and detects stalls."""
        for worker in [*self._job.workers, *self._others.workers(self._controller.jobs)]:
            core = worker.core
            self._controller.members.heartbeat(
                core.plan.job, worker.name, core.rounds_complete, now_ns, waiting=not core.idle
            )
