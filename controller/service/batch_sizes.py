"""Batch sizes as a service to jobs: one worker reports for all at a step's end, and receives the sizes of the next one.

::

    leader ──Balance: everyone's speed, seconds, limit──▶ JobBatchSizes ──▶ SizeRule
           ◀─────────────── everyone's sizes ────────────────────┘

Workers gather their reports by themselves, so that sizes cost one request for any number of workers. A lost worker has
a size of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...wire import control_pb2 as pb
from ..errors import ControllerError, PlanError

_MIN: Final = 1e-9
_MAX: Final = 1e12
"""Largest accepted speed and duration: rules can compute with these without overflow."""


class ReportMissing(ControllerError):
    """A worker that takes part has no report among all workers', as they do not know yet who takes part."""


class NotTakingPart(ControllerError):
    """A worker asks for all that goes on without it."""


class SizeRule(Protocol):
    """Rule that decides the sizes of a number of workers."""

    def decide(self, reports: NDArray[np.float64], /) -> list[int]:
        """Return each worker's samples in the next step, from each one's row: predicted samples per second, seconds
        of the last step, the most samples that it holds; 0 is unknown.
        """


RuleOf = Callable[[int, int, str, int], SizeRule]
"""Factory of rules, from the samples of a step, the number of workers, the rule's name, and the samples that it moves
at once (0: its default). Raises PlanError for an unknown rule, as the rule itself does if there are no possible sizes.
"""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Parameters of a rule."""

    workers: frozenset[int]
    samples: int
    name: str
    size_step: int


class JobBatchSizes:
    """The sizes of all jobs that ask for some."""

    def __init__(self, rule_of: RuleOf) -> None:
        self._rule_of = rule_of
        self._rules: dict[int, tuple[_Wanted, SizeRule]] = {}
        """Last request's parameters and the rule that decides, by job number."""

    def keep(self, jobs: Collection[int]) -> None:
        """Drop all jobs except these."""
        self._rules = {number: rule for number, rule in self._rules.items() if number in jobs}

    def decide(self, request: pb.BalanceRequest, ranks: int, taking_part: frozenset[int]) -> list[int]:
        """Return everyone's samples in the next step, by rank of the whole job, which began with `ranks` ranks.

        Raises:
            PlanError: A report is invalid, or there are no possible sizes.
            ReportMissing: A participating rank has no report.
        """
        reports = _checked(request, ranks)
        if missing := sorted(taking_part - reports.keys()):
            raise ReportMissing(f"job {request.job}: no report of {', '.join(f'rank {rank}' for rank in missing)}")
        present = sorted(taking_part)
        if request.samples < len(present):
            raise PlanError(f"{request.samples} samples for {len(present)} workers; each has one at least")
        wanted = _Wanted(taking_part, request.samples, request.rule, request.size_step)
        known, rule = self._rules.get(request.job, (None, None))
        if rule is None or known != wanted:
            rule = self._rule_of(request.samples, len(present), request.rule, request.size_step)
            self._rules[request.job] = wanted, rule
        rows = [[reports[rank].speed, reports[rank].seconds, reports[rank].limit] for rank in present]
        given = dict(zip(present, rule.decide(np.array(rows, np.float64)), strict=True))
        return [given.get(rank, 0) for rank in range(ranks)]


def _checked(request: pb.BalanceRequest, ranks: int) -> dict[int, pb.SpeedReport]:
    """Return the reports by rank. Raises PlanError for invalid ones."""
    reports: dict[int, pb.SpeedReport] = {}
    for report in request.reports:
        if report.rank >= ranks:
            raise PlanError(f"job {request.job}: a report of rank {report.rank}; there are ranks 0…{ranks - 1}")
        if report.rank in reports:
            raise PlanError(f"job {request.job}: two reports of rank {report.rank}; each has one")
        for name, value in (("speed", report.speed), ("seconds", report.seconds)):
            if value != 0 and not _MIN <= value <= _MAX:
                raise PlanError(
                    f"job {request.job}: {name} {value:g} of rank {report.rank}; it is in {_MIN:g}…{_MAX:g}, or 0 "
                    "where it is unknown"
                )
        reports[report.rank] = report
    return reports
