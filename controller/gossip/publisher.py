"""Publication of policies: a new version whenever the network has changed enough. A state machine without a clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from .errors import GossipError
from .policy import Compute, Floats, GossipPolicy

CHANGE: Final = 0.1
"""Relative change of one pair's iteration time after which the policy is computed again."""


class PolicyPublisher:
    """The policy in force of one job, with its version."""

    def __init__(self, compute: Compute, *, change: float = CHANGE) -> None:
        """Start without a policy.

        Args:
            compute: Way to compute one, such as `POLICIES["exact"].compute`.
            change: Relative change of an iteration time that asks for another one.
        """
        if not change >= 0:
            raise GossipError("the relative change must be >= 0", place="change", value=change)
        self._compute = compute
        self._change = change
        self._based_on: Floats | None = None
        self.policy: GossipPolicy | None = None
        """The last one that was published; None: none yet."""

    def update(self, seconds: Floats) -> GossipPolicy | None:
        """Return a policy to send to the workers, with the next version; None if the last one stays.

        Args:
            seconds: Iteration times by the newest telemetry, as `policy.Compute` takes them.

        Raises:
            GossipError: No policy can be computed; the last one stays in force.
        """
        if not self._has_changed(seconds):
            return None
        self._based_on = seconds.copy()  # also of a computation that fails, which is not repeated for the same times
        version = 1 if self.policy is None else self.policy.version + 1
        self.policy = replace(self._compute(seconds), version=version)
        return self.policy

    def _has_changed(self, seconds: Floats) -> bool:
        before = self._based_on
        if before is None or before.shape != seconds.shape:
            return True
        known = np.isfinite(before)
        if (known != np.isfinite(seconds)).any():
            return True
        return bool((np.abs(seconds[known] - before[known]) > self._change * before[known]).any())
