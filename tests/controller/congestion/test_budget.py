"""Budgets of queues: never more than Q*, or a reason; windows that shrink before others grow."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from weir.controller.congestion import (
    CongestionOptions,
    JobStreams,
    LinkBudget,
    Uncontrolled,
    WindowController,
    Windowed,
    link_budgets,
)
from weir.controller.congestion.cross_traffic import Hops, cross_traffic
from weir.controller.congestion.marking import (
    LARGEST_CONTROL_BYTES,
    REPAIRS,
    TICKS_PER_US,
    byte_cost,
    marked_states,
    policer_entries,
    windows_held,
)
from weir.controller.congestion.queue_bound import Promise, promises
from weir.controller.errors import PlanError
from weir.controller.p4runtime.entries import Entry, SwitchState
from weir.controller.placement import Placement
from weir.controller.planning.memory import FabricMemory
from weir.controller.planning.plan import JobPlan, JobSpec, job_plan, round_bytes
from weir.controller.telemetry.probe_format import probe_bytes
from weir.controller.telemetry.probes import Probe, plan_probes
from weir.tests.support.seeds import few_of
from weir.topologies import Endpoint, Routes, Topology
from weir.topologies.generators import leaf_spine
from weir.topologies.schema import parse_topology
from weir.topologies.targets import BMV2_32, Target
from weir.wire.control import Pacing

FABRIC = leaf_spine(leaves=3, spines=2, hosts_per_leaf=3)
ROUTES = Routes(FABRIC)
PROBES = plan_probes(FABRIC, ROUTES)
OPTIONS = CongestionOptions(64)


def plan_of(
    job: int,
    workers: tuple[str, ...],
    placement: Placement,
    *,
    generation: int = 1,
    server: str | None = None,
    window: int = 32,
) -> JobPlan:
    spec = JobSpec(job, workers, server=server, slots=64, window=window)
    switches = sorted({*placement.aggregators.values(), *placement.parents, placement.root} - {server})
    allotments = FabricMemory(FABRIC).allot(job, switches, 64)
    return job_plan(FABRIC, ROUTES, spec, placement, generation, allotments)


def placed_at(switch: str, workers: tuple[str, ...]) -> Placement:
    return Placement(dict.fromkeys(workers, switch), {}, switch)


def at_one_switch(job: int, *workers: str, generation: int = 1, window: int = 32) -> JobPlan:
    return plan_of(job, workers, placed_at("s1", workers), generation=generation, window=window)


def test_a_queue_without_others_divides_its_bound() -> None:
    server = plan_of(
        1, ("h1", "h2", "h4", "h5"), Placement(dict.fromkeys(("h1", "h2", "h4", "h5"), "h9"), {}, "h9"), server="h9"
    )
    budgets = link_budgets(FABRIC, ROUTES, [JobStreams.of(server)], PROBES, OPTIONS)
    last = next(link for link in budgets if FABRIC.peer(link).node == "h9")
    probes = budgets[last].probes
    assert (budgets[last].streams, budgets[last].window) == (4, (64 - probes) // 4)
    assert budgets[last].bound == 4 * budgets[last].window + probes <= 64
    assert not any(budget.refusal for budget in budgets.values())
    assert all(
        promise.bound_packets is not None and promise.bound_packets <= 64 for promise in promises(budgets.values())
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_budget_goes_beyond_its_bound_without_saying_so(seed: int) -> None:
    rng = random.Random(seed)
    hosts = [host.name for host in FABRIC.hosts]
    others = []
    for _ in range(rng.randrange(5)):
        source, destination = rng.sample(hosts, 2)
        others.append(Uncontrolled(source, destination, rng.uniform(0.05, 0.9) * 1e9, rng.randrange(100, 1500)))
    jobs = []
    for _ in range(rng.randrange(1, 5)):
        links = rng.sample([e for e in FABRIC.directed_links if FABRIC.is_switch(e.node)], 8)
        jobs.append(JobStreams({link: rng.randrange(1, 9) for link in links}, rng.choice([2, 16, 64])))
    windowed = []
    for _ in range(rng.randrange(3)):
        source, destination = rng.sample(hosts, 2)
        windowed.append(Windowed(source, destination, rng.randrange(1, 40), 1042))
    options = CongestionOptions(rng.choice([16, 64, 128]), tuple(others), windowed=tuple(windowed))
    budgets = link_budgets(FABRIC, ROUTES, jobs, PROBES, options)
    for budget in budgets.values():
        assert budget.window >= budget.congested_window >= 1
        assert bool(budget.refusal) == (budget.bound >= options.bound_packets + 1), f"seed {seed}: {budget}"
        assert (budget.share >= 1) <= bool(budget.refusal)


def test_impossible_bounds_are_reported_beforehand() -> None:
    flood = (Uncontrolled("h1", "h9", 1.2e9, 1042),)
    budgets = link_budgets(FABRIC, ROUTES, [], PROBES, replace(OPTIONS, uncontrolled=flood))
    [flooded] = [p for p in promises(budgets.values()) if FABRIC.peer(p.link).node == "h9"]
    assert flooded.bound_packets is None
    assert "cannot be kept because 1200 Mbit/s may come that obey no window, on a link of 1000 Mbit/s" in flooded.text
    [crowded] = [e for e in budgets if FABRIC.peer(e).node == "h2"]
    many = link_budgets(FABRIC, ROUTES, [JobStreams({crowded: 200}, 32)], PROBES, OPTIONS)[crowded]
    assert "200 streams" in many.refusal
    assert many.gap_ns == math.ceil(200 * 8e9 * 1094 / 1e9), "each sends less than a packet in a round trip"


@pytest.mark.parametrize("seed", range(30))
def test_as_many_probes_count_as_may_be_in_a_queue_at_once(seed: int) -> None:
    """Probes wait at each queue of their way for some time, up to the drain time of a full one."""
    rng = random.Random(seed)
    rate_bps, bound = rng.choice([20_000_000, 1_000_000_000]), rng.choice([24, 64])
    fabric = leaf_spine(leaves=3, spines=2, hosts_per_leaf=2, rate_bps=rate_bps)
    routes = Routes(fabric)
    probes = plan_probes(fabric, routes)
    period_ns = rng.choice([100_000, 2_000_000, 25_000_000])
    options = CongestionOptions(bound, probe_period_ns=period_ns)
    counted = {link: budget.probes for link, budget in link_budgets(fabric, routes, [], probes, options).items()}
    longest_ns = (bound + 1) * 8e9 * round_bytes(fabric) / rate_bps
    inside: dict[Endpoint, list[tuple[float, int]]] = {}
    for probe in probes:
        waits_ns = {link: rng.uniform(0.5, 1) * longest_ns for link in probe.certain}
        for sent in range(40):
            at_ns = float(sent * period_ns)
            for link in probe.certain:
                gone_ns = at_ns + (waits_ns[link] if rng.random() < 0.8 else rng.random() * longest_ns)
                inside.setdefault(link, []).extend([(at_ns, 1), (gone_ns, -1)])
                at_ns = gone_ns + 2_000
    for link, changes in inside.items():
        there = most = 0
        for _, change in sorted(changes):
            there += change
            most = max(most, there)
        assert most <= counted[link]
    if period_ns > 4 * longest_ns:
        assert max(counted.values()) <= len(probes)
        assert counted == {link: b.probes for link, b in link_budgets(fabric, routes, [], probes, OPTIONS).items()}


def flow_and_probes(rate_bps: float, period_ns: int) -> LinkBudget:
    """Budget of a link of 100 Mbit/s that only a flow and probes cross."""
    fabric = leaf_spine(leaves=2, spines=1, hosts_per_leaf=2, uplink_rate_bps=100_000_000)
    routes = Routes(fabric)
    steady = (Uncontrolled("h1", "h3", rate_bps, 1094),)
    options = CongestionOptions(64, steady, probe_period_ns=period_ns)
    budgets = link_budgets(fabric, routes, [], plan_probes(fabric, routes), options)
    [shared] = [link for link in budgets if (link.node, fabric.peer(link).node) == ("s1", "s3")]
    return budgets[shared]


def test_probes_and_a_flow_beyond_the_rate_have_no_bound() -> None:
    """Each fits alone; together the queue grows without limit."""
    assert flow_and_probes(98e6, period_ns=20_000_000).bound <= 64
    assert flow_and_probes(60e6, period_ns=500_000).bound <= 64
    both = flow_and_probes(98e6, period_ns=100_000)
    assert math.isinf(both.bound)
    assert "98 Mbit/s may come that obey no window, on a link of 100 Mbit/s, and" in both.refusal


@pytest.mark.parametrize("seed", range(20))
def test_marks_leave_room_for_the_rate_of_probes(seed: int) -> None:
    """While the queue is above K, all that may arrive for ever is no more than the link sends."""
    rng = random.Random(seed)
    plans = [at_one_switch(job, "h1", "h2") for job in range(1, 3)]
    steady = (Uncontrolled("h3", "h1", rng.uniform(0.3, 0.8) * 1e9, 1094),)
    options = CongestionOptions(96, steady, probe_period_ns=rng.choice([10_000, 20_000, 50_000]))
    [link] = [end for end in plans[0].max_streams if FABRIC.peer(end).node == "h1"]
    found = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan) for plan in plans], PROBES, options)[link]
    if not found.marked:
        return
    crossing = [probe for probe in PROBES if link in probe.certain]
    probes_bps = sum(8e9 * probe_bytes(probe.certain.index(link) + 1) / options.probe_period_ns for probe in crossing)
    product = min(plan.round_trips_ns[link] for plan in plans) * 1e9 / (8 * 1094 * 1e9)
    windows = found.streams * found.congested_window / (found.threshold + product)
    assert windows + found.share + probes_bps / 1e9 <= 1 + 1e-9, f"seed {seed}: {found}"


def test_a_buffer_smaller_than_the_bound_limits_windows() -> None:
    small = Topology(
        FABRIC.name,
        FABRIC.hosts,
        FABRIC.switches,
        tuple(replace(link, queue_packets=9) if "h1" in (link.a.node, link.b.node) else link for link in FABRIC.links),
    )
    plan = at_one_switch(1, "h1", "h2")
    budgets = link_budgets(small, ROUTES, [JobStreams.of(plan)], PROBES, OPTIONS)
    [last] = [link for link in budgets if FABRIC.peer(link).node == "h1"]
    assert budgets[last].bound == 9, "it never drops"
    assert not budgets[last].refusal
    [crowded] = [
        promise
        for promise in promises(link_budgets(small, ROUTES, [JobStreams({last: 12}, 32)], PROBES, OPTIONS).values())
        if promise.link == last
    ]
    assert crowded.bound_packets is None
    assert "where the buffer holds 9" in crowded.text


def test_others_windows_count_both_ways_and_leave_jobs_the_rest() -> None:
    """Two connections of ten packets between h1 and h4: their packets or acknowledgements may all be in one queue."""
    plan = at_one_switch(1, "h1", "h2")
    others = (Windowed("h1", "h4", 10, 1042), Windowed("h4", "h1", 10, 1042))
    options = replace(OPTIONS, bound_packets=48, windowed=others)
    budgets = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], PROBES, options)
    crossed = {link for link, budget in budgets.items() if budget.others}
    assert all(budgets[link].others == 20 for link in crossed)
    assert {FABRIC.peer(link).node for link in crossed} == {"h1", "h4", "s1", "s2", "s4", "s5"}
    [shared] = [budgets[link] for link in crossed if FABRIC.peer(link).node == "h1"]
    assert shared.copies == 1, "the answer to a message that a worker sent again"
    assert shared.window == 48 - 20 - 1 - shared.probes < 32
    assert shared.bound == shared.window + 20 + 1 + shared.probes == 48
    assert not shared.refusal
    [told] = [promise for promise in promises(budgets.values()) if promise.link == shared.link]
    assert "48 packets = ΣW + ΣM + copies + probes" in told.text
    assert "by windows of their own ΣM = 20" in told.text


def test_windows_of_others_beside_leaky_buckets() -> None:
    """A little of those, where windows alone keep the bound, and much, where marks must help."""
    plan = at_one_switch(1, "h1", "h2")
    [link] = [end for end in plan.max_streams if FABRIC.peer(end).node == "h1"]
    found = []
    for rate_bps, window, bound in ((2e8, 20, 48), (8.5e8, 8, 128)):
        steady = (Uncontrolled("h3", "h1", rate_bps, 1042),)
        options = CongestionOptions(bound, steady, windowed=(Windowed("h1", "h4", window, 1042),))
        found.append(link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], PROBES, options)[link])
    alone, marked = found
    assert alone.formula == "(ΣW + ΣM + copies + probes + σ)/(1 − u)"
    assert alone.bound == (alone.windows + 20 + 1 + alone.burst + alone.probes) / (1 - alone.share) <= 48
    assert marked.formula == "K + ΣW + Σw + ΣM + probes + σ"
    everyone = marked.windows + marked.congested_window + 8 + marked.burst + marked.probes
    assert marked.bound == marked.threshold + everyone <= 128
    assert marked.congested_window + 8 <= (1 - marked.share) * marked.threshold
    assert not any(budget.refusal for budget in found)


@pytest.mark.parametrize("seed", few_of(range(60), 20))
def test_windows_and_marks_are_the_best_that_a_queue_allows(seed: int) -> None:
    """One queue is shared by jobs and another flow. Compared with every window that keeps its bound: marks come as late
    as possible, and a marked job is left twice its need, or as much as any window leaves.
    """
    rng = random.Random(seed)
    bound, own = rng.choice([32, 48, 64, 96, 128]), rng.choice([8, 16, 32])
    plans = [at_one_switch(job, "h1", "h2", window=own) for job in range(1, rng.choice([2, 3, 4]))]
    steady = (Uncontrolled("h3", "h1", rng.uniform(0.2, 0.85) * 1e9, 1094, rng.choice([1, 6])),)
    streams, [link] = len(plans), [end for end in plans[0].max_streams if FABRIC.peer(end).node == "h1"]
    jobs = [JobStreams.of(plan) for plan in plans]
    found = link_budgets(FABRIC, ROUTES, jobs, (), CongestionOptions(bound, steady))[link]
    frame_ns = 8 * 1094 * 1e9 / FABRIC.link_at(link).rate_bps
    product, free = jobs[0].round_trips_ns[link] / frame_ns, 1 - found.share
    needed = max(1.0, free / streams * jobs[0].round_trip_ns / frame_ns)
    beside = found.burst + len(plans)  # and a copy of each job

    def slowed(window: int, threshold: int) -> int:
        return min(window, max(1, int(free * (threshold + product) // streams)))

    def most(window: int, threshold: int) -> float:
        marked = threshold + streams * (window + slowed(window, threshold)) + found.burst
        return min(marked, (streams * window + beside) / free)

    def left(window: int) -> float:
        thresholds = range(max(bound // 16, math.ceil(streams / free - product), 1), bound + 1)
        kept = [threshold for threshold in thresholds if most(window, threshold) <= bound]
        if not kept:
            return 0.0
        if (streams * window + beside) / free <= most(window, kept[-1]):
            return window / needed
        return slowed(window, kept[-1]) / needed

    best = max(min(2.0, left(window)) for window in range(1, own + 1))
    if not best:
        assert found.refusal
        return
    assert found.bound <= bound
    assert min(2.0, found.congested_window / needed) >= best - 1e-9, f"seed {seed}: {found}"
    if found.marked:
        assert most(found.window, found.threshold + 1) > bound, f"seed {seed}: marks could come later: {found}"


@pytest.mark.parametrize("seed", few_of(range(60), 15))
def test_no_queue_at_the_end_of_all_ways_could_mark_much_later(seed: int) -> None:
    """The content of such a queue lengthens no other one, so its marks come as late as its own bound allows, regardless
    of the other queues' thresholds; a packet earlier if those before it end just after.
    """
    rng = random.Random(seed)
    plans = [drawn_plan(rng, job, 1) for job in range(1, 3)]
    others = []
    for _ in range(rng.randrange(1, 5)):
        source, destination = rng.sample(["h3", "h6", "h8", "h1", "h4", "h7", "h9"], 2)
        others.append(Uncontrolled(source, destination, rng.uniform(0.3, 0.8) * 1e9, 1094, rng.choice([1, 8])))
    bound = rng.choice([48, 64, 96, 128])
    jobs = [JobStreams.of(plan) for plan in plans]
    budgets = link_budgets(FABRIC, ROUTES, jobs, PROBES, CongestionOptions(bound, tuple(others)))
    for link, budget in budgets.items():
        if not budget.marked or budget.refusal or not FABRIC.is_host(FABRIC.peer(link).node):
            continue
        frame_ns = 8 * 1094 * 1e9 / FABRIC.link_at(link).rate_bps
        product = min(job.round_trips_ns[link] for job in jobs if link in job.count) / frame_ns
        later = budget.threshold + 2
        left = int((1 - budget.share) * (later + product) // budget.streams)
        slowed = budget.streams * min(budget.window, max(1, left))
        marked = later + budget.windows + slowed + budget.burst + budget.probes
        alone = (budget.windows + budget.burst + budget.copies + budget.probes) / (1 - budget.share)
        assert min(marked, alone) > bound, f"seed {seed}: {budget}"


def test_each_queue_is_marked_as_late_as_its_own_bound_allows() -> None:
    """A flow that crosses two queues of a job: the first is given no later marks than the second has room for, which
    another flow fills too; a queue that they do not reach has room for later ones.
    """
    plan = plan_of(
        1,
        ("h1", "h4", "h7"),
        Placement({"h1": "s1", "h4": "s2", "h7": "s3"}, {"s1": "s4", "s2": "s4", "s3": "s4", "s4": "h9"}, "h9"),
        server="h9",
    )
    flows = (
        Uncontrolled("h2", "h1", 8e8, 1094),
        Uncontrolled("h5", "h4", 8e8, 1094, burst_packets=12),
    )
    budgets = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], (), CongestionOptions(64, flows))
    room, little = (
        next(budgets[link] for link in plan.max_streams if FABRIC.peer(link).node == host) for host in ("h1", "h4")
    )
    assert room.marked
    assert little.marked
    assert room.threshold >= little.threshold + 6
    assert max(room.bound, little.bound) <= 64


def ring(switches: int, queue_packets: int) -> Topology:
    """Each switch with two hosts, h1 and g1 on s1, and s1-p3 linked to s2."""
    names = range(1, switches + 1)
    return parse_topology(
        {
            "name": "ring",
            "defaults": {"rate": "1Gbit", "delay": "2us", "queue": queue_packets},
            "hosts": {f"{kind}{at}": None for kind in "hg" for at in names},
            "switches": {f"s{at}": None for at in names},
            "links": [
                *({"ends": [f"{kind}{at}", f"s{at}-p{port}"]} for port, kind in enumerate("hg", 1) for at in names),
                *({"ends": [f"s{at}-p3", f"s{at % switches + 1}-p4"]} for at in names),
            ],
        },
        "ring",
    )


@pytest.mark.parametrize("seed", few_of(range(40), 15))
def test_bursts_cover_earlier_queues_in_a_ring_of_paths_too(seed: int) -> None:
    """Each queue waits for the one before it, and behind some of them Q* is not kept, or all delay each other until
    they are full.
    """
    rng = random.Random(seed)
    hops = rng.choice([2, 3])
    switches = 2 * hops + 1
    fabric = ring(switches, rng.choice([256, 4096]))
    routes, mbit = Routes(fabric), rng.choice([200, 300, 310])
    flows = [
        Uncontrolled(f"h{index}", f"h{(index + hops - 1) % switches + 1}", 1e6 * mbit, 1042, rng.choice([1, 10]))
        for index in range(1, switches + 1)
    ]
    at = rng.randrange(switches)
    flows.append(Uncontrolled(f"g{at + 1}", f"g{(at + 1) % switches + 1}", 5e6, 1042, rng.choice([20, 120, 900])))
    budgets = link_budgets(fabric, routes, [], (), CongestionOptions(64, tuple(flows)))

    def max_packets(link: Endpoint) -> int:
        return math.floor(min(budgets[link].bound, fabric.link_at(link).queue_packets))

    def delay_s(ways: Hops) -> float:
        links = [link for hop in ways for link in hop if link in budgets]  # the others are hosts'
        return 8e-9 * round_bytes(fabric) * sum(max_packets(link) + 1 for link in links)

    for link, crossing in cross_traffic(routes, flows).items():
        assert budgets[link].burst >= crossing.curve_behind(delay_s).burst - 1e-6, f"{link}: {budgets[link]}"
        assert bool(budgets[link].refusal) == (budgets[link].bound >= 65)


def test_others_windows_beyond_the_bound_are_refused() -> None:
    plan = at_one_switch(1, "h1", "h2")
    many = replace(OPTIONS, windowed=(Windowed("h1", "h4", 100, 1042),))
    alone = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], PROBES, OPTIONS)
    budgets = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], PROBES, many)
    assert {link: budget.window for link, budget in budgets.items()} == {
        link: budget.window for link, budget in alone.items()
    }
    refused = [promise for promise in promises(budgets.values()) if promise.bound_packets is None]
    assert {FABRIC.peer(promise.link).node for promise in refused} == {"h1", "h4", "s1", "s2", "s4", "s5"}
    assert all("100 packets of others' own windows" in promise.text for promise in refused)


def test_nothing_is_promised_of_queues_whose_jobs_lose_frames() -> None:
    """h9's link loses some frames: no switch sums the retransmissions of its rack's job. The other job has its
    bound.
    """
    here, there = at_one_switch(1, "h1", "h2"), plan_of(2, ("h7", "h9"), Placement({"h7": "s3", "h9": "s3"}, {}, "s3"))
    jobs = [JobStreams.of(here), JobStreams.of(there)]
    lossy = Topology(
        FABRIC.name,
        FABRIC.hosts,
        FABRIC.switches,
        tuple(replace(link, loss=0.01 * (link.a.node == "h9")) for link in FABRIC.links),
    )
    before = link_budgets(FABRIC, ROUTES, jobs, PROBES, OPTIONS)
    budgets = link_budgets(lossy, ROUTES, jobs, PROBES, OPTIONS)
    lost = {link for link, budget in budgets.items() if math.isinf(budget.bound)}
    assert budgets == {
        link: replace(each, bound=math.inf, refusal=budgets[link].refusal) if link in lost else each
        for link, each in before.items()
    }
    refused = {FABRIC.peer(link).node for link, budget in budgets.items() if budget.refusal}
    assert refused == {"h7", "h9"}
    [last] = [promise for promise in promises(budgets.values()) if FABRIC.peer(promise.link).node == "h9"]
    assert last.bound_packets is None
    assert "cannot be kept because frames are lost on its jobs' ways (at h9-p0 and 1 more), and what is" in last.text
    windows = WindowController(lossy, OPTIONS)
    told = windows.update(ROUTES, [here, there], (), 0)
    assert told[0].pacing.round_trip_ns >= windows.round_trip_ns(here) > 0
    assert told[1].pacing.round_trip_ns == 0, "what is lost is sent again by the worker's own time-out"
    worse = Topology(
        FABRIC.name,
        FABRIC.hosts,
        FABRIC.switches,
        tuple(replace(link, loss=0.01 * (link.a.node in ("h8", "h9"))) for link in FABRIC.links),
    )
    third = plan_of(3, ("h8", "h9"), Placement({"h8": "s3", "h9": "s3"}, {}, "s3"))
    for streams in ([*jobs, JobStreams.of(third)], [JobStreams.of(third), *jobs]):
        budgets = link_budgets(worse, ROUTES, streams, PROBES, OPTIONS)
        said = {FABRIC.peer(link).node: budget.refusal for link, budget in budgets.items() if budget.refusal}
        assert "(at h8-p0 and 3 more)" in said["h9"], "both jobs' links"
        assert "(at h9-p0 and 1 more)" in said["h7"], "of the job that crosses there"


def test_options_that_cannot_be() -> None:
    for options in ({"bound_packets": 0}, {"virtual_share": 0.0}, {"lease_ns": -1}):
        with pytest.raises(PlanError, match=next(iter(options))):
            CongestionOptions(**options)


# --- changes ---


FOR_EVER = 1 << 62


class Times:
    """Record of budgets over time, and the worst case of packets in flight.

    Each worker applies a lowered window after a lease and its longest round trip, and its packets of a past generation
    are gone after a round trip.
    """

    def __init__(self, windows: WindowController, lease_ns: int) -> None:
        self.windows = windows
        self.plans: dict[int, JobPlan] = {}
        self.begins_ns: dict[int, int] = {}
        self._lease_ns = lease_ns
        self._past: list[tuple[Mapping[Endpoint, LinkBudget], dict[int, int], int]] = []
        """Past budgets, with the time until which each job may apply it, and the time by which all of its packets are
        gone.
        """
        self._gone: list[tuple[JobPlan, list[tuple[int, int]]]] = []
        """Past plans, with the packets that each worker may have in flight, and until when."""

    def follow(self, plans: Iterable[JobPlan], now_ns: int, probes: Iterable[Probe] = ()) -> None:
        before, ways_ns = self.windows.budgets, self._round_trips_ns()
        allowed = {job: self._allowed(plan, now_ns) for job, plan in self.plans.items()}
        asked = {plan.spec.job: plan for plan in plans}
        told = self.windows.update(ROUTES, asked.values(), probes, now_ns)
        asked |= {plan.spec.job: plan for plan in told}
        ways_ns = {job: max(way_ns, self.windows.round_trip_ns(self.plans[job])) for job, way_ns in ways_ns.items()}
        for job, plan in self.plans.items():
            stays = job in asked and asked[job].generation == plan.generation
            if not stays and self.begins_ns[job] <= now_ns:
                gone_ns = now_ns + ways_ns[job]
                self._gone.append((plan, [(window, min(until_ns, gone_ns)) for window, until_ns in allowed[job]]))
        if self.windows.budgets is not before:
            obeys_ns = {job: now_ns + self._lease_ns + way_ns for job, way_ns in ways_ns.items()}
            for there, earlier_ns, _ in self._past[-1:]:
                for job in earlier_ns.keys() & obeys_ns.keys() & self.plans.keys():
                    ways = [link for link in self.plans[job].max_streams if link in there and link in before]
                    if all(there[link].window <= before[link].window for link in ways):
                        earlier_ns[job] = min(earlier_ns[job], obeys_ns[job])  # it obeyed the same windows afterwards
            self._past.append((before, obeys_ns, max(obeys_ns.values(), default=now_ns)))
        for plan in told:
            job = plan.spec.job
            if job not in self.plans or self.plans[job].generation != plan.generation:
                self.begins_ns[job] = now_ns + plan.pacing.hold_ns
                for _, obeys, _ in self._past:
                    obeys.pop(job, None)  # it starts with the budget in force
        self.plans = asked

    def at_worst(self, now_ns: int) -> None:
        """Check the worst case: packets in flight stay within the bounds of their sending time and of now, and no
        worker takes packets in flight for lost.
        """
        senders = {job: plan for job, plan in self.plans.items() if self.begins_ns[job] <= now_ns}
        for job, plan in senders.items():
            ways = [self.windows.budgets[link] for link in plan.max_streams if link in self.windows.budgets]
            if not any(budget.refusal for budget in ways):
                assert plan.pacing.round_trip_ns >= self.windows.round_trip_ns(plan), f"job {job} at {now_ns} ns"
        recent = [self.windows.budgets, *(there for there, _, until_ns in self._past if until_ns > now_ns and there)]
        under_way = [(plan, max(self._allowed(plan, now_ns))[0]) for plan in senders.values()]
        under_way += [
            (plan, max((window for window, until_ns in there if until_ns > now_ns), default=0))
            for plan, there in self._gone
        ]
        for link, budget in self.windows.budgets.items():
            promised = [there[link] for there in recent]
            if any(one.refusal for one in promised):
                continue
            rounds = sum(plan.max_streams.get(link, 0) * window for plan, window in under_way)
            if not rounds:
                continue
            marked = sum(
                plan.max_streams[link] * max(one[link].congested_window for one, _ in self._going_by(job, now_ns))
                for job, plan in senders.items()
                if link in plan.max_streams
            )
            copies = {job: plan.max_copies.get(link, 0) for job, plan in senders.items()}
            for plan, there in self._gone:  # a job's generations do not send copies at the same time
                if any(until_ns > now_ns for _, until_ns in there):
                    job = plan.spec.job
                    copies[job] = max(copies.get(job, 0), plan.max_copies.get(link, 0))
            besides = min(one.burst for one in promised) + budget.probes + budget.others  # theirs is upstream's matter
            by_windows = (rounds + besides + sum(copies.values())) / (1 - budget.share)
            threshold = max((one.threshold for one in promised if one.marked), default=math.inf)
            if not marked and threshold < math.inf:
                threshold = sum(copies.values())  # no worker sends any more, whatever is marked
            largest = min(by_windows, threshold + rounds + marked + besides)
            assert largest <= max(one.bound for one in promised) + 1e-6, f"{link} at {now_ns} ns: {rounds} rounds"

    def _going_by(self, job: int, now_ns: int) -> list[tuple[Mapping[Endpoint, LinkBudget], int]]:
        """Budgets that the job's workers may apply, each with its end."""
        past = [(there, obeys_ns.get(job, now_ns)) for there, obeys_ns, _ in self._past]
        return [(self.windows.budgets, FOR_EVER), *((there, until_ns) for there, until_ns in past if until_ns > now_ns)]

    def _allowed(self, plan: JobPlan, now_ns: int) -> list[tuple[int, int]]:
        """Rounds that each of its workers may have under way, each with until when."""
        return [
            (min([plan.spec.window, *(there[link].window for link in plan.max_streams if link in there)]), until_ns)
            for there, until_ns in self._going_by(plan.spec.job, now_ns)
        ]

    def _round_trips_ns(self) -> dict[int, int]:
        return {job: self.windows.round_trip_ns(plan) for job, plan in self.plans.items()}


def test_windows_shrink_at_once_and_a_new_job_waits_for_that() -> None:
    windows = WindowController(FABRIC, replace(OPTIONS, lease_ns=1_000_000))
    first = at_one_switch(1, "h1", "h2")
    [paced] = windows.update(ROUTES, [first], (), 0)
    [link] = [e for e in paced.max_streams if FABRIC.peer(e).node == "h1"]
    assert windows.budgets[link].window == paced.pacing.window == 32, "a job's own window is less than the queue's room"
    assert paced.pacing.hold_ns == 0
    crowd = [at_one_switch(job, "h1", "h3") for job in range(2, 6)]
    told = windows.update(ROUTES, [paced, *crowd], (), 5_000)
    assert windows.budgets[link].window == (64 - 5) // 5 == 11
    for plan in told:
        assert plan.pacing.window == 11
        assert plan.pacing.hold_ns >= 1_000_000 + windows.round_trip_ns(plan)
    plans = [paced, *told]
    windows.update(ROUTES, plans[:1], (), 6_000)
    assert windows.budgets[link].window == 11, "packets of those who left are still under way"
    later = 6_000 + 1_000_000 + 2 * told[0].pacing.hold_ns
    windows.update(ROUTES, plans[:1], (), later)
    assert windows.budgets[link].window == 32


def drawn_plan(rng: random.Random, job: int, generation: int) -> JobPlan:
    """One of two or three workers: of one rack, or of several with a server, by a tree or without."""
    window = rng.choice([1, 4, 9, 32])
    if rng.random() < 0.5:
        workers = tuple(rng.sample(["h1", "h2", "h3"], rng.choice([2, 3])))
        return plan_of(job, workers, placed_at("s1", workers), generation=generation, window=window)
    workers = tuple(rng.sample(["h1", "h2", "h4", "h5", "h7"], 3))
    if rng.random() < 0.3:
        alone = Placement(dict.fromkeys(workers, "h9"), {}, "h9")
        return plan_of(job, workers, alone, generation=generation, server="h9", window=window)
    top = rng.choice(["s4", "s5"])
    leaves = {worker: f"s{(int(worker[1:]) + 2) // 3}" for worker in workers}
    tree = Placement(leaves, {**dict.fromkeys(leaves.values(), top), top: "h9"}, "h9")
    return plan_of(job, workers, tree, generation=generation, server="h9", window=window)


@pytest.mark.parametrize("seed", few_of(range(40), 5))
def test_packets_stay_in_bound_as_jobs_come_move_and_go(seed: int) -> None:
    rng = random.Random(seed)
    lease_ns = rng.choice([100_000, 1_000_000])
    others = []
    for _ in range(rng.choice([0, 0, 1, 2])):
        source, destination = rng.sample(["h3", "h6", "h8", "h1"], 2)
        others.append(Uncontrolled(source, destination, rng.uniform(0.05, 0.7) * 1e9, 1042, rng.choice([1, 4])))
    bound = rng.choice([24, 48, 64, 160])
    windows = WindowController(FABRIC, CongestionOptions(bound, tuple(others), lease_ns))
    probes = rng.choice([(), PROBES])
    times = Times(windows, lease_ns)
    now_ns, number = 0, 0
    for _ in range(30):
        asked = dict(times.plans)
        for _ in range(rng.choice([1, 1, 2])):
            what = rng.random()
            if asked and what < 0.3:
                asked.pop(rng.choice(list(asked)))
            elif asked and what < 0.5:
                moved = rng.choice(list(asked))
                asked[moved] = drawn_plan(rng, moved, asked[moved].generation + 1)
            elif len(asked) < 6:
                number += 1
                asked[number] = drawn_plan(rng, number, 1)
        times.follow(asked.values(), now_ns, probes)
        assert all(budget.refusal or budget.bound < bound + 1 for budget in windows.budgets.values()), f"seed {seed}"
        until_ns = now_ns + rng.choice([1_000, 50_000, 400_000, 4_000_000])
        for at_ns in sorted({now_ns, until_ns, *(at for at in times.begins_ns.values() if now_ns < at < until_ns)}):
            times.at_worst(at_ns)
        now_ns = until_ns


@pytest.mark.parametrize(
    "others",
    [
        {"windowed": (Windowed("h4", "h3", 50, 1514),)},
        {"uncontrolled": (Uncontrolled("h4", "h3", 1e8, 1514, burst_packets=30),)},
    ],
)
def test_a_rounds_wait_includes_longer_frames_of_others(others: dict[str, Any]) -> None:
    """Rounds of 32 lanes are 198 bytes."""
    rack = leaf_spine(leaves=1, spines=0, hosts_per_leaf=4, target=BMV2_32)
    spec = JobSpec(1, ("h1", "h2"), server="h3", slots=8, window=4)
    plan = job_plan(rack, Routes(rack), spec, Placement(dict.fromkeys(spec.workers, "h3"), {}, "h3"), 1, {})
    windows = WindowController(rack, CongestionOptions(64, **others))
    [paced] = windows.update(Routes(rack), [plan], (), 0)
    theirs = max(budget.others + budget.burst for budget in windows.budgets.values())
    assert theirs >= 30
    assert windows.round_trip_ns(plan) >= 8 * 1514 * theirs
    assert paced.pacing.round_trip_ns >= 8 * 1514 * 64, "whoever comes"


def test_a_change_that_did_not_happen_leaves_nothing() -> None:
    windows = WindowController(FABRIC, OPTIONS)
    [first] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    before = dict(windows.budgets)
    windows.update(ROUTES, [first, *(at_one_switch(job, "h1", "h3") for job in range(2, 5))], (), 1_000)
    assert dict(windows.budgets) != before
    windows.withdraw()
    assert dict(windows.budgets) == before
    assert windows.update(ROUTES, [first], (), 1_000) == []


def test_no_window_grows_before_a_late_switch_is_applied() -> None:
    windows = WindowController(FABRIC, replace(OPTIONS, lease_ns=1_000_000))
    every = [switch.name for switch in FABRIC.switches]

    def follow(plans: Sequence[JobPlan], now_ns: int, *without: str) -> list[JobPlan]:
        told = windows.update(ROUTES, plans, (), now_ns)
        windows.note_held([name for name in every if name not in without], now_ns)
        return told

    [first] = follow([at_one_switch(1, "h1", "h2")], 0)
    [link] = [e for e in first.max_streams if FABRIC.peer(e).node == "h1"]
    crowd = [at_one_switch(job, "h1", "h3") for job in range(2, 6)]
    follow([first, *crowd], 5_000, "s4", "s5")
    assert windows.behind == frozenset(), "they let no more through than the others on the way"
    follow([first, *crowd], 6_000)
    follow([first], 7_000)
    assert windows.budgets[link].window == 11
    crowd = [at_one_switch(job, "h1", "h3") for job in range(6, 12)]
    follow([first, *crowd], 8_000, link.node)
    assert windows.budgets[link].window == (64 - 7) // 7
    assert windows.behind == {link.node}
    late_ns = 1_000_000_000
    follow([first], late_ns, link.node)
    assert windows.budgets[link].window == (64 - 7) // 7, "it may have 11 still"
    assert windows.obeyed_ns > late_ns
    follow([first], late_ns + 1)
    assert windows.behind == frozenset()
    obeyed_ns = windows.obeyed_ns
    assert obeyed_ns == late_ns + 1 + 1_000_000 + windows.round_trip_ns(first)
    follow([first], obeyed_ns - 1)
    assert windows.budgets[link].window == (64 - 7) // 7
    follow([first], obeyed_ns)
    assert windows.budgets[link].window == 32


def test_a_moved_job_waits_until_its_old_packets_are_gone() -> None:
    windows = WindowController(FABRIC, replace(OPTIONS, bound_packets=40))
    [first] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    [moved] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    assert first.pacing.window == 32, "two of them are more than 40"
    assert windows.round_trip_ns(first) > 0
    assert windows.update(ROUTES, [moved], (), 2_000) == []
    roomy = WindowController(FABRIC, replace(OPTIONS, bound_packets=65))
    roomy.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    [free] = roomy.update(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    assert free.pacing.hold_ns == 0, "32 old ones, 32 new ones and a copy are 65"
    assert moved.pacing.hold_ns > 0


def test_a_past_jobs_packets_count_with_its_last_windows() -> None:
    """Five jobs of 8 rounds; four leave, and the one that stays has 32: when it moves, 32 old ones are on the way."""
    windows = WindowController(FABRIC, replace(OPTIONS, bound_packets=48, lease_ns=100_000))
    crowd = windows.update(ROUTES, [at_one_switch(job, "h1", "h2") for job in range(1, 6)], (), 0)
    assert {plan.pacing.window for plan in crowd} == {8}
    windows.update(ROUTES, crowd[:1], (), 10_000_000)
    windows.update(ROUTES, crowd[:1], (), 20_000_000)
    [link] = [end for end in crowd[0].max_streams if FABRIC.peer(end).node == "h1"]
    assert windows.budgets[link].window == 32
    [moved] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 30_000_000)
    assert moved.pacing.window == 32
    assert moved.pacing.hold_ns == windows.round_trip_ns(crowd[0]), "32 and 32 are more than 48"


def test_the_bound_counts_leftovers_without_a_waiting_job() -> None:
    """The rest of an old generation counts in the bound as long as it is there, up to the room that Q* leaves."""
    windows = WindowController(FABRIC, replace(OPTIONS, bound_packets=65))
    [first] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    [link] = [end for end in first.max_streams if FABRIC.peer(end).node == "h1"]

    def promised() -> Promise:
        return Promise.of(windows.budgets[link])

    assert promised().text == (
        f"{link}: at most 33 packets = ΣW + copies + probes; N = 1 streams of W = 32 (w = 32 from K = 16 on), "
        "1 copies, 0 probes, others u = 0.00 and σ = 0.0"
    )
    [second] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    assert second.pacing.hold_ns == 0
    assert promised().bound_packets == 65
    assert "N = 1 streams of W = 32 and ΣW = 64 with what is left of others (w = 32 from" in promised().text
    windows.update(ROUTES, [second], (), 1_000 + windows.round_trip_ns(first))
    assert promised().bound_packets == 33


def test_a_new_job_waits_until_marks_leave_the_others_less() -> None:
    """Next to 800 Mbit/s of other traffic, a second job leaves the first one its window, but less after marks. Until
    all workers apply that, the bound by marks does not hold for both.
    """
    steady = (Uncontrolled("h4", "h1", 8e8, 1042),)
    windows = WindowController(FABRIC, CongestionOptions(64, steady, lease_ns=1_000_000))
    [first] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2", window=8)], (), 0)
    [link] = [end for end in first.max_streams if FABRIC.peer(end).node == "h1"]
    alone = windows.budgets[link]
    [second] = windows.update(ROUTES, [first, at_one_switch(2, "h1", "h3", window=8)], (), 50_000_000)
    both = windows.budgets[link]
    assert alone.window == both.window == 8, "no window was lowered"
    assert 2 * both.congested_window <= alone.congested_window
    assert second.pacing.hold_ns >= 1_000_000 + windows.round_trip_ns(first)
    assert both.marked


def test_parts_planned_together_do_not_await_each_others_marks() -> None:
    """The first has heard of none yet. A smaller W is in its plan, and must be waited for."""
    steady = (Uncontrolled("h4", "h1", 8e8, 1042),)
    for own, waits in ((8, False), (32, True)):
        windows = WindowController(FABRIC, CongestionOptions(64, steady, lease_ns=1_000_000))
        [first] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2", window=own)], (), 1_000)
        [second] = windows.update(ROUTES, [first, at_one_switch(2, "h1", "h3", window=own)], (), 1_000)
        assert (second.pacing.hold_ns > 0) == waits
        assert (second.pacing.window < first.pacing.window) == waits
        [third] = windows.update(ROUTES, [first, second, at_one_switch(3, "h1", "h2", window=own)], (), 1_001)
        assert third.pacing.hold_ns >= 1_000_000, "the others may have heard by now"


def test_marks_come_later_only_after_all_apply_smaller_windows() -> None:
    """A raised threshold leaves queues more, and packets sent under the earlier windows would come on top."""
    steady = (Uncontrolled("h4", "h1", 8e8, 1042),)
    windows = WindowController(FABRIC, CongestionOptions(40, steady, lease_ns=1_000_000))
    plans = windows.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    [link] = [end for end in plans[0].max_streams if FABRIC.peer(end).node == "h1"]
    alone = windows.budgets[link]
    plans += windows.update(ROUTES, [*plans, at_one_switch(2, "h1", "h3")], (), 50_000_000)
    assert alone.marked
    assert windows.budgets[link].window < alone.window
    assert windows.budgets[link].threshold == alone.threshold
    windows.update(ROUTES, plans, (), 100_000_000)
    assert windows.budgets[link].threshold > alone.threshold


def test_gaps_follow_jobs_and_shrink_after_others_slow_down() -> None:
    """Incast of 64 with a bound of 60 packets: one job of 32 needs no gap, two need one."""
    rack = leaf_spine(leaves=1, spines=0, hosts_per_leaf=65)
    routes, gap_ns = Routes(rack), math.ceil(64 * 8e9 * round_bytes(rack) / 1e9)
    hosts = [host.name for host in rack.hosts]

    def incast(job: int, generation: int = 1) -> JobPlan:
        workers = tuple(hosts[32 * (job - 1) : 32 * job])
        spec = JobSpec(job, workers, server="h65", slots=64, window=32)
        return job_plan(rack, routes, spec, Placement(dict.fromkeys(workers, "h65"), {}, "h65"), generation, {})

    windows = WindowController(rack, CongestionOptions(60, lease_ns=1_000_000))
    [one] = windows.update(routes, [incast(1)], (), 0)
    assert (one.pacing.gap_ns, windows.jobs_to_repace) == (0, {})
    [two] = windows.update(routes, [one, incast(2)], (), 10_000_000)
    assert two.pacing.gap_ns == gap_ns
    assert two.pacing.hold_ns >= 1_000_000, "for what the first one needs to hear of it"
    assert windows.jobs_to_repace == {1: gap_ns}
    [one] = windows.update(routes, [incast(1, generation=2), two], (), 11_000_000)
    assert one.pacing.gap_ns == gap_ns
    assert one.pacing.hold_ns > 0, "until what it sent without a gap is gone"
    assert windows.jobs_to_repace == {}
    windows.update(routes, [one, two], (), 30_000_000)
    assert windows.jobs_to_repace == {}
    windows.update(routes, [two], (), 40_000_000)
    assert windows.jobs_to_repace == {}, "packets of the first may be on the way"
    windows.update(routes, [two], (), 60_000_000)
    assert windows.jobs_to_repace == {2: 0}
    [two] = windows.update(routes, [incast(2, generation=2)], (), 61_000_000)
    assert (two.pacing.gap_ns, windows.jobs_to_repace) == (0, {})
    anew = WindowController(rack, CongestionOptions(60, lease_ns=1_000_000))
    anew.restore({})
    [restored] = anew.update(routes, [replace(incast(2), pacing=Pacing(gap_ns=gap_ns))], (), 0)
    assert restored.pacing.gap_ns == gap_ns, "as its hosts were told by the controller before"
    assert anew.jobs_to_repace == {2: 0}
    slow, fast = replace(incast(1), pacing=Pacing(gap_ns=2 * gap_ns)), incast(2)
    anew = WindowController(rack, CongestionOptions(60))
    anew.restore({})
    plans = anew.update(routes, [slow, fast], (), 0)
    assert anew.jobs_to_repace == {2: gap_ns}, "the other one may send faster only then"
    plans = [plans[0], *anew.update(routes, [plans[0], incast(2, generation=2)], (), 1_000_000)]
    anew.update(routes, plans, (), 100_000_000)
    assert anew.jobs_to_repace == {1: gap_ns}


def test_the_packets_of_all_moves_of_late_count_together() -> None:
    """One old generation and the new one are within the bound; two old ones are not, as long as the first is not
    gone.
    """
    options = replace(OPTIONS, bound_packets=65)
    windows = WindowController(FABRIC, options)
    [first] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    [second] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    [third] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2", generation=3)], (), 2_000)
    assert (first.pacing.window, second.pacing.hold_ns) == (32, 0)
    assert third.pacing.hold_ns == 1_000 + windows.round_trip_ns(first) - 2_000
    late = WindowController(FABRIC, options)
    late.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    late.update(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    gone_ns = 1_000 + late.round_trip_ns(first)
    [third] = late.update(ROUTES, [at_one_switch(1, "h1", "h2", generation=3)], (), gone_ns)
    assert third.pacing.hold_ns == 0


def test_a_restarted_controller_begins_with_the_switches_state() -> None:
    """A controller without records does not raise windows that wait for other workers."""
    windows = WindowController(FABRIC, replace(OPTIONS, lease_ns=1_000_000))
    crowd = [at_one_switch(job, "h1", "h3") for job in range(1, 6)]
    crowd = windows.update(ROUTES, crowd, (), 0)
    left = crowd[:1]
    windows.update(ROUTES, left, (), 1_000)
    states = marked_states(FABRIC, {s.name: SwitchState() for s in FABRIC.switches}, windows.budgets, left, OPTIONS)
    held = windows_held(states)
    anew = WindowController(FABRIC, replace(OPTIONS, lease_ns=1_000_000))
    anew.restore(held)
    anew.update(ROUTES, [at_one_switch(1, "h1", "h3")], (), 0)
    assert windows_held(marked_states(FABRIC, states, anew.budgets, left, OPTIONS)) == held
    [link] = [e for e in left[0].max_streams if FABRIC.peer(e).node == "h1"]
    assert anew.budgets[link].window == (64 - 5) // 5
    anew.update(ROUTES, [at_one_switch(1, "h1", "h3")], (), 1_000_000 + anew.round_trip_ns(left[0]))
    assert anew.budgets[link].window == 32


# --- entries ---


def test_entries_of_a_port_and_of_a_host() -> None:
    plan = at_one_switch(1, "h1", "h2")
    budgets = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], (), OPTIONS)
    states = {switch.name: SwitchState() for switch in FABRIC.switches}
    lines = marked_states(FABRIC, states, budgets, [plan], OPTIONS)["s1"].lines()
    bound = "byte_cost=0, congested_window=32, sojourn=562, threshold=16, window=32, backlog=1"
    assert {line for line in lines if line.startswith("marking egress_port=1 ")} == {
        f"marking egress_port=1 -> bound_queue({', '.join(sorted(bound.split(', ')))})"
    }
    policed = [line for line in lines if line.startswith("policers")]
    control = 8e6 * 65536 // (0.02 * 1e9)
    assert (
        f"policers ingress_port=1 is_message=1 priority=7 -> police(bucket_index=2, burst=0, byte_cost={control:.0f})"
        in policed
    )
    workers = [line for line in policed if "priority=0" in line]
    assert len(workers) == 2, "the ports of the two workers"
    for line in workers:
        burst, cost = (int(re.search(rf"{name}=(\d+)", line)[1]) for name in ("burst", "byte_cost"))  # type: ignore[index]
        assert burst == (2 * 32 + REPAIRS) * round_bytes(FABRIC) * cost, "two windows of 32 rounds, and repairs"
    assert LARGEST_CONTROL_BYTES < 2048
    assert not policer_entries(FABRIC, "s4", [plan], {}), "no host hangs on a spine"


def test_policers_allow_rounds_that_workers_hand_out() -> None:
    """A burst beyond two windows, while hosts of a moved job fetch 100 rounds from h1."""
    plan = at_one_switch(1, "h1", "h2")
    fetches = {1: {FABRIC.peer(Endpoint("s1", 1)): 100}}
    bursts = [
        {
            line.split(" -> ")[0]: int(re.search(r"burst=(\d+)", line)[1])  # type: ignore[index]
            for line in SwitchState.of(policer_entries(FABRIC, "s1", [plan], {}, fetches=each)).lines()
        }
        for each in ({}, fetches)
    ]
    more = {key: burst - bursts[0][key] for key, burst in bursts[1].items() if burst != bursts[0][key]}
    ports = [f"policers ingress_port=1 is_message=1 priority={priority}" for priority in (0, 1)]
    assert more == {port: bursts[0][port] * 100 // (2 * 32 + REPAIRS) for port in ports}


@pytest.mark.parametrize("hosts_per_leaf", [3, 13, 20, 200])
def test_all_hosts_in_the_control_class_leave_half_of_a_link(hosts_per_leaf: int) -> None:
    """They all send to one of them, with a class that goes before all others."""
    fabric = leaf_spine(2, 1, hosts_per_leaf)
    costs = [
        dict(entry.calls[0].args)["byte_cost"]
        for leaf in ("s1", "s2")
        for entry in policer_entries(fabric, leaf, (), None)
        if isinstance(entry, Entry) and dict(entry.match) == {**dict(entry.match), "priority": 7, "is_message": 0}
    ]
    assert len(costs) == len(fabric.hosts)
    rate_bps = fabric.links[0].rate_bps
    together_bps = sum(8e6 * TICKS_PER_US / cost for cost in costs[1:])
    assert together_bps <= 0.501 * rate_bps
    assert max(8e6 * TICKS_PER_US / cost for cost in costs) <= 0.0201 * rate_bps
    assert byte_cost(1e-3) < 1 << 32, "a switch takes no more bits"


def test_depths_are_written_in_the_unit_that_the_switch_counts() -> None:
    """A round of 32 lanes is a frame of 198 bytes: three cells of 80 bytes."""
    cells = Target("like-cells", "fabric_32", lanes=32, cell_bytes=80)
    topology: Topology = replace(FABRIC, switches=tuple(replace(s, target=cells) for s in FABRIC.switches))
    routes = Routes(topology)
    budgets = link_budgets(topology, routes, [], (), OPTIONS)
    states = {switch.name: SwitchState() for switch in topology.switches}
    [line] = [
        line for line in marked_states(topology, states, budgets, (), OPTIONS)["s1"].lines() if "egress_port=1 " in line
    ]
    assert "threshold=48" in line


def test_fetched_rounds_raise_bounds_and_change_no_window() -> None:
    """A flow from h1 crosses the queue to h4 behind one that fetched rounds lengthen."""
    plan = at_one_switch(1, "h2", "h5")
    flow = Uncontrolled("h1", "h4", 200e6, 1_042)
    options = replace(OPTIONS, bound_packets=256, uncontrolled=(flow,))
    first = next(link for link in ROUTES.shares("h1", "h4") if link.node == "s1")
    second = FABRIC.peer(Endpoint("h4", 0))
    few, many = (JobStreams.of(plan, {first: rounds, FABRIC.peer(Endpoint("h9", 0)): 7}) for rounds in (20, 400))
    before = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], PROBES, options)
    after = link_budgets(FABRIC, ROUTES, [few], PROBES, options)
    for link, budget in after.items():
        assert (budget.window, budget.threshold, budget.gap_ns) == (
            before[link].window,
            before[link].threshold,
            before[link].gap_ns,
        )
    assert after[first].bound >= before[first].bound + 20
    assert after[second].bound > before[second].bound, "the flow's bursts are longer"
    unshared = FABRIC.peer(Endpoint("h9", 0))
    assert after[unshared].bound == before[unshared].bound + 7
    assert not after[first].refusal
    refused = link_budgets(FABRIC, ROUTES, [many], PROBES, options)[first]
    assert "400 packets of rounds that moved jobs fetch" in refused.refusal
