"""Expected tests in `fabric/` for the callers of PTF."""

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
"""Names of the tests, in PTF's order."""
