"""Plots of what telemetry saw while a run went on, from the history that was kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...controller.live.seen import SeenFabric


def draw_loads(figure: Any, seen: Sequence[SeenFabric]) -> None:
    """The load of the fullest links over time, a small plot for each controller, all on the same axes."""
    plots = _plots(figure, seen)
    for axes, each in zip(plots, seen, strict=True):
        for link in each.fullest:
            axes.plot(np.array(link.time_ns) / 1e6, 100 * np.array(link.load), label=link.end, linewidth=1.2)
        _finish(axes, each)
    figure.supylabel("load as telemetry saw it [% of the rate]", fontsize=10)


def draw_queues(figure: Any, seen: Sequence[SeenFabric]) -> None:
    """The same of the longest queues: the most packets since the look before."""
    plots = _plots(figure, seen)
    for axes, each in zip(plots, seen, strict=True):
        for link in each.longest:
            axes.step(np.array(link.time_ns) / 1e6, link.queue_packets, where="pre", label=link.end, linewidth=1.2)
        _finish(axes, each)
    figure.supylabel("queue as telemetry saw it [packets]", fontsize=10)


def _plots(figure: Any, seen: Sequence[SeenFabric]) -> Any:
    plots = figure.subplots(len(seen), sharex=True, sharey=True, squeeze=False)[:, 0]
    plots[-1].set_xlabel("controller's clock [ms]")
    return plots


def _finish(axes: Any, seen: SeenFabric) -> None:
    for time_ns in seen.moves_ns:
        axes.axvline(time_ns / 1e6, color="#7d93a4", linestyle=":", linewidth=1)
    axes.set_title(seen.title, loc="left", fontsize=10, pad=3)
    axes.set_ylim(0, None)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", fontsize=9, ncols=3, frameon=False)
