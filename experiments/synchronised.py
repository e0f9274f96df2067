"""The run's job trained in a synchronisation mode, over the aggregation protocol in the virtual fabric.

Modes whose workers sum have the run's job. In modes with a server each worker has a job of two with the server's host,
whose switches add nothing but zeros. In modes without a server workers exchange over the point-to-point transport.
Every worker is a process of its own, on a machine that the run's file describes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..training import LossCurve, Machine, Mode, Processes, Training, TrainingPlan
from ..training.mode import PeerEnds, PeerMode, ServedMode
from ..training.modes import label as mode_label
from ..training.replicated import digest
from ..training.samples import Rows, label_shards
from ..training.workload import Workload
from ..training.workloads import make_workload
from .backends.virtual_time import Cluster
from .config import RunConfig
from .config.synchronisation import SynchronisationConfig
from .errors import ExperimentError
from .records.record import ModeResult

if TYPE_CHECKING:
    from ..controller.live.watch import Watch


def _compute_seconds(machines: Sequence[Machine], samples: int, cluster: Cluster) -> NDArray[np.float64]:
    """Return how long each worker computes as its machine is now, in s; workers report it with their requests."""
    return np.array([1e-9 * machine.compute_ns(samples, 0, cluster.now_ns) for machine in machines])


def _shards(workload: Workload, workers: int, mix: float | None, seed: int) -> list[Rows]:
    """Return each worker's rows by label, or none if all draw from all. Raises ExperimentError."""
    if mix is None:
        return []
    rows = workload.fetch(np.arange(workload.rows))
    labels = rows[1] if isinstance(rows, tuple) and len(rows) == 2 else None
    if not (isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iu"):
        raise ExperimentError(
            "the workload's rows have no labels; supported: workloads whose batches are (inputs, integer labels), such "
            "as digits",
            place="synchronisation.label_mix",
            value=mix,
        )
    return label_shards(labels, workers, mix, seed)


class PreparedTraining(NamedTuple):
    """Training of a run file in one mode, before its workers have ends to exchange by."""

    workload: Workload
    plan: TrainingPlan
    curve: LossCurve
    machines: Sequence[Machine]
    training: Training


def synchronisation_of(config: RunConfig) -> SynchronisationConfig:
    """Return the section of modes. Raises ExperimentError if the run has none."""
    if config.synchronisation is None:
        raise ExperimentError(f"run {config.name}: there is no section synchronisation, which names modes")
    return config.synchronisation


def prepared(config: RunConfig, mode: Mode) -> PreparedTraining:
    """Return the training of a run in one of its modes. Raises ExperimentError if the run has no section of modes."""
    asked, options, workers = synchronisation_of(config), config.training.options, len(config.job.workers)
    workload = make_workload(asked.workload, config.seed, options.hidden)
    plan = TrainingPlan(
        mode,
        workers,
        options.batch * workers,
        options.learning_rate,
        options.optimiser,
        options.all_optimiser_options,
        config.seed,
        _shards(workload, workers, asked.label_mix, config.seed),
    )
    curve = LossCurve(workload.loss, every=mode.updates_per_step(workers))
    machines = asked.machines.drawn(config.seed)
    return PreparedTraining(workload, plan, curve, machines, Training(plan, workload, curve, machines))


async def train_in_mode(
    config: RunConfig, index: int, note: Callable[[str], object] = lambda _: None, watch: Watch | None = None
) -> ModeResult:
    """Train in the mode of that place until the loss is the target's, or the limit has come.

    Args:
        config: The run.
        index: Place of the mode in the run file's list.
        note: Receives notes on queue bounds; those on queues without one come before anything is sent.
        watch: Observer of the run.
    """
    asked = synchronisation_of(config)
    mode = asked.modes[index]
    workload, plan, curve, machines, training = prepared(config, mode)
    async with Cluster(
        config,
        config.strategies[-1],
        watch,
        label=f"mode {mode_label(mode)}",
        values=workload.parameters,
        served=isinstance(mode, ServedMode),
        exchanging=isinstance(mode, PeerMode),
        note=note,
    ) as cluster:
        started_ns = cluster.now_ns
        if mode.summed:
            programs = training.summed(cluster.job.communicators, cluster.batch_sizes(plan.batch))
        elif isinstance(mode, PeerMode):
            times = partial(_compute_seconds, machines, config.training.options.batch, cluster)
            policies = cluster.gossip_policies(4 * workload.parameters, times)
            programs = training.gossiping([PeerEnds(peers, policies) for peers in cluster.transports()])
        else:
            programs = training.served(cluster.job.pairs)

        def done() -> bool:
            reached = bool(curve.losses) and curve.losses[-1].loss <= asked.target
            return reached or cluster.now_ns - started_ns >= asked.limit

        await cluster.play(Processes(programs, training.cost_ns), done)
        reached_ns = curve.reached_ns(asked.target)
        return ModeResult(
            mode=mode.name,
            index=index,
            reached_ns=None if reached_ns is None else reached_ns - started_ns,
            ended_ns=cluster.now_ns - started_ns,
            loss=curve.losses[-1].loss if curve.losses else workload.loss(workload.initial()),
            accuracy=workload.accuracy(training.weights[0]),
            updates=curve.updates,
            samples=curve.samples,
            dropped=curve.dropped,
            idle=curve.idle_share(),
            resends=cluster.figures.resends,
            broken=cluster.figures.broken_promises,
            weights=digest(training.weights[0]),
            losses=[(point.time_ns - started_ns, point.loss) for point in curve.losses],
        )
