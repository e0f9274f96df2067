"""Bounds of every egress queue, and the means that keep them: windows, thresholds, pacing, and their changes as jobs
come and go.

The model is network calculus. `network_calculus` has arrival curves, service curves and the theorems, `dctcp` the
formulas of DCTCP; `cross_traffic` has declared background traffic, `options` the requested bound. One queue's budget is
in `queue_budget`, all of them in `budget`; `reported` covers telemetry's own traffic and `undeclared_traffic` the
traffic that telemetry detects. `queue_bound` describes a bound in words, `marking` makes table entries,
`window_controller` orders changes of windows, `bound_log` logs them, and `bound_violations` reports queues above their
bounds.
"""

from .budget import JobStreams, largest_frame_bytes, link_budgets, longest_life_ns
from .cross_traffic import Uncontrolled, Windowed
from .options import WALL_CLOCK_LEASE_NS, CongestionOptions, Marks
from .queue_budget import LinkBudget
from .window_controller import WindowController

__all__ = [
    "WALL_CLOCK_LEASE_NS",
    "CongestionOptions",
    "JobStreams",
    "LinkBudget",
    "Marks",
    "Uncontrolled",
    "WindowController",
    "Windowed",
    "largest_frame_bytes",
    "link_budgets",
    "longest_life_ns",
]
