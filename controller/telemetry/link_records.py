"""Records of links, of their queues and of reports on them, as native code and NumPy share them."""

from __future__ import annotations

from typing import Final

import numpy as np

CLASSES: Final = 8
"""Queues of a port, by priority; the reports' queue id."""

LINK: Final = np.dtype(
    [
        ("measured", "?"),  # at least one report
        ("based", "?"),  # at least one report with a byte count
        ("rated", "?"),  # at least one rate
        ("bytes_sent", "i8"),  # of the base line
        ("base_ns", "i8"),  # the switch's clock at the base line
        ("egress_ns", "i8"),  # the switch's clock, newest
        ("at_ns", "i8"),  # time on the controller's clock from which the age counts
        ("heard_ns", "i8"),  # the controller's clock, when the newest report came
        ("probed_ns", "i8"),  # the controller's clock, when the newest probe that reported was sent
        ("rate", "f8"),  # bytes/s
        ("reports", "i8"),
        ("late", "i8"),
        ("resets", "i8"),
    ]
)

QUEUE: Final = np.dtype(
    [
        ("measured", "?"),
        ("egress_ns", "i8"),  # the switch's clock
        ("depth", "f8"),  # packets, newest
        ("average", "f8"),  # packets
        ("high", "f8"),  # packets, the most since the switch started, or since it was last taken
        ("peak", "f8"),  # packets, the most since someone took it
        ("sojourn_us", "f8"),  # average
    ]
)

REPORT: Final = np.dtype(
    [
        ("link", "i8"),
        ("at_ns", "i8"),  # the controller's clock: when the probe was sent, or when the report came
        ("heard_ns", "i8"),  # the controller's clock
        ("causal", "?"),  # `at_ns` is certainly not later than the measurement
        ("old", "?"),  # another report of the same node overtook it
        ("egress_ns", "i8"),  # the switch's clock
        ("bytes_sent", "i8"),
        ("queue_id", "i8"),
        ("queue_packets", "i8"),
        ("latency_us", "i8"),
    ]
)
"""One node's report on one of its links. −1 in one of the last four fields: unknown."""
