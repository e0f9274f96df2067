"""Heartbeats through a flooded fabric: in their class none is late or lost; behind bulk traffic they are, and only
telemetry keeps live workers from being taken for dead.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records.record import HeartbeatFigures
from weir.topologies import mac_number
from weir.wire.frames import DSCP_CONTROL, encapsulate
from weir.wire.heartbeat import HEARTBEAT_BYTES, HEARTBEAT_PORT, Heartbeat

WORKERS = ["h1", "h2", "h4", "h5", "h7", "h8", "h10", "h11"]


def flooded(**heartbeats: Any) -> RunConfig:
    """Flows to the controller's host, and beside it, that bring half as much again as its links carry."""
    leaf_spine = {"kind": "leaf-spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 3, "rate": "1Gbit", "delay": "2us"}
    flows = [("h3", "450Mbit", 1), ("h9", "490Mbit", 2), ("h12", "520Mbit", 3)]  # of no common beat
    return RunConfig.model_validate(
        {
            "name": "flood",
            "seed": 3,
            "fabric": {"name": "flood", "generate": leaf_spine},
            "job": {"workers": WORKERS, "window": 16, "slots": 32},
            "background": [{"source": host, "destination": "h6", "rate": rate, "port": p} for host, rate, p in flows],
            "control": {"interval": "2ms", "warm_up": "10ms"},
            "heartbeats": {"to": "h6", "interval": "200us", "lease": "800us", **heartbeats},
            "strategies": ["widest"],
        }
    )


def run(config: RunConfig, heartbeats: int) -> tuple[HeartbeatFigures, list[str]]:
    """Sums and pauses until so many were sent; and what could not be promised beforehand."""

    async def go() -> tuple[HeartbeatFigures, list[str]]:
        async with Cluster(config, "widest") as cluster:
            assert cluster.heartbeats is not None
            refusals = cluster.refusals
            while cluster.heartbeats.sent < heartbeats:
                gradients = [np.full(10_000, rank, np.float32) for rank in range(len(WORKERS))]
                await cluster.allreduce(gradients, 1)
                await cluster.compute(2_000_000)
            figures = cluster.heartbeat_figures
            assert figures is not None
            return figures, refusals

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("heartbeats", "pace"),
    [
        (4_000, {}),
        pytest.param(100_000, {"interval": "50us", "lease": "200us"}, marks=pytest.mark.long),
    ],
)
def test_in_their_class_none_is_late_or_lost(heartbeats: int, pace: dict[str, str]) -> None:
    seen, refusals = run(flooded(detector="timer", **pace), heartbeats)
    assert any("1460 Mbit/s may come that obey no window" in line for line in refusals), "nothing is promised of bulk"
    assert seen.sent >= heartbeats
    assert seen.sent - seen.delivered <= len(WORKERS), "the last ones may be under way"
    assert 0 < seen.p999_us <= seen.longest_us <= seen.bound_us
    assert (seen.taken_for_dead, seen.explained) == (0, 0)


def test_behind_bulk_traffic_live_workers_are_taken_for_dead() -> None:
    seen, _ = run(flooded(in_class=False, detector="timer"), 600)
    assert seen.delivered < 0.9 * seen.sent
    assert seen.longest_us > 20 * seen.bound_us
    assert seen.taken_for_dead > 0


def test_telemetry_tells_a_slow_network_from_a_dead_worker() -> None:
    seen, _ = run(flooded(in_class=False), 2_000)
    assert seen.delivered < 0.9 * seen.sent
    assert seen.explained > 0
    assert seen.taken_for_dead == 0


def test_bulk_that_lies_of_its_class_is_policed_and_delays_nobody() -> None:
    """A host floods the controller's with frames of the control class: 2 % of its link and a burst of 2 KB pass."""
    config = flooded(detector="timer").model_copy(update={"background": []})
    liar, sender_class = "h9", 500e6

    async def go() -> tuple[HeartbeatFigures, dict[str, int], float]:
        async with Cluster(config, "widest") as cluster:
            topology, fabric = cluster.topology, cluster._emulated.fabric
            host, target = topology.host(liar), topology.host("h6")
            frame = encapsulate(
                np.zeros((1, 200), np.uint8),
                source=int(host.address),
                destination=int(target.address),
                source_mac=mac_number(host.mac),
                destination_mac=mac_number(topology.attached_switch(liar).mac),
                destination_port=9,
                dscp=DSCP_CONTROL,
            )
            flow = fabric.add_flow(liar, frame.tobytes(), rate_bps=sender_class, priority=7)
            began_ns = cluster.now_ns
            for _ in range(3):
                await cluster.allreduce([np.full(10_000, rank, np.float32) for rank in range(len(WORKERS))], 1)
                await cluster.compute(2_000_000)
            assert cluster.heartbeat_figures is not None
            passed_bps = 8e9 * fabric.flow_counters(flow).delivered_bytes / (cluster.now_ns - began_ns)
            return cluster.heartbeat_figures, await cluster.drops(), passed_bps

    seen, drops, passed_bps = asyncio.run(go())
    assert drops["policed"] > 1_000
    assert passed_bps < 0.02 * 1e9 + 8e9 * 2_048 / 6_000_000
    assert seen.sent - seen.delivered <= len(WORKERS)
    burst_us = 3 * 8 * 2_048 / 1e3  # what passes may come before a heartbeat, at each of three switches
    assert seen.longest_us <= seen.bound_us + burst_us
    assert seen.taken_for_dead == 0


def test_what_is_no_heartbeat_is_dropped_and_counted() -> None:
    """Damaged, cut, made with another token: nobody's, and harmless; in another's name it comes no further than to the
    first switch.
    """
    config = flooded(detector="timer").model_copy(update={"background": []})

    async def go() -> tuple[int, int, HeartbeatFigures]:
        async with Cluster(config, "widest") as cluster:
            topology, fabric = cluster.topology, cluster._emulated.fabric
            liar, target = topology.host("h9"), topology.host("h6")
            foreign = Heartbeat(1, 1, 0, waiting=False, sent_ns=0).pack("another token")
            cases = [
                (bytes(HEARTBEAT_BYTES), int(liar.address)),
                (foreign[:-1], int(liar.address)),
                (foreign, int(liar.address)),
                (foreign, 0x0A63_6363),
            ]
            for payload, source in cases:
                frame = encapsulate(
                    np.frombuffer(payload, np.uint8)[None],
                    source=source,
                    destination=int(target.address),
                    source_mac=mac_number(liar.mac),
                    destination_mac=mac_number(topology.attached_switch("h9").mac),
                    source_port=HEARTBEAT_PORT,
                    destination_port=HEARTBEAT_PORT,
                )
                fabric.send("h9", frame)
            await cluster.allreduce([np.full(10_000, rank, np.float32) for rank in range(len(WORKERS))], 1)
            await cluster.compute(2_000_000)
            assert cluster.heartbeats is not None
            assert cluster.heartbeat_figures is not None
            drops = await cluster.drops()
            return cluster.heartbeats.reader.dropped, drops["foreign_source"], cluster.heartbeat_figures

    dropped, stopped, seen = asyncio.run(go())
    assert (dropped, stopped) == (3, 1)
    assert seen.sent - seen.delivered <= len(WORKERS)
    assert seen.taken_for_dead == 0


def test_the_controllers_host_has_no_other_part() -> None:
    config = flooded()
    data = {**config.model_dump(), "job": {**config.model_dump()["job"], "server": "h6"}}
    with pytest.raises(ExperimentError, match=r"heartbeats\.to: h6 has a part in the job"):
        RunConfig.model_validate(data).check_names("x.yaml")
