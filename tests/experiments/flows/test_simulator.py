"""Steps of jobs and flows of others, by hand; bytes are neither lost nor made; links are never overloaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weir.controller.placement import Placement
from weir.controller.placement.model.links import Links
from weir.experiments.errors import ExperimentError
from weir.experiments.flows.background import (
    FULLEST,
    between_switches,
    drawn_sizes,
    flows,
    mean_size,
    paced,
)
from weir.experiments.flows.coflows import (
    Coflow,
    Pace,
    drawn_path,
    halving_doubling_coflow,
    ring_coflow,
    tree_coflow,
    two_level_ring_coflow,
)
from weir.experiments.flows.simulator import Arrivals, Simulator
from weir.experiments.flows.sizes import FLOW_SIZES
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Routes, fat_tree, leaf_spine

MB = 8e6
"""Bit/s of a link that carries a megabyte in a second."""


def coflow(links: dict[int, float], lead: float = 0.0, trail: float = 0.0, limit: float = np.inf) -> Coflow:
    return Coflow(np.array(list(links), np.int64), np.array(list(links.values())), lead, trail, limit)


def arrivals(*given: tuple[float, float, list[int]]) -> Arrivals:
    sizes = [len(path) for _, _, path in given]
    return Arrivals(
        np.array([at for at, _, _ in given]),
        np.array([size for _, size, _ in given]),
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        np.array([link for _, _, path in given for link in path], np.int64),
    )


def test_a_step_is_lead_bytes_and_trail() -> None:
    """Two streams of 1 MB on a link of 1 MB/s, half a second before and a quarter after."""
    simulator = Simulator(np.array([MB]))
    job = simulator.add("a", 1e6, [(coflow({0: 2}, 0.5, 0.25), 1.0)], steps=3, compute_seconds=0.1)
    simulator.run_until_done()
    assert job.durations == pytest.approx([2.75] * 3)
    assert simulator.now == pytest.approx(3 * 2.85)
    assert simulator.carried_bytes()[1].tolist() == pytest.approx([6e6])


def test_flows_come_share_and_go() -> None:
    """Alone until 0.5 s, halves until 0.6 s, thirds until the job is done at 1.95 s; then the two others."""
    simulator = Simulator(np.array([MB, MB]), arrivals((0.5, 1e6, [0]), (0.6, 1e6, [0, 1])))
    job = simulator.add("a", 1e6, [(coflow({0: 1}), 1.0)], steps=1)
    simulator.run(10)
    assert job.durations == pytest.approx([1.95])
    assert simulator.finished_seconds().tolist() == pytest.approx([2.95, 3.0])
    assert simulator.carried_bytes().tolist() == [pytest.approx([2e6, 1e6]), pytest.approx([1e6, 0])]


def test_traffic_at_a_fixed_rate_does_not_yield() -> None:
    simulator = Simulator(np.array([MB]))
    simulator.pace(np.array([0.75 * MB]))
    job = simulator.add("a", 1e6, [(coflow({0: 1}), 1.0)], steps=2)
    simulator.at(4.0, lambda: simulator.pace(np.array([0.0])))
    simulator.run_until_done()
    assert job.durations == pytest.approx([4.0, 1.0])
    assert simulator.carried_bytes()[0].tolist() == pytest.approx([3e6])


def test_a_window_bounds_a_job_where_links_do_not() -> None:
    simulator = Simulator(np.array([MB]))
    job = simulator.add("a", 1e6, [(coflow({0: 1}, limit=0.5 * MB), 1.0)], steps=1)
    simulator.run_until_done()
    assert job.durations == pytest.approx([2.0])


def test_parts_share_a_jobs_chunks_and_end_with_the_last() -> None:
    simulator = Simulator(np.array([MB, 4 * MB]))
    job = simulator.add("a", 1e6, [(coflow({0: 1}), 0.25), (coflow({1: 1}), 0.75)], steps=1)
    simulator.run_until_done()
    assert job.durations == pytest.approx([0.25])


def test_a_move_takes_what_is_left_along() -> None:
    """0.4 MB on the slow link, a pause of 0.1 s, the other 0.6 MB on one ten times as fast."""
    simulator = Simulator(np.array([MB, 10 * MB]))
    job = simulator.add("a", 1e6, [(coflow({0: 1}), 1.0)], steps=2)
    simulator.at(0.4, lambda: simulator.move(job, [(coflow({1: 1}), 1.0)], pause_seconds=0.1))
    simulator.run_until_done()
    assert job.durations == pytest.approx([0.4 + 0.1 + 0.06, 0.1])
    assert simulator.carried_bytes()[1].tolist() == pytest.approx([0.4e6, 1.6e6])
    with raises(ExperimentError, place="job a"):
        simulator.move(job, [(coflow({0: 1}), 1.0)], 0.0)


def test_shares_that_do_not_make_a_whole_are_refused() -> None:
    with raises(ExperimentError, place="job a", value=0.75):
        Simulator(np.array([MB])).add("a", 1e6, [(coflow({0: 1}), 0.75)], steps=1)


def test_a_tree_as_a_flow() -> None:
    """Two racks that sum, then one spine, then the server's leaf: up and down once on each link, and twice nowhere."""
    topology = leaf_spine(3, 1, 2)
    routes = Routes(topology)
    tree = Placement({"h1": "s1", "h2": "s1", "h3": "s2"}, {"s1": "s4", "s2": "s4", "s4": "s3", "s3": "h5"}, "h5")
    links = Links.of(routes)
    poll, pace = 20e-6, Pace(window=8, poll_seconds=20e-6, round_bytes=1_000)
    flow = tree_coflow(routes, tree, pace, random.Random(1))
    used = {str(topology.directed_links[at]): count for at, count in zip(flow.links, flow.streams, strict=True)}
    hops = [("h1", 0, "s1", 1), ("h2", 0, "s1", 2), ("h3", 0, "s2", 1), ("s1", 3, "s4", 1), ("s2", 3, "s4", 2)]
    hops += [("s4", 3, "s3", 3), ("s3", 1, "h5", 0)]
    assert used == {str(Endpoint(*end)): 1.0 for a, p, b, q in hops for end in ((a, p), (b, q))}
    way = 4 * (2e-6 + 8 * 1_000 / 1e9)  # 40 µs: two polls; a small frame takes one
    assert flow.lead_seconds == pytest.approx(2 * poll + 2 * poll)
    assert flow.trail_seconds == pytest.approx(way) == pytest.approx(2 * poll)
    assert flow.limit_bps == pytest.approx(8 * 8 * 1_000 / (4 * poll))
    assert len(links.number) == 18


def test_a_ring_goes_rack_by_rack() -> None:
    """One flow of three crosses the spine each way, whatever the order of the workers."""
    routes = Routes(leaf_spine(2, 1, 2))
    for workers in (["h1", "h3", "h2"], ["h1", "h2", "h3"]):
        flow = ring_coflow(routes, workers, Pace(), random.Random(1))
        assert flow.bytes_factor == pytest.approx(4 / 3)
        assert flow.streams.tolist() == [1.0] * len(flow.links)
        assert flow.streams.sum() == 2 + 4 + 4
    with raises(ExperimentError, value=1):
        ring_coflow(routes, ["h1"], Pace(), random.Random(1))


@pytest.mark.parametrize("coflow", [ring_coflow, two_level_ring_coflow, halving_doubling_coflow])
def test_an_all_reduce_of_hosts_sends_no_more_than_it_must(coflow: Callable[..., Coflow]) -> None:
    """Every worker sends and gets 2 (N−1)/N of the gradient, the least there can be (Patarasuk & Yuan, 2009), where
    workers are a power of two and racks have as many.
    """
    routes = Routes(leaf_spine(4, 2, 4))
    links = Links.of(routes)
    workers = [host.name for host in routes.topology.hosts]
    flow = coflow(routes, random.Random(1).sample(workers, 16), Pace(), random.Random(2))
    carried = dict(zip(flow.links.tolist(), (flow.streams * flow.bytes_factor).tolist(), strict=True))
    assert [carried[link] for link in links.access.ravel().tolist()] == pytest.approx([2 * 15 / 16] * 32)
    with raises(ExperimentError, value=1):
        coflow(routes, ["h1"], Pace(), random.Random(1))


def test_two_levels_send_each_part_once_between_racks() -> None:
    """Racks of two workers and of one: 2 (R−1)/R of the gradient leaves each rack, by hand."""
    routes = Routes(leaf_spine(2, 1, 2))
    links = Links.of(routes)
    flow = two_level_ring_coflow(routes, ["h3", "h1", "h2"], Pace(), random.Random(1))
    carried = dict(zip(flow.links.tolist(), (flow.streams * flow.bytes_factor).tolist(), strict=True))
    up = [links.number[Endpoint.parse(name)] for name in ("s1-p3", "s2-p3")]
    assert [carried[link] for link in up] == pytest.approx([1.0, 1.0])
    hosts = [carried[links.access[links.host[name], 0]] for name in ("h1", "h2", "h3")]
    assert hosts == pytest.approx([1.5, 1.5, 1.0])  # half of it back and forth in the rack, and half of a part between


def test_halving_takes_extra_workers_to_a_neighbour_first() -> None:
    routes = Routes(leaf_spine(1, 0, 3))
    links = Links.of(routes)
    flow = halving_doubling_coflow(routes, ["h1", "h2", "h3"], Pace(), random.Random(1))
    carried = dict(zip(flow.links.tolist(), (flow.streams * flow.bytes_factor).tolist(), strict=True))
    hosts = [carried[links.access[links.host[name], 0]] for name in ("h1", "h2", "h3")]
    assert hosts == pytest.approx([1.0, 2.0, 1.0])


def test_hashing_draws_every_shortest_way() -> None:
    routes = Routes(fat_tree(4))
    rng = random.Random(1)
    ways = {tuple(drawn_path(routes, "h1", "h16", rng)) for _ in range(200)}
    assert len(ways) == 4
    assert {len(way) for way in ways} == {6}


@pytest.mark.parametrize("seed", range(10))
def test_bytes_are_conserved_and_no_link_is_overloaded(seed: int) -> None:
    """Jobs that come, move and go among flows of published sizes: all that was to be sent is on every link of its way,
    and no link ever carried more than it can.
    """
    rng = random.Random(seed)
    routes = Routes(fat_tree(4))
    links = Links.of(routes)
    hosts = [host.name for host in routes.topology.hosts]
    seconds = 2.0
    others = flows(routes, "websearch", rng.choice((0.1, 0.4, 0.8)), seconds, rng)
    simulator = Simulator(links.rate_bps, others)
    jobs = []

    def parts() -> list[tuple[Coflow, float]]:
        share = rng.random()
        return [(ring_coflow(routes, rng.sample(hosts, 5), Pace(window=64), rng), part) for part in (share, 1 - share)]

    for number in range(3):
        simulator.run(rng.random() * 0.3 + simulator.now)
        jobs.append(simulator.add(f"job {number}", 2e6, parts(), rng.randint(2, 5), 0.01))
    simulator.run(simulator.now + 0.02)
    for job in jobs:
        if not job.ended:
            simulator.move(job, parts(), 0.001)
    last = simulator.carried_bytes()
    for tick in range(1, 400):
        simulator.run(simulator.now + 0.01)
        now = simulator.carried_bytes()
        assert ((now - last).sum(axis=0) <= 0.01 * links.rate_bps / 8 * (1 + 1e-9)).all(), f"seed {seed}, tick {tick}"
        last = now
    assert all(job.ended for job in jobs), f"seed {seed}"
    expected = np.zeros(len(links.rate_bps))
    np.add.at(expected, others.links, np.repeat(others.bytes, np.diff(others.starts)))
    assert np.isfinite(simulator.finished_seconds()).all()
    assert last[0] == pytest.approx(expected)
    flowing, rates = simulator.rates_bps
    assert len(flowing) == len(rates) == 0


def test_published_sizes_have_their_mean_and_their_points() -> None:
    rng = np.random.default_rng(7)
    for name, points in FLOW_SIZES.items():
        sizes = drawn_sizes(name, 400_000, rng)
        for size, share in points[1:]:
            assert (sizes <= size * (1 + 1e-9)).mean() == pytest.approx(share, abs=0.005), (name, size)
        assert sizes.mean() == pytest.approx(mean_size(name), rel=0.05)
    with raises(ExperimentError, value="voip", allowed=("websearch", "datamining")):
        drawn_sizes("voip", 1, rng)


@pytest.mark.parametrize("load", [0.1, 0.3, 0.6])
def test_fixed_rates_load_the_fabric_as_asked(load: float) -> None:
    routes = Routes(fat_tree(4))
    links = Links.of(routes)
    inside = between_switches(routes) > 0
    bps = paced(routes, load, random.Random(3))
    assert bps[inside].sum() / links.rate_bps[inside].sum() == pytest.approx(load, abs=0.01)
    assert (bps <= FULLEST * links.rate_bps).all()
    assert not bps[~inside].any()


def test_published_flows_offer_the_load_that_was_asked() -> None:
    routes = Routes(fat_tree(4))
    inside = between_switches(routes) > 0
    offered = flows(routes, "websearch", 0.3, 20.0, random.Random(5))
    total = float((offered.bytes * np.diff(offered.starts)).sum())
    assert total / (20.0 * Links.of(routes).rate_bps[inside].sum() / 8) == pytest.approx(0.3, rel=0.1)


def test_a_file_of_tiny_flows_takes_no_memory_without_bound(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("0, 0\n1, 1\n")
    with raises(ExperimentError, place=str(sizes)):
        flows(Routes(fat_tree(4)), str(sizes), 0.3, 3600.0, random.Random(5))
