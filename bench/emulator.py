"""The emulated switch in memory, one core's time: `fabric.p4` forwarding IPv4, and summing 256-lane contributions.

The peers are bare native loops over the same bytes: the machine's limit for a switch that does nothing else. Forwarding
is compared with a loop that copies each frame in and out; a contribution with one that adds its lanes to a slot, and
writes the sums back in network order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numba
import numpy as np
from numpy.typing import NDArray

from weir.bench.measure import Aim, Figure, TimedWork, compare, cpu_seconds
from weir.bench.traffic import (
    GENERATIONS,
    HOST_ADDRESS,
    JOB,
    PARENT,
    PHASES,
    SMALL_PAYLOAD,
    SWITCH_ADDRESS,
    contributions,
)
from weir.emulator.entries import ActionCall, ActionSet, Exact, Lpm, TableEntry, WeightedAction
from weir.emulator.port import PortConfig
from weir.emulator.switch import Switch
from weir.p4src import FABRIC_JSON
from weir.wire.aggregation import LANES
from weir.wire.frames import encapsulate

FRAMES: Final = 64


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    yield _forwarding()
    yield _contributions()


def _switch() -> Switch:
    switch = Switch(1, ports=range(1, 5), port=PortConfig(queue_packets=None))
    switch.load(FABRIC_JSON.read_bytes())
    return switch


def _tables(switch: Switch) -> Any:
    assert switch.state is not None
    return switch.state.tables


def _forwarding() -> Figure:
    switch = _switch()
    call = ActionCall("FabricIngress.routing.forward", (2, 0x020000000001, 0x020000000002))
    _tables(switch)["FabricIngress.routing.routes"].insert(
        TableEntry((Lpm(0x0A000200, 24),), ActionSet((WeightedAction(call),)))
    )
    destinations = 0x0A000200 + np.arange(FRAMES)
    frames = encapsulate(
        np.zeros((FRAMES, SMALL_PAYLOAD), np.uint8),
        source=HOST_ADDRESS,
        destination=destinations,
        source_mac=2,
        destination_mac=1,
        source_port=1000 + np.arange(FRAMES),
        destination_port=9,
    )
    repeat = 20_000
    sent = switch.process(frames, None, 1)
    assert len(sent.lengths) == FRAMES, "the benchmark's frames must be forwarded"
    copies = np.zeros_like(frames)
    return compare(
        "L3 forwarding, 64-byte frames",
        "packets/s",
        TimedWork("weir", FRAMES * repeat, lambda: switch.process(frames, None, 1, repeat)),
        TimedWork("bare copy loop", FRAMES * repeat, lambda: _copy(frames, copies, repeat)),
        aim=Aim(5e6),
        clock=cpu_seconds,
    )


def _contributions() -> Figure:
    """Two children take turns in every slot, so each frame is a full restart or a full addition with its emission."""
    switch = _switch()
    tables = _tables(switch)
    slots = 64
    tables["FabricIngress.node_address"].insert(
        TableEntry((Exact(SWITCH_ADDRESS),), ActionCall("FabricIngress.to_node"))
    )
    for generation in GENERATIONS:
        tables["FabricIngress.aggregation.jobs"].insert(
            TableEntry(
                (Exact(JOB), Exact(generation)),
                ActionCall("FabricIngress.aggregation.inner_node", (0, slots, 0b11, PARENT, 1)),
            )
        )
        for child in range(2):
            tables["FabricIngress.aggregation.members"].insert(
                TableEntry(
                    (Exact(JOB), Exact(generation), Exact(1 << child), Exact(1 + child), Exact(HOST_ADDRESS + child)),
                    ActionCall("FabricIngress.aggregation.accept"),
                )
            )
    call = ActionCall("FabricIngress.routing.forward", (3, 0x020000000001, 0x020000000002))
    tables["FabricIngress.routing.routes"].insert(TableEntry((Lpm(PARENT, 32),), ActionSet((WeightedAction(call),))))
    frames = np.stack(list(contributions(FRAMES // 2).values()), axis=1).reshape(PHASES * FRAMES, -1)
    count = len(frames)
    ports = 1 + np.arange(count) % 2
    repeat = 2_000
    sent = switch.process(frames, None, ports, 2)
    assert len(sent.lengths) == count // 2, "every second contribution must complete its round"
    lanes = np.ascontiguousarray(frames[:, -4 * LANES :]).view(np.uint32)
    sums = np.zeros((slots, LANES), np.uint32)
    return compare(
        "aggregation, 256-lane contributions",
        "lanes/s",
        TimedWork("weir", count * repeat * LANES, lambda: switch.process(frames, None, ports, repeat)),
        TimedWork("bare add loop", count * repeat * LANES, lambda: _add(lanes, sums, repeat)),
        aim=Aim(1.2e9),
        clock=cpu_seconds,
    )


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _copy(frames: NDArray[np.uint8], copies: NDArray[np.uint8], repeat: int) -> None:
    for _ in range(repeat):
        for row in range(frames.shape[0]):
            for column in range(frames.shape[1]):
                copies[row, column] = frames[row, column]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _add(lanes: NDArray[np.uint32], sums: NDArray[np.uint32], repeat: int) -> None:
    for _ in range(repeat):
        for row in range(lanes.shape[0]):
            slot = sums[row % sums.shape[0]]
            for lane in range(lanes.shape[1]):
                value = lanes[row, lane]
                value = (value >> 24) | ((value >> 8) & 0xFF00) | ((value << 8) & 0xFF0000) | (value << 24)
                value = value + slot[lane]
                slot[lane] = value
                lanes[row, lane] = (value >> 24) | ((value >> 8) & 0xFF00) | ((value << 8) & 0xFF0000) | (value << 24)
