from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.p4src import FABRIC_JSON, FABRIC_P4INFO
from weir.tests.controller.fake_switch import FakeSwitch


@pytest.fixture
def pipeline() -> CompiledPipeline:
    return CompiledPipeline(FABRIC_P4INFO, FABRIC_JSON)


@pytest.fixture
async def fake() -> AsyncIterator[FakeSwitch]:
    switch = FakeSwitch()
    await switch.start()
    yield switch
    await switch.stop()
