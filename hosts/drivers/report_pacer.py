"""Rate limit of a job's progress reports: several steps share one report, so that reports take little of a link."""

from __future__ import annotations

from typing import Final

from ...wire.control import JobReport

INTERVAL_S: Final = 0.05
"""Minimum time between two reports. A report is at most 256 bytes of frames on a link with both directions' headers and
acknowledgements, so 20 in a second are below 0.1 % of 100 Mbit/s.
"""


class ReportPacer:
    """State machine: the caller passes the time, and sends what is returned."""

    def __init__(self) -> None:
        self._held: JobReport | None = None
        """Merged reports that were not sent yet."""
        self._sent_s: float | None = None

    def add(self, report: JobReport, now_s: float) -> JobReport | None:
        """Add a step's report.

        Args:
            report: Report of the newest step.
            now_s: Time in seconds, which never goes back.

        Returns:
            The report to send now, merged with those held before it; None if `INTERVAL_S` has not passed.
        """
        merged = report if self._held is None else report.after(self._held)
        if self._sent_s is not None and now_s - self._sent_s < INTERVAL_S:
            self._held = merged
            return None
        self._held, self._sent_s = None, now_s
        return merged

    def rest(self) -> JobReport | None:
        """Return the held report for sending, as the job's last one; None if there is none."""
        held, self._held = self._held, None
        return held
