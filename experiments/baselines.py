"""Comparison of congestion-control schemes: each run under each of them, with queues and jobs' results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..controller.planning.plan import lanes_of
from ..topologies.mininet.processes import run_until_ended
from ..topologies.spelling import nearest
from .backends.round_count import Rounds
from .config import RunConfig
from .errors import ExperimentError
from .records.fairness import joins, rate_bps
from .records.record import StrategyResult
from .run import run_strategy

SCHEMES: Final[Mapping[str, Mapping[str, str]]] = {
    "explicit": {"law": "explicit"},
    "dctcp": {"law": "dctcp", "marks": "depth"},
    "dctcp-sojourn": {"law": "dctcp", "marks": "sojourn"},
    "dctcp-virtual": {"law": "dctcp", "marks": "virtual"},
    "hpcc": {"law": "hpcc"},
    "delay": {"law": "delay"},
    "loss": {"law": "loss"},
    "fixed": {"law": "fixed"},
}
"""Values that each scheme sets in a run's `congestion`."""

COLUMNS: Final = (
    "run",
    "scheme",
    "longest\nqueue",
    "promised",
    "summed\nMbit/s",
    "Jain",
    "yielding\nMbit/s",
    "sent\nagain",
    "dropped",
)


@dataclass(frozen=True, slots=True)
class SchemeFigures:
    """One run under one scheme."""

    run: str
    scheme: str
    longest_queue: int
    """Packets, over every enqueue of every queue of the data class."""
    promised: int | None
    """The loosest of all queues' bounds; None where some queue has none."""
    broken: int
    """Queues that exceeded their bounds."""
    summed_bps: float
    """Gradients of all jobs, at each one's slowest worker, from the first that sent to the end of the run."""
    fairness: float | None
    """Jain's index, the least of all joins; None where no job joined others."""
    yielding_bps: float | None
    """Throughput of yielding background flows from the first step to the end, in bit/s; None if there are none."""
    resends: int
    dropped: int
    """Packets that full queues dropped."""

    @classmethod
    def of(cls, config: RunConfig, scheme: str, result: StrategyResult) -> SchemeFigures:
        """Return the figures of a run under one scheme."""
        arrivals = joins(result.jobs)
        return cls(
            run=config.name,
            scheme=scheme,
            longest_queue=result.largest_queue_packets,
            promised=result.loosest_promise,
            broken=len(result.broken),
            summed_bps=_summed_bps(config, result),
            fairness=min((join.index for join in arrivals), default=None),
            yielding_bps=_yielding_bps(config, result) if result.flows else None,
            resends=result.resends,
            dropped=result.drops.get("queue full", 0),
        )

    @property
    def row(self) -> tuple[str, ...]:
        """Cells of a table with the heads `COLUMNS`."""
        return (
            self.run,
            self.scheme,
            str(self.longest_queue),
            "–" if self.promised is None else f"{self.promised}{' (broken)' if self.broken else ''}",
            f"{self.summed_bps / 1e6:.0f}",
            "–" if self.fairness is None else f"{self.fairness:.3f}",
            "–" if self.yielding_bps is None else f"{self.yielding_bps / 1e6:.0f}",
            f"{self.resends:,}",
            f"{self.dropped:,}",
        )


def _summed_bps(config: RunConfig, result: StrategyResult) -> float:
    lanes = lanes_of(config.topology)
    if result.jobs:
        chunks = sum(trace.chunks[-1] for trace in result.jobs if trace.chunks)
        began_ns = min(trace.sends_ns for trace in result.jobs)
        took_ns = max(trace.time_ns[-1] for trace in result.jobs if trace.time_ns) - began_ns
    else:
        chunks = len(result.iteration_ns) * Rounds.of(config.gradient_values, lanes, config.job.window).chunks
        took_ns = sum(result.iteration_ns)
    return 32e9 * lanes * chunks / took_ns


def _yielding_bps(config: RunConfig, result: StrategyResult) -> float:
    steps_ns = sum(result.iteration_ns) + len(result.iteration_ns) * config.training.compute
    return sum(rate_bps(flow, flow.time_ns[-1] - steps_ns, flow.time_ns[-1]) for flow in result.flows)


def compare(
    configs: Iterable[RunConfig], schemes: Sequence[str], done: Callable[[SchemeFigures], object] = lambda _: None
) -> list[SchemeFigures]:
    """Run each configuration under each scheme, with its first strategy.

    Args:
        configs: the runs.
        schemes: names of the schemes.
        done: called with the figures of each run that has ended.

    Raises:
        ExperimentError: a scheme is unknown.
    """
    if unknown := [scheme for scheme in schemes if scheme not in SCHEMES]:
        near = nearest(unknown[0], SCHEMES)
        raise ExperimentError(
            f'"{unknown[0]}" is unknown{near}', place="--scheme", value=unknown[0], allowed=tuple(SCHEMES)
        )
    figures = []
    for config in configs:
        for scheme in schemes:
            changed = {**config.congestion.model_dump(), **SCHEMES[scheme]}
            run = config.replaced("--scheme", congestion=changed)
            result = run_until_ended(run_strategy(run, run.strategies[0]))
            figures.append(SchemeFigures.of(run, scheme, result))
            done(figures[-1])
    return figures


def as_json(figures: Iterable[SchemeFigures]) -> list[dict[str, Any]]:
    """Return figures as plain values for JSON."""
    return [asdict(figure) for figure in figures]


def markdown_table(figures: Iterable[SchemeFigures]) -> str:
    """Return figures as a table of a page."""
    head = [column.replace("\n", " ") for column in COLUMNS]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)], *(figure.row for figure in figures)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
