"""Declared traffic on a link, together with sources that keep to their declaration."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest

from weir.controller.congestion import CongestionOptions, JobStreams, Uncontrolled, Windowed, link_budgets
from weir.controller.congestion.cross_traffic import Hops, PairTraffic, cross_traffic
from weir.controller.errors import PlanError
from weir.controller.planning.forwarding import flow_way
from weir.controller.planning.plan import round_bytes
from weir.tests.support.seeds import few_of
from weir.topologies import Endpoint, Routes
from weir.topologies.generators import fat_tree, leaf_spine

MS = 1_000_000
FABRIC = leaf_spine(leaves=3, spines=2, hosts_per_leaf=3)
ROUTES = Routes(FABRIC)


def drawn_streams(rng: random.Random) -> list[tuple[Uncontrolled, Hops]]:
    """Streams of one pair, one after the other or at the same time, by up to three ways."""
    ways: list[Hops] = [((Endpoint("s1", port),),) for port in range(rng.choice([1, 2, 3]))]
    streams, begins_ns = [], 0
    for _ in range(rng.randrange(1, 9)):
        stop_ns = None if rng.random() < 0.1 else begins_ns + rng.randrange(1, 8) * MS
        stream = Uncontrolled(
            "h1",
            "h4",
            rng.choice([2e6, 8e6, 24e6]),
            packet_bytes=1000,
            burst_packets=rng.choice([1, 5, 8]),
            ports=(9, 9),
            start_ns=begins_ns,
            stop_ns=stop_ns,
        )
        streams.append((stream, rng.choice(ways)))
        begins_ns = stop_ns if stop_ns is not None and rng.random() < 0.7 else begins_ns + rng.randrange(0, 6) * MS
    return streams


def sent_ns(rng: random.Random, stream: Uncontrolled, until_ns: int) -> list[float]:
    """When a source sends that keeps to its leaky bucket: from some time on all that it may, or now and then."""
    gap_ns = 1e9 / stream.curve.rate
    end_ns = until_ns if stream.stop_ns is None else stream.stop_ns
    at = float(rng.choice([stream.start_ns, end_ns - rng.random() * gap_ns]))
    at, times = max(at, stream.start_ns), []
    eager = rng.random() < 0.7
    tokens, filled = float(stream.burst_packets), at
    while at < end_ns:
        tokens, filled = min(stream.burst_packets, tokens + (at - filled) / gap_ns), at
        if tokens >= 1:
            tokens -= 1
            times.append(at)
        else:
            at += gap_ns * (max(1e-3, 1 - tokens) if eager else rng.choice([0.5, 1, 10]))
    return times


@pytest.mark.parametrize("seed", few_of(range(200), 40))
def test_arrivals_stay_in_the_bucket_for_any_starts_and_ends(seed: int) -> None:
    rng = random.Random(seed)
    streams = drawn_streams(rng)
    delay_ns = {upstream: rng.choice([0, 1, 6]) * MS for _, upstream in streams}
    traffic = PairTraffic.of(streams)
    comes = sorted(
        at + rng.random() * delay_ns[upstream] for stream, upstream in streams for at in sent_ns(rng, stream, 40 * MS)
    )
    curve = traffic.curve_behind(lambda hops: delay_ns[hops] / 1e9)
    for first in range(0, len(comes), max(1, len(comes) // 100)):
        for count, at in enumerate(comes[first:], 1):
            within_s = (at - comes[first]) / 1e9
            assert count <= curve.burst + curve.rate * within_s + 1e-6, f"seed {seed}"


def job_at(host: str, window: int) -> JobStreams:
    """Job with a worker on this host."""
    own = Endpoint(host, 0)
    return JobStreams({own: 1, FABRIC.peer(own): 1}, window)


def left_ns(rng: random.Random, streams: Sequence[Uncontrolled], window: int, until_ns: int) -> list[list[float]]:
    """Times at which each stream's packets leave a NIC on which a job now and then sends up to its window, as packets
    return quickly.
    """
    frame_ns, order = 8 * round_bytes(FABRIC), itertools.count()
    comes: list[tuple[float, int, int]] = [
        (at, next(order), number) for number, stream in enumerate(streams) for at in sent_ns(rng, stream, until_ns)
    ]
    stops_ns = sorted(rng.uniform(0, until_ns) for _ in range(8))
    comes += [(stops_ns[0], next(order), -1) for _ in range(window)]
    heapq.heapify(comes)
    waiting, left, free_ns = deque[int](), [list[float]() for _ in streams], 0.0
    while comes or waiting:
        while comes and (not waiting or comes[0][0] <= free_ns):
            at, _, number = heapq.heappop(comes)
            free_ns = free_ns if waiting else max(free_ns, at)
            waiting.append(number)
        number = waiting.popleft()
        free_ns += frame_ns
        if number >= 0:
            left[number].append(free_ns)
        elif free_ns < stops_ns[-1]:
            phase = sum(stop <= free_ns for stop in stops_ns)  # it sends, or has paused until the next one
            back_ns = free_ns + 2_000 if phase % 2 else stops_ns[phase]
            heapq.heappush(comes, (back_ns, next(order), -1))
    return left


@pytest.mark.parametrize("seed", few_of(range(60), 15))
def test_departures_stay_in_the_bucket_for_any_nic_queue(seed: int) -> None:
    rng = random.Random(seed)
    window, bound = rng.choice([0, 4, 24]), 24
    destinations = rng.choice([["h2"], ["h2", "h3"]])
    streams = [
        Uncontrolled("h1", to, rng.uniform(0.1, 0.45) * 1e9, round_bytes(FABRIC), rng.choice([1, 6]))
        for to in destinations
    ]
    options, jobs = CongestionOptions(bound, tuple(streams)), [job_at("h1", window)] if window else []
    budgets = link_budgets(FABRIC, ROUTES, jobs, (), options)
    for stream, leaves in zip(streams, left_ns(rng, streams, window, 8 * MS), strict=True):
        burst = budgets[FABRIC.peer(Endpoint(stream.destination, 0))].burst
        assert (burst == stream.burst_packets) == (not window and len(streams) == 1)
        for first in range(0, len(leaves), max(1, len(leaves) // 100)):
            for count, at in enumerate(leaves[first:], 1):
                within_s = (at - leaves[first]) / 1e9
                assert count <= burst + stream.curve.rate * within_s + 1e-6, f"seed {seed}"


def test_a_host_with_overload_or_no_window_has_no_bound() -> None:
    """The queueing time of its other packets is unknown."""
    flow = Uncontrolled("h1", "h2", 1e8, 1042)
    last = FABRIC.peer(Endpoint("h2", 0))
    too_much = [Uncontrolled("h1", far, 4.8e8, 1042) for far in ("h4", "h7")]
    options = CongestionOptions(64, (flow, *too_much))
    flooded = link_budgets(FABRIC, ROUTES, [], (), options)[last]
    reckless = link_budgets(
        FABRIC, ROUTES, [job_at("h1", 8)], (), CongestionOptions(64, (flow,), windows_obeyed=False)
    )[last]
    for budget in (flooded, reckless):
        assert math.isinf(budget.bound)
        assert budget.refusal == "nothing limits how long others wait, at their hosts or for the control class"
    [alone, beside_windows] = (
        link_budgets(FABRIC, ROUTES, [], (), CongestionOptions(64, (flow,), windowed=windowed))[last]
        for windowed in ((), (Windowed("h1", "h3", 20, 1042),))
    )
    assert alone.burst == 1
    assert beside_windows.burst > 1 + 20 * 0.1


def max_behind_control(rng: random.Random, bulk: Sequence[Uncontrolled], control: Sequence[Uncontrolled]) -> int:
    """The most packets, the one that is sent among them, of a bulk queue to which each stream comes by a link of its
    own; the control class goes before it.
    """
    comes: list[tuple[float, int, bool]] = []
    for stream in (*bulk, *control):
        free_ns, wire_ns = 0.0, 8 * stream.packet_bytes
        for at in sent_ns(rng, stream, 4 * MS):
            free_ns = max(free_ns, at) + wire_ns
            comes.append((free_ns, wire_ns, stream.in_control_class))
    comes.sort()
    urgent, waiting = deque[int](), deque[int]()
    most, now_ns, ends_ns, sends_bulk = 0, 0.0, 0.0, False
    for at, wire_ns, in_control_class in comes:
        while ends_ns <= at and (urgent or waiting):
            sends_bulk = not urgent
            ends_ns = max(now_ns, ends_ns) + (urgent or waiting).popleft()
        (urgent if in_control_class else waiting).append(wire_ns)
        most = max(most, len(waiting) + (sends_bulk and ends_ns > at))
        now_ns = at
    return most


@pytest.mark.parametrize("seed", range(60))
def test_a_queue_is_in_bound_for_any_control_class_traffic(seed: int) -> None:
    rng = random.Random(seed)
    far = ["h1", "h2", "h3", "h7", "h8", "h9"][: rng.randrange(7)]
    control = [Uncontrolled(host, "h4", 4e6, 100, rng.choice([1, 20]), in_control_class=True) for host in far]
    share = rng.uniform(0.3, 0.48)
    bulk = [Uncontrolled(host, "h4", share * 1e9, round_bytes(FABRIC), rng.choice([1, 6])) for host in ("h5", "h6")]
    [last] = [link for link in cross_traffic(ROUTES, bulk) if FABRIC.peer(link).node == "h4"]
    budget = link_budgets(FABRIC, ROUTES, [], (), CongestionOptions(64, (*bulk, *control)))[last]
    alone = link_budgets(FABRIC, ROUTES, [], (), CongestionOptions(64, tuple(bulk)))[last]
    assert (budget.bound > alone.bound) == bool(control)
    assert budget.share == pytest.approx(2 * share / (1 - 0.004 * len(far)))
    assert max_behind_control(rng, bulk, control) <= budget.bound, f"seed {seed}: {budget}"


def test_bulk_and_control_class_together_may_overload_a_link() -> None:
    flow = Uncontrolled("h1", "h4", 9.5e8, round_bytes(FABRIC))
    beats = [Uncontrolled(host, "h4", 1e7, 100, in_control_class=True) for host in ("h2", "h3", "h5", "h6", "h7")]
    budgets = link_budgets(FABRIC, ROUTES, [], (), CongestionOptions(64, (flow, *beats)))
    last = FABRIC.peer(Endpoint("h4", 0))
    assert budgets[last].refusal == (
        "950 Mbit/s may come that obey no window, on a link of 1000 Mbit/s, of which the control class may take 50"
    )
    without = link_budgets(FABRIC, ROUTES, [], (), CongestionOptions(64, (flow,)))
    assert not without[last].refusal
    assert budgets.keys() == without.keys(), "where nothing else is declared, promises are as before"
    idle = [link for link in without if FABRIC.is_host(FABRIC.peer(link).node) and link != last]
    assert all(budgets[link] == without[link] for link in idle)


def test_bursts_of_three_in_sequence_meet_behind_a_slow_way() -> None:
    """The first one's is late by 6 ms, and comes when the second ends with its own and the third begins with one."""
    slow: Hops = ((Endpoint("s1", 1),),)
    spans = ((0, 10, slow), (10, 16, ()), (16, 20, ()), (20, 30, ()))
    streams: list[tuple[Uncontrolled, Hops]] = [
        (Uncontrolled("h1", "h4", 2e6, 1000, 8, ports=(9, 9), start_ns=start * MS, stop_ns=stop * MS), way)
        for start, stop, way in spans
    ]
    burst = PairTraffic.of(streams).curve_behind(lambda hops: 0.006 if hops else 0.0).burst
    assert burst >= 3 * 8
    assert burst == pytest.approx(2 * 8 + 0.006 * (250 + 8 / 0.004)), "as if all were late, at the rate of the shortest"


def test_streams_that_end_before_others_begin_do_not_add_up() -> None:
    """Twenty streams of 40 % of a link, one after the other: 40 %, a packet in 10 ms more, and a burst of two."""
    streams = [
        Uncontrolled("h1", "h4", 4e8, 1000, ports=(9, 9), start_ns=10 * MS * turn, stop_ns=10 * MS * (turn + 1))
        for turn in range(20)
    ]
    last = next(link for link, crossing in cross_traffic(ROUTES, streams).items() if FABRIC.peer(link).node == "h4")
    crossing = cross_traffic(ROUTES, streams)[last]
    assert crossing.rate_bps == 4e8
    assert crossing.curve.rate == pytest.approx(4e8 / 8000 + 100)
    assert crossing.curve_behind(lambda hops: 0.0).burst == 2
    others = [
        Uncontrolled("h2", "h4", 4e8, 1000, ports=(9, 9), start_ns=stream.start_ns, stop_ns=stream.stop_ns)
        for stream in streams
    ]
    both = cross_traffic(ROUTES, [*streams[::2], *others[1::2]])[last]
    assert both.rate_bps == 8e8, "no host knows when others send"


@pytest.mark.parametrize("seed", range(20))
def test_known_ports_leave_one_way_and_unknown_ones_all(seed: int) -> None:
    rng = random.Random(seed)
    routes = Routes(fat_tree(4))
    source, destination = rng.sample([host.name for host in routes.topology.hosts], 2)
    ports = rng.randrange(1, 65536), rng.randrange(1, 65536)
    stream = Uncontrolled(source, destination, 1e8, 1000)
    anywhere = cross_traffic(routes, [stream])
    known = cross_traffic(routes, [Uncontrolled(source, destination, 1e8, 1000, ports=ports)])
    way = [link for link in flow_way(routes, source, destination, ports) if routes.topology.is_switch(link.node)]
    assert list(known) == way
    assert set(anywhere) == {
        link for link in routes.shares(source, destination) if routes.topology.is_switch(link.node)
    }
    assert set(way) <= set(anywhere)
    assert [known[link].upstream for link in way] == [tuple(way[:hop]) for hop in range(len(way))]
    every = [Endpoint(source, 0), *way]
    assert [known[link].inlets for link in way] == [frozenset({before}) for before in every[:-1]]


def test_two_flows_on_two_spines_are_half_a_link_each() -> None:
    """Their ways may be any; both may meet on one spine, which is then overloaded."""
    one, other = sorted(link for link in ROUTES.shares("h1", "h4") if link.node == "s1")

    def flow(source: str, destination: str, uplink: Endpoint) -> Uncontrolled:
        ports = ((port, 9) for port in range(1, 100))
        chosen = next(port for port in ports if uplink in flow_way(ROUTES, source, destination, port))
        return Uncontrolled(source, destination, 6e8, 1042, ports=chosen)

    known = [flow("h1", "h4", one), flow("h2", "h5", other)]
    unknown = [replace(each, ports=None) for each in known]
    by_way = link_budgets(FABRIC, ROUTES, [], (), CongestionOptions(64, tuple(known)))
    anyhow = link_budgets(FABRIC, ROUTES, [], (), CongestionOptions(64, tuple(unknown)))
    assert not by_way[one].refusal
    assert not by_way[other].refusal
    assert "1200 Mbit/s may come" in anyhow[one].refusal
    assert "1200 Mbit/s may come" in anyhow[other].refusal


def test_traffic_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(PlanError, match=r"from h1 to h4 ends at 5 ns.* begins at 5 ns"):
        Uncontrolled("h1", "h4", 1e8, 1000, start_ns=5, stop_ns=5)
