"""Bounds behind queues in which packets of ended jobs remain, and until these queues have drained."""

from __future__ import annotations

from typing import Any

import pytest

from weir.controller.congestion import CongestionOptions, Uncontrolled, WindowController
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobPlan, JobSpec, job_plan
from weir.topologies import Endpoint, Routes
from weir.topologies.schema import parse_topology

NEAR, MIDDLE, FAR = [f"h{n}" for n in range(1, 4)], [f"h{n}" for n in range(4, 7)], ["h7", "h8"]
FIRST, SECOND, LAST = Endpoint("s1", 20), Endpoint("s2", 21), Endpoint("s3", 2)
"""Queues on the way of a flow from h3 to h8."""


def in_line(**last: Any) -> dict[str, Any]:
    """Three switches in line; `last` changes the link to h8."""
    links: list[dict[str, Any]] = [
        {"ends": [host, f"s{switch}-p{port}"]}
        for switch, hosts in enumerate((NEAR, MIDDLE, FAR), 1)
        for port, host in enumerate(hosts, 1)
    ]
    links[-1] |= last
    links += [{"ends": ["s1-p20", "s2-p20"]}, {"ends": ["s2-p21", "s3-p21"]}]
    return {
        "name": "line",
        "defaults": {"rate": "1Gbit", "delay": "1us", "queue": 256},
        "hosts": dict.fromkeys([*NEAR, *MIDDLE, *FAR]),
        "switches": {name: {"tier": "leaf"} for name in ("s1", "s2", "s3")},
        "links": links,
    }


FABRIC = parse_topology(in_line(rate="110Mbit"), "line")
ROUTES = Routes(FABRIC)
FLOW = Uncontrolled("h3", "h8", 100e6, 1_042)


def plan(job: int, workers: tuple[str, ...], server: str, window: int = 30) -> JobPlan:
    spec = JobSpec(job, workers, server=server, slots=64, window=window)
    return job_plan(FABRIC, ROUTES, spec, Placement(dict.fromkeys(workers, server), {}, server), 1, {})


def windows_of(*plans: JobPlan, bound: int = 128) -> WindowController:
    windows = WindowController(FABRIC, CongestionOptions(bound, (FLOW,), lease_ns=1_000_000))
    windows.update(ROUTES, [], (), 0)
    windows.update(ROUTES, plans, (), 0)
    return windows


LEAVING, COMING = plan(1, ("h1", "h2"), "h4"), plan(2, ("h5", "h6"), "h7")
"""Jobs that cross the flow's first queue and its second."""


def test_a_burst_counts_packets_of_ended_and_new_jobs() -> None:
    windows = windows_of(LEAVING)
    before = windows.budgets[LAST].bound
    windows.update(ROUTES, [COMING], (), 50_000_000)
    meanwhile = windows.budgets[LAST]
    both, alone = (windows_of(*plans).budgets[LAST].bound for plans in ((LEAVING, COMING), (COMING,)))
    assert meanwhile.bound >= both > max(before, alone) + 1
    assert not meanwhile.refusal


def test_a_burst_counts_until_the_queues_before_it_have_drained() -> None:
    windows = windows_of(LEAVING)
    windows.update(ROUTES, [COMING], (), 50_000_000)
    meanwhile, alone = windows.budgets[LAST].bound, windows_of(COMING).budgets[LAST].bound
    gone_ns, drained_ns = windows.obeyed_ns, windows.drained_ns
    assert drained_ns[LAST] > gone_ns
    for now_ns, bound in ((gone_ns, meanwhile), (drained_ns[LAST] - 1, meanwhile), (drained_ns[LAST], alone)):
        windows.update(ROUTES, [COMING], (), now_ns)
        assert windows.budgets[LAST].bound == pytest.approx(bound)


def test_a_burst_above_the_buffer_is_refused_until_then() -> None:
    fabric = parse_topology(in_line(rate="110Mbit", queue=10), "line")
    windows = WindowController(fabric, CongestionOptions(128, (FLOW,), lease_ns=1_000_000))
    refusals = []
    for plans, now_ns in (((), 0), ((LEAVING,), 0), ((COMING,), 50_000_000), ((COMING,), 500_000_000)):
        windows.update(Routes(fabric), plans, (), now_ns)
        refusals.append(windows.budgets[LAST].refusal)
    assert "waited under earlier bounds" in refusals.pop(2)
    assert not any(refusals)
