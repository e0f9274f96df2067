"""Slots of a job that asks for none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.controller.planning.default_slots import default_slots
from weir.topologies import Routes, leaf_spine


@pytest.mark.parametrize(
    ("rate_bps", "bound", "free", "slots"),
    [
        (40_000_000, 64, 1024, 64),
        (1_000_000_000, 64, 1024, 128),
        (1_000_000_000, 96, 1024, 256),
        (1_000_000_000, None, 4096, 256),
        (1_000_000_000, 96, 1000, 128),  # a quarter of the free slots, as a power of two
        (1_000_000_000, 96, 100, 64),
        (10_000_000_000, 64, 1024, 128),
        (100_000_000_000, 64, 1024, 128),
        (100_000_000_000, 2048, 8192, 1024),
    ],
)
def test_slots_follow_rate_bound_and_free_memory(rate_bps: int, bound: int | None, free: int, slots: int) -> None:
    topology = leaf_spine(2, 1, 2, rate_bps=rate_bps)
    left = {switch.name: free for switch in topology.switches}
    assert default_slots(topology, Routes(topology), ["h1", "h4"], bound, left) == slots


def test_the_slowest_link_and_the_scarcest_switch_decide() -> None:
    topology = leaf_spine(2, 1, 2)
    slow = replace(
        topology,
        links=tuple(
            replace(link, rate_bps=40_000_000) if "h4" in (link.a.node, link.b.node) else link
            for link in topology.links
        ),
    )
    free = {switch.name: 1024 for switch in topology.switches}
    assert default_slots(slow, Routes(slow), ["h1", "h4"], 96, free) == 64
    assert default_slots(slow, Routes(slow), ["h1", "h2"], 96, free) == 256
    assert default_slots(topology, Routes(topology), ["h1", "h4"], 96, {**free, "s2": 300}) == 64


@pytest.mark.parametrize(
    ("host_turn_ns", "free", "slots"),
    [
        (4_000_000, 1024, 512),  # half of switches without jobs
        (4_000_000, 1023, 128),  # a quarter of the free slots, as a power of two, beside another job
        (4_000_000, 4096, 1024),
        (1_000_000, 4096, 256),
    ],
)
def test_a_longer_turn_of_hosts_takes_more_slots(host_turn_ns: int, free: int, slots: int) -> None:
    topology = leaf_spine(2, 1, 2)
    left = {switch.name: free for switch in topology.switches}
    assert default_slots(topology, Routes(topology), ["h1", "h4"], 768, left, host_turn_ns) == slots


def test_a_single_worker_has_a_default() -> None:
    topology = leaf_spine(2, 1, 2)
    free = {switch.name: 1024 for switch in topology.switches}
    assert default_slots(topology, Routes(topology), ["h1"], 96, free) == 256


@pytest.mark.parametrize(("jobs", "sharing", "slots"), [(5, 3, 64), (13, 4, 32), (13, 2, 32), (512, 10, 2)])
def test_a_family_divides_rounds_among_a_workers_jobs_and_memory_among_all(jobs: int, sharing: int, slots: int) -> None:
    topology = leaf_spine(2, 1, 2)
    free = {switch.name: 1024 for switch in topology.switches}
    assert default_slots(topology, Routes(topology), ["h1"], 96, free) == 256
    assert default_slots(topology, Routes(topology), ["h1"], 96, free, jobs=jobs, sharing=sharing) == slots
    assert jobs * slots <= 1024
