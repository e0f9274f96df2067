"""Bounds of queues that jobs of several traffic classes share, and the entries that admit their classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from weir.controller.congestion import CongestionOptions, WindowController
from weir.controller.congestion.budget import JobStreams
from weir.controller.congestion.class_priority import raised_links, waits_for_others
from weir.controller.congestion.cross_traffic import Uncontrolled
from weir.controller.congestion.marking import policer_entries
from weir.controller.planning.plan import JobPlan
from weir.tests.controller.congestion.test_budget import FABRIC, OPTIONS, PROBES, ROUTES, at_one_switch
from weir.topologies import Endpoint
from weir.topologies.model import Topology
from weir.topologies.routing import Routes
from weir.wire.frames import BULK_PRIORITY, JOB_CLASSES


def in_classes(plan: JobPlan, *classes: int) -> JobPlan:
    return replace(plan, spec=replace(plan.spec, classes=classes))


def windows_of(*plans: JobPlan, options: CongestionOptions = OPTIONS, topology: Topology = FABRIC) -> WindowController:
    windows = WindowController(topology, options)
    windows.update(ROUTES if topology is FABRIC else Routes(topology), plans, (), 0)
    return windows


def test_the_highest_classs_queue_holds_its_windows() -> None:
    """Two jobs in class 5 and one in class 1 at one switch: each port's bound is what class 5 may have there."""
    first, second = (in_classes(at_one_switch(job, "h1", "h2"), 5) for job in (1, 2))
    windows = windows_of(first, second, at_one_switch(3, "h1", "h3"))
    for link in first.max_streams:
        if FABRIC.is_switch(link.node):
            share = windows.budgets[link].window
            copies = first.max_copies.get(link, 0)
            assert windows.class_bounds[link, 5] == 2 * (share * first.max_streams[link] + copies)


def test_a_job_below_a_higher_class_has_no_bound() -> None:
    high, low = in_classes(at_one_switch(1, "h1", "h2"), 5), in_classes(at_one_switch(2, "h1", "h3"), 3)
    bounds = windows_of(high, low).class_bounds
    assert {priority for _, priority in bounds} == {5}
    apart = in_classes(at_one_switch(2, "h4", "h5"), 3)
    assert {priority for _, priority in windows_of(high, apart).class_bounds} == {3, 5}


def test_both_classes_of_a_change_count() -> None:
    """Packets of the former class may be under way, so its queue has the bound too, unless another is above it."""
    changing = in_classes(at_one_switch(1, "h1", "h2"), 4, 2)
    assert {priority for _, priority in windows_of(changing).class_bounds} == set()
    back = in_classes(at_one_switch(1, "h1", "h2"), BULK_PRIORITY, 5)
    assert {priority for _, priority in windows_of(back).class_bounds} == {5}


def test_nothing_is_promised_of_a_class_without_windows() -> None:
    plan = in_classes(at_one_switch(1, "h1", "h2"), 5)
    assert windows_of(plan).class_bounds
    assert not windows_of(plan, options=replace(OPTIONS, windows_obeyed=False)).class_bounds


def test_bulk_queues_lose_their_bound_where_a_higher_class_crosses_and_behind() -> None:
    """A declared flow from h1, which a job in class 5 shares, to a host in another rack."""
    flow = Uncontrolled("h1", "h9", 1e8, 1000)
    options = replace(OPTIONS, uncontrolled=(flow,))
    plan = at_one_switch(1, "h1", "h2")
    before, after = (windows_of(p, options=options).budgets for p in (plan, in_classes(plan, 5)))
    refused = {link for link, budget in after.items() if budget.refusal}
    ways = {link for link in ROUTES.shares("h1", "h9") if FABRIC.is_switch(link.node)}
    assert not any(before[link].refusal for link in ways)
    assert refused == {*ways, *(link for link in plan.max_streams if FABRIC.is_switch(link.node))}
    assert {link: budget.window for link, budget in after.items()} == {
        link: budget.window for link, budget in before.items()
    }


def test_a_job_that_waits_takes_the_bounds_of_all_its_queues() -> None:
    high, low = in_classes(at_one_switch(1, "h1", "h2"), 5), at_one_switch(2, "h1", "h3")
    raised = raised_links(map(JobStreams.of, (high, low)))
    assert waits_for_others(JobStreams.of(low), raised)
    assert not waits_for_others(JobStreams.of(high), raised)
    budgets = windows_of(high, low).budgets
    assert all(budgets[link].refusal for link in low.max_streams if FABRIC.is_switch(link.node))


def policed(plans: Sequence[JobPlan], host: str) -> dict[tuple[int, int], int]:
    """Burst in bytes times cost, by class and whether it is for messages, at the port of a host."""
    switch = FABRIC.attached_switch(host).name
    [port] = [port for port, far in FABRIC.neighbours(switch).items() if far.node == host]
    windows = {Endpoint("s1", 1): 8}
    found = {}
    for item in policer_entries(FABRIC, switch, plans, windows):
        match = dict(item.match)  # type: ignore[union-attr]
        if match["ingress_port"] == port:
            found[match["priority"], match["is_message"]] = dict(item.calls[0].args)["burst"]  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("classes", [(1,), (3,), (5, 2)])
def test_a_host_may_send_messages_in_its_jobs_classes_alone(classes: tuple[int, ...]) -> None:
    found = policed([in_classes(at_one_switch(1, "h1", "h2"), *classes)], "h1")
    assert found[BULK_PRIORITY, 1] > 0
    assert {priority for priority in JOB_CLASSES[1:] if found[priority, 1]} == set(classes) - {BULK_PRIORITY}
    assert not any((priority, 0) in found for priority in JOB_CLASSES), "what is no message has no class above bulk"


def test_probes_behind_a_higher_class_take_bounds_away() -> None:
    windows = WindowController(FABRIC, OPTIONS)
    plan = in_classes(at_one_switch(1, "h1", "h2"), 5)
    windows.update(ROUTES, [plan], PROBES, 0)
    raised = raised_links([JobStreams.of(plan)])
    behind = {link for link, budget in windows.budgets.items() if budget.refusal} - raised.keys()
    crossing = [probe for probe in PROBES if Endpoint(probe.switch, probe.port) in raised]
    assert bool(behind) == any(FABRIC.peer(Endpoint(p.switch, p.port)).node != p.destination for p in crossing)


def test_a_bound_holds_again_when_the_queue_has_drained() -> None:
    """Bulk traffic has waited for a job of class 5, which leaves: the buffer of 128 packets may be full."""
    flow = Uncontrolled("h4", "h1", 600e6, 1_042)
    windows = WindowController(FABRIC, CongestionOptions(64, (flow,)))
    windows.update(ROUTES, [in_classes(at_one_switch(1, "h1", "h2"), 5)], PROBES, 0)
    [link] = [end for end in FABRIC.directed_links if FABRIC.peer(end).node == "h1"]
    assert windows.budgets[link].refusal
    windows.update(ROUTES, [], PROBES, 1_000_000)
    assert not windows.budgets[link].refusal
    frames = FABRIC.link_at(link).queue_packets / (1 - windows.budgets[link].share)
    assert windows.drained_ns[link] - windows.obeyed_ns > frames * 8_752
    other = next(end for end in FABRIC.directed_links if FABRIC.peer(end).node == "h9")
    assert other not in windows.drained_ns
    drained_ns = windows.drained_ns[link]
    windows.update(ROUTES, [at_one_switch(2, "h7", "h8")], PROBES, 2_000_000)
    assert windows.drained_ns[link] >= drained_ns, "a change meanwhile does not cut it short"
