"""Reports that switches send by themselves: state is the same as from the truth, whatever is lost, doubled or late."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.controller.telemetry.link_records import REPORT
from weir.controller.telemetry.link_state import LinkState
from weir.controller.telemetry.probe_reports import ProbeReports
from weir.controller.telemetry.probes import plan_probes
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.topologies.routing import Routes

PERIOD = 10_000_000
TOPOLOGY = leaf_spine(2, 1, 1)
LINK = Endpoint("s1", 2)


def report(
    state: LinkState,
    now_ns: int,
    egress_ns: int,
    bytes_sent: int,
    *,
    depth: int = 0,
    queue: int = 1,
    latency_us: int = 7,
    sent_ns: int | None = None,
) -> None:
    """`sent_ns`: it is a probe's, sent then."""
    record = np.zeros(1, REPORT)
    record["link"] = state.links.index(LINK)
    record["at_ns"], record["causal"] = (now_ns, False) if sent_ns is None else (sent_ns, True)
    record["heard_ns"], record["egress_ns"], record["bytes_sent"] = now_ns, egress_ns, bytes_sent
    record["queue_id"], record["queue_packets"], record["latency_us"] = queue, depth, latency_us
    state.update(record)


def link_state() -> LinkState:
    state = LinkState(TOPOLOGY, period_ns=PERIOD)
    state.watch([LINK])
    return state


def test_the_rate_is_right_under_report_faults() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    rng = random.Random(seed)
    state, rate = link_state(), 50e6
    arrivals = []
    for number in range(400):
        measured_ns = number * PERIOD // 4
        for _ in range(rng.choices((0, 1, 2), (1, 18, 1))[0]):
            arrivals.append((measured_ns + rng.choice((0,) * 19 + (PERIOD,)), measured_ns))
    arrivals.sort()
    for now_ns, measured_ns in arrivals:
        report(state, now_ns, 10**12 + measured_ns, round(rate * measured_ns * 1e-9))
    view = state.snapshot(arrivals[-1][0]).links[LINK]
    assert view.rate_bps == pytest.approx(8 * rate, rel=1e-6)
    record = state.state[state.links.index(LINK)]
    assert (record["resets"], record["reports"] + record["late"]) == (0, len(arrivals))


def test_a_restarted_switch_has_no_rate_and_no_old_maximum() -> None:
    state = link_state()
    for number in range(10):
        report(state, number * PERIOD, 10**12 + number * PERIOD, number * 500_000, depth=40)
    report(state, 10 * PERIOD, 3 * PERIOD, 1000, depth=2)
    at = state.links.index(LINK)
    assert state.state["resets"][at] == 1
    assert state.queues["high"][at, 1] == 2
    assert state.snapshot(10 * PERIOD).links[LINK].rate_bps == pytest.approx(400e6)
    report(state, 11 * PERIOD, 4 * PERIOD, 1000 + 250_000, depth=2)
    assert state.snapshot(11 * PERIOD).links[LINK].rate_bps == pytest.approx(300e6)  # T is two periods


def test_a_probe_after_the_newest_report_reveals_a_restart() -> None:
    state = link_state()
    report(state, 0, 2 * PERIOD, 10_000_000)
    report(state, PERIOD + 5, 5, 700, sent_ns=PERIOD)
    assert state.state["resets"][state.links.index(LINK)] == 1
    # one that was on its way when a report came was overtaken by it: the switch's clock says in which order
    report(state, 2 * PERIOD, 90_000, 900)
    report(state, 2 * PERIOD + 7, 80_000, 800, sent_ns=2 * PERIOD - 1)
    assert state.state[["resets", "late"]][state.links.index(LINK)].tolist() == (1, 1)


def test_each_class_has_its_queue_and_readers_get_the_bulk_one() -> None:
    state = link_state()
    for number in range(4):
        report(state, number * PERIOD, 1 + number * PERIOD, 0, depth=8, latency_us=90)
        report(state, number * PERIOD, 2 + number * PERIOD, 0, depth=30 if number == 2 else 1, queue=7, latency_us=3)
    at = state.links.index(LINK)
    assert state.queues["depth"][at, [1, 7]].tolist() == [8, 1]
    assert state.queues["high"][at, [1, 7]].tolist() == [8, 30]
    assert state.pop_peaks()[at, [1, 7]].tolist() == [8, 30]
    assert state.pop_peaks()[at, [1, 7]].tolist() == [0, 0]
    assert state.pop_highs()[at, [1, 7]].tolist() == [8, 30]
    assert state.queues["high"][at, [1, 7]].tolist() == [8, 1], "from the present depth on"
    view = state.snapshot(3 * PERIOD).links[LINK]
    assert (view.queue_packets, view.latency_us) == (8, 90)


def test_confidence_is_the_share_that_arrives_times_freshness() -> None:
    probes = plan_probes(TOPOLOGY, Routes(TOPOLOGY))
    state = LinkState(TOPOLOGY, period_ns=PERIOD)
    assert {view.confidence for view in state.snapshot(0).links.values()} == set()
    ProbeReports(state, probes)
    assert {view.confidence for view in state.snapshot(0).links.values()} == {0.0}
    alone = link_state()
    for number in range(2):
        report(alone, number * PERIOD, 1 + number * PERIOD, 0)
    ages = [0, 2 * PERIOD, 5 * PERIOD // 2, 3 * PERIOD, 9 * PERIOD]
    seen = [alone.snapshot(PERIOD + age) for age in ages]
    assert [each.links[LINK].confidence for each in seen] == [1, 1, 0.5, 0, 0]
    assert [LINK in each.stale for each in seen] == [False] * 4 + [True]

    class Half:
        def loss(self, now_ns: int) -> NDArray[np.float64]:
            return np.full(len(alone.links), np.nan)

        def reports_lost(self, now_ns: int) -> NDArray[np.float64]:
            return np.full(len(alone.links), 0.5)

    alone.attach(Half())
    view = alone.snapshot(PERIOD).links[LINK]
    assert (view.confidence, view.loss) == (0.5, 0)
