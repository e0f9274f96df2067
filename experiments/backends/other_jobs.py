"""Jobs beside the trained one, in virtual time: each sums as often as it can, from when the controller has taken it in.

start ─▶ taken in ─▶ its hosts have their plans ─▶ sum, check, sum, check … ─▶ stop: leaves when the last sum is there

`Progress` notes how far every job of the run is over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...controller.planning.plan import JobPlan
from ...hosts.numerics.tensors import Tensor, reference_sum
from ..errors import ExperimentError
from ..jobs import OtherJobConfig
from ..records.record import JobTrace
from .agents import VirtualWorker
from .rounds import Rounds

PROGRESS_SAMPLE_NS: Final = 100_000


class OtherJob:
    """One of them."""

    def __init__(self, config: OtherJobConfig, number: int, values: int, earliest_ns: int) -> None:
        """`number` is the job's on the wire; it does not come before `earliest_ns`."""
        self.config = config
        self.number = number
        self.values = values
        self.due_ns: int | None = max(config.start, earliest_ns)
        """When the controller is to be asked to take it in, and later to let it go; None: neither is to come."""
        self.workers: list[VirtualWorker] = []
        """Those that have their plans."""
        self.sums = 0
        """How many are complete."""
        self._handles: list[int] = []
        self._sum: bytes = b""

    @property
    def idle(self) -> bool:
        """Whether all of its workers are there, and have all that they asked for."""
        return len(self.workers) == len(self.config.workers) and all(worker.core.idle for worker in self.workers)

    def go_on(self, now_ns: int) -> bool:
        """Take the sums that are there and ask for the next ones; False, and nothing is asked for, where it is time to
        go. Raises ExperimentError for a wrong sum.
        """
        gradients = [np.full(self.values, 1 + worker.rank, np.float32) for worker in self.workers]
        lanes = self.workers[0].lanes
        if not self._sum:
            self._sum = reference_sum(gradients, lanes=lanes, name="gradient").tobytes()
        for worker, handle in zip(self.workers, self._handles, strict=False):
            if worker.wait(handle, 0).array.tobytes() != self._sum:
                raise ExperimentError(f"job {self.number}, sum {self.sums}: {worker.name} got another one than NumPy's")
        self.sums += bool(self._handles)
        self._handles = []
        if self.config.stop is not None and now_ns >= self.config.stop:
            return False
        self._handles = [
            worker.submit(Tensor(gradient, workers=worker.workers, lanes=lanes, name="gradient"))
            for worker, gradient in zip(self.workers, gradients, strict=True)
        ]
        return True


class Progress:
    """How many chunks each job of the run has summed at its slowest worker, over time."""

    def __init__(self) -> None:
        self.next_ns = 0
        """When to look again."""
        self._rounds: dict[int, Rounds] = {}
        self._traces: dict[int, JobTrace] = {}

    @property
    def traces(self) -> list[JobTrace]:
        """One for each job that was taken in, in that order."""
        return list(self._traces.values())

    def begin(self, plan: JobPlan, rounds: Rounds, now_ns: int, latency_ns: int) -> None:
        """A job was taken in; its hosts hear of it after `latency_ns`."""
        number = plan.spec.job
        self._rounds[number] = rounds
        self._traces[number] = JobTrace(
            job=number,
            workers=len(plan.spec.workers),
            round_trip_ns=plan.round_trip_ns,
            joined_ns=now_ns,
            sends_ns=now_ns + latency_ns + plan.pacing.hold_ns,
            time_ns=[],
            chunks=[],
        )

    def end(self, job: int, now_ns: int) -> None:
        """A job has left."""
        self._traces[job].left_ns = now_ns

    def look(self, complete: Mapping[int, int], now_ns: int) -> None:
        """So many rounds are complete of each job."""
        self.next_ns = now_ns + PROGRESS_SAMPLE_NS
        for job, rounds in complete.items():
            trace = self._traces[job]
            trace.time_ns.append(now_ns)
            trace.chunks.append(self._rounds[job].chunks_in(rounds))
