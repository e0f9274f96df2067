"""A run record in words: its tables' rows, and what can be claimed by it."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...controller.placement import PlacementError
from ...controller.placement.strategies import STRATEGIES
from ...training.modes import LABELS as MODE_LABELS
from .fairness import ROUND_TRIPS, all_send, jain, joins, rate_bps
from .record import FlowTrace, JobTrace, MininetResult, ModeResult, RunRecord, StrategyResult

COLUMNS: Final = (
    "strategy",
    "mean\nms",
    "p95\nms",
    "against\nserver",
    "busiest\nlink MB",
    "queue/\nbound",
    "resends",
    "decision\nms",
    "test\naccuracy",
)

PASSES: Final = 3
"""Over the training images; what has seen them less often is not expected to know the digits."""

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


def label_of(strategy: str) -> str:
    """What tables and plots call a strategy; of one whose file is there no more, the file."""
    try:
        return STRATEGIES[strategy].label
    except (KeyError, PlacementError):
        return strategy


def rows(results: list[StrategyResult]) -> list[tuple[str, ...]]:
    """The comparison table, a row per strategy, under `COLUMNS`."""
    baseline = next((result.mean_ms for result in results if result.strategy == "ps"), None)
    return [
        (
            label_of(result.strategy),
            f"{result.mean_ms:.3f}",
            f"{result.p95_ms:.3f}",
            "–" if baseline is None or result.strategy == "ps" else f"{100 * (result.mean_ms / baseline - 1):+.0f} %",
            f"{result.busiest_link_bytes / 1e6:.1f}",
            f"{result.largest_queue_packets}/{'–' if result.loosest_promise is None else result.loosest_promise}",
            str(result.resends),
            f"{np.median(result.solver_ms):.1f}" if result.solver_ms else "–",
            _share(result.accuracy),
        )
        for result in results
    ]


def claims(record: RunRecord) -> list[tuple[bool, str]]:
    """What must hold of a run, each with whether it does."""
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
        saved, said = _saving(means["widest"], means["ps"], " time")
        lines.append((saved >= 40, f"the widest tree's aggregation phase takes {said} server only's"))
    if "widest" in means:
        others = [(name, mean) for name, mean in means.items() if name not in ("ps", "widest")]
        against = [(name, *_saving(means["widest"], mean)) for name, mean in others]
        lines += [(saved >= 0, f"it takes {said} {label_of(name)}'s") for name, saved, said in against]
    if {"ps", "blind", "widest"} <= means.keys() and means["widest"] < means["ps"]:
        depth = 100 * (means["ps"] - means["blind"]) / (means["ps"] - means["widest"])
        lines.append(
            (True, f"of what is saved against server only, sums at every level save {depth:.0f} %, telemetry the rest")
        )
    moves = [move for result in results if result.strategy == "widest" for move in result.moves]
    if moves:
        lines.append((True, f"the widest tree moved in mid-run {len(moves)} time(s); training went on"))
    lines.append(_promise_claim(record))
    return lines + mininet_claims(record)


def _saving(mine: float, theirs: float, what: str = "") -> tuple[int, str]:
    """By how many percent mine is less than theirs, and how that is said. What rounds to no percent is a tie."""
    saved = round(100 * (1 - mine / theirs))
    return saved, f"{abs(saved)} % {'less' if saved > 0 else 'more'}{what} than" if saved else "as long as"


def _share(accuracy: float | None) -> str:
    return "–" if accuracy is None else f"{100 * accuracy:.1f} %"


def telemetry_lines(record: RunRecord) -> list[str]:
    """What telemetry cost the fabric, a line for each strategy; how heartbeats fared that went through it, jobs beside
    each other, and flows that yield.
    """
    labelled = [(label_of(result.strategy), result) for result in record.results]
    cost = [f"telemetry, {label}: {result.telemetry}" for label, result in labelled if result.telemetry is not None]
    beats = [f"heartbeats, {label}: {result.heartbeats}" for label, result in labelled if result.heartbeats is not None]
    beats += [
        f"heartbeats in Mininet, {label_of(result.strategy)}: {result.heartbeats}"
        for result in record.mininet
        if result.heartbeats is not None
    ]
    deepest = [_deepest_line(result) for result in record.mininet if result.deepest]
    jobs = [line for label, result in labelled for line in _job_lines(label, result.jobs)]
    flows = [line for label, result in labelled for line in _flow_lines(label, result.flows)]
    return cost + beats + deepest + jobs + flows


def _deepest_line(result: MininetResult) -> str:
    port, depth = max(result.deepest.items(), key=lambda item: item[1])
    bound = result.promised.get(port)
    kept = "; no queue was reported with more than was promised of it"
    return (
        f"queues in Mininet, {label_of(result.strategy)}: INT reported {depth} packets at most (at {port}, where "
        f"{'nothing was' if bound is None else f'{bound} were'} promised)"
        f"{kept if not result.broken else '; ' + '; '.join(result.broken)}"
    )


def _job_lines(label: str, traces: list[JobTrace]) -> list[str]:
    """How jobs beside each other fared."""
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
    """How flows that yield fared, each and beside each other."""
    lines = []
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
    """Queues that held more than was promised of them, in virtual time: a line each."""
    lines = [f"{label_of(result.strategy)}: {line}" for result in record.results for line in result.broken]
    return lines + [f"mode {result.mode}: {line}" for result in record.modes for line in result.broken]


def _promise_claim(record: RunRecord) -> tuple[bool, str]:
    """Whether every queue kept the bound that was promised for it beforehand."""
    none = [bound for result in record.results for bound in result.promised.values()].count(None)
    if broken := broken_promises(record):
        more = f"; and {len(broken) - 1} more" if len(broken) > 1 else ""
        return False, f"a queue held more than was promised: {broken[0]}{more}"
    refused = f"; nothing was promised of {none} queues" if none else ""
    return True, f"no queue ever held more packets than was promised of it beforehand, at any enqueue{refused}"


def mininet_claims(record: RunRecord) -> list[tuple[bool, str]]:
    """That real processes and packets change no bit, where the run was in Mininet too."""
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
    """The table of synchronisation modes, a row each, under `MODE_COLUMNS`."""
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
    """The mode's name, with the number that it goes by."""
    assert record.config.synchronisation is not None
    mode = record.config.synchronisation.modes[result.index]
    numbers = {
        "ssp": f" s = {mode.staleness}",
        "local": f" τ = {mode.period}",
        "easgd": f" τ = {mode.period}",
        "r2sp": f" r = {mode.relaxation:g}",
        "lb-bsp": f" {mode.sizes}",
    }
    return MODE_LABELS[mode.name] + numbers.get(mode.name, "")


def mode_title(record: RunRecord) -> str:
    """What the table of modes is about."""
    assert record.config.synchronisation is not None
    return f"synchronisation modes: virtual time to a held-out loss of {record.config.synchronisation.target:g}"


def mininet_rows(results: list[MininetResult]) -> list[tuple[str, ...]]:
    """The table of what ran in Mininet, a row per strategy, under `MININET_COLUMNS`."""
    return [
        (
            label_of(result.strategy),
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
    """What the machine or the switches could not do, each said once."""
    return list(dict.fromkeys(note for result in record.mininet for note in result.notes))
