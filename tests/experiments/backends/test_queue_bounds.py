"""Queue depths compared with the bound in force at the time, for any bounds before or after."""

from __future__ import annotations

from dataclasses import replace

from weir.controller.congestion import CongestionOptions, WindowController
from weir.controller.planning.plan import JobPlan
from weir.experiments.backends.queue_bounds import QueuePromises
from weir.tests.controller.congestion.test_budget import FABRIC, ROUTES, at_one_switch
from weir.topologies import Endpoint

LEASE_NS = 1_000_000
TO_H1 = next(end for end in FABRIC.directed_links if FABRIC.peer(end).node == "h1")
ONE, FIVE = 33, 60
"""Bounds of the queue with 32 rounds of one job and a copy, and with 11 and a copy of each of five jobs; Q* is 64."""


class Queue:
    """The queue to h1: jobs' bounds, and depths given by the test."""

    def __init__(self, bound: int = 64, late_ns: int = 0) -> None:
        self.windows = WindowController(FABRIC, CongestionOptions(bound, lease_ns=LEASE_NS))
        self.said: list[str] = []
        self.promises = QueuePromises(self.windows, self._take, self.said.append, late_ns)
        self._held = 0

    def _take(self) -> dict[Endpoint, int]:
        held, self._held = self._held, 0
        return {TO_H1: held}

    def holds(self, packets: int) -> None:
        self._held = max(self._held, packets)

    def follow(self, jobs: int, now_ns: int) -> None:
        """Set the number of jobs with a worker behind it."""
        plans: list[JobPlan] = [at_one_switch(job, "h1", "h2") for job in range(1, jobs + 1)]
        self.windows.update(ROUTES, plans, (), now_ns)
        self.promises.note(now_ns)


def test_a_bound_of_another_time_is_no_excuse() -> None:
    queue = Queue()
    queue.follow(1, 0)
    queue.holds(ONE + 1)
    queue.follow(5, 1_000_000)
    queue.holds(FIVE)
    [told] = queue.promises.broken(2_000_000)
    assert told == f"{TO_H1} held {ONE + 1} packets by 1.000 ms; its bound was {ONE}"
    assert queue.promises.promised[TO_H1] == FIVE, "the loosest of the run"


def test_packets_of_larger_windows_are_no_breach_until_all_obey() -> None:
    """Four of five jobs leave: their packets may be there for a longest round trip."""
    queue = Queue()
    queue.follow(5, 0)
    queue.follow(1, 1_000_000)
    gone_ns = queue.windows.obeyed_ns
    assert gone_ns > 1_000_000
    queue.holds(FIVE)
    queue.follow(1, gone_ns - 1)
    assert queue.promises.broken(gone_ns - 1) == []
    queue.holds(FIVE)
    queue.follow(1, gone_ns)
    queue.holds(ONE)
    assert queue.promises.broken(gone_ns + 1) == []
    queue.holds(ONE + 1)
    [told] = queue.promises.broken(gone_ns + 2)
    assert f"held {ONE + 1} packets" in told
    assert f"its bound was {ONE}" in told
    queue.holds(64)
    [worse] = queue.promises.broken(gone_ns + 3)
    assert "held 64 packets" in worse, "of each queue the largest excess"
    queue.holds(40)
    assert queue.promises.broken(gone_ns + 4) == [worse]


def test_late_reports_count_for_the_bound_of_their_time() -> None:
    queue = Queue(late_ns=500)
    queue.follow(5, 0)
    queue.follow(1, 1_000_000)
    gone_ns = queue.windows.obeyed_ns
    queue.follow(1, gone_ns + 499)
    queue.holds(FIVE)
    queue.follow(1, gone_ns + 500)
    assert queue.promises.broken(gone_ns + 500) == []
    queue.holds(ONE + 1)
    assert len(queue.promises.broken(gone_ns + 501)) == 1


def test_a_refusal_exempts_a_queue_while_it_lasts() -> None:
    queue = Queue(bound=4)
    queue.follow(1, 0)
    queue.promises.announce()
    assert queue.said == []
    assert queue.promises.formulas[0].startswith(f"{TO_H1}: at most 4 packets = ΣW + copies + probes")
    queue.follow(5, 1_000_000)
    assert queue.said[0].startswith(f"{TO_H1}: cannot be kept because 5 streams")
    assert queue.promises.refusals[0] == queue.said[0]
    assert (1_000_000, queue.said[0]) in queue.promises.said
    queue.holds(100)
    queue.follow(1, 2_000_000)
    gone_ns = queue.windows.obeyed_ns
    queue.follow(1, gone_ns)
    assert queue.promises.broken(gone_ns) == []
    assert queue.promises.refusals == []
    assert queue.promises.promised[TO_H1] is None, "at some time nothing was promised"
    queue.holds(5)
    [told] = queue.promises.broken(gone_ns + 1)
    assert told.startswith(f"{TO_H1} held 5 packets")


def test_bounds_of_traffic_classes_are_listed_and_compared_while_in_force() -> None:
    held: dict[tuple[Endpoint, int], int] = {}
    windows = WindowController(FABRIC, CongestionOptions(64, lease_ns=LEASE_NS))
    promises = QueuePromises(windows, dict, pop_class_depths=lambda: held)
    fourth, fifth = (
        replace(plan, spec=replace(plan.spec, classes=(priority,)))
        for plan, priority in ((at_one_switch(1, "h1", "h2"), 4), (at_one_switch(2, "h1", "h2"), 5))
    )
    windows.update(ROUTES, [fourth], (), 0)
    promises.note(0)
    bound = windows.class_bounds[TO_H1, 4]
    line = f"{TO_H1}, class 4: at most {bound} packets = ΣW + copies of its jobs"
    assert line in [text for _, text in promises.said]
    assert f"class 4: at most {bound} packets" in "\n".join(promises.formulas)
    held[TO_H1, 4] = bound + 1
    assert promises.broken(1_000) == [f"{TO_H1}, class 4, held {bound + 1} packets by 0.001 ms; its bound was {bound}"]
    windows.update(ROUTES, [fourth, fifth], (), 2_000)
    promises.note(2_000)
    held[TO_H1, 4] = 9 * bound
    promises.broken(3_000)
    assert promises.class_held[TO_H1, 4] == bound + 1, "beside a higher class it has no bound"
