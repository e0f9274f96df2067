"""Plots of a run record, each for a wide page and for a narrow one."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...controller.live.seen import SeenFabric
from ...controller.planning.plan import lanes_of
from ..errors import ExperimentError
from .fairness import Sharer, Window, flows_that_share, jobs_that_share, over_time
from .record import RunRecord, StrategyResult
from .report import mode_label, name_of

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
"""Width of plots on a phone's screen; there is a wider one for a desk's. Text is never smaller than 9 points."""
_PLOT_INCHES: Final = 3.8
_SMALL_INCHES: Final = 1.15
"""Height of a plot, and of each of several that share an axis."""
_PAGE_POINTS: Final = 880.0
"""Maximum width of a drawing on a desk's screen."""
_THROUGHPUT_WINDOW_NS: Final = 1_000_000
_MARK: Final = "#7d93a4"


@dataclass(frozen=True, slots=True)
class Plot:
    """Plot that can be drawn in any size."""

    draw: Callable[[Any, float], None]
    """Draw into a figure of this width, in inches."""
    small: int = 0
    """Number of small plots in it, one above the other; 0: it is one plot."""


@dataclass(frozen=True, slots=True)
class Picture:
    """SVG for a wide page and for a narrow one."""

    broad: str
    narrow: str
    plot: Plot | None = None
    """Function that drew it; None for a drawing of a fabric."""

    def html(self, kind: str, caption: str = "") -> str:
        """Return a figure, `plot` or `fabric`. If too wide for any page it has the narrow layout."""
        fits = _width_points(self.broad) <= _PAGE_POINTS
        broad = f"<div class=broad>{self.broad}</div>" if fits else ""
        narrow = f'<div class="narrow{"" if fits else " alone"}">{self.narrow}</div>'
        return f"<figure class={kind}>{broad}{narrow}<figcaption>{html.escape(caption)}</figcaption></figure>"


def plots_of(record: RunRecord, seen: Sequence[SeenFabric]) -> dict[str, Picture]:
    """Return all plots by name.

    `iterations`, `queues`, and `throughput` of a job that is alone; if the record has data for them, `jobs`, `flows`,
    `fairness`, `heartbeats`, `modes`, and `seen-loads` and `seen-queues` of a history.
    """
    plots = {"iterations": _iterations(record), "queues": _queues(record)}
    if alone := [result for result in record.results if not result.jobs]:
        plots["throughput"] = _throughput(record, alone)
    if any(result.jobs for result in record.results):
        plots["jobs"] = _jobs(record)
    if any(result.flows for result in record.results):
        plots["flows"] = _flows(record)
    if shared := _shared(record):
        plots["fairness"] = _fairness(shared)
    if any(result.heartbeats is not None and result.heartbeats.delays_us for result in record.results):
        plots["heartbeats"] = _heartbeats(record)
    if record.modes:
        plots["modes"] = _modes(record)
    if seen := [panel for panel in seen if panel.fullest]:
        plots["seen-loads"] = _seen_loads(seen)
        plots["seen-queues"] = _seen_queues(seen)
    return plots


def save_pdfs(record: RunRecord, folder: Path, style: Path | None = None) -> list[Path]:
    """Write the plots of a record as PDF, one file each, at a size and in a style for papers.

    Args:
        record: The record.
        folder: Folder of the files; it is made if it is not there.
        style: Matplotlib style file applied after the one for papers, `paper.mplstyle` beside this module. Its
            `figure.figsize` is the size of a plot, and its width that of several small ones.

    Returns:
        Paths of the files.

    Raises:
        ExperimentError: The style cannot be read, or a file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.style import context

    written = []
    paper = str(resources.files(__package__) / "paper.mplstyle")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with context(["default", paper, *([str(style)] if style is not None else [])]):
            for name, picture in plots_of(record, ()).items():
                assert picture.plot is not None
                plot, (width, height) = picture.plot, mpl.rcParams["figure.figsize"]
                figure = Figure(figsize=(width, max(height, 0.5 + 0.75 * plot.small)), layout="constrained")
                plot.draw(figure, width)
                written.append(folder / f"{name}.pdf")
                figure.savefig(written[-1], metadata={"CreationDate": None})
    except (OSError, ValueError) as error:
        raise ExperimentError(f"figures cannot be written: {error}", place=str(folder), value=str(style)) from None
    return written


def _iterations(record: RunRecord) -> Picture:
    def draw(figure: Any, inches: float) -> None:
        axes = figure.subplots()
        for result in record.results:
            axes.plot(
                np.arange(len(result.iteration_ns)),
                np.array(result.iteration_ns) / 1e6,
                label=name_of(result.strategy),
                color=COLOURS.get(result.strategy),
                linewidth=1.3,
            )
            for move in result.moves:
                axes.axvline(move.step, color=COLOURS.get(result.strategy), linestyle=":", linewidth=1)
        axes.set(xlabel="training step", ylabel="aggregation phase [ms]", ylim=(0, None))
        _legend_above(figure, inches)

    return _picture(draw)


def _queues(record: RunRecord) -> Picture:
    traced = [result for result in record.results if result.queues]
    longest = [max(result.queues, key=lambda queue: max(queue.depth_packets, default=0)) for result in traced]
    titles = [f"{name_of(result.strategy)}: {trace.port}" for result, trace in zip(traced, longest, strict=True)]

    def draw(figure: Any, _: float) -> None:
        if not traced:
            return
        stack = _stack(figure, titles, "virtual time [ms]", "queue depth [packets]")
        for axes, result, trace in zip(stack, traced, longest, strict=True):
            axes.fill_between(
                np.array(trace.time_ns) / 1e6, trace.depth_packets, color=COLOURS.get(result.strategy), linewidth=0
            )
            if (promised := result.promised.get(trace.port)) is not None:
                axes.axhline(promised, color=_MARK, linestyle=":", linewidth=1)
        stack[0].set_ylim(0, None)

    return _picture(draw, len(traced))


def _jobs(record: RunRecord) -> Picture:
    """Throughput of every job over time."""
    shown = [result for result in record.results if result.jobs]
    chunk_bits = 32 * lanes_of(record.config.topology)

    def draw(figure: Any, inches: float) -> None:
        titles = [name_of(result.strategy) for result in shown]
        stack = _stack(figure, titles, "virtual time [ms]", "gradients summed [Mbit/s]")
        for axes, result in zip(stack, shown, strict=True):
            for trace in result.jobs:
                _step_rates(axes, trace.joined_ns, trace.time_ns, trace.chunks, chunk_bits, f"job {trace.job}")
                axes.axvline(trace.sends_ns / 1e6, color=_MARK, linestyle="--", linewidth=0.8)
        stack[0].set_ylim(0, None)
        _legend_above(figure, inches)

    return _picture(draw, len(shown))


def _flows(record: RunRecord) -> Picture:
    """Throughput of every flow that yields over time."""
    shown = [result for result in record.results if result.flows]

    def draw(figure: Any, inches: float) -> None:
        titles = [name_of(result.strategy) for result in shown]
        stack = _stack(figure, titles, "virtual time [ms]", "frames delivered [Mbit/s]")
        for axes, result in zip(stack, shown, strict=True):
            for flow in result.flows:
                label = f"{flow.source} to {flow.destination}"
                _step_rates(axes, 0, flow.time_ns, flow.packets, 8 * flow.packet_bytes, label)
        stack[0].set_ylim(0, None)
        _legend_above(figure, inches)

    return _picture(draw, len(shown))


def _throughput(record: RunRecord, alone: Sequence[StrategyResult]) -> Picture:
    """Throughput of a job that is alone in each step, with the achievable one."""
    config = record.config
    bits = 32 * config.gradient_values

    def draw(figure: Any, _: float) -> None:
        titles = [name_of(result.strategy) for result in alone]
        stack = _stack(figure, titles, "virtual time [ms]", "gradients summed [Mbit/s]")
        for axes, result in zip(stack, alone, strict=True):
            took_ns = np.array(result.iteration_ns)
            ends_ns = config.control.warm_up + np.cumsum(took_ns + config.training.compute)
            steps = np.column_stack([ends_ns - took_ns, ends_ns])
            _levels(axes, steps, bits / took_ns * 1e3, color=COLOURS.get(result.strategy), linewidth=2)
            if result.achievable_ns:
                best_ns = np.array(result.achievable_ns, float)
                _levels(axes, steps, bits / best_ns * 1e3, color=_MARK, linestyle=":", linewidth=1)
        stack[0].set_ylim(0, None)

    return _picture(draw, len(alone))


@dataclass(frozen=True, slots=True)
class _Shared:
    """Sharing under one strategy: the participants, and their fairness."""

    title: str
    colour: str | None
    sharers: Sequence[Sharer]
    windows: Sequence[Window]


def _shared(record: RunRecord) -> list[_Shared]:
    """Jobs, and flows that yield, under every strategy where several were there for long enough."""
    panels = []
    for result in record.results:
        kinds = {"jobs": jobs_that_share(result.jobs), "flows that yield": flows_that_share(result.flows)}
        for kind, sharers in kinds.items():
            if windows := over_time(sharers):
                title = f"{name_of(result.strategy)}: {kind}"
                panels.append(_Shared(title, COLOURS.get(result.strategy), sharers, windows))
    return panels


def _fairness(shared: Sequence[_Shared]) -> Picture:
    """Jain's index over time, and when they came and went."""
    least = min(window.index for panel in shared for window in panel.windows)

    def draw(figure: Any, _: float) -> None:
        stack = _stack(figure, [panel.title for panel in shared], "virtual time [ms]", "Jain's index")
        for axes, panel in zip(stack, shared, strict=True):
            spans = np.array([(window.start_ns, window.end_ns) for window in panel.windows])
            indices = np.array([window.index for window in panel.windows])
            _levels(axes, spans, indices, color=panel.colour, linewidth=1.3)
            last_ns = max(sharer.end_ns for sharer in panel.sharers)
            for sharer in panel.sharers:
                axes.axvline(sharer.start_ns / 1e6, color=_MARK, linestyle="--", linewidth=0.8)
                if sharer.end_ns < last_ns:
                    axes.axvline(sharer.end_ns / 1e6, color=_MARK, linestyle=":", linewidth=1)
        stack[0].set_ylim(min(0.9, least - 0.02), 1.01)

    return _picture(draw, len(shared))


def _levels(axes: Any, spans_ns: Any, values: Any, **style: Any) -> None:
    """A level for each span of time, and nothing between."""
    levels = np.full(2 * len(spans_ns) - 1, np.nan)
    levels[::2] = values
    axes.stairs(levels, spans_ns.reshape(-1) / 1e6, baseline=None, **style)


def _heartbeats(record: RunRecord) -> Picture:
    """Plot the share of heartbeats not yet received, by time."""
    shown = [(result, beats) for result in record.results if (beats := result.heartbeats) is not None]

    def draw(figure: Any, _: float) -> None:
        from matplotlib.ticker import LogLocator

        titles = [name_of(result.strategy) for result, _ in shown]
        stack = _stack(figure, titles, "time since it was sent [us]", "part of heartbeats that have not come")
        for axes, (result, beats) in zip(stack, shown, strict=True):
            missing = (np.array(beats.longer) + beats.sent - beats.delivered) / beats.sent
            axes.step(beats.delays_us, missing, where="pre", color=COLOURS.get(result.strategy), linewidth=1.3)
            axes.axvline(beats.bound_us, color=_MARK, linestyle=":", linewidth=1)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
            axes.set_yscale("log", nonpositive="clip")
            axes.set_ylim(0.5 / beats.sent, 1.5)

    return _picture(draw, len(shown))


def _step_rates(axes: Any, from_ns: int, time_ns: list[int], counts: list[int], bits: int, label: str) -> None:
    """Plot the rate in Mbit/s of counts at these times, each worth this many bits."""
    ends = np.arange(from_ns, time_ns[-1] if time_ns else 0, _THROUGHPUT_WINDOW_NS)
    counted = np.diff(np.interp(ends, time_ns, counts)) if len(ends) else ends
    axes.step(ends[1:] / 1e6, counted * bits / _THROUGHPUT_WINDOW_NS * 1e3, label=label, linewidth=1.3)


def _modes(record: RunRecord) -> Picture:
    """The loss over virtual time."""

    def draw(figure: Any, inches: float) -> None:
        axes = figure.subplots()
        for result in record.modes:
            times, losses = zip(*result.losses, strict=True) if result.losses else ((), ())
            axes.plot(np.array(times) / 1e6, losses, label=mode_label(record, result), linewidth=1.3)
        axes.set(xlabel="virtual time [ms]", ylabel="held-out loss", yscale="log")
        _legend_above(figure, inches)

    return _picture(draw)


def _seen_loads(seen: Sequence[SeenFabric]) -> Picture:
    """The load of the fullest links over time, of each controller."""

    def draw(figure: Any, _: float) -> None:
        stack = _seen_stack(figure, seen, "load as telemetry saw it [% of the rate]")
        for axes, panel in zip(stack, seen, strict=True):
            for link in panel.fullest:
                axes.plot(np.array(link.time_ns) / 1e6, 100 * np.array(link.load), label=link.end, linewidth=1.2)
            _finish_seen(axes, panel)
        stack[0].set_ylim(0, None)

    return _picture(draw, len(seen))


def _seen_queues(seen: Sequence[SeenFabric]) -> Picture:
    """The same of the longest queues: the most packets since the look before."""

    def draw(figure: Any, _: float) -> None:
        stack = _seen_stack(figure, seen, "queue as telemetry saw it [packets]")
        for axes, panel in zip(stack, seen, strict=True):
            for link in panel.longest:
                axes.step(np.array(link.time_ns) / 1e6, link.queue_packets, where="pre", label=link.end, linewidth=1.2)
            _finish_seen(axes, panel)
        stack[0].set_ylim(0, None)

    return _picture(draw, len(seen))


def _seen_stack(figure: Any, seen: Sequence[SeenFabric], up: str) -> Any:
    return _stack(figure, [panel.title for panel in seen], "controller's clock [ms]", up)


def _finish_seen(axes: Any, seen: SeenFabric) -> None:
    for time_ns in seen.moves_ns:
        axes.axvline(time_ns / 1e6, color=_MARK, linestyle=":", linewidth=1)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", fontsize=9, ncols=3, frameon=False)


# --- common parts ---


def _stack(figure: Any, titles: Sequence[str], across: str, up: str) -> Any:
    """Small plots, one above the other, all on the same axes: limits are to be set when all are drawn."""
    plots = figure.subplots(len(titles), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, title in zip(plots, titles, strict=True):
        axes.set_title(title, loc="left", pad=3)
    plots[-1].set_xlabel(across)
    figure.supylabel(up)
    return plots


def _picture(draw: Callable[[Any, float], None], small: int = 0) -> Picture:
    """Draw a figure with `draw` at several widths; `small`: number of small plots in it."""
    height = max(_PLOT_INCHES, 0.6 + _SMALL_INCHES * small)
    broad, narrow = (_svg(draw, (inches, height)) for inches in (_BROAD_INCHES, _NARROW_INCHES))
    return Picture(broad, narrow, Plot(draw, small))


def _legend_above(figure: Any, inches: float) -> None:
    """Place the legend outside the data."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5 if inches == _BROAD_INCHES else 2, frameon=False)


def _svg(draw: Callable[[Any, float], None], inches: tuple[float, float]) -> str:
    """One plot as an SVG element, the same text for the same data."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": f"weir, {inches[0]} inches",  # two sizes stand in one page
        "font.size": 11,
        "axes.titlesize": 10,
        "figure.labelsize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure, inches[0])
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _width_points(svg: str) -> float:
    match = re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)
    assert match is not None
    return float(match[1])
