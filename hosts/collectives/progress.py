"""Progress that a training loop reports to the controller, checked as it is handed in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Required, SupportsFloat, SupportsIndex, TypedDict

from ...errors.values import Checks
from ...wire.control import JobReport
from ...wire.errors import WireError
from ..errors import HostError


class ProgressReport(TypedDict, total=False):
    """Keywords of a report; None is unknown."""

    step: Required[SupportsIndex]
    """Newest complete step, from 0."""
    steps_left: SupportsIndex | None
    """Remaining steps of the stage."""
    stage: str
    """Name of the stage, at most 64 characters."""
    loss: SupportsFloat | None
    """Loss of the step."""
    accuracy: SupportsFloat | None
    """Accuracy of the step."""
    compute_ns: SupportsIndex
    """Computation since the last report, in place of the measured time."""
    exposed_ns: SupportsIndex
    """Communication since the last report that computation did not hide, in place of the measured time."""
    waiting_ns: SupportsIndex
    """Wait for turns on shared devices since the last report."""


def report_of(progress: ProgressReport) -> JobReport:
    """Return the report with the given values and without bytes.

    Raises:
        HostError: A keyword is unknown, or a value is not a number or out of range.
    """
    values: dict[str, Any] = {**progress}
    if unknown := sorted(values.keys() - ProgressReport.__annotations__.keys()):
        raise HostError(
            f"unknown value {unknown[0]}", place="report", value=unknown[0], allowed=[*ProgressReport.__annotations__]
        )
    checks = Checks(HostError, "report")
    if "step" not in values:
        raise HostError("step is missing", place="report", allowed=["the newest complete step, from 0"])
    for name in ("loss", "accuracy"):
        if values.get(name) is not None:
            values[name] = checks.number(name, values[name])
    for name in ("step", "compute_ns", "exposed_ns", "waiting_ns", "steps_left"):
        if name in values and (values[name] is not None or name != "steps_left"):
            values[name] = checks.integer(name, values[name])
    if "stage" in values:
        checks.text("stage", values["stage"])
    try:
        return JobReport(**values)
    except WireError as error:
        raise HostError.of(error) from None


def measured(report: JobReport, progress: ProgressReport, compute_ns: int, exposed_ns: int, count: int) -> JobReport:
    """Complete a report with what was measured, where nothing was given.

    Args:
        report: The report.
        progress: Its keywords.
        compute_ns: Computation since the last report.
        exposed_ns: Communication since the last report that computation did not hide.
        count: Bytes handed to collectives since the last report.
    """
    return replace(
        report,
        compute_ns=report.compute_ns if "compute_ns" in progress else compute_ns,
        exposed_ns=report.exposed_ns if "exposed_ns" in progress else exposed_ns,
        bytes=count,
    )
