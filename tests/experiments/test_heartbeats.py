"""Heartbeats through a flooded fabric: in their class none is late or lost; behind bulk traffic they are, and only
telemetry keeps live workers from being taken for dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.emulator.fabric import Wake
from weir.experiments.backends.agents import VirtualWorker
from weir.experiments.backends.emulated import EmulatedFabric
from weir.experiments.backends.heartbeats import VirtualHeartbeats
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import HeartbeatConfig, RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records import page as pages
from weir.experiments.records.record import HeartbeatFigures, RunRecord
from weir.experiments.run import run_strategy
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.topologies import mac_number
from weir.wire.aggregation import LANES
from weir.wire.frames import DSCP_CONTROL, encapsulate
from weir.wire.heartbeat import HEARTBEAT_BYTES, HEARTBEAT_PORT, Heartbeat
from weir.wire.transport import TRANSPORT_PORT

WORKERS = ["h1", "h2", "h4", "h5", "h7", "h8", "h10", "h11"]
RUNS = ROOT / "experiments" / "heartbeats"
GUIDE = (ROOT / "docs" / "congestion.md").read_text().splitlines()


def flooded(**heartbeats: Any) -> RunConfig:
    """Configuration with flows to and near the controller's host that exceed its links' rate by half."""
    config = RunConfig.load(RUNS / "in-class.yaml")
    return config.replaced("a test", heartbeats={"to": "h6", "interval": "200us", "lease": "800us", **heartbeats})


class Register:
    """Every heartbeat of a run, by its sender and when it was sent."""

    def __init__(self) -> None:
        self.sent: set[tuple[str, int]] = set()
        self.came: list[tuple[str, int]] = []

    def lost(self, cluster: Cluster, late_us: float = 0) -> set[tuple[str, int]]:
        """Heartbeats that have not arrived within their delay bound, plus `late_us` and the time since their host last
        sent.

        None comes twice, and the run's figures are of these.
        """
        seen, came = cluster.figures.heartbeats, set(self.came)
        assert seen is not None
        assert (seen.sent, seen.delivered) == (len(self.sent), len(self.came))
        assert len(came) == len(self.came)
        assert came <= self.sent
        longest_ns = 1e3 * (seen.bound_us + late_us) + cluster.config.host_poll
        return {(host, sent_ns) for host, sent_ns in self.sent - came if sent_ns < cluster.now_ns - longest_ns}


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Register of the heartbeats of the test's run."""
    register = Register()
    beat, init = VirtualHeartbeats.beat, VirtualHeartbeats.__init__

    def noted(self: VirtualHeartbeats, workers: Sequence[VirtualWorker]) -> int:
        register.sent |= {(worker.name, self._emulated.fabric.now_ns) for worker in workers}
        return beat(self, workers)

    def begun(
        self: VirtualHeartbeats,
        emulated: EmulatedFabric,
        config: HeartbeatConfig,
        hear: Callable[[int, str, Heartbeat], None],
        seed: int,
    ) -> None:
        def heard(job: int, host: str, beat: Heartbeat) -> None:
            register.came.append((host, beat.sent_ns))
            hear(job, host, beat)

        init(self, emulated, config, heard, seed)

    monkeypatch.setattr(VirtualHeartbeats, "beat", noted)
    monkeypatch.setattr(VirtualHeartbeats, "__init__", begun)
    return register


def run(config: RunConfig, heartbeats: int, register: Register) -> tuple[HeartbeatFigures, list[str], int]:
    """Sum and pause until this many heartbeats were sent; return figures, refusals of bounds, and the number of lost
    ones.
    """

    async def go() -> tuple[HeartbeatFigures, list[str], int]:
        async with Cluster(config, "widest") as cluster:
            assert cluster.heartbeats is not None
            refusals = cluster.figures.refusals
            while cluster.heartbeats.sent < heartbeats:
                gradients = [np.full(10_000, rank, np.float32) for rank in range(len(WORKERS))]
                await cluster.allreduce(gradients, 1)
                await cluster.compute(2_000_000)
            assert not cluster.figures.broken_promises
            figures = cluster.figures.heartbeats
            assert figures is not None
            delays_ns = np.array(cluster.heartbeats.delays_ns)
            assert figures.delays_us[0] == figures.longest_us
            for longer, delay_us in zip(figures.longer, figures.delays_us, strict=True):
                delay_ns = round(1e3 * delay_us)
                assert (delays_ns > delay_ns).sum() <= longer < (delays_ns >= delay_ns).sum()
            return figures, refusals, len(register.lost(cluster))

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("heartbeats", "pace", "row"),
    [
        pytest.param(4_000, {}, "48", marks=pytest.mark.long),
        pytest.param(
            100_000,
            {"interval": "50us", "lease": "200us"},
            "48, one in 50 µs, lease 200 µs",
            marks=pytest.mark.long,
        ),
    ],
)
def test_in_their_class_none_is_late_or_lost(
    heartbeats: int, pace: dict[str, str], row: str, register: Register
) -> None:
    seen, refusals, lost = run(flooded(detector="timer", **pace), heartbeats, register)
    assert any("1460 Mbit/s may come that obey no window" in line for line in refusals), "nothing is promised of bulk"
    assert seen.sent >= heartbeats
    assert lost == 0
    assert 0 < seen.p999_us <= seen.longest_us <= seen.bound_us
    assert (seen.taken_for_dead, seen.explained) == (0, 0)
    times = f"{seen.p999_us:.1f} µs | {seen.longest_us:.1f} µs | {seen.bound_us:.1f} µs"
    assert f"| {row} | timer | {seen.sent:,} | all | {times} | 0 |" in GUIDE


@pytest.mark.long
def test_behind_bulk_traffic_live_workers_are_taken_for_dead(register: Register) -> None:
    seen, _, lost = run(flooded(in_class=False, detector="timer"), 600, register)
    assert lost > 0.1 * seen.sent
    assert seen.longest_us > 20 * seen.bound_us
    assert seen.taken_for_dead > 0
    assert f"{_late('timer', seen)} {seen.taken_for_dead} times |" in GUIDE


def test_telemetry_tells_a_slow_network_from_a_dead_worker(register: Register) -> None:
    seen, _, lost = run(flooded(in_class=False), 2_000, register)
    assert lost > 0.1 * seen.sent
    assert seen.explained > 0
    assert seen.taken_for_dead == 0
    assert f"{_late('telemetry', seen)} 0 ({seen.explained} silences explained) |" in GUIDE


def _late(detector: str, seen: HeartbeatFigures) -> str:
    """First cell of a row of the guide."""
    times = f"{seen.p999_us:,.0f} µs | {seen.longest_us:,.0f} µs"
    return f"| bulk | {detector} | {seen.sent:,} | {seen.delivered:,} | {times} | – |"


@pytest.mark.parametrize(("rate", "promised"), [("250Mbit", 12), pytest.param("315Mbit", None, marks=pytest.mark.long)])
def test_bulk_queues_keep_their_promises_behind_heartbeats(rate: str, promised: int | None) -> None:
    """The controller's host has a link of which others take three times `rate`, and heartbeats a seventh at most."""
    config = RunConfig.load(RUNS / "in-class-fast.yaml")
    others = [{**flow.model_dump(), "rate": rate} for flow in config.background]
    config = config.replaced("a test", background=others)

    async def go() -> None:
        async with Cluster(config, "widest") as cluster:
            gradients = [np.full(LANES * 60, rank, np.float32) for rank in range(len(WORKERS))]
            await cluster.allreduce(gradients, 1)
            assert not cluster.figures.broken_promises
            [last] = [link for link in cluster.figures.promised if cluster.topology.peer(link).node == "h6"]
            assert cluster.figures.promised[last] == promised
            refused = [line for line in cluster.figures.refusals if line.startswith(f"{last}: ")]
            assert bool(refused) == (promised is None)
            assert all("of which the control class may take 139.947" in line for line in refused)

    asyncio.run(go())


def test_bulk_with_a_false_class_is_policed_and_delays_none(register: Register) -> None:
    """A host floods the controller's with frames of the control class: 2 % of its link and a burst of 2 KB pass."""
    config = flooded(detector="timer").model_copy(update={"background": []})
    liar, sender_class = "h9", 500e6
    burst_us = 3 * 8 * 2_048 / 1e3  # policed traffic may come before a heartbeat, at each of three switches

    async def go() -> tuple[HeartbeatFigures, dict[str, int], float]:
        async with Cluster(config, "widest") as cluster:
            topology, fabric = cluster.topology, cluster.emulated.fabric
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
            assert cluster.figures.heartbeats is not None
            assert register.lost(cluster, burst_us) == set()
            passed_bps = 8e9 * fabric.flow_counters(flow).delivered_bytes / (cluster.now_ns - began_ns)
            return cluster.figures.heartbeats, await cluster.figures.drops(), passed_bps

    seen, drops, passed_bps = asyncio.run(go())
    assert drops["policed"] > 1_000
    assert passed_bps < 0.02 * 1e9 + 8e9 * 2_048 / 6_000_000
    assert seen.longest_us <= seen.bound_us + burst_us
    assert seen.taken_for_dead == 0


def test_an_invalid_heartbeat_is_dropped_and_counted(register: Register) -> None:
    """Damaged, cut, made with another token: dropped without harm; with another's address it ends at the first
    switch.
    """
    config = flooded(detector="timer").model_copy(update={"background": []})

    async def go() -> tuple[int, int, HeartbeatFigures]:
        async with Cluster(config, "widest") as cluster:
            topology, fabric = cluster.topology, cluster.emulated.fabric
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
            assert cluster.figures.heartbeats is not None
            assert register.lost(cluster) == set()
            drops = await cluster.figures.drops()
            return cluster.heartbeats.reader.dropped, drops["foreign_source"], cluster.figures.heartbeats

    dropped, stopped, seen = asyncio.run(go())
    assert (dropped, stopped) == (3, 1)
    assert seen.taken_for_dead == 0


def test_the_guides_runs_differ_in_their_heartbeats_only() -> None:
    """And in how long they last, and all may be kept as a record."""
    configs = {path.stem: RunConfig.load(path) for path in RUNS.glob("*.yaml")}
    assert configs.keys() == {"in-class", "in-class-fast", "bulk-timer", "bulk-telemetry"}
    alike, beats = [], {}
    for stem, config in configs.items():
        assert config.name == f"heartbeats-{stem}"
        assert config.heartbeats is not None
        beats[stem] = (config.heartbeats.in_class, config.heartbeats.detector, config.heartbeats.interval)
        training = config.training.model_copy(update={"steps": 1})
        alike.append(config.model_copy(update={"name": "x", "training": training, "heartbeats": None}))
    assert all(config == alike[0] for config in alike)
    assert beats == {
        "in-class": (True, "timer", 200_000),
        "in-class-fast": (True, "timer", 50_000),
        "bulk-timer": (False, "timer", 200_000),
        "bulk-telemetry": (False, "telemetry", 200_000),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", ["in-class", "bulk-telemetry"])
def test_the_page_of_a_run_shows_how_late_heartbeats_came(name: str, tmp_path: Path) -> None:
    config = RunConfig.load(RUNS / f"{name}.yaml")
    config = config.model_copy(update={"training": config.training.model_copy(update={"steps": 2})})
    result = asyncio.run(run_strategy(config, "widest"))
    seen = result.heartbeats
    assert seen is not None
    if name == "in-class":
        assert 0 < seen.longest_us <= seen.bound_us
    else:
        assert seen.longest_us > 10 * seen.bound_us
    record = RunRecord.begin(config, result.weights, result.accuracy)
    record.results.append(result)
    page = pages.write(record, tmp_path, lambda *_, **__: '<svg width="9pt"></svg>').read_text()
    assert "<h2>Heartbeats</h2>" in page
    assert "part of heartbeats that have not come" in (tmp_path / "heartbeats.svg").read_text()


def test_the_controllers_host_has_no_other_part() -> None:
    config = flooded()
    data = {**config.model_dump(), "job": {**config.model_dump()["job"], "server": "h6"}}
    with raises(ExperimentError, place="x.yaml: heartbeats.to", value="h6"):
        RunConfig.model_validate(data).check_names("x.yaml")


def test_packets_of_a_heartbeats_length_may_come_with_it() -> None:
    topology = flooded().topology
    emulated, heard = EmulatedFabric(topology, start=None), list[tuple[int, str, int]]()
    heartbeats = VirtualHeartbeats(
        emulated,
        HeartbeatConfig(to="h6"),
        lambda job, host, beat: heard.append((job, host, beat.sent_ns)),
        seed=1,
    )
    host, at = topology.host("h1"), topology.host("h6")

    def frame(port: int, sent_ns: int) -> NDArray[np.uint8]:
        return encapsulate(
            np.frombuffer(Heartbeat(7, sent_ns, 0, True, sent_ns).pack("h1"), np.uint8)[None],
            source=int(host.address),
            destination=int(at.address),
            source_mac=mac_number(host.mac),
            destination_mac=mac_number(at.mac),
            source_port=port,
            destination_port=port,
            dscp=DSCP_CONTROL,
        )

    frames = np.concatenate([frame(TRANSPORT_PORT, 1), frame(HEARTBEAT_PORT, 2), frame(TRANSPORT_PORT, 3)])
    times_ns = np.array([1_001, 1_002, 1_003])
    heartbeats.receive(Wake("h6", [frames, np.zeros((1, 20), np.uint8)], [times_ns, times_ns[:1]], timer=False))
    assert heard == [(7, "h1", 2)]
    assert heartbeats.delays_ns == [1_000]
