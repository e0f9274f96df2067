"""Runs in which a queue once exceeded its bound: it keeps the bound now, or has none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from weir.controller.congestion import Uncontrolled, Windowed
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.synchronised import train_in_mode
from weir.topologies import Endpoint
from weir.wire.aggregation import LANES


def two_switches(near: Sequence[str], far: Sequence[str], **middle: Any) -> dict[str, Any]:
    """Hosts of two switches with one link between them; links of hosts have 1 Gbit/s."""
    ends = [(host, f"s1-p{port}") for port, host in enumerate(near, 1)]
    ends += [(host, f"s2-p{port}") for port, host in enumerate(far, 1)]
    links: list[dict[str, Any]] = [{"ends": list(end)} for end in ends]
    links.append({"ends": ["s1-p20", "s2-p20"], **middle})
    return {
        "name": "cases",
        "defaults": {"rate": "1Gbit", "delay": "10us", "queue": 256},
        "hosts": dict.fromkeys([*near, *far]),
        "switches": {"s1": {"tier": "leaf"}, "s2": {"tier": "leaf"}},
        "links": links,
    }


def exceeded(run: dict[str, Any], rounds: int, wait_ms: int = 0) -> tuple[list[str], dict[Endpoint, int | None]]:
    """Queues that exceeded their bounds while a job sums once, and the loosest bounds of the run."""
    config = RunConfig.model_validate({"name": "cases", **run})
    workers = len(config.job.workers)

    async def play() -> tuple[list[str], dict[Endpoint, int | None]]:
        async with Cluster(config, config.strategies[0]) as cluster:
            await cluster.allreduce([np.ones(LANES * rounds, np.float32)] * workers, 1)
            await cluster.compute(wait_ms * 1_000_000)
            return list(cluster.figures.broken_promises), dict(cluster.figures.promised)

    return asyncio.run(play())


def test_yielding_flows_that_time_out_keep_to_their_windows() -> None:
    """The job's windows make the round trip of forty flows longer than their time-outs."""
    near, far = [f"h{n}" for n in range(1, 8)], ["h8", "h9", "h10"]
    flows = [
        {"source": f"h{4 + n % 4}", "destination": f"h{9 + n % 2}", "kind": "yielding", "window": 1, "port": 100 + n}
        for n in range(40)
    ]
    run = {
        "fabric": two_switches(near, far, rate="10Mbit"),
        "job": {"workers": near[:3], "server": "h8", "window": 32, "slots": 64},
        "background": flows,
        "host_poll": "30us",
        "congestion": {"bound": 96, "lease": "20ms"},
        "control": {"interval": "20ms", "warm_up": "400ms", "solve_interval": "100ms"},
        "strategies": ["ps"],
    }
    broken, promised = exceeded(run, 32)
    assert not broken
    assert promised[Endpoint("s1", 20)] == 90


@pytest.mark.long
def test_probes_and_a_flow_that_fill_a_link_are_refused_together() -> None:
    near, far = ["h1", "h2", "h3", "h4"], ["h5"]
    run = {
        "fabric": two_switches(near, far, rate="100Mbit"),
        "job": {"workers": near[:2], "server": "h3", "window": 4, "slots": 8},
        "background": [{"source": "h4", "destination": "h5", "rate": "98Mbit"}],
        "congestion": {"bound": 64, "lease": "20ms"},
        "control": {"interval": "100us", "warm_up": "20ms", "solve_interval": "20ms"},
        "strategies": ["ps"],
    }
    broken, promised = exceeded(run, 8, wait_ms=60)
    assert not broken
    assert promised[Endpoint("s1", 20)] is None


def test_buffers_below_the_bound_drop_nothing() -> None:
    """Eight workers of a rack, whose leaf sums; the server's link has a buffer of 8 packets."""
    near, far = [f"h{n}" for n in range(1, 9)], ["h9", "h10"]
    fabric = two_switches(near, far, rate="200Mbit")
    fabric["links"][9] |= {"rate": "200Mbit", "queue": 8}
    run = {
        "fabric": fabric,
        "job": {"workers": [*near, "h9"], "server": "h10", "window": 64, "slots": 128},
        "host_poll": "10us",
        "congestion": {"bound": 64, "lease": "20ms"},
        "control": {"interval": "2ms", "warm_up": "10ms", "solve_interval": "10ms"},
        "strategies": ["rack"],
    }
    broken, promised = exceeded(run, 40)
    assert not broken
    assert promised[Endpoint("s2", 2)] == 8, "two streams of three rounds, a copy, and a probe"


def test_workers_waiting_for_a_slow_one_send_one_copy_at_a_time() -> None:
    """Eight workers of a rack, whose leaf sums, are long ready when the ninth in the other rack sends."""
    near = [f"h{n}" for n in range(1, 9)]
    config = RunConfig.model_validate(
        {
            "name": "cases",
            "fabric": two_switches(near, ["h9", "h10"], rate="200Mbit"),
            "job": {"workers": [*near, "h9"], "server": "h10", "window": 64, "slots": 128},
            "host_poll": "10us",
            "congestion": {"bound": 64, "lease": "20ms"},
            "control": {"interval": "2ms", "warm_up": "10ms", "solve_interval": "10ms"},
            "strategies": ["rack"],
        }
    )

    async def play() -> None:
        async with Cluster(config, "rack") as cluster:
            values = np.ones(LANES * 40, np.float32)
            for late_ms in (0, 150):
                *early, last = cluster.job.communicators
                for communicator in early:
                    communicator.allreduce_async(values)
                await cluster.compute(late_ms * 1_000_000)
                last.allreduce_async(values)
                await cluster.settle()
            assert not cluster.figures.broken_promises
            assert 0 < cluster.figures.resends <= 20, "each of eight workers sent a window of 31 again, and again"

    asyncio.run(play())


def test_more_workers_than_the_buffer_holds_still_sum() -> None:
    """Sixteen workers send to one port of 8 packets, beside a flow of 47 % of it."""
    fabric = {"kind": "leaf-spine", "leaves": 1, "spines": 0, "hosts_per_leaf": 18, "rate": "1Gbit", "queue": 8}
    config = RunConfig.model_validate(
        {
            "name": "cases",
            "fabric": {"name": "cases", "generate": {**fabric, "delay": "2us"}},
            "job": {"workers": [f"h{n}" for n in range(1, 17)], "server": "h17", "window": 32, "slots": 64},
            "background": [{"source": "h18", "destination": "h17", "rate": "475Mbit"}],
            "host_poll": "0ns",
            "congestion": {"bound": 32, "lease": "20ms"},
            "control": {"interval": "2ms", "warm_up": "6ms", "solve_interval": "10ms"},
            "strategies": ["ps"],
        }
    )

    async def play() -> None:
        async with Cluster(config, "ps") as cluster:
            rounds = 40
            _, duration_ns = await cluster.allreduce([np.ones(LANES * rounds, np.float32)] * 16, 1)
            assert cluster.figures.promised[Endpoint("s1", 17)] is None
            frames_ns = 16 * (rounds + 32) * 8 * 1094 / (1 - 0.475)
            assert duration_ns < 3 * frames_ns, "it waited for time-outs again and again"

    asyncio.run(play())


def test_workers_that_exchange_over_the_transport_count_in_bounds() -> None:
    """Four workers of two racks send to each other; no queue can be bound."""
    config = RunConfig.model_validate(
        {
            "name": "cases",
            "fabric": two_switches(["h1", "h2", "h3"], ["h4", "h5"], rate="200Mbit"),
            "job": {"workers": ["h1", "h2", "h4", "h5"], "server": "h3"},
            "training": {"batch": 4, "steps": 1, "momentum": 0},
            "congestion": {"bound": 96},
            "strategies": ["ps"],
            "synchronisation": {
                "modes": ["d-psgd"],
                "machines": {"speeds": [4000, 4000, 4000, 4000]},
                "workload": "synthetic",
                "target": 1e-9,
                "limit": "20ms",
            },
        }
    )
    notes = list[str]()
    result = asyncio.run(train_in_mode(config, 0, notes.append))
    assert result.updates > 4
    assert not result.broken
    assert "384 packets of others' own windows" in "\n".join(notes), "64 to each of three others, and from each"


def ten_workers_that_fetch(delay: str) -> RunConfig:
    """Ten workers lack results when their job moves, since flows fill their links; two hosts in the other rack have
    them.
    """
    slow, far = [f"h{n}" for n in range(1, 11)], ["h12", "h13"]
    fabric = two_switches([*slow, "h11"], far)
    fabric["defaults"]["delay"] = delay
    for link in fabric["links"][:10]:
        link["rate"] = "100Mbit"
    flows = [{"source": "h11", "destination": host, "rate": "53.7Mbit", "port": 100} for host in slow]
    return RunConfig.model_validate(
        {
            "name": "cases",
            "fabric": fabric,
            "job": {"workers": [*slow, "h12"], "server": "h13", "window": 32, "slots": 64},
            "background": flows,
            "host_poll": "10us",
            "congestion": {"bound": 64, "lease": "60ms"},
            "control": {"interval": "2ms", "warm_up": "10ms", "solve_interval": "10ms", "latency": "20us"},
            "strategies": ["hierarchy"],
        }
    )


@pytest.mark.long
def test_rounds_that_hosts_of_a_moved_job_fetch_count_in_bounds() -> None:
    config, fetched = ten_workers_that_fetch("10us"), Endpoint("s2", 20)

    async def play() -> None:
        async with Cluster(config, "hierarchy") as cluster:
            windows = cluster.controller.windows
            bound = windows.budgets[fetched].bound
            for communicator in cluster.job.communicators:
                communicator.allreduce_async(np.ones(LANES * 60, np.float32))
            await cluster.compute(5_500_000)
            cluster.controller.moves.begin(1, cluster.now_ns)
            await cluster.settle()
            assert not cluster.figures.broken_promises
            depths = {link.end: link.largest_queue_packets for link in cluster.figures.links()}
            assert depths[fetched] > bound, "the case does not test anything"
            assert cluster.figures.promised[fetched] is None
            assert any("packets of rounds that moved jobs fetch" in text for _, text in cluster.figures.promises)
            await cluster.compute(60_000_000)
            assert windows.budgets[fetched].bound == bound, "bounds are as before once all have their rounds"

    asyncio.run(play())


@pytest.mark.long
def test_hosts_are_not_policed_for_rounds_that_they_hand_out() -> None:
    """A worker answers fifty rounds at once, with a window of 16 and a burst of 40."""
    config = ten_workers_that_fetch("200us")

    async def play() -> None:
        async with Cluster(config, "hierarchy") as cluster:
            for communicator in cluster.job.communicators:
                communicator.allreduce_async(np.ones(LANES * 60, np.float32))
            await cluster.compute(9_000_000)
            start_ns = cluster.now_ns
            cluster.controller.moves.begin(1, start_ns)
            await cluster.settle()
            assert "policed" not in await cluster.figures.drops()
            assert cluster.now_ns - start_ns < 100_000_000, "it waits for turns to send again"

    asyncio.run(play())


@pytest.mark.long
def test_queues_drain_before_smaller_bounds_hold() -> None:
    """A flow of 93 % of a link waits for a job of the highest class, which leaves."""
    config = RunConfig.model_validate(
        {
            "name": "cases",
            "fabric": two_switches(["h1", "h2", "h3", "h4", "h7"], ["h5", "h6"]),
            "job": {"workers": ["h3", "h4"], "server": "h6", "window": 4, "slots": 8},
            "other_jobs": [
                {
                    "workers": ["h1", "h2"],
                    "server": "h5",
                    "window": 32,
                    "slots": 64,
                    "values": LANES * 200,
                    "traffic_class": 5,
                    "start": "12ms",
                    "stop": "20ms",
                }
            ],
            "background": [{"source": "h7", "destination": "h1", "rate": "933Mbit", "port": 100}],
            "host_poll": "10us",
            "congestion": {"bound": 64, "lease": "1ms"},
            "control": {"interval": "2ms", "warm_up": "10ms", "solve_interval": "10ms", "latency": "20us"},
            "strategies": ["ps"],
        }
    )
    queue = Endpoint("s1", 1)

    async def play() -> None:
        async with Cluster(config, "ps") as cluster:
            bound = cluster.controller.windows.budgets[queue].bound
            await cluster.compute(32_000_000)
            windows = cluster.controller.windows
            assert windows.budgets[queue].bound == bound < 3, "the job has left"
            assert windows.obeyed_ns < cluster.now_ns < windows.drained_ns[queue]
            _, depths = cluster.figures.queue(queue)
            assert depths[-1] > 100, "the case does not test anything"
            assert not cluster.figures.broken_promises

    asyncio.run(play())


BURSTS: Final = [
    {
        "source": "h3",
        "destination": "h6",
        "rate": "900Mbit",
        "port": 100,
        "start": f"{at_us}us",
        "stop": f"{at_us + 60 * 9}us",
    }
    for at_us in range(20_000, 200_000, 4_300)
]
"""Sixty packets at once and 120 Mbit/s in the mean."""
LIES: Final[dict[str, tuple[list[dict[str, Any]], tuple[Uncontrolled | Windowed, ...], str]]] = {
    "half of the rate": (
        [{"source": "h3", "destination": "h6", "rate": "120Mbit", "port": 100}],
        (Uncontrolled("h3", "h6", 60e6, 1_042),),
        "h3 to h6: 60 Mbit/s, 1 packet at once",
    ),
    "an eighth of the window": (
        [{"source": "h3", "destination": "h6", "kind": "yielding", "window": 64, "port": 100}],
        (Windowed("h3", "h6", 8, 1_042),),
        "h3 to h6: window 8",
    ),
    "a twentieth of the burst": (
        BURSTS,
        (Uncontrolled("h3", "h6", 130e6, 1_042, 3),),
        "h3 to h6: 130 Mbit/s, 3 packets at once",
    ),
    "nothing": ([{"source": "h3", "destination": "h6", "rate": "120Mbit", "port": 100}], (), ""),
}
"""Traffic from h3 to h6, its declaration, and the declaration in words."""


@pytest.mark.parametrize(
    "lie",
    [each if each == "an eighth of the window" else pytest.param(each, marks=pytest.mark.long) for each in LIES],
)
def test_wrong_declarations_are_named_with_what_was_seen(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job, a flow from h3 that is declared too small, and an honest one from h4, on one link of 200 Mbit/s."""
    flows, declared, words = LIES[lie]
    config = RunConfig.model_validate(
        {
            "name": "cases",
            "fabric": two_switches(["h1", "h2", "h3", "h4"], ["h5", "h6"], rate="200Mbit"),
            "job": {"workers": ["h1", "h2"], "server": "h5", "window": 16, "slots": 32},
            "background": [*flows, {"source": "h4", "destination": "h6", "rate": "5Mbit", "port": 101}],
            "host_poll": "10us",
            "congestion": {"bound": 64, "lease": "20ms"},
            "control": {"interval": "2ms", "warm_up": "10ms", "solve_interval": "10ms"},
            "strategies": ["ps"],
        }
    )
    honest = next(each for each in config.congestion_options.uncontrolled if each.source == "h4")
    options = replace(
        config.congestion_options,
        uncontrolled=(honest, *(each for each in declared if isinstance(each, Uncontrolled))),
        windowed=tuple(each for each in declared if isinstance(each, Windowed)),
    )
    monkeypatch.setattr(RunConfig, "congestion_options", property(lambda self: options))
    online = list[str]()

    async def play() -> tuple[list[str], list[str]]:
        async with Cluster(config, "ps") as cluster:
            for _ in range(4):
                await cluster.allreduce([np.ones(LANES * 300, np.float32)] * 2, 1)
                online.extend(cluster.controller.exceeded.told.values())
            unbounded = [budget.refusal for budget in cluster.controller.windows.budgets.values() if budget.refusal]
            return list(cluster.figures.broken_promises), unbounded

    broken, unbounded = asyncio.run(play())
    own = "h4 to h6: 5 Mbit/s, 1 packet at once"
    assert broken[0].startswith("s1-p20 held ")
    assert "its bound was" in broken[0]
    assert f"declared across it: {'; '.join(filter(None, [own, words]))}" in broken[0]
    if lie in ("half of the rate", "nothing"):
        seen = [each for each in unbounded if "taken by what nobody declared" in each]
        assert any("Mbit/s) taken" in each and words in each for each in seen), "while it runs"
    else:
        assert any("packets were reported" in each and words in each for each in online), "while it runs"
    assert not any(host in line for host in ("h1 ", "h2 ", "h5") for line in (*broken, *unbounded, *online))
