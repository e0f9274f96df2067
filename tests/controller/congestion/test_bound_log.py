"""Messages about queue bounds: changed ones, once; of many the fullest queue's, and the number of the others."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from weir.controller.congestion import CongestionOptions, JobStreams, Uncontrolled, link_budgets
from weir.controller.congestion.bound_log import PROMISES, summary, window_advice
from weir.controller.congestion.queue_bound import Promise
from weir.controller.controller import ControllerOptions
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.controller.congestion.test_budget import FABRIC, OPTIONS, PROBES, ROUTES, at_one_switch, plan_of
from weir.tests.controller.job_rig import MS, Fixed, make_rig
from weir.topologies import Endpoint
from weir.topologies.generators import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 3, rate_bps=1_000_000_000)
AT_LEAF = Placement({"h1": "s1", "h2": "s1"}, {}, "s1")
TOO_MUCH = Uncontrolled("h3", "h6", rate_bps=1_200_000_000, packet_bytes=1_000, burst_packets=1)


def promise(port: int, bound: int | None) -> Promise:
    return Promise(Endpoint("s1", port), bound, f"s1-p{port}: {bound}")


def test_the_fullest_queue_is_logged_and_all_are_counted() -> None:
    kept = [promise(port, bound) for port, bound in enumerate((3, 9, 1, 7, 5), 1)]
    assert summary(kept) == ["s1-p2: 9", "s1-p4: 7", "3 more queues: at most as much each"]
    refused = [promise(port, None) for port in (6, 7, 8)]
    none = ["s1-p6: None", "s1-p7: None", "1 more queues: cannot be kept either"]
    assert summary(kept[:2] + refused) == [*none, "s1-p2: 9", "s1-p1: 3"], "what cannot be kept comes first"
    assert summary([]) == []


def test_a_window_that_queues_never_allow_is_told() -> None:
    """Three workers' streams, probes and the answers to copies share links whose queues are 64 packets deep."""
    workers = ("h1", "h4", "h5")
    plan = plan_of(3, workers, Placement(dict.fromkeys(workers, "h9"), {}, "h9"), server="h9")
    budgets = link_budgets(FABRIC, ROUTES, [JobStreams.of(plan)], PROBES, OPTIONS)
    crossed = [budgets[link] for link in plan.max_streams if link in budgets]
    window = min((64 - budget.probes - budget.copies) // budget.streams for budget in crossed)
    advice = window_advice(FABRIC, ROUTES, plan, PROBES, OPTIONS)
    assert advice.startswith(f"job 3: its window of 32 packets is more than its queues allow even alone, {window};")
    assert window_advice(FABRIC, ROUTES, at_one_switch(4, "h1", "h2"), PROBES, OPTIONS) == ""
    assert window_advice(FABRIC, ROUTES, plan, PROBES, replace(OPTIONS, windows_obeyed=False)) == ""


async def test_the_controller_says_each_change_once(
    pipeline: CompiledPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    congestion = CongestionOptions(uncontrolled=(TOO_MUCH,))
    options = ControllerOptions(probe_period_ns=5 * MS, solve_period_ns=0, lease_ns=30 * MS, congestion=congestion)
    caplog.set_level(logging.INFO, PROMISES)

    def said() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.name == PROMISES]
        caplog.clear()
        return lines

    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_LEAF), options) as rig:
        lines = said()
        assert "cannot be kept because 1200 Mbit/s may come that obey no window, on a link of 1000 Mbit/s" in lines[0]
        await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, policy=FailurePolicy.WAIT))
        assert [line for line in said() if "N = 1 streams of W = 8" in line]
        await rig.run(40 * MS)
        assert said() == [], "nothing has changed, however often the controller looked"
