"""Sizes of flows as points of a cumulative distribution: published ones by name, and files of the user's own.

A file has two columns, separated by a comma or blanks: bytes, and the share of flows up to that size, which ends at 1
or at 100 (percent). Lines that begin with `#`, and a first line of words, are skipped. The simulators of pFabric and
HPCC read the same form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ...topologies.problems import BadFile, read_text
from ..errors import ExperimentError

ENDINGS: Final = (".csv", ".txt")
"""Endings of the names of such files."""
_FRAME: Final = 1_460
_LARGEST_BYTES: Final = 1e15

Points = Sequence[tuple[float, float]]
"""(bytes, cumulative share of flows), ascending."""

FLOW_SIZES: Final[Mapping[str, Points]] = {
    "websearch": [
        (frames * _FRAME, share)
        for frames, share in (
            (6, 0.0),
            (6, 0.15),
            (13, 0.2),
            (19, 0.3),
            (33, 0.4),
            (53, 0.53),
            (133, 0.6),
            (667, 0.7),
            (1_333, 0.8),
            (3_333, 0.9),
            (6_667, 0.97),
            (20_000, 1.0),
        )
    ],
    "datamining": [
        (100, 0.0),
        (180, 0.085),
        (250, 0.14),
        (560, 0.33),
        (900, 0.47),
        (1_100, 0.55),
        (1_870, 0.65),
        (3_160, 0.7),
        (10_000, 0.8),
        (100_001, 0.874),
        (400_000, 0.9),
        (1_850_000, 0.95),
        (10_000_000, 0.97),
        (30_000_000, 0.98),
        (100_000_000, 0.99),
        (250_000_000, 0.995),
        (1_000_000_000, 1.0),
    ],
}
"""Flow sizes by distribution: (bytes, cumulative share of flows), ascending."""


def is_file(name: str) -> bool:
    """Return whether a distribution is named by the path of its file."""
    return name.endswith(ENDINGS)


def points_of(name: str) -> Points:
    """Return a distribution by its name or by the path of its file. Raises ExperimentError."""
    if is_file(name):
        return _read(Path(name))
    if name not in FLOW_SIZES:
        raise ExperimentError(f'unknown flow sizes "{name}"', value=name, allowed=tuple(FLOW_SIZES))
    return FLOW_SIZES[name]


def _read(path: Path) -> Points:
    try:
        lines = read_text(path).splitlines()
    except BadFile as error:
        raise ExperimentError.of(error) from None
    points: list[tuple[float, float]] = []
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        if not words or line.lstrip().startswith("#"):
            continue
        try:
            size, share = map(float, words)
        except ValueError:
            if not points and all(word[0].isalpha() for word in words):
                continue
            raise _misfit(path, number, line, "two numbers, bytes and share of flows") from None
        last = points[-1] if points else (0.0, 0.0)
        if not last[0] <= size <= _LARGEST_BYTES or not last[1] <= share <= 100:
            raise _misfit(path, number, line, "bytes and shares that are at least those of the line before")
        points.append((size, share))
    if len(points) < 2 or points[-1][1] not in (1.0, 100.0):
        raise ExperimentError(
            "flow sizes are not whole; allowed: two points or more, the last with share 1, or 100 for percent",
            place=str(path),
            value=points[-1:],
        )
    whole = points[-1][1]
    return [(max(size, 1.0), share / whole) for size, share in points]


def _misfit(path: Path, number: int, line: str, allowed: str) -> ExperimentError:
    return ExperimentError(
        f"{line[:40]!r} is not right; allowed: {allowed}", place=f"{path}: line {number}", value=line
    )
