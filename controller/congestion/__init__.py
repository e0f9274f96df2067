"""Bounds of every egress queue, and the means that keep them: windows, thresholds, pacing, and their changes as jobs
come and go.

`formulas` holds the theorems, `cross_traffic` declared background traffic, `options` the requested bound. One queue's
budget is in `queue_budget`, all of them in `budget`; `reported` covers telemetry's own traffic and `undeclared` the
traffic that telemetry detects. `promise` describes a bound in words, `marking` makes table entries, `changes` orders
changes of windows, `announcement` logs them, and `exceeded` reports queues above their bounds.
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
