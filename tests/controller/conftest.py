from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.session import Pipeline
from tests.controller.fake_switch import FakeSwitch

BUILD = Path(__file__).parents[2] / "p4src" / "build"


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(BUILD / "fabric.p4info.txtpb", BUILD / "fabric.json")


@pytest.fixture
async def fake() -> AsyncIterator[FakeSwitch]:
    switch = FakeSwitch()
    await switch.start()
    yield switch
    await switch.stop()
