"""Flow model of training beside a slow link that moves."""

from __future__ import annotations

import pytest

from weir.experiments.papers import PAPERS
from weir.experiments.repetition.moving_link import (
    CONDITIONS,
    MODES,
    RATE_BPS,
    SPAN_NS,
    TELEMETRY_NS,
    TREE_NS,
    WATCHED_NS,
    Condition,
    Course,
    MovingLink,
    Pull,
    SharedLinks,
    train,
    wasted_pulls,
)
from weir.topologies import Endpoint
from weir.training.ideal import IdealClock

MS = 1_000_000


class SlowAt(MovingLink):
    """All links at their rate, except a host's from the second span on."""

    def slow(self, now_ns: int) -> tuple[frozenset[Endpoint], float]:
        return (frozenset({Endpoint("h1", 0)}), 10.0) if now_ns >= SPAN_NS else (frozenset(), 1.0)


def test_flows_share_a_link_evenly_and_end_in_turn() -> None:
    clock = IdealClock()
    links = SharedLinks(clock, SlowAt(Condition(8), 1))
    small, large = links.start(0, 1, 12_500), links.start(0, 2, 25_000)  # 1 ms and 2 ms alone at 100 Mbit/s
    assert links.deadline_ns == 2 * MS
    clock.now_ns = 2 * MS
    assert (small(), large()) == (True, False)
    assert links.deadline_ns == 3 * MS
    clock.now_ns = 3 * MS
    assert large()
    assert links.deadline_ns is None


def test_a_flow_slows_down_when_its_link_does() -> None:
    clock = IdealClock()
    clock.now_ns = SPAN_NS - MS
    arrived = SharedLinks(clock, SlowAt(Condition(8), 1))
    done = arrived.start(0, 1, 25_000)
    assert arrived.deadline_ns == SPAN_NS
    clock.now_ns = SPAN_NS
    assert not done()
    assert arrived.deadline_ns == SPAN_NS + 10 * MS


def test_a_sum_takes_the_time_of_its_slowest_link_as_that_changes() -> None:
    fabric = SlowAt(Condition(8), 1)
    bits = 2e-3 * RATE_BPS
    assert fabric.carry_ns(bits, fabric.tree, 0) == 2 * MS
    assert fabric.carry_ns(bits, fabric.tree, SPAN_NS - MS) == pytest.approx(11 * MS, abs=2)


def test_trees_leave_a_slow_link_between_switches_after_a_while() -> None:
    fabric = MovingLink(Condition(8, between_switches=True), 3)
    for span in range(1, 9):
        slow, _ = fabric.slow(span * SPAN_NS)
        assert slow.isdisjoint(fabric.tree(span * SPAN_NS + TREE_NS))


def test_paths_are_links_of_the_fabric_end_to_end() -> None:
    fabric = MovingLink(Condition(16), 1)
    for source in fabric.hosts:
        for destination in set(fabric.hosts) - {source}:
            path = fabric.path(source, destination)
            assert path[0].node == source
            assert fabric.topology.peer(path[-1]).node == destination
            far = [fabric.topology.peer(link).node for link in path[:-1]]
            assert far == [link.node for link in path[1:]]


def test_telemetry_knows_a_slow_link_after_its_averages() -> None:
    fabric = MovingLink(Condition(8), 1)
    before, after = (fabric.snapshot(SPAN_NS + passed) for passed in (0, 2 * TELEMETRY_NS))
    assert set(before.links) == fabric.slow(0)[0]
    assert set(after.links) == fabric.slow(SPAN_NS)[0]


def test_every_contender_of_the_entry_is_a_mode() -> None:
    assert {contender.name for contender in PAPERS["netmax"].contenders} <= set(MODES)
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS)


def test_a_training_is_the_same_again() -> None:
    first, again = (train(CONDITIONS[0], "ad-psgd", 3, target=1.5) for _ in range(2))
    assert first == again
    assert first.reached_ns is not None


def test_wasted_pulls_begin_after_the_move_and_are_long() -> None:
    condition = Condition(8, between_switches=True)
    fabric = MovingLink(condition, 1)
    crossing = next(
        (a, b)
        for a in range(8)
        for b in range(8)
        if a != b and not fabric.slow(SPAN_NS)[0].isdisjoint(fabric.path(fabric.hosts[b], fabric.hosts[a]))
    )
    late, short, early, known, again = (
        Pull(*crossing, SPAN_NS + ended_ms * MS, taken_ms * MS, SPAN_NS + policy_ms * MS)
        for ended_ms, taken_ms, policy_ms in ((50, 40, 5), (60, 4, 5), (10, 40, -5), (90, 40, 25), (140, 40, 60))
    )
    wasted = wasted_pulls(condition, 1, Course(None, (late, short, early)), measured=False)
    assert (sum(wasted), len(wasted)) == (1, 8)
    assert sum(wasted_pulls(condition, 1, Course(None, (late, known)), measured=False)) == 1
    assert sum(wasted_pulls(condition, 1, Course(None, (late, known, again)), measured=True)) == 2


def test_telemetry_spares_a_second_pull_that_is_longer_than_its_delay() -> None:
    """A worker begins its next pull after 20 ms of telemetry's averages and 10 ms until the next look at them."""
    course = train(CONDITIONS[0], "steady", 1, watched_ns=WATCHED_NS)
    wasted = wasted_pulls(CONDITIONS[0], 1, course, measured=False, longer_ns=3 * TELEMETRY_NS)
    assert max(wasted) == 1
