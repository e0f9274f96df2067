"""Progress reports of one job's program: the newest, and a curve of bounded size over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...wire.control import JobReport

MAX_POINTS: Final = 512
"""Maximum length of a curve. A full one drops every second point and from then on keeps half as many."""


@dataclass(slots=True)
class Reports:
    """Reports of one job, in the order in which they came."""

    newest: JobReport | None = None
    curve: list[tuple[int, JobReport]] = field(default_factory=list)
    """Evenly thinned reports of the whole job, each with the time at which it came, in ns."""
    stage_since_ns: int = 0
    """When the first report of the newest one's stage came."""
    _stride: int = 1
    """One of this many reports is kept in the curve."""
    _count: int = 0

    def add(self, report: JobReport, now_ns: int) -> None:
        """Keep a report that has come now."""
        if self.newest is None or self.newest.stage != report.stage:
            self.stage_since_ns = now_ns
        self.newest = report
        if self._count % self._stride == 0:
            self.curve.append((now_ns, report))
        self._count += 1
        if len(self.curve) == MAX_POINTS:
            self.curve = self.curve[::2]
            self._stride *= 2
