"""HPCC's workers read INT out of the frames of their own rounds: the law's input equals the switches' values."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from weir.controller.int_config.cost import TelemetryCost
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records.record import StrategyResult
from weir.experiments.run import run_strategy
from weir.hosts.congestion import Feedback, Hpcc
from weir.tests.p4src.int_fabric import Departure, Tap
from weir.wire.aggregation import LANES
from weir.wire.int_messages import depths, read_links

WORKERS = ["h1", "h2", "h4", "h5"]
FABRIC = {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 3, "queue": 128}


def config_of(*, law: str = "hpcc", server: str | None = "h6", **sections: object) -> RunConfig:
    """Two racks of two workers each, and a server's host in the second one."""
    data = {
        "name": "in-band",
        "fabric": {"name": "racks", "generate": {**FABRIC, "rate": "1Gbit", "delay": "2us"}},
        "job": {"workers": WORKERS, "server": server, "window": 16, "slots": 32},
        "host_poll": "10us",
        "congestion": {"law": law},
        "strategies": ["hierarchy"],
        **sections,
    }
    return RunConfig.model_validate(data)


@dataclass
class Seen:
    switches: dict[int, str] = field(default_factory=dict)
    """Switches by node id."""
    departures: list[Departure] = field(default_factory=list)
    """Packets as they left switches' egress, by the runtime's own records."""
    told: dict[int, list[Feedback]] = field(default_factory=dict)
    """Feedback by the worker's rank, in order of time."""
    rejected: int = 0
    unread: int = 0


def watched_run(strategy: str, server: str | None, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Run two sums over real frames; every switch's egress and all input of the laws are recorded."""
    seen = Seen()
    laws: list[Hpcc] = []
    original = Hpcc.update

    def take(law: Hpcc, feedback: Feedback) -> None:
        if law not in laws:
            laws.append(law)
        seen.told.setdefault(laws.index(law), []).append(feedback)
        original(law, feedback)

    monkeypatch.setattr(Hpcc, "update", take)

    async def run() -> None:
        async with Cluster(config_of(server=server, strategies=[strategy]), strategy) as cluster:
            taps = []
            for name, switch in cluster.emulated.switches.items():
                seen.switches[cluster.topology.switch(name).device_id] = name
                taps.append(Tap(name, switch, seen.departures))
                assert switch.state is not None
                sent = switch.state.registers["FabricEgress.telemetry.bytes_sent"].values
                taps[-1]._sent.update(enumerate(sent.tolist()))  # of probes, until now
            for _ in range(2):
                gradients = [np.full(40 * LANES, rank, np.float32) for rank in range(len(WORKERS))]
                sums, _ = await cluster.allreduce(gradients, 1)
                assert all(np.array_equal(primitive.array, np.full(40 * LANES, 6, np.float32)) for primitive in sums)
            assert not await cluster.figures.drops()
            assert cluster.figures.telemetry_cost.int_bytes
            seen.rejected = sum(host.rejects.total for host in cluster.agents.hosts.values())
            seen.unread = sum(law.unread for law in laws)
            assert taps

    asyncio.run(run())
    return seen


@pytest.mark.parametrize(
    ("strategy", "server", "ways"),
    [
        # h1 and h2 by s1, the spine and s2, the others by s2 alone; the result back to either
        pytest.param("ps", "h6", {2, 4, 6}, marks=pytest.mark.long),
        # racks sum; messages of the far one to the server cross three switches
        pytest.param("hierarchy", "h6", {2, 4, 6, 3, 5}, marks=pytest.mark.long),
        # no host has a part but the workers: the root is a switch
        ("hierarchy", None, {1, 2, 3, 4, 5}),
    ],
)
def test_the_laws_input_equals_the_switches_values(
    strategy: str, server: str | None, ways: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched_run(strategy, server, monkeypatch)
    there = {
        (left.switch, left.port, 1000 * left.egress_us, left.depth, left.sent_before, left.ingress_port)
        for left in seen.departures
    }
    lengths: Counter[int] = Counter()
    deepest = 0
    for told in seen.told.values():
        for feedback in told:
            if feedback.int_headers is None:
                assert feedback.round_trip_ns is None, "rounds without lanes bring none"
                continue
            hops, whole = read_links(feedback.int_headers, 22341)
            assert whole.all()
            assert len(hops) == feedback.rounds
            for path, depth in zip(hops, depths(hops), strict=True):
                lengths[len(path)] += 1
                deepest = max(deepest, *depth)
                for hop, packets in zip(path, depth.tolist(), strict=True):
                    name, port = seen.switches[int(hop["node_id"])], int(hop["egress_port"])
                    said = (name, port, int(hop["egress_ns"]), packets, int(hop["bytes_sent"]))
                    assert (*said, int(hop["ingress_port"])) in there
                times = path["egress_ns"].astype(np.int64)
                assert (np.diff(times) < 0).all(), "the newest first"
                assert feedback.now_ns > times[0]
    assert lengths.total() == 2 * 40 * len(WORKERS)
    assert set(lengths) <= ways
    assert len(lengths) > 1
    assert (seen.rejected, seen.unread) == (0, 0)
    if strategy == "ps":
        assert deepest > 1, "the streams meet in a queue, and the law is told of it"


def test_garbled_int_changes_no_sum_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the workers' messages have bitmaps with arbitrary requests, or report that some node had no room."""
    rng = np.random.default_rng(4)
    laws: list[Hpcc] = []

    def keep(law: Hpcc, header: bytes) -> None:
        laws.append(law)
        law.__dict__["header"] = header

    def sometimes_garbled(law: Hpcc) -> bytes:
        header = bytearray(law.__dict__["header"])
        if rng.random() < 0.5:
            header[4] |= int(rng.integers(0, 2)) << 1
            header[6:12] = rng.bytes(6)
        return bytes(header)

    monkeypatch.setattr(Hpcc, "int_header", property(sometimes_garbled, keep), raising=False)

    async def run() -> None:
        async with Cluster(config_of(), "ps") as cluster:
            gradients = [np.full(60 * LANES, rank, np.float32) for rank in range(len(WORKERS))]
            sums, _ = await cluster.allreduce(gradients, 1)
            assert all(np.array_equal(primitive.array, np.full(60 * LANES, 6, np.float32)) for primitive in sums)
            assert not await cluster.figures.drops()
            cost = cluster.figures.telemetry_cost
            assert cost.int_unread == sum(law.unread for law in laws)
            assert f"{cost.int_unread} results without INT that a law could read" in str(cost)
            assert cluster.controller.telemetry_cost(cluster.now_ns).int_unread == cost.int_unread, "and seen live"

    asyncio.run(run())
    assert len(laws) == len(WORKERS)
    assert all(0 < law.unread < 60 for law in laws)


def test_a_record_counts_results_without_readable_int() -> None:
    """None of them: INT comes whole. Under laws that read none the record says nothing of it, as records of old."""
    training = {"hidden": 40, "steps": 1, "compute": "0us"}

    def cost_of(law: str) -> TelemetryCost:
        result = asyncio.run(run_strategy(config_of(law=law, training=training), "ps"))
        assert result.telemetry is not None
        assert StrategyResult.model_validate_json(result.model_dump_json()) == result
        return result.telemetry

    read, unread = cost_of("hpcc"), cost_of("dctcp")
    assert (read.int_unread, unread.int_unread) == (0, None)
    assert not any("could read" in str(cost) for cost in (read, unread))


def test_watching_flows_and_hpcc_do_not_go_together() -> None:
    watch = {"watch": [{"mode": "md", "source": "h1"}]}
    with pytest.raises(ValueError, match=r"telemetry\.watch: .*congestion\.law hpcc .*sinks .*take it out"):
        config_of(telemetry=watch)
    assert config_of(law="dctcp", telemetry=watch).telemetry
    with pytest.raises(ValueError, match=r"telemetry\.mtu: with congestion\.law hpcc"):
        config_of(telemetry={"queues": {"depth": 9}, "mtu": 1400})
    assert config_of(telemetry={"queues": {"depth": 9}}).telemetry


def test_ways_of_too_many_switches_are_refused_at_the_start() -> None:
    ends = [["h1", "s1-p3"], ["h2", "s8-p3"], ["h3", "s7-p3"]]
    ends += [[f"s{number}-p2", f"s{number + 1}-p1"] for number in range(1, 8)]
    line = {
        "name": "line",
        "hosts": {f"h{number}": {} for number in (1, 2, 3)},
        "switches": {f"s{number}": {} for number in range(1, 9)},
        "links": [{"ends": pair} for pair in ends],
    }
    config = config_of(fabric=line, job={"workers": ["h1", "h3"], "server": "h2", "window": 16, "slots": 32})

    async def start(given: RunConfig) -> None:
        async with Cluster(given, "ps"):
            pass

    with pytest.raises(ExperimentError) as refused:
        asyncio.run(start(config))
    assert (refused.value.place, refused.value.value) == ("congestion.law", 16)
    near = {"workers": ["h1", "h2"], "server": "h3", "window": 16, "slots": 32}
    asyncio.run(start(config_of(fabric=line, job=near)))
