"""Plots of an evaluation, as SVG that is the same for the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from .comparison import Condition

_WIDTH: Final = 9.0
_ROW: Final = 0.16
_COLOURS: Final = {"widest": "#1f7a5c", "striped": "#2b6f9e", "oracle": "#444444", "blind": "#8f8f8f"}
_OTHER: Final = "#c9b38a"


def bars(title: str, conditions: Sequence[tuple[str, Condition]], labels: Mapping[str, str], path: Path) -> None:
    """Mean completion times with their intervals, a group of bars for each condition, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"svg.hashsalt": "weir", "svg.fonttype": "none", "font.size": 7}
    with matplotlib.rc_context(style):
        names: list[str] = []
        heights, widths, errors, colours = [], [], [], []
        at = 0.0
        ticks: list[float] = []
        figure, axes = plt.subplots()
        for name, condition in conditions:
            axes.text(0.0, at, f" {name}", transform=axes.get_yaxis_transform(), va="center", fontweight="bold")
            at += 1.0
            for row in condition.rows:
                if row.mean_ms.value != row.mean_ms.value:
                    continue
                names.append(labels[row.strategy])
                ticks.append(at)
                heights.append(at)
                widths.append(row.mean_ms.value)
                errors.append((row.mean_ms.high - row.mean_ms.low) / 2)
                colours.append(_COLOURS.get(row.strategy, _OTHER))
                at += 1.0
            at += 0.5
        axes.barh(heights, widths, xerr=errors, color=colours, error_kw={"linewidth": 0.7})
        axes.set_yticks(ticks, names)
        axes.set_ylim(at, -1.0)
        axes.set_xscale("log")
        axes.set_xlabel("completion time, ms (mean over seeds, 95 % interval)")
        axes.set_title(title)
        figure.set_size_inches(_WIDTH, max(2.0, _ROW * at + 0.8))
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
