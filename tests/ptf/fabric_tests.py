"""What PTF is to find in `fabric/`, for whoever starts it."""

from __future__ import annotations

from typing import Final

TESTS: Final = (
    "aggregation.TheRootGivesItsChildrenTheSum",
    "aggregation.AnInnerNodeSendsTheSumUpAndTheResultDown",
    "aggregation.OnlyMembersAreSummed",
    "forwarding.PacketsAreRouted",
    "forwarding.DropsAreCountedByReason",
    "marking.WhatWaitsIsMarked",
    "marking.ResultsCarryTheWindowOfTheQueue",
    "marking.MessagesInTheControlClassArePoliced",
    "telemetry.AHopPushesItsItems",
    "telemetry.BeyondTheHopLimitNothingIsPushed",
    "telemetry.AFinishedProbeGoesToTheController",
)
"""In its order."""
