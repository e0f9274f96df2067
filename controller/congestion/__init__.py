"""The bound that every egress queue is promised, and what keeps it: windows, thresholds, pacing, and their change as
jobs come and go.

Formulas first (`formulas`), then what others send (`cross_traffic`), what is wanted (`options`), one queue
(`queue_budget`) and all of them (`budget`), what telemetry takes of that (`reported`) and what it finds besides
(`undeclared`), the promise in words (`promise`), table entries (`marking`), the order in which windows change
(`changes`), what people are told of it (`announcement`), and queues that telemetry reports with more (`exceeded`).
"""

from .budget import JobStreams, link_budgets
from .changes import Windows
from .cross_traffic import Uncontrolled, Windowed
from .options import WALL_CLOCK_LEASE_NS, CongestionOptions, Marks
from .queue_budget import LinkBudget

__all__ = [
    "WALL_CLOCK_LEASE_NS",
    "CongestionOptions",
    "JobStreams",
    "LinkBudget",
    "Marks",
    "Uncontrolled",
    "Windowed",
    "Windows",
    "link_budgets",
]
