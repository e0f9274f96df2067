"""Lost and restarted switches: sums in restarted ones must be repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from weir.controller.errors import SwitchUnreachable
from weir.controller.p4runtime.entries import Group, SwitchState, call, entry
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.p4runtime.switches import Switches
from weir.controller.p4runtime.tables import NODE_ADDRESS
from weir.tests.support.fake_switch import FakeSwitch

MS = 1_000_000
RETRY = 20 * MS
STATE = SwitchState.of([entry(NODE_ADDRESS, {"dst_addr": 0x0AFF0001}, call("to_node")), Group(1, ((3, 1),))])


async def open_again(fake: FakeSwitch, session: SwitchSession) -> None:
    """The way to the switch breaks for a moment."""
    before = session.openings
    fake.break_stream()
    async with asyncio.timeout(60):
        while session.openings == before:
            await asyncio.sleep(0)


@pytest.mark.parametrize("lasts", ["all", "one batch", "nothing"])
async def test_a_switch_that_came_back_empty_has_restarted(
    fake: FakeSwitch, pipeline: CompiledPipeline, monkeypatch: pytest.MonkeyPatch, lasts: str
) -> None:
    """Once it holds its tables again: by the first try, or by the next, which may find all that was not confirmed."""
    async with SwitchSession("s1", fake.address, device_id=1, pipeline=pipeline, timeout_s=60) as session:
        switches = Switches({"s1": session}, None, RETRY, 0)
        await switches.write_states({"s1": STATE}, 0)
        await open_again(fake, session)
        switches.poll(1)
        await switches.write_states({"s1": STATE}, 1)
        assert switches.pop_restarted() == frozenset(), "nothing was missing"

        fake.entities.clear()
        await open_again(fake, session)
        switches.poll(2)
        write, answered = SwitchSession.write_updates, {"all": 2, "one batch": 1, "nothing": 0}[lasts]

        async def write_unheard(self: SwitchSession, **updates: Any) -> None:
            nonlocal answered
            await write(self, **updates)
            answered -= 1
            if answered < 0:
                raise SwitchUnreachable("s1", fake.address, "write", "no answer")

        monkeypatch.setattr(SwitchSession, "write_updates", write_unheard)
        await switches.write_states({"s1": STATE}, 2)
        if lasts != "all":
            assert switches.holding == frozenset()
            assert switches.pop_restarted() == frozenset()
            monkeypatch.undo()
            await switches.write_states({"s1": STATE}, 2 + RETRY)
        assert switches.holding == {"s1"}
        assert switches.pop_restarted() == {"s1"}
        assert (await session.read()).lines() == STATE.lines()
        assert switches.pop_restarted() == frozenset(), "it is said once"
