from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.p4src import FABRIC_JSON, FABRIC_P4INFO
from weir.tests.support.fake_switch import FakeSwitch, fake_switches


@pytest.fixture
def pipeline() -> CompiledPipeline:
    return CompiledPipeline(FABRIC_P4INFO, FABRIC_JSON)


@pytest.fixture
async def fake() -> AsyncIterator[FakeSwitch]:
    async with fake_switches(["s1"]) as switches:
        yield switches["s1"]
