"""Passage of virtual time in a run: the fabric's events, and stops at which jobs and the controller act.

::

    until done:  competing jobs ask for sums ─▶ the fabric runs to the next stop ─▶ wakes to hosts ─▶ the controller
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ...emulator.fabric import Fabric, Wake
from ...topologies.mininet.processes import is_ending
from ..errors import ExperimentError
from .control_steps import ControlSteps

STUCK_NS: Final = 10_000_000_000
"""Virtual time without progress after which a run is given up as stuck, in ns."""


class VirtualClock:
    """Virtual time of one run, which stands still while hosts compute and while the controller acts."""

    def __init__(
        self, fabric: Fabric, steps: ControlSteps, deliver: Callable[[Wake], None], state: Callable[[], str]
    ) -> None:
        """Let time pass for a fabric.

        Args:
            fabric: The fabric, which has the time.
            steps: Steps of the controller and of competing jobs.
            deliver: Receives the frames and timers of a host.
            state: Describes the run for the user of a stuck one.
        """
        self._fabric = fabric
        self._steps = steps
        self._deliver = deliver
        self._state = state

    async def run(self, done: Callable[[], bool], what: str, until_ns: int | None = None) -> int:
        """Let time pass until something is done.

        Args:
            done: Whether it is done; asked after each stop.
            what: Name of what is waited for, for messages.
            until_ns: Time of a stop at the latest, in ns; None: no such stop.

        Returns:
            The duration, in ns.

        Raises:
            ExperimentError: Nothing has happened for `STUCK_NS`.
        """
        fabric, started_ns = self._fabric, self._fabric.now_ns
        limit_ns = max(started_ns, until_ns or 0) + STUCK_NS
        while not done():
            control_ns = max(self._steps.next_ns, fabric.now_ns)
            target_ns = min(control_ns, limit_ns, until_ns if until_ns is not None else limit_ns)
            next_ns = self._steps.competing_jobs(fabric.now_ns)
            if next_ns is not None:
                target_ns = max(min(target_ns, next_ns), fabric.now_ns)
            for wake in fabric.run(target_ns):
                self._deliver(wake)
            if fabric.now_ns >= control_ns:
                await self._steps.controller()
            if is_ending():
                await asyncio.sleep(0)  # the event loop cancels this
            if fabric.now_ns >= limit_ns:
                raise ExperimentError(
                    f"no progress in {STUCK_NS / 1e9:g} s of virtual time: waiting for {what}; {self._state()}"
                )
        return fabric.now_ns - started_ns

    async def wait(self, duration_ns: int, what: str) -> None:
        """Advance virtual time by a duration."""
        end_ns = self._fabric.now_ns + duration_ns
        await self.run(lambda: self._fabric.now_ns >= end_ns, what, end_ns)
