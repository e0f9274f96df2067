"""A training job in a synchronisation mode: its workers' processes, and those of its parameter server."""

from __future__ import annotations

from collections.abc import Sequence

from ..hosts import Communicator
from .errors import TrainingError
from .loss_curve import LossCurve
from .machines import Machine
from .mode import BatchSizeService, PeerEnds, PeerMode, Replicas, ServedMode, SummedMode, TrainingPlan
from .processes import ComputePhase, Process
from .workload import Floats, Workload


class Training:
    """The processes of one job in the plan's mode."""

    def __init__(self, plan: TrainingPlan, workload: Workload, curve: LossCurve, machines: Sequence[Machine]) -> None:
        """`machines` are the workers', by rank; TrainingError if there are more or fewer."""
        self._mode = plan.mode
        self._replicas = Replicas(plan, workload, curve, machines)

    @property
    def weights(self) -> list[Floats]:
        """Each worker's, by rank, as it had them last."""
        return self._replicas.weights

    def summed(self, everyone: Sequence[Communicator], sizes: BatchSizeService) -> list[Process]:
        """Return the workers' processes of a mode that sums.

        Args:
            everyone: The workers' ends of their job, by rank.
            sizes: Service that a mode asks whose batch sizes follow speeds.
        """
        if not isinstance(self._mode, SummedMode):
            raise TrainingError(f"mode {self._mode.name} exchanges with a parameter server, not by collectives")
        worker = self._mode.worker
        return [worker(self._replicas, rank, communicator, sizes) for rank, communicator in enumerate(everyone)]

    def served(self, pairs: Sequence[tuple[Communicator, Communicator]]) -> list[Process]:
        """Return the processes of a mode with a parameter server: each worker's, and for each one of the server's.

        Args:
            pairs: For each rank the worker's and the server's end of their job.
        """
        if not isinstance(self._mode, ServedMode):
            raise TrainingError(f"mode {self._mode.name} exchanges by collectives, not with a parameter server")
        server = self._mode.server(self._replicas)
        processes = []
        for rank, (worker_end, server_end) in enumerate(pairs):
            processes += [self._mode.worker(self._replicas, rank, worker_end), server.process(rank, server_end)]
        return processes

    def gossiping(self, ends: Sequence[PeerEnds]) -> list[Process]:
        """Return the processes of a mode whose workers exchange with one another.

        Args:
            ends: Each worker's ends of the job, by rank.
        """
        mode = self._mode
        if not isinstance(mode, PeerMode):
            raise TrainingError(f"mode {mode.name} needs all workers' sums, or a parameter server, not peers")
        return [process for rank, end in enumerate(ends) for process in mode.processes(self._replicas, rank, end)]

    def cost_ns(self, compute: ComputePhase, now_ns: int) -> int:
        """Return the duration of a computation that begins now, for `Processes`."""
        return self._replicas.machines[compute.worker].compute_ns(compute.samples, compute.iteration, now_ns)
