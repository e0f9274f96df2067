"""Queue bounds of a run, over every enqueue of the emulated fabric, and their cost: the job has at least 97 % of the
achievable throughput.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import numpy as np
import pytest

from weir.controller.congestion.cross_traffic import cross_traffic
from weir.experiments.backends import virtual_time
from weir.experiments.backends.throughput_bound import Achievable
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.run import run_strategy
from weir.hosts.congestion import ExplicitWindow, Feedback
from weir.tests.paths import ROOT
from weir.topologies import Endpoint, Routes
from weir.topologies.schema import parse_topology
from weir.wire.aggregation import LANES

WORKERS: Final = ["h1", "h2", "h4", "h5", "h7", "h8", "h10", "h11"]
# source ports that put each of these flows on the spine which the fixed hierarchy goes over
CROSSING: Final = (("h3", "h6", 2), ("h6", "h9", 1), ("h9", "h3", 2))


def run_of(strategy: str, rate: str | None, delay: str, bound: int, window: int) -> RunConfig:
    """Eight workers over four leaves and two spines, with flows that never yield."""
    flows: list[dict[str, Any]] = [
        {"source": source, "destination": destination, "rate": rate, "port": port}
        for source, destination, port in CROSSING
        if rate is not None
    ]
    leaf_spine = {"kind": "leaf-spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 3, "rate": "1Gbit", "delay": delay}
    return RunConfig.model_validate(
        {
            "name": "bound",
            "fabric": {"name": "bound", "generate": leaf_spine},
            "job": {"workers": WORKERS, "server": "h12", "window": window, "slots": 2 * window},
            "background": flows,
            "congestion": {"bound": bound},
            "control": {"interval": "2ms", "warm_up": "10ms"},
            "strategies": [strategy],
        }
    )


@pytest.mark.parametrize(
    ("strategy", "rate", "delay", "bound", "window", "rounds", "least"),
    [
        pytest.param("hierarchy", None, "2us", 96, 32, 450, 0.97, marks=pytest.mark.long),
        pytest.param("hierarchy", "700Mbit", "2us", 96, 32, 1_200, 0.97, marks=pytest.mark.long),
        pytest.param("hierarchy", "300Mbit", "50us", 160, 64, 750, 0.97, marks=pytest.mark.long),
        # a bound that is little for the bandwidth-delay product
        pytest.param("hierarchy", "700Mbit", "50us", 96, 64, 750, 0.96, marks=pytest.mark.long),
        # the bottleneck is the server's link, which no others cross
        ("rack", "300Mbit", "2us", 96, 32, 300, 0.97),
    ],
)
def test_the_bound_is_kept_and_the_bottleneck_is_used(
    strategy: str, rate: str | None, delay: str, bound: int, window: int, rounds: int, least: float
) -> None:
    config = run_of(strategy, rate, delay, bound, window)

    async def run() -> float:
        gradients = [np.full(LANES * rounds, rank, np.float32) for rank in range(len(WORKERS))]
        async with Cluster(config, strategy) as cluster:
            await cluster.allreduce([gradient[: LANES * rounds // 3] for gradient in gradients], 1)
            await cluster.allreduce(gradients, 1)
            assert not cluster.figures.refusals
            assert not cluster.figures.broken_promises
            assert not cluster.controller.exceeded.told, "nor does telemetry say so"
            assert len(cluster.figures.promised) == len(
                [e for e in cluster.topology.directed_links if e.node[0] == "s"]
            )
            assert all(kept is not None and kept <= bound for kept in cluster.figures.promised.values())
            assert not await cluster.figures.drops()
            assert not cluster.figures.resends
            return cluster.job.sums[-1].share

    share = asyncio.run(run())
    assert share >= least
    assert share <= 1 + (0.001 if rate else 0.0), "what still waits of others' at the end it has had from them"


@pytest.mark.parametrize(("rate", "bound", "window", "promised"), [("250Mbit", 128, 64, 68), ("450Mbit", 96, 32, None)])
def test_other_messages_wait_with_rounds_and_leave_in_bursts(
    rate: str, bound: int, window: int, promised: int | None
) -> None:
    """Each has a flow of its own to h4, whose datagrams come one by one from hosts that have nothing else to send."""
    workers = ["h1", "h2"]
    one_rack = {"kind": "leaf-spine", "leaves": 1, "spines": 1, "hosts_per_leaf": 4, "rate": "1Gbit", "delay": "2us"}
    config = RunConfig.model_validate(
        {
            "name": "bound",
            "fabric": {"name": "bound", "generate": one_rack},
            "job": {"workers": workers, "server": "h3", "window": window, "slots": 2 * window},
            "background": [{"source": worker, "destination": "h4", "rate": rate} for worker in workers],
            "congestion": {"bound": bound},
            "control": {"interval": "2ms", "warm_up": "10ms"},
            "strategies": ["ps"],
        }
    )

    async def run() -> None:
        async with Cluster(config, "ps") as cluster:
            gradients = [np.full(LANES * 100, rank, np.float32) for rank in range(len(workers))]
            await cluster.allreduce(gradients, 1)
            assert not cluster.figures.broken_promises
            assert cluster.figures.promised[Endpoint("s1", 4)] == promised

    asyncio.run(run())


def test_a_marked_job_gets_and_applies_the_smaller_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches replace W by w in marked packets, sums carry the minimum window and every mark up, and results both down
    to all workers at once. No worker has more in the network once its earlier messages have come back.
    """
    heard: dict[int, list[Feedback]] = {}

    def take(law: ExplicitWindow, feedback: Feedback) -> None:
        heard.setdefault(id(law), []).append(feedback)
        obey(law, feedback)

    obey = ExplicitWindow.update
    monkeypatch.setattr(ExplicitWindow, "update", take)
    config = run_of("hierarchy", "700Mbit", "2us", 96, 32)

    async def run() -> tuple[set[int], set[int], int]:
        gradients = [np.full(LANES * 500, rank, np.float32) for rank in range(len(WORKERS))]
        async with Cluster(config, "hierarchy") as cluster:
            await cluster.allreduce(gradients, 1)
            [plan] = cluster.job.plans
            known = cluster.controller.windows.budgets
            budgets = [known[link] for link in plan.max_streams if link in known]
            marking = [budget for budget in budgets if budget.congested_window < budget.window]
            return {budget.window for budget in budgets}, {budget.congested_window for budget in marking}, len(heard)

    windows, congested, workers = asyncio.run(run())
    assert workers == len(WORKERS)
    least, smaller = min(windows), congested
    told = {(each.marked, each.window) for each in one_at_a_time(heard)}
    assert {window for marked, window in told if not marked} == {least}
    assert {window for marked, window in told if marked} == smaller
    assert max(smaller) < least
    for feedbacks in heard.values():
        since = 0  # results, since the first of marked ones only
        for each in feedbacks:
            since = since + each.rounds if each.marked == each.rounds else 0
            assert each.in_flight <= (max(smaller) if since > least else least)


def one_at_a_time(heard: dict[int, list[Feedback]]) -> list[Feedback]:
    """Feedback of a single result each."""
    return [feedback for feedbacks in heard.values() for feedback in feedbacks if feedback.rounds == 1]


def test_the_achievable_time_counts_the_rounds_of_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queues of this rack allow fewer rounds than the job requests, and that many rounds of exponents come
    first.
    """
    reckoned: list[Achievable] = []

    def kept(*args: Any, **options: Any) -> Achievable:
        reckoned.append(Achievable(*args, **options))
        return reckoned[-1]

    monkeypatch.setattr(virtual_time, "Achievable", kept)
    config = run_of("rack", None, "2us", 40, 32)

    async def run() -> None:
        gradients = [np.full(LANES * 50, rank, np.float32) for rank in range(len(WORKERS))]
        async with Cluster(config, "rack") as cluster:
            await cluster.allreduce(gradients, 1)
            [(plan, rounds)] = reckoned[0]._parts
            assert plan.spec.window < config.job.window
            assert (rounds.chunks, rounds.scales) == (50, plan.spec.window)
            assert {worker.core.rounds_complete for worker in cluster.job.workers} == {rounds.total}

    asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "steps"),
    [
        ("hierarchy", 10),
        *((name, 100) for name in ("ps", "rack", "hierarchy", "blind", "widest")),
    ],
)
def test_the_bound_costs_the_demo_little(strategy: str, steps: int) -> None:
    """The demo's sums have 38 chunks each, too few for the rate of a link. So they are compared with unlimited windows
    and unlimited buffers: bounded ones are at least 97 % as fast.
    """
    bounded = RunConfig.load(ROOT / "experiments" / "demo.yaml")
    bounded = bounded.model_copy(update={"training": bounded.training.model_copy(update={"steps": steps})})
    deep = {"name": "deep", "generate": {**bounded.fabric["generate"], "queue": 4_096}}
    law = bounded.congestion.model_copy(update={"law": "fixed"})
    free = bounded.model_copy(update={"fabric": deep, "congestion": law})

    def mean_ns(config: RunConfig) -> float:
        result = asyncio.run(run_strategy(config, strategy))
        assert (result.drops, result.resends) == ({}, 0)
        return float(np.mean(result.iteration_ns))

    assert free.topology.links[0].queue_packets == 4_096
    assert mean_ns(bounded) <= mean_ns(free) / 0.97


@pytest.mark.long
@pytest.mark.parametrize(
    "fabric",
    [
        {"kind": "fat-tree", "k": 4},
        {"kind": "jellyfish", "switches": 12, "degree": 4, "hosts_per_switch": 2, "seed": 1},
    ],
    ids=lambda fabric: fabric["kind"],
)
def test_background_takes_the_ways_by_which_it_is_counted(fabric: dict[str, Any]) -> None:
    """Switches hash each flow onto one of many paths; the bound counts it on that one and on no other."""
    rng = random.Random(5)
    generated = {"name": "ways", "generate": {**fabric, "rate": "1Gbit", "delay": "2us"}}
    hosts = [host.name for host in parse_topology(generated, "ways").hosts]
    rng.shuffle(hosts)
    job, others = hosts[:3], hosts[3:]
    config = RunConfig.model_validate(
        {
            "name": "ways",
            "fabric": generated,
            "job": {"workers": job[:2], "server": job[2], "window": 8, "slots": 16},
            "background": [
                {"source": source, "destination": destination, "rate": "10Mbit", "port": rng.randint(1, 65_535)}
                for source, destination in zip(others, [*others[1:], others[0]], strict=True)
            ],
            "control": {"interval": "2ms", "warm_up": "10ms"},
            "strategies": ["widest"],
        }
    )

    async def crossed() -> set[Endpoint]:
        async with Cluster(config, "widest") as cluster:
            await cluster.compute(5_000_000)
            return {link.end for link in cluster.figures.links() if link.background_bytes and link.end.node[0] == "s"}

    routes = Routes(config.topology)
    declared = cross_traffic(routes, config.congestion_options.uncontrolled)
    anywhere = {link for flow in config.steady for link in routes.shares(flow.source, flow.destination)}
    assert asyncio.run(crossed()) == set(declared)
    assert len(declared) < len({link for link in anywhere if link.node[0] == "s"}), "hashing had a choice"


def test_background_counts_by_its_ports_and_while_it_lasts() -> None:
    """One flow of each pair of the demo's hosts ends when the other begins, so together they never send more than
    one.
    """
    config = RunConfig.load(ROOT / "experiments" / "demo.yaml")
    declared = config.congestion_options.uncontrolled
    for flow, own in zip(config.steady, declared, strict=True):
        assert (own.source, own.destination, own.ports) == (flow.source, flow.destination, (flow.port, 9))
        assert (own.rate_bps, own.start_ns, own.stop_ns) == (7e8, flow.start, flow.stop)
    topology = config.topology
    crossing = cross_traffic(Routes(topology), declared)
    for host in ("h3", "h6", "h9"):
        [last] = [link for link in crossing if topology.peer(link).node == host]
        assert crossing[last].rate_bps == 7e8


def test_background_that_ends_before_it_begins_is_refused() -> None:
    flow = {"source": "h3", "destination": "h6", "rate": "1Mbit", "start": "5ms", "stop": "5ms"}
    config = RunConfig.load(ROOT / "experiments" / "demo.yaml")
    with pytest.raises(ExperimentError, match="stop 5000000 ns is not after start 5000000 ns"):
        config.replaced("a test", background=[flow])
