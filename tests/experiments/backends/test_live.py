"""The controller of a fabric in real time, which serves processes of one's own while it thinks."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import cast

import grpc
import pytest
from finsy.proto import p4r

from weir.controller.errors import NotPrimary
from weir.controller.placement import Placement, Problem
from weir.controller.placement.strategies.widest import WidestTree
from weir.controller.service.service import ControlService
from weir.emulator.p4runtime.device import P4RuntimeDevice
from weir.experiments.backends.live import bound_packets, ends_with_controller, live_fabric
from weir.experiments.errors import ExperimentError
from weir.tests.support.control_rig import ANSWER_S, ServiceRig
from weir.topologies import leaf_spine
from weir.wire import control_pb2 as pb


async def test_hosts_are_served_while_a_placement_is_thought_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """And jobs are also looked at together, where the strategy is one for that."""
    place, asked, may_answer = WidestTree.place, threading.Event(), threading.Event()

    def slow(self: WidestTree, problem: Problem, rng: random.Random) -> Placement:
        asked.set()
        assert may_answer.wait(ANSWER_S / 4), "nobody is served meanwhile"
        return place(self, problem, rng)

    monkeypatch.setattr(WidestTree, "place", slow)
    async with (
        live_fabric(leaf_spine(1, 1, 3)) as live,
        grpc.aio.insecure_channel(live.service.address) as channel,
    ):
        controller = live.service._controller
        rig = ServiceRig(live.service, controller, channel, {})
        coming = asyncio.create_task(rig.register(workers=["h1", "h2"]))
        async with asyncio.timeout(ANSWER_S):
            while not asked.is_set():
                await asyncio.sleep(0.001)
        stranger = rig.host()
        await stranger.say(join=pb.Join(job=7, token="none"))
        assert (await stranger.end())[0] is grpc.StatusCode.NOT_FOUND
        assert not coming.done()
        may_answer.set()
        job = (await coming).job
        assert [(state.job, list(state.switches)) for state in await rig.jobs()] == [(job, ["s1"])]
        assert controller.moves.options.together


async def test_each_switch_loads_its_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    set_config, loads = P4RuntimeDevice.set_config, list[P4RuntimeDevice]()

    def counted(self: P4RuntimeDevice, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        loads.append(self)
        set_config(self, request)

    monkeypatch.setattr(P4RuntimeDevice, "set_config", counted)
    async with live_fabric(leaf_spine(2, 1, 1)):
        assert len(loads) == len(set(loads)) == 3


@pytest.mark.parametrize(("queue", "bound"), [(16, 96), (128, 96), (256, 192), (512, 384), (1024, 768), (4096, 768)])
def test_queue_bounds_follow_the_smallest_queues_capacity(queue: int, bound: int) -> None:
    assert bound_packets(leaf_spine(1, 1, 3, queue_packets=queue)) == bound


def test_a_block_ends_with_its_controller() -> None:
    """Another controller has taken the switches: jobs of the first receive the error at once."""

    class Deposed:
        async def wait(self) -> None:
            raise NotPrimary(("s1",))

    async def scenario() -> None:
        async with ends_with_controller(cast(ControlService, Deposed())):
            await asyncio.Event().wait()

    with pytest.raises(ExperimentError):
        asyncio.run(scenario())
