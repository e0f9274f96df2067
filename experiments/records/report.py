"""A run record for the eye: plots, and one HTML page that shows them with the table."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final, Protocol

import numpy as np
import yaml

from ...controller.live.seen import SeenFabric
from ...controller.placement import PlacementError
from ...controller.placement.strategies import STRATEGIES
from ...controller.planning.plan import lanes_of
from ...training.modes import LABELS as MODE_LABELS
from .fairness import ROUND_TRIPS, joins
from .record import JobTrace, MininetResult, ModeResult, Phase, RunRecord, StrategyResult
from .seen_plots import draw_loads, draw_queues

COLOURS: Final[Mapping[str, str]] = {
    "ps": "#b3433b",
    "rack": "#c98a1b",
    "random": "#7d6aa8",
    "agg": "#2b6f9e",
    "hierarchy": "#8a7a5c",
    "blind": "#6b6b6b",
    "widest": "#1f7a5c",
}

_BROAD_INCHES: Final = 11.0
_NARROW_INCHES: Final = 3.7
"""How wide plots are for a desk's screen, and for a phone's: no text is ever smaller than 9 points."""
_PLOT_INCHES: Final = 3.8
_SMALL_INCHES: Final = 1.15
"""How high a plot is, and each of several that share an axis."""
_PAGE_POINTS: Final = 880.0
"""How wide a drawing may be on a desk's screen."""
_SHOWN_PHASES: Final = 4
_THROUGHPUT_WINDOW_NS: Final = 1_000_000

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
    judged = record.config.workload is None and record.config.synchronisation is None
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
    lines.append(_promise_claim(results))
    return lines + mininet_claims(record)


def _saving(mine: float, theirs: float, what: str = "") -> tuple[int, str]:
    """By how many percent mine is less than theirs, and how that is said. What rounds to no percent is a tie."""
    saved = round(100 * (1 - mine / theirs))
    return saved, f"{abs(saved)} % {'less' if saved > 0 else 'more'}{what} than" if saved else "as long as"


def _share(accuracy: float | None) -> str:
    return "–" if accuracy is None else f"{100 * accuracy:.1f} %"


def telemetry_lines(record: RunRecord) -> list[str]:
    """What telemetry cost the fabric, a line for each strategy; how heartbeats fared that went through it, and jobs
    beside each other.
    """
    labelled = [(label_of(result.strategy), result) for result in record.results]
    cost = [f"telemetry, {label}: {result.telemetry}" for label, result in labelled if result.telemetry is not None]
    beats = [f"heartbeats, {label}: {result.heartbeats}" for label, result in labelled if result.heartbeats is not None]
    return cost + beats + [line for label, result in labelled for line in _job_lines(label, result.jobs)]


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


def _promise_claim(results: list[StrategyResult]) -> tuple[bool, str]:
    """Whether every queue kept the bound that was promised for it beforehand."""
    bound = [b for result in results for b in result.promised.values()]
    none = bound.count(None)
    if broken := [f"{label_of(result.strategy)}: {line}" for result in results for line in result.broken]:
        return False, f"a queue held more than was promised: {broken[0]}"
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


class DrawFabric(Protocol):
    def __call__(self, result: StrategyResult, phase: Phase, *, upright: bool) -> str:
        """SVG of the fabric in a phase of a strategy; upright for narrow pages."""


@dataclass(frozen=True, slots=True)
class _Picture:
    """SVG for a wide page and for a narrow one."""

    broad: str
    narrow: str

    def html(self, kind: str, caption: str = "") -> str:
        """A figure. What is too wide for any page is shown as on a narrow one."""
        fits = _width_points(self.broad) <= _PAGE_POINTS
        broad = f"<div class=broad>{self.broad}</div>" if fits else ""
        narrow = f'<div class="narrow{"" if fits else " alone"}">{self.narrow}</div>'
        return f"<figure class={kind}>{broad}{narrow}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _both(plot: Callable[[RunRecord, float], str], record: RunRecord) -> _Picture:
    return _Picture(plot(record, _BROAD_INCHES), plot(record, _NARROW_INCHES))


def _both_seen(draw: Callable[[Any, Sequence[SeenFabric]], None], seen: Sequence[SeenFabric]) -> _Picture:
    height = max(_PLOT_INCHES, 0.6 + _SMALL_INCHES * len(seen))
    return _Picture(
        *(_svg(lambda figure: draw(figure, seen), (inches, height)) for inches in (_BROAD_INCHES, _NARROW_INCHES))
    )


def _html_seen(loads: _Picture, queues: _Picture) -> str:
    caption = "From the history: the links with the most load, and with the longest queues; dotted: a job moves."
    return f"<h2>What telemetry saw</h2>{loads.html('plot')}{queues.html('plot', caption)}"


def write(record: RunRecord, folder: Path, draw_fabric: DrawFabric, seen: Sequence[SeenFabric] = ()) -> Path:
    """Write plots and index.html into `folder`. `seen`: what a history has kept of the run's controllers."""
    plots = {"iterations": _both(_plot_iterations, record), "queues": _both(_plot_queues, record)}
    if any(result.jobs for result in record.results):
        plots["jobs"] = _both(_plot_jobs, record)
    if record.modes:
        plots["modes"] = _both(_plot_modes, record)
    if seen := [each for each in seen if each.fullest]:
        plots["seen-loads"] = _both_seen(draw_loads, seen)
        plots["seen-queues"] = _both_seen(draw_queues, seen)
    fabrics = [
        (result, index, phase, _Picture(*(draw_fabric(result, phase, upright=upright) for upright in (False, True))))
        for result in record.results
        for index, phase in enumerate(_shown_phases(result))
    ]
    drawn = {
        f"fabric-{Path(result.strategy).stem}{f'-{index + 1}' if index else ''}": picture
        for result, index, _, picture in fabrics
    }
    for name, picture in {**plots, **drawn}.items():
        (folder / f"{name}.svg").write_text(picture.broad)
    page = Template((resources.files(__package__) / "report.html").read_text()).substitute(
        name=html.escape(record.config.name),
        started=record.started,
        seed=record.config.seed,
        commit=record.commit,
        table=_html_table(record),
        claims=_html_list([f"{'✓' if holds else '✗'} {html.escape(text)}" for holds, text in claims(record)]),
        iterations=plots["iterations"].html(
            "plot",
            "One point per training step. Lower is better; a jump is a change of background traffic or of the "
            "placement.",
        ),
        queues=plots["queues"].html(
            "plot",
            "The egress queue that grew longest under each strategy; dotted: the bound that was promised for it.",
        ),
        jobs=_html_jobs(plots["jobs"]) if "jobs" in plots else "",
        modes=_html_modes(record, plots["modes"]) if "modes" in plots else "",
        fabrics="".join(picture.html("fabric", _phase_caption(result, phase)) for result, _, phase, picture in fabrics),
        moves=_html_moves(record),
        seen=_html_seen(plots["seen-loads"], plots["seen-queues"]) if seen else "",
        telemetry=_html_list([html.escape(line) for line in telemetry_lines(record)]),
        configuration=html.escape(yaml.safe_dump(record.config.model_dump(mode="json"), sort_keys=False)),
        versions=html.escape(yaml.safe_dump(record.versions, sort_keys=False)),
    )
    path = folder / "index.html"
    path.write_text(page)
    return path


def _shown_phases(result: StrategyResult) -> list[Phase]:
    """The run before its first move and after each of them, so that one sees why; of many moves the first and last."""
    phases = result.phases or [
        Phase(start_ns=0, end_ns=sum(result.iteration_ns), trees=result.trees, link_load=result.link_load)
    ]
    return phases if len(phases) <= _SHOWN_PHASES else [*phases[: _SHOWN_PHASES - 1], phases[-1]]


def _phase_caption(result: StrategyResult, phase: Phase) -> str:
    label = label_of(result.strategy)
    if not result.moves:
        return label
    return f"{label}, {phase.start_ns / 1e6:.0f} to {phase.end_ns / 1e6:.0f} ms"


def _html_table(record: RunRecord) -> str:
    best = min(record.results, key=lambda result: result.mean_ms).strategy if record.results else ""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in (*COLUMNS, "busiest link", "largest queue at"))
    body = ""
    for result, row in zip(record.results, rows(record.results), strict=True):
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in (*row, result.busiest_link, result.largest_queue))
        body += f"<tr{' class=best' if result.strategy == best else ''}>{cells}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{_html_mininet(record)}"


def _html_modes(record: RunRecord, plot: _Picture) -> str:
    """What came of the synchronisation modes."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in MODE_COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in mode_rows(record))
    caption = html.escape(mode_title(record))
    table = (
        f"<h2>{caption[0].upper()}{caption[1:]}</h2><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
    return table + plot.html("plot", "The held-out loss over virtual time, in each mode.")


def _plot_modes(record: RunRecord, inches: float) -> str:
    """The loss over virtual time."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for result in record.modes:
            times, losses = zip(*result.losses, strict=True) if result.losses else ((), ())
            axes.plot(np.array(times) / 1e6, losses, label=mode_label(record, result), linewidth=1.3)
        axes.set(xlabel="virtual time [ms]", ylabel="held-out loss", yscale="log")
        _legend_above(figure, inches)

    return _svg(draw, (inches, _PLOT_INCHES))


def _html_mininet(record: RunRecord) -> str:
    if not record.mininet:
        return ""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in MININET_COLUMNS)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in mininet_rows(record.mininet)
    )
    notes = _html_list([html.escape(note) for note in mininet_notes(record)])
    caption = f"In Mininet, {html.escape(record.mininet[0].switch)} switches; wall-clock times"
    return f"<h3>{caption}</h3><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def mininet_notes(record: RunRecord) -> list[str]:
    """What the machine or the switches could not do, each said once."""
    return list(dict.fromkeys(note for result in record.mininet for note in result.notes))


def _html_list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def _part(roots: Sequence[str | None], shard: int) -> str:
    """Of which part of a job a move was."""
    if len(roots) == 1:
        return ""
    return f"stripe {shard + 1} " if roots[shard] is None else f"part of {roots[shard]} "


def _html_moves(record: RunRecord) -> str:
    lines = [
        html.escape(
            f"{label_of(result.strategy)}: step {move.step}, {move.time_ns / 1e6:.1f} ms: "
            + _part(record.config.job.roots, move.shard)
            + f"now summed at {', '.join(move.switches) or 'the parameter server'}"
        )
        for result in record.results
        for move in result.moves
    ]
    return _html_list(lines) if lines else "<p>None.</p>"


def _plot_iterations(record: RunRecord, inches: float) -> str:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for result in record.results:
            axes.plot(
                np.arange(len(result.iteration_ns)),
                np.array(result.iteration_ns) / 1e6,
                label=label_of(result.strategy),
                color=COLOURS.get(result.strategy),
                linewidth=1.3,
            )
            for move in result.moves:
                axes.axvline(move.step, color=COLOURS.get(result.strategy), linestyle=":", linewidth=1)
        axes.set(xlabel="training step", ylabel="aggregation phase [ms]", ylim=(0, None))
        _legend_above(figure, inches)

    return _svg(draw, (inches, _PLOT_INCHES))


def _plot_queues(record: RunRecord, inches: float) -> str:
    """One small plot for each strategy, all on the same axes."""
    traced = [result for result in record.results if result.queues]
    height = max(_PLOT_INCHES, 0.6 + _SMALL_INCHES * len(traced))

    def draw(figure: Any) -> None:
        if not traced:
            return
        plots = figure.subplots(len(traced), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, result in zip(plots, traced, strict=True):
            trace = max(result.queues, key=lambda queue: max(queue.depth_packets, default=0))
            axes.fill_between(
                np.array(trace.time_ns) / 1e6, trace.depth_packets, color=COLOURS.get(result.strategy), linewidth=0
            )
            if (promised := result.promised.get(trace.port)) is not None:
                axes.axhline(promised, color="#7d93a4", linestyle=":", linewidth=1)
            axes.set_title(f"{label_of(result.strategy)}: {trace.port}", loc="left", fontsize=10, pad=3)
            axes.set_ylim(0, None)
        plots[-1].set_xlabel("virtual time [ms]")
        figure.supylabel("queue depth [packets]", fontsize=10)

    return _svg(draw, (inches, height))


def _html_jobs(plot: _Picture) -> str:
    caption = "What each job's slowest worker has the sums of, per second, over windows of 1 ms; dashed: jobs come."
    return f"<h2>Jobs beside each other</h2>{plot.html('plot', caption)}"


def _plot_jobs(record: RunRecord, inches: float) -> str:
    """Throughput of every job over time, one small plot for each strategy, all on the same axes."""
    shown = [result for result in record.results if result.jobs]
    chunk_bits = 32 * lanes_of(record.config.topology)

    def draw(figure: Any) -> None:
        plots = figure.subplots(len(shown), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, result in zip(plots, shown, strict=True):
            for trace in result.jobs:
                ends = np.arange(trace.joined_ns, trace.time_ns[-1] if trace.time_ns else 0, _THROUGHPUT_WINDOW_NS)
                chunks = np.diff(np.interp(ends, trace.time_ns, trace.chunks)) if len(ends) else ends
                rates = chunks * chunk_bits / _THROUGHPUT_WINDOW_NS * 1e3
                axes.step(ends[1:] / 1e6, rates, label=f"job {trace.job}", linewidth=1.3)
                axes.axvline(trace.sends_ns / 1e6, color="#7d93a4", linestyle="--", linewidth=0.8)
            axes.set_title(label_of(result.strategy), loc="left", fontsize=10, pad=3)
            axes.set_ylim(0, None)
        plots[-1].set_xlabel("virtual time [ms]")
        figure.supylabel("gradients summed [Mbit/s]", fontsize=10)
        _legend_above(figure, inches)

    return _svg(draw, (inches, max(_PLOT_INCHES, 0.6 + _SMALL_INCHES * len(shown))))


def _legend_above(figure: Any, inches: float) -> None:
    """Beside the data, not over them."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5 if inches == _BROAD_INCHES else 2, frameon=False)


def _svg(draw: Callable[[Any], None], inches: tuple[float, float]) -> str:
    """One plot as an SVG element, the same text for the same data."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": f"weir, {inches[0]} inches",  # two sizes stand in one page
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _width_points(svg: str) -> float:
    found = re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)
    assert found is not None
    return float(found[1])
