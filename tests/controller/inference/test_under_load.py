"""Models replaced by a controller while a switch on real interfaces answers requests without a pause."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.controller.controller import Controller, ControllerOptions
from weir.controller.inference.forest import Forest
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.placement.strategies import strategy
from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.ports.wired import WiredSwitch
from weir.emulator.switch import Switch
from weir.tests.controller.inference.forests import digits, digits_model
from weir.tests.emulator.network import Network, needs_namespaces, network
from weir.topologies.generators import leaf_spine
from weir.topologies.routing import Routes
from weir.wire import frames
from weir.wire.classification import CLASSIFICATION_PORT, MESSAGE_BYTES, Answer, Status, pack_requests

TOPOLOGY: Final = leaf_spine(1, 1, 2)
HOST: Final = TOPOLOGY.host("h1")
LEAF: Final = TOPOLOGY.attached_switch("h1")
IN_FLIGHT: Final = 32
BETWEEN: Final = 200
"""Answers from one replacement to the next, at least."""


class Asking(Thread):
    """Host h1, which asks for the classes of all held-out digits again and again."""

    def __init__(self, net: Network, port: int, images: NDArray[np.uint8]) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        self.ended = Event()
        self._net, self._port, self._images = net, port, images

    def run(self) -> None:
        start = frames.FRAME_HEADER_BYTES
        while not self.ended.is_set():
            sequence = np.arange(len(self.answers), len(self.answers) + IN_FLIGHT)
            requests = frames.encapsulate(
                pack_requests(self._images[sequence % len(self._images)], int(sequence[0])),
                source=int(HOST.address),
                destination=int(LEAF.address),
                source_mac=1,
                destination_mac=2,
                destination_port=CLASSIFICATION_PORT,
            )
            self._net.send(self._port, *(request.tobytes() for request in requests))
            came = self._net.receive(self._port, IN_FLIGHT)
            self.answers += [Answer.parse(frame[start : start + MESSAGE_BYTES]) for frame in came]
            if len(came) < IN_FLIGHT:
                return


@needs_namespaces
@pytest.mark.parametrize("replacements", [2, pytest.param(60, marks=pytest.mark.long)])
async def test_no_answer_is_a_class_that_neither_model_gives(
    replacements: int, pipeline: CompiledPipeline, tmp_path: Path
) -> None:
    forests = [Forest.of(digits_model(trees=5, leaves=24, seed=seed)) for seed in (3, 4)]
    images = forests[0].encode(digits()[1][0])
    expected = {forest.number: forest.decide(images) for forest in forests}
    port = TOPOLOGY.neighbours("h1")[0].port
    with network([port]) as net:
        async with AsyncExitStack() as stack:
            controller = await controlled(stack, net, pipeline, tmp_path)
            await controller.load_model([LEAF.name], forests[0])
            asking = Asking(net, port, images)
            asking.start()
            try:
                for replaced in range(replacements):
                    await some_more(asking)
                    await controller.load_model([LEAF.name], forests[(replaced + 1) % 2])
                await some_more(asking)
            finally:
                asking.ended.set()
                await asyncio.to_thread(asking.join)
    assert len(asking.answers) % IN_FLIGHT == 0, "a request had no answer"
    seen = []
    for answer in asking.answers:
        if answer.status is Status.CLASSIFIED:
            assert answer.class_index == expected[answer.model][answer.sequence % len(images)]
            seen.append(answer.model)
    changes = [after for before, after in pairwise(seen) if before != after]
    assert changes == [forests[(number + 1) % 2].number for number in range(replacements)]


async def controlled(stack: AsyncExitStack, net: Network, pipeline: CompiledPipeline, folder: Path) -> Controller:
    """A controller of the fabric, whose leaf has interfaces. All but the leaf's ports is outside of their namespace, in
    which gRPC's threads would stay.
    """
    switches = {
        node.name: Switch(node.device_id, ports=sorted(TOPOLOGY.neighbours(node.name))) for node in TOPOLOGY.switches
    }
    stack.enter_context(WiredSwitch(switches[LEAF.name], net.interfaces))
    stack.enter_context(net.outside())
    sessions: dict[str, Any] = {}
    for name, switch in switches.items():
        server = stack.enter_context(P4RuntimeServer([switch], f"unix:{folder / name}"))
        sessions[name] = await stack.enter_async_context(
            SwitchSession(name, server.address, device_id=switch.device_id, pipeline=pipeline, timeout_s=60)
        )
    controller = Controller(TOPOLOGY, Routes(TOPOLOGY), sessions, strategy("ps"), ControllerOptions())
    await controller.start()
    return controller


async def some_more(asking: Asking) -> None:
    """Wait for further answers."""
    enough = len(asking.answers) + BETWEEN
    while len(asking.answers) < enough and asking.is_alive():
        await asyncio.sleep(0.002)
