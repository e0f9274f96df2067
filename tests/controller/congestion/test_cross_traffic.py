"""What declared traffic may bring to a link, beside what sources send that keep to what they declare."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from weir.controller.congestion import CongestionOptions, Uncontrolled, link_budgets
from weir.controller.congestion.cross_traffic import Hops, PairTraffic, cross_traffic
from weir.controller.errors import PlanError
from weir.controller.planning.forwarding import flow_way
from weir.topologies import Endpoint, Routes
from weir.topologies.generators import fat_tree, leaf_spine

MS = 1_000_000
FABRIC = leaf_spine(leaves=3, spines=2, hosts_per_leaf=3)
ROUTES = Routes(FABRIC)


def drawn_streams(rng: random.Random) -> list[tuple[Uncontrolled, Hops]]:
    """Of one pair, one after the other or at the same time, by up to three ways."""
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
    gap_ns = 1e9 / stream.packets_per_second
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


@pytest.mark.parametrize("seed", range(200))
def test_what_comes_is_within_the_leaky_bucket_whoever_begins_and_ends(seed: int) -> None:
    rng = random.Random(seed)
    streams = drawn_streams(rng)
    delay_ns = {upstream: rng.choice([0, 1, 6]) * MS for _, upstream in streams}
    traffic = PairTraffic.of(streams)
    comes = sorted(
        at + rng.random() * delay_ns[upstream] for stream, upstream in streams for at in sent_ns(rng, stream, 40 * MS)
    )
    burst = traffic.burst_behind(lambda hops: delay_ns[hops] / 1e9)
    for first in range(0, len(comes), max(1, len(comes) // 100)):
        for count, at in enumerate(comes[first:], 1):
            within_s = (at - comes[first]) / 1e9
            assert count <= burst + traffic.packets_per_second * within_s + 1e-6, f"seed {seed}"


def test_bursts_of_three_that_run_one_after_the_other_meet_behind_a_slow_way() -> None:
    """The first one's is late by 6 ms, and comes when the second ends with its own and the third begins with one."""
    slow: Hops = ((Endpoint("s1", 1),),)
    spans = ((0, 10, slow), (10, 16, ()), (16, 20, ()), (20, 30, ()))
    streams: list[tuple[Uncontrolled, Hops]] = [
        (Uncontrolled("h1", "h4", 2e6, 1000, 8, ports=(9, 9), start_ns=start * MS, stop_ns=stop * MS), way)
        for start, stop, way in spans
    ]
    burst = PairTraffic.of(streams).burst_behind(lambda hops: 0.006 if hops else 0.0)
    assert burst >= 3 * 8
    assert burst == pytest.approx(2 * 8 + 0.006 * (250 + 8 / 0.004)), "as if all were late, at the rate of the shortest"


def test_what_ends_before_others_begin_does_not_add_up() -> None:
    """Twenty streams of 40 % of a link, one after the other: 40 %, a packet in 10 ms more, and a burst of two."""
    streams = [
        Uncontrolled("h1", "h4", 4e8, 1000, ports=(9, 9), start_ns=10 * MS * turn, stop_ns=10 * MS * (turn + 1))
        for turn in range(20)
    ]
    last = next(link for link, crossing in cross_traffic(ROUTES, streams).items() if FABRIC.peer(link).node == "h4")
    crossing = cross_traffic(ROUTES, streams)[last]
    assert crossing.rate_bps == 4e8
    assert crossing.packets_per_second == pytest.approx(4e8 / 8000 + 100)
    assert crossing.burst_behind(lambda hops: 0.0) == 2
    others = [
        Uncontrolled("h2", "h4", 4e8, 1000, ports=(9, 9), start_ns=one.start_ns, stop_ns=one.stop_ns) for one in streams
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
    """By any ways both may meet on one spine, which then has more than it carries."""
    one, other = sorted(link for link in ROUTES.shares("h1", "h4") if link.node == "s1")

    def flow(source: str, destination: str, uplink: Endpoint) -> Uncontrolled:
        ports = ((port, 9) for port in range(1, 100))
        chosen = next(each for each in ports if uplink in flow_way(ROUTES, source, destination, each))
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
    with pytest.raises(PlanError, match="from h1 to h4 ends at 5 ns, and begins at 5 ns"):
        Uncontrolled("h1", "h4", 1e8, 1000, start_ns=5, stop_ns=5)
