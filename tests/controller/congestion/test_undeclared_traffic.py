"""Bounds and windows follow telemetry of undeclared traffic."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from weir.controller.congestion import CongestionOptions, JobStreams, Uncontrolled, Windowed, link_budgets
from weir.controller.congestion import undeclared_traffic as module
from weir.controller.congestion.bound_log import PROMISES
from weir.controller.congestion.budget import DETECTED_FROM
from weir.controller.congestion.undeclared_traffic import LOOK_PERIODS, SPANS, STEPS, JobRounds, Undeclared
from weir.controller.controller import Controller, Message
from weir.controller.jobs.job import RunningJob, WorkerProgress
from weir.controller.placement import Placement
from weir.controller.planning.memory import FabricMemory
from weir.controller.planning.plan import JobSpec, job_plan, round_bytes
from weir.controller.telemetry.link_records import REPORT
from weir.controller.telemetry.link_state import LinkState
from weir.controller.telemetry.probes import plan_probes
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.run import run_strategy
from weir.tests.paths import ROOT
from weir.tests.support.seeds import few_of
from weir.topologies import Endpoint, Routes
from weir.topologies.generators import leaf_spine
from weir.wire.aggregation import LANES, MAX_ROUNDS

RUNS: Final = ROOT / "experiments"
MS: Final = 1_000_000
PERIOD_NS: Final = 5 * MS
TURN_NS: Final = MS // 2
WINDOW: Final = 32


SLOW: Final = leaf_spine(leaves=3, spines=2, hosts_per_leaf=3, rate_bps=40_000_000)
"""Fabric on which a window is a large part of a link's traffic between two observations."""
ROUTES: Final = Routes(SLOW)
AT_LEAF: Final = Placement(dict.fromkeys(("h1", "h2"), "s1"), {}, "s1")
PLAN: Final = job_plan(
    SLOW,
    ROUTES,
    JobSpec(1, ("h1", "h2"), slots=2 * WINDOW, window=WINDOW),
    AT_LEAF,
    1,
    FabricMemory(SLOW).allot(1, ["s1"], 2 * WINDOW),
)
LINK: Final = next(end for end in PLAN.max_streams if SLOW.is_switch(end.node))


class Sender:
    """A job of two workers at one link that works in bursts: some bytes of a round pass at its start, the others before
    its end. Each worker reports its progress now and then, with a delay.
    """

    def __init__(self, rng: random.Random, link: Endpoint) -> None:
        self.plan = PLAN
        self._rng = rng
        self._each = self.plan.max_streams[link] * round_bytes(SLOW)
        self._rate = rng.uniform(0, 0.6) * SLOW.link_at(link).rate_bps / 8e9 / self._each  # rounds in a ns
        self._beat_ns = rng.choice([1, 3, 20]) * PERIOD_NS
        self._complete = [0, 0]
        self._begun = self._passed = self._until_ns = 0
        self._phase = ""
        self._told = [(0, -1), (0, -1)]
        self._due_ns = [rng.uniform(0, self._beat_ns) for _ in range(2)]
        self._under_way: list[tuple[float, int, int]] = []

    def turn(self, now_ns: int) -> float:
        """Bytes that have passed."""
        if now_ns >= self._until_ns:
            self._phase = self._rng.choice(["goes on", "waits for results", "is late"])
            self._until_ns = now_ns + self._rng.randrange(200 * MS)
        most = max(self._complete) + WINDOW
        self._begun = min(int(self._begun + 2 * self._rng.random() * self._rate * TURN_NS), most)
        for worker in range(2):
            if self._phase != "waits for results":
                most = min(self._begun, min(self._complete) + WINDOW)
                self._complete[worker] = self._rng.randint(self._complete[worker], most)
            if now_ns >= self._due_ns[worker]:
                self._due_ns[worker] = now_ns + self._beat_ns * self._rng.uniform(0.75, 1.25)
                self._under_way.append((now_ns + self._rng.uniform(0, PERIOD_NS), worker, self._complete[worker]))
        for at_ns, worker, complete in [each for each in self._under_way if each[0] <= now_ns]:
            self._told[worker] = max(self._told[worker][0], complete), int(at_ns)
            self._under_way.remove((at_ns, worker, complete))
        least = max(self._passed, min(self._complete))
        passed = least if self._phase == "is late" else self._rng.randint(least, self._begun)
        moved, self._passed = passed - self._passed, passed
        return moved * self._each

    def rounds(self) -> JobRounds:
        complete, heard = zip(*self._told, strict=True)
        return JobRounds(self.plan, min(complete), max(complete), min(heard), unsettled=False)


def readings(seed: int, others: float, declared: float) -> Iterator[tuple[int, float]]:
    """Times, and detected undeclared share of the link, while other traffic takes `others` of it."""
    rng = random.Random(seed)
    rate_bps = SLOW.link_at(LINK).rate_bps
    far = SLOW.peer(LINK).node
    options = CongestionOptions(64, (Uncontrolled("h9", far, declared * rate_bps, 1042),) if declared else ())
    links = LinkState(SLOW, period_ns=PERIOD_NS)
    undeclared = Undeclared(SLOW, ROUTES, links, options)
    sender = Sender(rng, LINK)
    sent, offset_ns = 0.0, rng.randrange(1 << 40)
    for turn in range(8_000):
        now_ns = turn * TURN_NS
        sent += sender.turn(now_ns) + (others + declared) * rate_bps / 8e9 * TURN_NS
        if now_ns % PERIOD_NS == 0:
            report = np.zeros(1, REPORT)
            report["link"], report["at_ns"], report["heard_ns"] = links.links.index(LINK), now_ns - TURN_NS, now_ns
            report["egress_ns"], report["bytes_sent"], report["causal"] = offset_ns + now_ns, int(sent), True
            report["queue_packets"] = report["latency_us"] = -1
            links.update(report)
            undeclared.update(now_ns, [sender.rounds()])
            yield now_ns, undeclared.shares.get(LINK, 0.0)


@pytest.mark.parametrize("seed", few_of(range(60), 12))
def test_detected_traffic_never_exceeds_actual_traffic(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the jobs' traffic nor declared traffic counts as undeclared, for any behaviour and reports of jobs."""
    monkeypatch.setattr(module, "DETECTED_FROM", 0.0)
    monkeypatch.setattr(module, "STEPS", 1_000)
    rng = random.Random(seed)
    others, declared = rng.choice([0.0, rng.uniform(0, 0.4)]), rng.choice([0.0, rng.uniform(0, 0.3)])
    assert max(told for _, told in readings(seed, others, declared)) <= others + 0.003


@pytest.mark.parametrize("seed", range(3))
def test_traffic_of_others_is_detected(seed: int) -> None:
    found = [told for _, told in readings(seed, 0.35, 0.1)]
    assert found[-1] >= 0.25
    assert not found[(min(SPANS) + 2) * LOOK_PERIODS - 1], "not before there are looks enough"


LOOK_NS: Final = LOOK_PERIODS * PERIOD_NS
ROUNDS: Final = 100
"""That fill a good part of the link from one look to the next."""


def told_of(turns: Sequence[tuple[int | None, int, int, int]]) -> list[bool]:
    """Detection of undeclared traffic, per observation.

    Each observation has the rounds whose bytes have passed by then, None without a report; the rounds complete at the
    slowest and at the fastest worker; and the last observation at which all had reported.
    """
    links = LinkState(SLOW, period_ns=PERIOD_NS)
    undeclared = Undeclared(SLOW, ROUTES, links, CongestionOptions(64))
    found = []
    for turn, (passed, least, most, heard) in enumerate(turns):
        now_ns = (turn + 1) * LOOK_NS
        if passed is not None:
            report = np.zeros(1, REPORT)
            report["link"], report["at_ns"], report["heard_ns"] = links.links.index(LINK), now_ns - 2, now_ns - 1
            report["egress_ns"] = now_ns
            report["bytes_sent"] = passed * PLAN.max_streams[LINK] * round_bytes(SLOW)
            links.update(report)
        undeclared.update(now_ns, [JobRounds(PLAN, least, most, (heard + 1) * LOOK_NS, unsettled=False)])
        found.append(bool(undeclared.shares))
    return found


def test_a_job_counts_from_its_slowest_to_its_fastest_worker() -> None:
    """Otherwise a worker's lead, rounds before a late report, or unreported rounds would count as undeclared."""
    count = range(20)
    assert any(told_of([(ROUNDS * at, 0, 0, at) for at in count])), "nobody has complete what passes there"
    assert not any(told_of([(ROUNDS * at, 0, ROUNDS * at, at) for at in count]))
    assert not any(told_of([(ROUNDS * at, ROUNDS * at, ROUNDS * 20, at) for at in count]))
    late = [(ROUNDS * at if at < 3 or at > 9 else None, ROUNDS * at, ROUNDS * at, at) for at in count]
    assert not any(told_of(late))
    silent = [(ROUNDS * index, ROUNDS * min(index, 3), ROUNDS * min(index, 3), min(index, 3)) for index in range(80)]
    assert not any(told_of(silent))


def test_rounds_of_any_claim_hide_traffic_at_most() -> None:
    """A worker has claimed all rounds that may be: its job's links show no undeclared traffic, and no other follows."""
    links = LinkState(SLOW, period_ns=PERIOD_NS)
    undeclared = Undeclared(SLOW, ROUTES, links, CongestionOptions(64))
    liar = replace(PLAN, max_streams=dict.fromkeys(PLAN.max_streams, 1 << 10))

    def jobs(look: int) -> list[JobRounds]:
        return [JobRounds(liar, 0, MAX_ROUNDS, look * LOOK_NS, unsettled=False)]

    assert set(others_alone(undeclared, links, jobs)) == {0.0}


def test_windows_say_nothing_of_rates() -> None:
    """Traffic declared by its receiver's window may take all the rest."""
    links = LinkState(SLOW, period_ns=PERIOD_NS)
    far = SLOW.peer(LINK).node
    options = CongestionOptions(64, windowed=(Windowed("h9", far, 16, 1042),))
    undeclared = Undeclared(SLOW, ROUTES, links, options)
    other = next(link for link in links.links if link.node == "s2" and SLOW.is_host(SLOW.peer(link).node))
    for turn in range(200):
        report = np.zeros(2, REPORT)
        report["link"] = [links.links.index(LINK), links.links.index(other)]
        report["at_ns"] = report["heard_ns"] = report["egress_ns"] = (turn + 1) * PERIOD_NS
        report["bytes_sent"] = turn * PERIOD_NS * SLOW.link_at(LINK).rate_bps // 16e9
        links.update(report)
        undeclared.update((turn + 1) * PERIOD_NS + 1, [])
    assert undeclared.shares == {other: 0.5}
    undeclared.update_routes(ROUTES)
    undeclared.update(300 * PERIOD_NS, [])
    assert not undeclared.shares, "by other routes it may be elsewhere"


def others_alone(undeclared: Undeclared, links: LinkState, jobs: Callable[[int], list[JobRounds]]) -> Iterator[float]:
    """Detected share per observation of a link on which undeclared traffic takes half from the first on."""
    for look in range(1, 200):
        report = np.zeros(1, REPORT)
        report["link"], report["egress_ns"] = links.links.index(LINK), look * LOOK_NS
        report["at_ns"] = report["heard_ns"] = look * LOOK_NS - 1
        report["bytes_sent"] = look * LOOK_NS * SLOW.link_at(LINK).rate_bps // 16e9
        links.update(report)
        undeclared.update(look * LOOK_NS, jobs(look))
        yield undeclared.shares.get(LINK, 0.0)


def test_new_generations_and_ends_of_jobs_keep_detections() -> None:
    """Missing knowledge does not clear a detection: otherwise windows would grow while the traffic continues."""
    links = LinkState(SLOW, period_ns=PERIOD_NS)
    undeclared = Undeclared(SLOW, ROUTES, links, CongestionOptions(64))

    def jobs(look: int) -> list[JobRounds]:
        plan = replace(PLAN, generation=1 + look // 15)
        return [JobRounds(plan, 0, 0, look * LOOK_NS, unsettled=look % 15 == 0)] if look < 100 else []

    told = list(others_alone(undeclared, links, jobs))
    seen = told.index(0.5)
    assert seen < 15
    assert set(told[seen:]) == {0.5}
    undeclared.update_routes(ROUTES)
    undeclared.update(201 * LOOK_NS, [])
    assert not undeclared.shares, "by other routes it may be elsewhere"


def test_a_job_that_has_nothing_to_tell_delays_no_look() -> None:
    """Its hosts have not joined, have left or are silent: other traffic is detected as soon."""

    def looks_until_seen(*heard: Callable[[int], JobRounds]) -> int:
        links = LinkState(SLOW, period_ns=PERIOD_NS)
        undeclared = Undeclared(SLOW, ROUTES, links, CongestionOptions(64), lease_ns=10 * LOOK_NS)
        told = list(others_alone(undeclared, links, lambda look: [each(look) for each in heard]))
        return told.index(0.5)

    elsewhere = replace(PLAN, spec=replace(PLAN.spec, job=2), max_streams={})
    alone = looks_until_seen()
    assert looks_until_seen(lambda look: JobRounds(elsewhere, 0, 0, -1, unsettled=True)) == alone
    assert looks_until_seen(lambda look: JobRounds(elsewhere, 0, 0, -1, unsettled=False)) > alone, "it is waited for"


def test_a_job_tells_how_far_it_is_once_all_its_workers_do() -> None:
    job = RunningJob(PLAN, 0)
    assert job.rounds.unsettled, "nobody has joined"
    job.joined = {"h1", "h2"}
    for worker, rounds in (("h1", 7), ("h2", 9)):
        job.progress[worker] = WorkerProgress(rounds, 5, 5, waiting=False)
    assert job.rounds == JobRounds(PLAN, 7, 9, 5, unsettled=False)
    for name, held in (("left", {"h1"}), ("silent", {"h2": 3})):
        setattr(job, name, held)
        assert job.rounds.unsettled, name
        getattr(job, name).clear()
    assert not job.rounds.unsettled


def test_detected_traffic_never_enlarges_windows() -> None:
    """The detected share goes up to all of the link, on top of any declared traffic."""
    far = SLOW.peer(LINK).node
    for declared in (0.0, 0.3, 0.5, 0.8):
        flows = (Uncontrolled("h9", far, declared * SLOW.link_at(LINK).rate_bps, 1042),) if declared else ()
        options, probes = CongestionOptions(64, flows), plan_probes(SLOW, ROUTES)
        budgets = [
            link_budgets(SLOW, ROUTES, [JobStreams.of(PLAN)], probes, options, {LINK: index / STEPS})[LINK]
            for index in range(1, STEPS + 1)
        ]
        windows = [budget.congested_window for budget in budgets]
        assert windows == sorted(windows, reverse=True), declared
        assert all(budget.refusal for budget in budgets)


def test_windows_leave_detected_traffic_and_bounds_are_dropped() -> None:
    """Windows are those for equal declared traffic, except for its way, which is unknown."""
    plan = PLAN
    link = next(end for end in plan.max_streams if SLOW.is_switch(end.node))
    rate_bps = SLOW.link_at(link).rate_bps
    first = next(end for end in ROUTES.shares("h9", "h1") if SLOW.is_switch(end.node) and end.node != link.node)
    declared = CongestionOptions(96, (Uncontrolled("h9", "h1", rate_bps / 100, 1042),))
    seen = link_budgets(SLOW, ROUTES, [JobStreams.of(plan)], plan_probes(SLOW, ROUTES), declared, {first: 0.25})
    without = link_budgets(SLOW, ROUTES, [JobStreams.of(plan)], plan_probes(SLOW, ROUTES), declared)
    behind = {end for end in ROUTES.shares("h9", "h1") if SLOW.is_switch(end.node)}
    assert {end for end, budget in seen.items() if budget.refusal} <= behind
    seen_bps = 0.25 * SLOW.link_at(first).rate_bps
    telling = f"telemetry sees some 25% of the link ({seen_bps / 1e6:.3g} Mbit/s) taken by what nobody declared"
    assert seen[first].refusal == telling, "h9 sends no more: the links after it show nothing"
    everywhere = link_budgets(
        SLOW, ROUTES, [JobStreams.of(plan)], plan_probes(SLOW, ROUTES), declared, dict.fromkeys(behind, 0.25)
    )
    own = f", or by more than was declared of h9 to h1: {rate_bps / 1e8:g} Mbit/s, 1 packet at once"
    assert everywhere[first].refusal == telling + own, "its whole way shows as much"
    assert f"by {first}, where telemetry sees" in next(b.refusal for e, b in seen.items() if b.refusal and e != first)
    assert not any(budget.refusal for budget in without.values())
    here = link_budgets(
        SLOW, ROUTES, [JobStreams.of(plan)], plan_probes(SLOW, ROUTES), CongestionOptions(96), {link: 0.5}
    )
    known = Uncontrolled(
        next(
            h.name
            for h in SLOW.hosts
            if SLOW.attached_switch(h.name).name == link.node and h.name != SLOW.peer(link).node
        ),
        SLOW.peer(link).node,
        rate_bps / 2,
        round_bytes(SLOW),
    )
    there = link_budgets(
        SLOW, ROUTES, [JobStreams.of(plan)], plan_probes(SLOW, ROUTES), CongestionOptions(96, (known,))
    )
    assert math.isinf(here[link].bound)
    for part in ("window", "congested_window", "threshold", "share"):
        assert getattr(here[link], part) == pytest.approx(getattr(there[link], part)), part


QUEUE: Final = Endpoint("s1", 3)
"""Port to h3, the host of the job's server and the undeclared flow's destination."""


def config_of(declared: str | None) -> RunConfig:
    """A job of two hosts with a server, on links of 1 Gbit/s."""
    flow = {"source": "h4", "destination": "h3", "rate": declared, "port": 7}
    leaf = {"kind": "leaf-spine", "leaves": 1, "spines": 0, "hosts_per_leaf": 5, "rate": "1Gbit"}
    return RunConfig.model_validate(
        {
            "name": "seen",
            "fabric": {"name": "seen", "generate": leaf},
            "job": {"workers": ["h1", "h2"], "server": "h3", "window": 46, "slots": 128},
            "background": [flow] if declared is not None else [],
            "congestion": {"bound": 96},
            "control": {"interval": "1ms", "warm_up": "5ms"},
            "strategies": ["ps"],
        }
    )


def undeclared_flow(cluster: Cluster, rate_bps: float, duration_ns: int) -> None:
    now_ns = cluster.now_ns
    cluster.emulated.add_flow(
        "h5",
        "h3",
        payload_bytes=1_000,
        rate_bps=rate_bps,
        source_port=9,
        start_ns=now_ns,
        stop_ns=now_ns + duration_ns,
    )


@pytest.mark.long
@pytest.mark.parametrize("looks", [True, False])
def test_a_job_leaves_room_for_undeclared_traffic(
    looks: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 Mbit/s next to a job whose windows fill Q* = 96. Without observations, packets are lost as long as the flow
    lasts.
    """
    caplog.set_level(logging.INFO, PROMISES)
    if not looks:
        monkeypatch.setattr(Undeclared, "update", lambda *told: None)
    gradients = [np.full(LANES * 1_500, rank, np.float32) for rank in range(2)]

    async def run() -> tuple[int, int, list[str]]:
        async with Cluster(config_of(None), "ps") as cluster:
            await cluster.allreduce(gradients, 1)
            assert not cluster.figures.broken_promises
            undeclared_flow(cluster, 600e6, 300 * MS)
            for _ in range(3):
                await cluster.allreduce(gradients, 1)
            seen_ns, before = cluster.now_ns, await cluster.figures.drops()
            await cluster.allreduce(gradients, 1)
            times, depths = map(np.array, cluster.figures.queue(QUEUE))
            lost = (await cluster.figures.drops()).get("queue full", 0) - before.get("queue full", 0)
            refusals = cluster.figures.refusals
            await cluster.compute(500 * MS)
            assert not cluster.figures.refusals, "it is over"
            return int(depths[times > seen_ns].max()), lost, refusals

    deepest, lost, refusals = asyncio.run(run())
    told = [record.getMessage() for record in caplog.records if record.name == PROMISES]
    if looks:
        assert deepest <= 96
        assert not lost
        [refusal] = [text for text in refusals if text.startswith(f"{QUEUE}: ")]
        assert refusal.startswith(f"{QUEUE}: cannot be kept because telemetry sees some ")
        assert all("jobs may lose packets" in text for text in refusals if text != refusal)
        assert refusal in told
    else:
        assert deepest == 128, "as many as the buffer holds"
        assert lost > 100
        assert not refusals


@pytest.mark.parametrize("undeclared_bps", [60e6, 300e6])
def test_noise_and_declared_traffic_are_not_detected(undeclared_bps: float) -> None:
    async def run() -> None:
        async with Cluster(config_of("300Mbit"), "ps") as cluster:
            await cluster.compute(300 * MS)
            assert not cluster.figures.refusals, "as declared"
            undeclared_flow(cluster, undeclared_bps, 400 * MS)
            await cluster.compute(300 * MS)
            assert bool(cluster.figures.refusals) == (undeclared_bps > 1e9 * DETECTED_FROM)

    asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize("name", ["queues/joins.yaml", "queues/yielding.yaml"])
def test_jobs_that_come_and_go_are_not_taken_for_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor flows that yield, whose windows are declared and not their rates."""
    assert never_seen(RunConfig.load(RUNS / name), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("path", [RUNS / "demo.yaml", *sorted((RUNS / "queues").glob("*.yaml"))], ids=lambda p: p.stem)
def test_no_run_sees_what_it_did_not_declare(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert never_seen(RunConfig.load(path), monkeypatch)


def never_seen(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if no link of a run is ever taken for one with undeclared traffic."""
    seen = list[Endpoint]()
    tick = Controller.tick

    async def looking(self: Controller, now_ns: int) -> list[Message]:
        messages = await tick(self, now_ns)
        seen.extend(self.windows.undeclared)
        return messages

    monkeypatch.setattr(Controller, "tick", looking)
    asyncio.run(run_strategy(config, config.strategies[-1]))
    return not seen
