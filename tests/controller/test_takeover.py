"""Several controllers and one switch: the highest election id writes, the others stand by and take over in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from weir.controller.controller import Controller, ControllerOptions
from weir.controller.errors import ElectionLost, NotPrimary
from weir.controller.p4runtime.entries import call, entry
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import JobSpec
from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.p4src import FABRIC_JSON
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.topologies.routing import Routes

MINE = entry("FabricIngress.node_address", {"dst_addr": 0x0AFF0001}, call("to_node"))
OTHER = entry("FabricIngress.node_address", {"dst_addr": 0x0AFF0002}, call("to_node"))
RACK = leaf_spine(1, 1, 3)


@pytest.fixture
async def rpc() -> AsyncIterator[P4RuntimeServer]:
    switches = [Switch(node.device_id) for node in RACK.switches]
    for switch in switches:
        switch.load(FABRIC_JSON.read_bytes())
    server = P4RuntimeServer(switches)
    server.start()
    yield server
    server.stop()


async def eventually(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.01)


async def test_the_higher_election_id_takes_over_and_the_next_follows(
    rpc: P4RuntimeServer, pipeline: CompiledPipeline
) -> None:
    def session(election_id: int, standby: bool = False) -> SwitchSession:
        return SwitchSession(
            "s1", rpc.address, device_id=1, pipeline=pipeline, timeout_s=60, election_id=election_id, standby=standby
        )

    async with session(10) as old:
        await old.write_updates(inserts=[MINE])
        with raises(ElectionLost, asked="connect", primary_id=10, election_id=5):
            await session(5).__aenter__()
        async with session(20) as new:
            assert new.is_primary
            assert not new.deposed
            await eventually(lambda: old.deposed)
            assert (await new.read()).lines() == {str(MINE)}
            await new.write_updates(inserts=[OTHER])
            with raises(ElectionLost, asked="write", primary_id=20):
                await old.write_updates(deletes=[OTHER])
            with raises(ElectionLost, asked="send packets"):
                await old.send_packets([(1, b"x")])
            assert (await old.read()).lines() == {str(MINE), str(OTHER)}
            promoted = asyncio.create_task(old.until_primary())
            await asyncio.sleep(0)
            assert not promoted.done()
        await asyncio.wait_for(promoted, 60)
        assert (old.deposed, old.openings) == (False, 2)
        await old.write_updates(deletes=[OTHER])
        assert (await old.read()).lines() == {str(MINE)}


async def test_a_standby_waits_for_its_turn_and_does_not_disturb(
    rpc: P4RuntimeServer, pipeline: CompiledPipeline
) -> None:
    def session(**how: Any) -> SwitchSession:
        return SwitchSession("s1", rpc.address, device_id=1, pipeline=pipeline, timeout_s=60, **how)

    async with session() as primary, session(election_id=3, standby=True) as standby:
        assert (standby.is_up, standby.is_primary, standby.openings) == (True, False, 0)
        assert not standby.deposed  # it never had the switch
        await primary.write_updates(inserts=[MINE])
        await primary.__aexit__(None, None, None)
        await asyncio.wait_for(standby.until_primary(), 60)
        await standby.write_updates(inserts=[OTHER])
        assert (await standby.read()).lines() == {str(MINE), str(OTHER)}


async def test_a_superseded_controller_leaves_the_fabric_alone(
    rpc: P4RuntimeServer, pipeline: CompiledPipeline
) -> None:
    def session(name: str, device_id: int, election_id: int) -> SwitchSession:
        return SwitchSession(
            name, rpc.address, device_id=device_id, pipeline=pipeline, timeout_s=60, election_id=election_id
        )

    names = [(node.name, node.device_id) for node in RACK.switches]
    old = {name: await session(name, device, 1).__aenter__() for name, device in names}
    controller = Controller(RACK, Routes(RACK), old, strategy("widest"), ControllerOptions())
    await controller.start()
    await controller.admit(JobSpec(7, ("h1", "h2")), 0)
    new = {name: await session(name, device, 2).__aenter__() for name, device in names}
    before = [(await s.read()).lines() for s in new.values()]
    await eventually(lambda: all(s.deposed for s in old.values()))
    sent = sum(controller.switches.packet_outs_sent.values())
    down = Routes(RACK, down=[Endpoint("s1", 4)])
    for act in (
        controller.tick(0),
        controller.admit(JobSpec(1, ("h1", "h2")), 0),
        controller.reroute(down),
        controller.finish(7),
    ):
        with raises(NotPrimary, switches=("s1", "s2")):
            await act
    assert sum(controller.switches.packet_outs_sent.values()) == sent
    assert [(await s.read()).lines() for s in new.values()] == before
    assert (controller.planner.routes.down, [*controller.jobs]) == (frozenset(), [7])
    for each in (*old.values(), *new.values()):
        await each.__aexit__(None, None, None)
