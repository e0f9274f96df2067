"""Budgets of queues: never more than Q*, or a reason; windows that shrink before others grow."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest

from weir.controller.congestion import CongestionOptions, JobStreams, Uncontrolled, Windowed, Windows, link_budgets
from weir.controller.congestion.marking import (
    LARGEST_CONTROL_BYTES,
    REPAIRS,
    marked_states,
    policer_entries,
    windows_held,
)
from weir.controller.congestion.promise import promises
from weir.controller.errors import PlanError
from weir.controller.p4runtime.entries import SwitchState
from weir.controller.placement import Placement
from weir.controller.planning.memory import FabricMemory
from weir.controller.planning.plan import JobPlan, JobSpec, job_plan, round_bytes
from weir.controller.telemetry.probes import plan_probes
from weir.topologies import Endpoint, Routes, Topology
from weir.topologies.generators import leaf_spine
from weir.topologies.targets import Target

FABRIC = leaf_spine(leaves=3, spines=2, hosts_per_leaf=3)
ROUTES = Routes(FABRIC)
PROBES = plan_probes(FABRIC, ROUTES)
OPTIONS = CongestionOptions(64)


def plan_of(
    job: int, workers: tuple[str, ...], placement: Placement, *, generation: int = 1, server: str | None = None
) -> JobPlan:
    spec = JobSpec(job, workers, server=server, slots=64, window=32)
    switches = sorted({*placement.aggregators.values(), *placement.parents, placement.root} - {server})
    allotments = FabricMemory(FABRIC).allot(job, switches, 64)
    return job_plan(FABRIC, ROUTES, spec, placement, generation, allotments)


def at_one_switch(job: int, *workers: str, generation: int = 1) -> JobPlan:
    return plan_of(job, workers, Placement(dict.fromkeys(workers, "s1"), {}, "s1"), generation=generation)


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


def test_what_cannot_be_kept_is_said_beforehand() -> None:
    flood = (Uncontrolled("h1", "h9", 1.2e9, 1042),)
    budgets = link_budgets(FABRIC, ROUTES, [], PROBES, replace(OPTIONS, uncontrolled=flood))
    [flooded] = [p for p in promises(budgets.values()) if FABRIC.peer(p.link).node == "h9"]
    assert flooded.bound_packets is None
    assert "cannot be kept because 1200 Mbit/s may come that obey no window, on a link of 1000 Mbit/s" in flooded.text
    [crowded] = [e for e in budgets if FABRIC.peer(e).node == "h2"]
    many = link_budgets(FABRIC, ROUTES, [JobStreams({crowded: 200}, 32)], PROBES, OPTIONS)[crowded]
    assert "200 streams" in many.refusal
    assert many.gap_ns == math.ceil(200 * 8e9 * 1094 / 1e9), "each sends less than a packet in a round trip"


def test_windows_of_others_count_both_ways_and_leave_the_rest_to_jobs() -> None:
    """Two connections of ten packets between h1 and h4: their packets or acknowledgements may all be in one queue."""
    plan = at_one_switch(1, "h1", "h2")
    others = (Windowed("h1", "h4", 10, 1042), Windowed("h4", "h1", 10, 1042))
    options = replace(OPTIONS, bound_packets=48, windowed=others)
    budgets = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], PROBES, options)
    crossed = {link for link, budget in budgets.items() if budget.others}
    assert all(budgets[link].others == 20 for link in crossed)
    assert {FABRIC.peer(link).node for link in crossed} == {"h1", "h4", "s1", "s2", "s4", "s5"}
    [shared] = [budgets[link] for link in crossed if FABRIC.peer(link).node == "h1"]
    assert shared.window == 48 - 20 - shared.probes < 32
    assert shared.bound == shared.window + 20 + shared.probes == 48
    assert not shared.refusal
    [told] = [promise for promise in promises(budgets.values()) if promise.link == shared.link]
    assert "48 packets = ΣW + ΣM + probes" in told.text
    assert "by windows of their own ΣM = 20" in told.text


def test_windows_of_others_beside_leaky_buckets() -> None:
    """A little of those, where windows alone keep the bound, and much, where marks must help."""
    plan = at_one_switch(1, "h1", "h2")
    [link] = [end for end in plan.most_streams if FABRIC.peer(end).node == "h1"]
    found = []
    for rate_bps, bound in ((2e8, 48), (6e8, 128)):
        steady = (Uncontrolled("h3", "h1", rate_bps, 1042),)
        options = CongestionOptions(bound, steady, windowed=(Windowed("h1", "h4", 20, 1042),))
        found.append(link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], PROBES, options)[link])
    alone, marked = found
    assert alone.formula == "(ΣW + ΣM + σ)/(1 − u)"
    assert alone.bound == (alone.windows + 20 + alone.burst + alone.probes) / (1 - alone.share) <= 48
    assert marked.formula == "K + ΣW + Σw + ΣM + σ"
    everyone = marked.windows + marked.congested_window + 20 + marked.burst + marked.probes
    assert marked.bound == marked.threshold + everyone <= 128
    assert marked.congested_window + 20 <= (1 - marked.share) * marked.threshold
    assert not any(budget.refusal for budget in found)


def test_windows_of_others_beyond_the_bound_are_refused_and_hold_nobody_back() -> None:
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
    """h9's link loses some: what the job of its rack sends again is summed by nobody. The other job has its promise."""
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
    assert {link: replace(budget, refusal="") for link, budget in budgets.items()} == before
    refused = {FABRIC.peer(link).node for link, budget in budgets.items() if budget.refusal}
    assert refused == {"h7", "h9"}
    [last] = [one for one in promises(budgets.values()) if FABRIC.peer(one.link).node == "h9"]
    assert last.bound_packets is None
    assert "cannot be kept because frames are lost on its jobs' ways (at h9-p0 and 1 more), and what is" in last.text
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


def in_flight(windows: Windows, plans: list[JobPlan], link: Endpoint) -> int:
    """The most that streams which follow their last window may have at a link."""
    return sum(plan.most_streams.get(link, 0) * windows.budgets[link].window for plan in plans)


def test_windows_shrink_at_once_and_who_comes_waits_until_all_obey() -> None:
    windows = Windows(FABRIC, replace(OPTIONS, lease_ns=1_000_000))
    first = at_one_switch(1, "h1", "h2")
    [paced] = windows.follow(ROUTES, [first], (), 0)
    [link] = [e for e in paced.most_streams if FABRIC.peer(e).node == "h1"]
    assert windows.budgets[link].window == paced.pacing.window == 32, "a job's own window is less than the queue's room"
    assert paced.pacing.hold_ns == 0
    crowd = [at_one_switch(job, "h1", "h3") for job in range(2, 6)]
    told = windows.follow(ROUTES, [paced, *crowd], (), 5_000)
    assert windows.budgets[link].window == 64 // 5 == 12
    for plan in told:
        assert plan.pacing.window == 12
        assert plan.pacing.hold_ns >= 1_000_000 + windows.round_trip_ns(plan)
    plans = [paced, *told]
    windows.follow(ROUTES, plans[:1], (), 6_000)
    assert windows.budgets[link].window == 12, "packets of those who left are still under way"
    later = 6_000 + 1_000_000 + 2 * told[0].pacing.hold_ns
    windows.follow(ROUTES, plans[:1], (), later)
    assert windows.budgets[link].window == 32


@pytest.mark.parametrize("seed", range(30))
def test_the_sum_of_windows_never_exceeds_the_budget(seed: int) -> None:
    """Jobs come and go at random; each of their workers obeys a lowered window a lease and a round trip later."""
    rng = random.Random(seed)
    windows = Windows(FABRIC, replace(OPTIONS, lease_ns=100_000))
    now_ns, plans = 0, dict[int, JobPlan]()
    own: dict[int, tuple[int, int]] = {}
    """By job: (window that its workers may still use, until when)."""
    begins: dict[int, int] = {}
    for number in range(1, 60):
        now_ns += rng.choice([1_000, 50_000, 400_000])
        if plans and rng.random() < 0.4:
            plans.pop(rng.choice(list(plans)))
        else:
            plans[number] = at_one_switch(number, *rng.sample(["h1", "h2", "h3"], 2))
        for paced in windows.follow(ROUTES, list(plans.values()), (), now_ns):
            job = paced.spec.job
            plans[job] = paced
            begins[job] = now_ns + paced.pacing.hold_ns
            own[job] = (paced.pacing.window, now_ns)
        for link in windows.budgets.keys() & {link for plan in plans.values() for link in plan.most_streams}:
            total = 0
            for job, plan in plans.items():
                if begins[job] > now_ns or link not in plan.most_streams:
                    continue  # it holds back
                limit = min(windows.budgets[each].window for each in plan.most_streams if each in windows.budgets)
                held, since = own[job]
                obeys_at = since + 100_000 + windows.round_trip_ns(plan)
                own[job] = (max(limit, held) if now_ns < obeys_at else limit, since)
                if limit < held and now_ns >= obeys_at:
                    own[job] = (limit, now_ns)
                total += plan.most_streams[link] * limit
            assert total <= 64, f"seed {seed}, {link} at {now_ns}"


def test_a_change_that_did_not_happen_leaves_nothing() -> None:
    windows = Windows(FABRIC, OPTIONS)
    [first] = windows.follow(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    before = dict(windows.budgets)
    windows.follow(ROUTES, [first, *(at_one_switch(job, "h1", "h3") for job in range(2, 5))], (), 1_000)
    assert dict(windows.budgets) != before
    windows.withdraw()
    assert dict(windows.budgets) == before
    assert windows.follow(ROUTES, [first], (), 1_000) == []


def test_a_moved_job_waits_until_its_old_packets_are_gone_where_they_would_not_fit() -> None:
    windows = Windows(FABRIC, replace(OPTIONS, bound_packets=40))
    [first] = windows.follow(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    [moved] = windows.follow(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    assert first.pacing.window == 32, "two of them are more than 40"
    assert windows.round_trip_ns(first) > 0
    assert windows.follow(ROUTES, [moved], (), 2_000) == []
    roomy = Windows(FABRIC, OPTIONS)
    roomy.follow(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    [free] = roomy.follow(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    assert free.pacing.hold_ns == 0, "32 old ones and 32 new ones are 64"
    assert moved.pacing.hold_ns > 0


def test_the_packets_of_all_moves_of_late_count_together() -> None:
    """One old generation beside the new one is within the bound; two are not, as long as the first is not gone."""
    windows = Windows(FABRIC, OPTIONS)
    [first] = windows.follow(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    [second] = windows.follow(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    [third] = windows.follow(ROUTES, [at_one_switch(1, "h1", "h2", generation=3)], (), 2_000)
    assert (first.pacing.window, second.pacing.hold_ns) == (32, 0)
    assert third.pacing.hold_ns == 1_000 + windows.round_trip_ns(first) - 2_000
    late = Windows(FABRIC, OPTIONS)
    late.follow(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    late.follow(ROUTES, [at_one_switch(1, "h1", "h2", generation=2)], (), 1_000)
    gone_ns = 1_000 + late.round_trip_ns(first)
    [third] = late.follow(ROUTES, [at_one_switch(1, "h1", "h2", generation=3)], (), gone_ns)
    assert third.pacing.hold_ns == 0


def test_who_is_started_anew_begins_with_what_the_switches_hold() -> None:
    """Windows that wait for others to obey are not raised by a controller that knows nothing of them."""
    windows = Windows(FABRIC, replace(OPTIONS, lease_ns=1_000_000))
    crowd = [at_one_switch(job, "h1", "h3") for job in range(1, 6)]
    crowd = windows.follow(ROUTES, crowd, (), 0)
    left = crowd[:1]
    windows.follow(ROUTES, left, (), 1_000)
    states = marked_states(FABRIC, {s.name: SwitchState() for s in FABRIC.switches}, windows.budgets, left, OPTIONS)
    held = windows_held(states)
    anew = Windows(FABRIC, replace(OPTIONS, lease_ns=1_000_000))
    anew.take_up(held)
    anew.follow(ROUTES, [at_one_switch(1, "h1", "h3")], (), 0)
    assert windows_held(marked_states(FABRIC, states, anew.budgets, left, OPTIONS)) == held
    [link] = [e for e in left[0].most_streams if FABRIC.peer(e).node == "h1"]
    assert anew.budgets[link].window == 64 // 5
    anew.follow(ROUTES, [at_one_switch(1, "h1", "h3")], (), 1_000_000 + anew.round_trip_ns(left[0]))
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


def test_depths_are_written_in_the_unit_that_the_switch_counts() -> None:
    """A round of 64 lanes is a frame of 326 bytes: five cells of 80 bytes."""
    cells = Target("like-cells", "fabric_64", lanes=64, cell_bytes=80)
    topology: Topology = replace(FABRIC, switches=tuple(replace(s, target=cells) for s in FABRIC.switches))
    routes = Routes(topology)
    budgets = link_budgets(topology, routes, [], (), OPTIONS)
    states = {switch.name: SwitchState() for switch in topology.switches}
    [line] = [
        line for line in marked_states(topology, states, budgets, (), OPTIONS)["s1"].lines() if "egress_port=1 " in line
    ]
    assert "threshold=80" in line
