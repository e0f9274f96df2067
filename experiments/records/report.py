"""Text of a run record: table rows, and the claims that its figures support."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from ...controller.placement import PlacementError
from ...controller.placement.strategies import STRATEGIES
from ...training.modes import label
from .fairness import ROUND_TRIPS, all_send, jain, joins, rate_bps
from .record import FlowTrace, JobTrace, MininetResult, ModeResult, RunRecord, StrategyResult

COLUMNS: Final = (
    "strategy",
    "mean\nms",
    "p95\nms",
    "against\nps",
    "busiest\nlink MB",
    "queue/\nbound",
    "resends",
    "decision\nms",
    "test\naccuracy",
)

_HELD: Final = re.compile(r"held (\d+) packets .* its bound was (\d+)")
PASSES: Final = 3
"""Passes over the training images below which no accuracy is expected."""

MININET_COLUMNS: Final = ("strategy", "mean\nms", "p95\nms", "resends", "drops", "last\ngeneration", "test\naccuracy")


MODE_COLUMNS: Final = (
    "mode",
    "time to\nloss ms",
    "against\nBSP",
    "loss at\nthe end",
    "test\naccuracy",
    "not com-\nputing",
    "updates",
    "too\nlate",
)


def name_of(strategy: str) -> str:
    """Name of a strategy in tables, claims and plots.

    Args:
        strategy: The value of `--strategy`: a registered name, or the path of a file.

    Returns:
        The registered name itself, or the file's name without its folder.
    """
    return Path(strategy).name


def label_of(strategy: str) -> str:
    """Return the label of a strategy in evaluation pages; the path itself if its file no longer exists."""
    try:
        return STRATEGIES[strategy].label
    except (KeyError, PlacementError):
        return strategy


def rows(results: list[StrategyResult]) -> list[tuple[str, ...]]:
    """Return the comparison table, a row per strategy, under `COLUMNS`."""
    baseline = next((result.mean_ms for result in results if result.strategy == "ps"), None)
    return [
        (
            name_of(result.strategy),
            f"{result.mean_ms:.3f}",
            f"{result.p95_ms:.3f}",
            "–" if baseline is None or result.strategy == "ps" else f"{100 * (result.mean_ms / baseline - 1):+.0f} %",
            f"{result.busiest_link_bytes / 1e6:.1f}",
            _fullest(result),
            str(result.resends),
            f"{np.median(result.solver_ms):.1f}" if result.solver_ms else "–",
            _share(result.accuracy),
        )
        for result in results
    ]


def claims(record: RunRecord) -> list[tuple[bool, str]]:
    """Return claims that must hold of a run, each with its outcome."""
    results = record.results
    lines = [
        (
            all(result.weights == record.reference_weights for result in results),
            "final weights are bit-identical for every strategy, and to plain NumPy training without a network",
        ),
    ]
    config = record.config
    judged = config.workload is None and config.synchronisation is None
    judged = judged and config.training.options.passes(len(config.job.workers)) >= PASSES
    if judged and record.reference_accuracy is not None:
        reached = record.reference_accuracy
        lines.append((reached >= 0.95, f"accuracy on the held-out digits {_share(reached)}"))
    means = {result.strategy: result.mean_ms for result in results}
    if {"ps", "widest"} <= means.keys():
        saved, comparison = _saving(means["widest"], means["ps"])
        lines.append((saved >= 40, f"the aggregation phase under widest takes {comparison} under ps"))
    if "widest" in means:
        others = [(name, mean) for name, mean in means.items() if name not in ("ps", "widest")]
        against = [(name, *_saving(means["widest"], mean)) for name, mean in others]
        lines += [(saved >= 0, f"it takes {comparison} under {name_of(name)}") for name, saved, comparison in against]
    if {"ps", "blind", "widest"} <= means.keys() and means["widest"] < means["ps"]:
        depth = 100 * (means["ps"] - means["blind"]) / (means["ps"] - means["widest"])
        lines.append(
            (True, f"summing at every level accounts for {depth:.0f} % of the time saved, telemetry for the rest")
        )
    moves = [move for result in results if result.strategy == "widest" for move in result.moves]
    if moves:
        count = "once" if len(moves) == 1 else f"{len(moves)} times"
        lines.append((True, f"under widest the job moved to another tree {count}, and training continued"))
    lines.append(_bound_claim(record))
    return lines + mininet_claims(record)


def _saving(time: float, baseline: float) -> tuple[int, str]:
    """Time saved in percent of the baseline, and the comparison in words. A difference that rounds to 0 % is a tie."""
    saved = round(100 * (1 - time / baseline))
    return saved, f"{abs(saved)} % {'less' if saved > 0 else 'more'} time than" if saved else "as long as"


def _fullest(result: StrategyResult) -> str:
    """Packets held and bound of the queue that came closest to its own bound; a dash if no queue had one."""
    use = result.fullest_queue
    return f"{result.largest_queue_packets}/–" if use is None else f"{use.packets}/{use.bound}"


def _share(accuracy: float | None) -> str:
    return "–" if accuracy is None else f"{100 * accuracy:.1f} %"


def telemetry_lines(record: RunRecord) -> list[str]:
    """Return the cost of telemetry, a line per strategy."""
    costs = [(result.strategy, result.telemetry) for result in record.results]
    return [f"telemetry, {name_of(strategy)}: {cost}" for strategy, cost in costs if cost is not None]


def telemetry_summary(record: RunRecord) -> list[str]:
    """Return the cost of telemetry over all strategies, in at most one line."""
    costs = [(result.strategy, result.telemetry) for result in record.results if result.telemetry is not None]
    if len(costs) < 2:
        return telemetry_lines(record)
    megabytes = sorted((cost.bytes + cost.report_bytes + (cost.int_bytes or 0)) / 1e6 for _, cost in costs)
    strategy, largest = max(costs, key=lambda cost: cost[1].largest_share)
    return [
        f"telemetry: {megabytes[0]:.2f} to {megabytes[-1]:.2f} MB on links per strategy, at most "
        f"{100 * largest.largest_share:.2g} % of a link ({largest.where} under {name_of(strategy)})"
    ]


def condition_lines(record: RunRecord) -> list[str]:
    """Return heartbeats through the fabric, queues in Mininet, other jobs and yielding flows; a line each."""
    named = [(name_of(result.strategy), result) for result in record.results]
    beats = [f"heartbeats, {name}: {result.heartbeats}" for name, result in named if result.heartbeats is not None]
    beats += [
        f"heartbeats in Mininet, {name_of(result.strategy)}: {result.heartbeats}"
        for result in record.mininet
        if result.heartbeats is not None
    ]
    deepest = [_deepest_line(result) for result in record.mininet if result.deepest]
    jobs = [line for name, result in named for line in _job_lines(name, result.jobs)]
    flows = [line for name, result in named for line in _flow_lines(name, result.flows)]
    return beats + deepest + jobs + flows


def _deepest_line(result: MininetResult) -> str:
    port, depth = max(result.deepest.items(), key=lambda item: item[1])
    bound = result.promised.get(port)
    return (
        f"queues in Mininet, {name_of(result.strategy)}: INT reported at most {depth} packets ({port}, "
        f"{'no bound' if bound is None else f'bound {bound}'}); "
        f"{'; '.join(result.broken) or 'no queue was reported over its bound'}"
    )


def _job_lines(label: str, traces: list[JobTrace]) -> list[str]:
    """Lines about several jobs."""
    lines = [
        f"jobs, {label}: job {trace.job} from {trace.joined_ns / 1e6:.1f} ms "
        f"{'to the end' if trace.left_ns is None else f'to {trace.left_ns / 1e6:.1f} ms'}, "
        f"{trace.chunks[-1] if trace.chunks else 0} chunks summed"
        for trace in traces
    ]
    return lines + [
        f"jobs, {label}: job {join.job} joined at {join.joined_ns / 1e6:.1f} ms and held back for "
        f"{join.held_ns / 1e6:.2f} ms; within {ROUND_TRIPS} round trips from then Jain's index of the {join.jobs} jobs "
        f"was {join.index:.4f}"
        for join in joins(traces)
    ]


def _flow_lines(label: str, flows: list[FlowTrace]) -> list[str]:
    """Lines about transfers, and about yielding flows, each flow and all together."""
    transfers = [flow for flow in flows if flow.kind == "transfer"]
    flows = [flow for flow in flows if flow.kind == "yielding"]
    lines = [
        f"transfers, {label}: {flow.source} to {flow.destination}: {flow.messages} messages, "
        f"{rate_bps(flow, *span) / 1e6:.0f} Mbit/s, {flow.lost} packets sent again, "
        f"{flow.mean_delay_us:.0f} us on their way on average"
        for flow in transfers
        if (span := all_send([flow])) is not None
    ]
    for flow in flows:
        end_ns = flow.time_ns[-1] if flow.stop_ns is None else min(flow.stop_ns, flow.time_ns[-1])
        if flow.start_ns >= end_ns:
            continue
        lines.append(
            f"yielding flows, {label}: {flow.source} to {flow.destination} from {flow.start_ns / 1e6:.1f} to "
            f"{end_ns / 1e6:.1f} ms: {rate_bps(flow, flow.start_ns, end_ns) / 1e6:.0f} Mbit/s, "
            f"{100 * flow.marked / max(1, flow.acknowledged):.0f} % of packets marked, {flow.lost} lost, "
            f"{flow.mean_delay_us:.0f} us on their way on average"
        )
    if len(flows) > 1 and (span := all_send(flows)) is not None:
        index = jain([rate_bps(flow, *span) for flow in flows])
        lines.append(
            f"yielding flows, {label}: Jain's index of the {len(flows)} from {span[0] / 1e6:.1f} to "
            f"{span[1] / 1e6:.1f} ms, when all send, is {index:.4f}"
        )
    return lines


def broken_promises(record: RunRecord) -> list[str]:
    """Return queues that exceeded the bound in force, in virtual time: a line each, the largest excess first."""
    lines = [f"{name_of(result.strategy)}: {line}" for result in record.results for line in result.broken]
    lines += [f"mode {result.mode}: {line}" for result in record.modes for line in result.broken]
    return sorted(lines, key=_excess, reverse=True)


def _excess(line: str) -> int:
    """Packets above the bound, by a line of `backends.queue_bounds`; 0 for lines of another form."""
    match = _HELD.search(line)
    return int(match[1]) - int(match[2]) if match else 0


def _bound_claim(record: RunRecord) -> tuple[bool, str]:
    """Claim that every queue kept its own bound, with the tightest ratio and a reference to the formulas."""
    more = "formulas: run record, weir -v; docs/congestion.md"
    if broken := broken_promises(record):
        others = f"; and {len(broken) - 1} more" if len(broken) > 1 else ""
        return False, f"a queue exceeded its bound: {broken[0]}{others} ({more})"
    bounds = [(port, bound) for result in record.results for port, bound in result.promised.items()]
    bounds += [(queue, bound) for result in record.results for queue, bound in result.class_promised.items()]
    bounded, unbounded = ({port for port, bound in bounds if (bound is None) is none} for none in (False, True))
    without = f"; {len(unbounded)} more have no bound" if unbounded else ""
    return (
        True,
        f"no queue exceeded its bound: {len(bounded - unbounded)} bounds{_closest(record.results)}{without} ({more})",
    )


def _closest(results: Sequence[StrategyResult]) -> str:
    """The queue that came closest to its own bound, over all strategies."""
    uses = [(name_of(result.strategy), use) for result in results if (use := result.fullest_queue) is not None]
    if not uses:
        return ""
    name, use = max(uses, key=lambda item: item[1].share)
    text = f" computed before the run, closest {use.port} under {name} with {use.packets} of {use.bound} packets"
    if shares := [use.share for result in results for use in result.queue_uses]:
        queues = "queue" if len(shares) == 1 else f"{len(shares)} queues"
        text += f"; median of the {queues} in use: {100 * np.median(shares):.0f} %"
    return text


def mininet_claims(record: RunRecord) -> list[tuple[bool, str]]:
    """Return (holds, text) per claim that the Mininet run has the same bits; empty without such a run."""
    if not record.mininet:
        return []
    virtual = {result.strategy: result for result in record.results}
    exact = all(
        result.sums == virtual[result.strategy].sums and result.weights == virtual[result.strategy].weights
        for result in record.mininet
    )
    steps = len(record.mininet[0].sums)
    return [
        (
            exact,
            f"in Mininet with {record.mininet[0].switch} switches the final weights and the sums of all {steps} steps "
            "are those of the virtual fabric, bit for bit, for every strategy",
        )
    ]


def mode_rows(record: RunRecord) -> list[tuple[str, ...]]:
    """Return the table of synchronisation modes, a row each, under `MODE_COLUMNS`."""
    baseline = next((result.reached_ns for result in record.modes if result.mode == "bsp"), None)
    return [
        (
            mode_label(record, result),
            "–" if result.reached_ns is None else f"{result.reached_ns / 1e6:.0f}",
            "–"
            if baseline is None or result.reached_ns is None or result.mode == "bsp"
            else f"{100 * (result.reached_ns / baseline - 1):+.0f} %",
            f"{result.loss:.3f}",
            f"{100 * result.accuracy:.1f} %",
            f"{100 * result.idle:.0f} %",
            str(result.updates),
            str(result.dropped),
        )
        for result in record.modes
    ]


def mode_label(record: RunRecord, result: ModeResult) -> str:
    """Return the label of the mode, with the option that it shows."""
    assert record.config.synchronisation is not None
    return label(record.config.synchronisation.modes[result.index])


def mode_title(record: RunRecord) -> str:
    """Return the title of the table of modes."""
    assert record.config.synchronisation is not None
    return f"synchronisation modes: virtual time to a held-out loss of {record.config.synchronisation.target:g}"


def mininet_rows(results: list[MininetResult]) -> list[tuple[str, ...]]:
    """Return the table of the results in Mininet, a row per strategy, under `MININET_COLUMNS`."""
    return [
        (
            name_of(result.strategy),
            f"{result.mean_ms:.1f}",
            f"{result.p95_ms:.1f}",
            str(result.resends),
            str(sum(result.drops.values())),
            str(result.generation),
            _share(result.accuracy),
        )
        for result in results
    ]


def mininet_notes(record: RunRecord) -> list[str]:
    """Return limits of the machine or the switches, each once."""
    return list(dict.fromkeys(note for result in record.mininet for note in result.notes))
