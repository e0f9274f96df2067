"""Progress reports of one job's program: the newest, sums, and a curve of bounded size over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...wire.control import JobReport

MAX_POINTS: Final = 512
"""Maximum length of a curve. A full one drops every second point and from then on keeps half as many."""


@dataclass(slots=True)
class Phases:
    """Times of the reporting worker, by what it did, since the job began; phases that it does not know are 0."""

    steps: int = 0
    compute_ns: int = 0
    exposed_ns: int = 0
    """Communication that computation did not hide."""
    waiting_ns: int = 0
    """Wait for turns on devices that jobs share."""

    def add(self, report: JobReport) -> None:
        """Add the steps of a report."""
        self.steps += report.steps
        self.compute_ns += report.compute_ns
        self.exposed_ns += report.exposed_ns
        self.waiting_ns += report.waiting_ns


@dataclass(slots=True)
class Reports:
    """Reports of one job, in the order in which they came."""

    newest: JobReport | None = None
    curve: list[tuple[int, JobReport]] = field(default_factory=list)
    """Evenly thinned reports of the whole job, each with the time at which it came, in ns."""
    phases: Phases = field(default_factory=Phases)
    """Sums over all reports."""
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
        self.phases.add(report)
        if self._count % self._stride == 0:
            self.curve.append((now_ns, report))
        self._count += 1
        if len(self.curve) == MAX_POINTS:
            self.curve = self.curve[::2]
            self._stride *= 2
