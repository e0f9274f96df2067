"""Run a configuration once per strategy and put down what happened."""

from __future__ import annotations

import logging
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..controller.planning.plan import lanes_of
from ..hosts import Reduced, reference_sum
from ..topologies import Endpoint
from ..topologies.mininet.fabric import MininetFabric, SwitchKind, obstacle
from ..topologies.mininet.processes import End, orderly_end
from ..training.modes import label as mode_label
from ..training.replicated import ReplicatedJob, digest, train_without_network
from .backends.emulated import LinkFigures
from .backends.mininet import run_in_mininet
from .backends.run_figures import RunFigures
from .backends.virtual_time import Cluster
from .config import RunConfig
from .config.background import TransferFlow, YieldingFlow
from .errors import ExperimentError, Interrupted
from .records import page, report
from .records.record import (
    MoveRecord,
    PlacementPhase,
    PromiseRecord,
    QueueTrace,
    QueueUse,
    RunRecord,
    StrategyResult,
    keep_folder,
    run_folder,
)
from .resources import check_resources
from .synchronised import train_in_mode

if TYPE_CHECKING:
    from ..controller.live.watch import Watch


_log = logging.getLogger(__name__)


def execute(
    config: RunConfig,
    out: Path,
    console: Console,
    mininet: SwitchKind | None = None,
    watch: Watch | None = None,
) -> tuple[RunRecord, Path]:
    """Run every strategy of `config`, with progress on `console`.

    Args:
        config: the run.
        out: folder for records.
        console: console for progress.
        mininet: kind of switch with which every strategy also runs in Mininet, for comparison; None: not at all.
        watch: observer of the run.

    Returns:
        The record, and the folder it was written to.

    Raises:
        ExperimentError: and other packages' errors, for faults that a user can fix.
        Interrupted: after SIGINT, SIGTERM or SIGHUP; complete results were kept.
    """
    if mininet is not None and (reason := obstacle(mininet)) is not None:
        raise ExperimentError(f"{reason} (weir doctor lists the parts on this machine)", place="--fabric mininet")
    virtual: list[YieldingFlow | TransferFlow] = [*config.yielding, *config.transfers]
    if mininet is not None and virtual:
        raise ExperimentError(
            f"{virtual[0].kind} background flows exist in virtual time only; leave them out",
            place="--fabric mininet",
            value=virtual,
        )
    if mininet is not None and (law := config.congestion.law) != "explicit":
        raise ExperimentError(
            f"congestion.law {law} exists in virtual time only; hosts that are processes apply explicit windows: write "
            "law: explicit, or run the file without --fabric mininet",
            place="--fabric mininet",
            value=law,
        )
    check_resources(len(config.topology.hosts))
    began: list[RunRecord] = []
    with orderly_end() as end, end.later(), run_folder(out) as folder:
        try:
            record = _run_strategies(config, console, mininet, began, watch, end)
        except (KeyboardInterrupt, SystemExit):
            if not began or not began[0].results:
                raise Interrupted("interrupted; no strategy was complete, so nothing is kept") from None
            complete = began[0].only_complete()
            raise _interrupted(complete, _keep(complete, folder, out, watch, end), end) from None
        kept = _keep(record, folder, out, watch, end)
        if end.asked:  # while it was written
            raise _interrupted(record, kept, end)
        return record, kept


def _interrupted(complete: RunRecord, kept: Path, end: End) -> Interrupted:
    done = ", ".join([*complete.config.strategies, *(f"mode {result.mode}" for result in complete.modes)])
    without = "" if (kept / page.NAME).exists() or not _is_hurried(end) else ", without its page"
    return Interrupted(f"interrupted; what was complete ({done}) is kept in {kept}{without}")


class _PageGivenUp(Exception):
    """The page is not drawn to its end."""


def _is_hurried(end: End) -> bool:
    """Return whether there is no time for a page: a system kills soon after SIGTERM, and a user waits after Ctrl-C."""
    return end.asked and end.by is not signal.SIGINT


def _keep(record: RunRecord, folder: Path, out: Path, watch: Watch | None, end: End) -> Path:
    """Write the record and its page, with the history; return their folder. Without time for it there is no page."""
    from .records.drawing import draw_fabric

    def draw(result: StrategyResult, phase: PlacementPhase, *, upright: bool) -> str:
        if _is_hurried(end):
            raise _PageGivenUp
        return draw_fabric(record.config, result, phase, upright=upright)

    try:
        record.save(folder)
        if record.config.workload is not None:
            shutil.copy(record.config.workload.script, folder)
    except OSError as error:
        raise ExperimentError(
            f"the run record cannot be written ({error.strerror})", place=str(out), value=error.errno
        ) from None
    try:
        seen = [] if watch is None else watch.seen()
        if not _is_hurried(end):
            page.write(record, folder, draw, seen)
    except _PageGivenUp:
        pass
    except Exception as error:
        kept = keep_folder(folder, out, record.config.name)
        if isinstance(error, OSError):
            why = f"its page cannot be written ({error.strerror})"
            raise ExperimentError(f"{kept}: has the record, but {why}") from None
        error.add_note(f"{kept}: has the record, without its page")
        raise
    return keep_folder(folder, out, record.config.name)


def _run_strategies(
    config: RunConfig,
    console: Console,
    mininet: SwitchKind | None,
    began: list[RunRecord],
    watch: Watch | None,
    end: End,
) -> RunRecord:
    """The record, which is put into `began` before it has any result."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("NumPy, no network", total=1)
        lanes = lanes_of(config.topology)
        with end.at_once():
            reference = config.new_job()
            train_without_network(reference, lambda gradients: reference_sum(gradients, lanes=lanes, name="gradient"))
        progress.update(task, completed=1)
        record = RunRecord.begin(config, reference.digests()[0], reference.accuracy())
        began.append(record)
        announced: dict[str, str] = {}
        for strategy in config.strategies:
            label = report.name_of(strategy)
            task = progress.add_task(label, total=config.training.steps)
            note = partial(_announce, progress.console, label, announced)
            result = end.run(run_strategy(config, strategy, partial(progress.advance, task), watch, note))
            record.results.append(result)
        if mininet is not None:
            _run_in_mininet(config, record, mininet, progress, watch, end)
        for index, mode in enumerate(config.synchronisation.modes if config.synchronisation is not None else ()):
            label = f"mode {mode_label(mode)}"
            task = progress.add_task(label, total=1)
            note = partial(_announce, progress.console, label, announced)
            record.modes.append(end.run(train_in_mode(config, index, note, watch)))
            progress.update(task, completed=1)
    return record


def _announce(console: Console, name: str, announced: dict[str, str], text: str) -> None:
    """Print notes on queue bounds, a line each, or the name of the strategy that printed the same lines before.

    Args:
        console: Where to print.
        name: The strategy that runs.
        announced: Text → name of the strategy that printed it first; extended here.
        text: The notes.
    """
    lines = text.splitlines()
    first = announced.setdefault(text, name) if len(lines) > 1 else name
    for line in lines if first == name else [f"same as under {first}"]:
        console.print(f"queue bounds, {name}: {line}", markup=False, soft_wrap=True)


def _run_in_mininet(
    config: RunConfig, record: RunRecord, kind: SwitchKind, progress: Progress, watch: Watch | None, end: End
) -> None:
    """The same strategies with real processes and packets, in one fabric, one after the other."""
    task = progress.add_task(f"building the fabric in Mininet, {kind} switches", total=1)
    with end.at_once(), MininetFabric(config.topology, kind) as fabric:
        progress.update(task, completed=1)
        for index, result in enumerate(record.results):
            label = f"{report.name_of(result.strategy)}, Mininet"
            task = progress.add_task(label, total=config.training.steps)

            def advance(steps: int, task: TaskID = task) -> None:
                progress.update(task, completed=steps)

            first_job = 1 + index * len(config.job.roots)
            record.mininet.append(end.run(run_in_mininet(config, result, fabric, first_job, advance, watch)))
            advance(config.training.steps)


async def run_strategy(
    config: RunConfig,
    strategy: str,
    advance: Callable[[], object] | None = None,
    watch: Watch | None = None,
    note: Callable[[str], object] = lambda _: None,
) -> StrategyResult:
    """Train the job under one strategy.

    Args:
        config: The run.
        strategy: A registered name, or the path of a file.
        advance: Called after every step.
        watch: Observes the run live.
        note: Receives notes on queue bounds; those on queues without one come before anything is sent.

    Returns:
        Figures of the run.
    """
    started = time.perf_counter()
    job = config.new_job()
    async with Cluster(config, strategy, watch, note=note) as cluster:
        for line in cluster.figures.bound_formulas:
            _log.info("queue bounds, %s: %s", report.name_of(strategy), line)
        trained = await _train(cluster, job, strategy, advance)
        digests = set(job.digests())
        if len(digests) > 1:
            raise ExperimentError(
                f"strategy {strategy}: the workers' weights differ; sums were not the same everywhere"
            )
        return StrategyResult(
            strategy=strategy,
            accuracy=job.accuracy(),
            weights=digests.pop(),
            **trained,
            **await _figures(cluster),
            wall_s=time.perf_counter() - started,
        )


async def _train(
    cluster: Cluster, job: ReplicatedJob, strategy: str, advance: Callable[[], object] | None
) -> dict[str, Any]:
    """Train for the run's steps; return the fields of `StrategyResult` on steps and moves."""
    training = cluster.config.training
    samples = [job.samples(worker) for worker in range(job.workers)]
    times_ns: list[int] = []
    sums: list[str] = []
    moves: list[MoveRecord] = []
    phases = _Phases(cluster)
    for step in range(training.steps):
        await cluster.compute(training.compute)
        totals, duration_ns = await cluster.allreduce(job.gradients(step), samples)
        times_ns.append(duration_ns)
        sums.append(_digest_of_all(strategy, step, totals))
        job.apply([total.mean() for total in totals])
        moved_now = cluster.pop_moves()
        moves += [
            MoveRecord(step=step, time_ns=moved.time_ns, switches=list(moved.switches), shard=moved.shard)
            for moved in moved_now
        ]
        if moved_now:
            phases.close()
        if advance is not None:
            advance()
    phases.close()
    achievable_ns = [result.achievable_ns for result in cluster.job.sums]
    return {
        "iteration_ns": times_ns,
        "achievable_ns": achievable_ns,
        "sums": sums,
        "moves": moves,
        "phases": phases.closed,
    }


async def _figures(cluster: Cluster) -> dict[str, Any]:
    """Return the fields of `StrategyResult` on the fabric and the other jobs."""
    figures = cluster.figures
    links = list(figures.links())
    busiest = max(links, key=lambda link: link.job_bytes)
    longest = max(links, key=lambda link: link.largest_queue_packets)
    times, depths = figures.queue(longest.end)
    broken = figures.broken_promises  # first: it reads the depths of the classes' queues until now
    uses = _queue_uses(links, figures.promised) + _class_uses(figures)
    return {
        "busiest_link": str(busiest.end),
        "busiest_link_bytes": busiest.job_bytes,
        "largest_queue": str(longest.end),
        "largest_queue_packets": longest.largest_queue_packets,
        "promised": {str(link): bound for link, bound in sorted(figures.promised.items())},
        "class_promised": {
            f"{link}, class {priority}": bound for (link, priority), bound in sorted(figures.class_promised.items())
        },
        "promises": [PromiseRecord(time_ns=time_ns, text=text) for time_ns, text in figures.promises],
        "broken": broken,
        "fullest_queue": max(uses, key=lambda use: use.share, default=None),
        "queue_uses": [use for use in uses if use.packets > 1],
        "heartbeats": figures.heartbeats,
        "resends": figures.resends,
        "drops": await figures.drops(),
        "fabric": figures.digest(),
        "shares": list(cluster.job.shares),
        "trees": cluster.job.trees,
        "link_load": {str(link.end): round(link.load, 6) for link in links},
        "jobs": figures.jobs,
        "flows": figures.flows,
        "queues": [QueueTrace(port=str(longest.end), time_ns=times, depth_packets=depths)],
        "solver_ms": cluster.decisions_ms,
        "telemetry": figures.telemetry_cost,
    }


def _queue_uses(links: Iterable[LinkFigures], bounds: Mapping[Endpoint, int | None]) -> list[QueueUse]:
    """Queues compared with their own bounds. Bounds of one packet are ignored: only probes use those queues."""
    bounded = [(link, bound) for link in links if (bound := bounds.get(link.end)) is not None and bound > 1]
    return [QueueUse(port=str(link.end), packets=link.largest_queue_packets, bound=bound) for link, bound in bounded]


def _class_uses(figures: RunFigures) -> list[QueueUse]:
    """Queues of jobs' traffic classes compared with their own bounds."""
    return [
        QueueUse(port=f"{link}, class {priority}", packets=figures.class_held.get((link, priority), 0), bound=bound)
        for (link, priority), bound in sorted(figures.class_promised.items())
    ]


class _Phases:
    """Cuts a run where its job moves, and measures the links' loads in each piece."""

    def __init__(self, cluster: Cluster) -> None:
        self.closed: list[PlacementPhase] = []
        self._cluster = cluster
        self._start_ns = 0
        self._busy_ns: dict[str, float] = {}
        """Busy time of each link until the phase began, in ns."""
        self._trees = cluster.job.trees

    def close(self) -> None:
        """End the present phase and begin the next one."""
        now_ns = self._cluster.now_ns
        busy_ns = {str(link.end): link.load * now_ns for link in self._cluster.figures.links()}
        lasted_ns = max(now_ns - self._start_ns, 1)
        loads = {end: round((busy - self._busy_ns.get(end, 0.0)) / lasted_ns, 6) for end, busy in busy_ns.items()}
        phase = PlacementPhase(start_ns=self._start_ns, end_ns=now_ns, trees=self._trees, link_load=loads)
        self.closed.append(phase)
        self._start_ns, self._busy_ns, self._trees = now_ns, busy_ns, self._cluster.job.trees


def _digest_of_all(strategy: str, step: int, totals: Sequence[Reduced]) -> str:
    """Digest of a step's sum, which must be the same at every worker."""
    digests = {digest(total.array) for total in totals}
    if len(digests) > 1:
        raise ExperimentError(f"strategy {strategy}, step {step}: not every worker got the same sum")
    return digests.pop()
