"""Plots of an evaluation, as SVG that is the same for the same figures."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .comparison import GridCondition, label

_WIDTH: Final = 5.8
"""Width in inches: the room on pages that show code in a side column, at unscaled font size."""
_ROW: Final = 0.2
_POINTS: Final = 9.5
"""Font size of all text except the title, which is larger."""
_LINE: Final = 64
"""Characters of a condition's name in one row."""
_ROUND: Final = (1, 2, 5, 10)
"""Axis ends and ticks, times a power of ten."""
_MANY: Final = 200
"""Ratio of the axis's ends above which only powers of ten are marked."""
_COLOURS: Final = {"widest": "#1f7a5c", "striped": "#2b6f9e", "oracle": "#444444", "blind": "#8f8f8f"}
_OTHER: Final = "#c9b38a"
_DOT: Final = 26
"""Area of a dot in square points."""


def dots(title: str, conditions: Sequence[tuple[str, GridCondition]], path: Path) -> None:
    """Plot mean completion times with their intervals, a group of dots for each condition.

    The axis is logarithmic: the length of a bar would have no meaning on it.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    from matplotlib.transforms import blended_transform_factory

    style = {"svg.hashsalt": "weir", "svg.fonttype": "none", "font.size": _POINTS}
    with matplotlib.rc_context(style):
        names: list[str] = []
        heights, widths, errors, colours = [], [], [], []
        at = 0.0
        figure, axes = plt.subplots()
        beside = blended_transform_factory(figure.transFigure, axes.transData)
        for name, condition in conditions:
            for line in textwrap.wrap(name, _LINE):
                axes.text(0.01, at, line, transform=beside, va="center", fontweight="bold")
                at += 1.0
            for row in condition.rows:
                if row.mean_ms.value != row.mean_ms.value:
                    continue
                names.append(label(row.strategy))
                heights.append(at)
                widths.append(row.mean_ms.value)
                errors.append((row.mean_ms.high - row.mean_ms.low) / 2)
                colours.append(_COLOURS.get(row.strategy, _OTHER))
                at += 1.0
            at += 0.5
        axes.errorbar(widths, heights, xerr=errors, fmt="none", ecolor="#555555", elinewidth=0.9, zorder=2)
        axes.scatter(widths, heights, s=_DOT, c=colours, zorder=3)
        axes.grid(axis="x", color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_yticks(heights, names)
        axes.set_ylim(at, -1.0)
        axes.spines[["left", "top", "right"]].set_visible(False)  # names of conditions stand across the axis
        axes.set_xscale("log")
        spans = list(zip(widths, errors, strict=True))
        least = min((max(width - error, width / 2) for width, error in spans), default=1.0)
        most = max((width + error for width, error in spans), default=10.0)
        low, high = _rounded(least, 1 / 1.05), _rounded(most, 1.05)
        axes.set_xlim(low, high)
        marks = LogLocator(subs=(1.0, 2.0, 5.0) if high / low <= _MANY else (1.0,))
        axes.xaxis.set_major_locator(marks)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # a power's exponent is tiny
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("completion time, ms (mean over seeds, 95 % interval)")
        axes.set_title(title)
        figure.set_size_inches(_WIDTH, max(2.0, _ROW * at + 0.9))
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _rounded(value: float, margin: float) -> float:
    """The nearest round number beyond `value` times `margin`, below it for a margin of less than 1."""
    wanted = value * margin
    decade = 10.0 ** math.floor(math.log10(wanted))
    beyond = [step * decade for step in _ROUND]
    return max(x for x in beyond if x <= wanted) if margin < 1 else min(x for x in beyond if x >= wanted)
