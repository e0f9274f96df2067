"""Faults on links: their rates, their independence, and cut links."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from weir.emulator.fabric import Fabric
from weir.tests.emulator.runtime.runtime_program import HEADER_BYTES, frame, frames, headers, switch

COUNT = 20_000


def faulty(seed: int = 1, other_traffic: bool = False, **faults: Any) -> list[np.ndarray]:
    """Frames that come through a faulty link s1 – h2 out of COUNT sent."""
    fabric = Fabric(seed=seed)
    fabric.add_switch("s1", switch())
    for name, port in (("h1", 1), ("h2", 2), ("h3", 3)):
        fabric.add_host(name, poll_ns=10**9, sink=name == "h3")
        fabric.add_link((name, 0), ("s1", port), queue_packets=None, rate_bps=1e10)
    fabric.set_link(("s1", 2), both=False, **faults)
    if other_traffic:
        fabric.set_link(("h3", 0), loss=0.3)
        fabric.add_flow("h1", frame(3, size=90), rate_bps=1e9, jitter=1.0)
        fabric.add_flow("h3", frame(1, size=90), rate_bps=1e9)
    fabric.send("h1", frames(range(COUNT), port=2, size=80), priority=1)
    [wake] = fabric.run(10**9)
    return wake.frames


def numbers(groups: list[np.ndarray]) -> list[int]:
    [group] = groups
    found: list[int] = headers(group)["number"].tolist()
    return found


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5])
def test_loss_has_its_rate(probability: float) -> None:
    lost = COUNT - len(numbers(faulty(loss=probability)))
    assert abs(lost - COUNT * probability) < 5 * sqrt(COUNT * probability * (1 - probability))


def test_certain_loss_loses_all_and_no_loss_none() -> None:
    assert numbers(faulty()) == list(range(COUNT))
    fabric = Fabric()
    fabric.add_switch("s1", switch())
    fabric.add_host("h1")
    fabric.add_link(("h1", 0), ("s1", 1), loss=1.0)
    fabric.send("h1", frames(range(100)))
    fabric.run(10**6)
    assert fabric.nic_counters("h1").lost_packets == 100
    assert fabric.port_counters()["s1", 1].rx_packets == 0


def test_one_link_s_draws_depend_on_its_own_frames_alone() -> None:
    assert numbers(faulty(loss=0.2)) == numbers(faulty(loss=0.2, other_traffic=True))


def test_one_fault_s_draws_do_not_depend_on_another_fault() -> None:
    alone = set(numbers(faulty(loss=0.2)))
    both = numbers(faulty(loss=0.2, duplicate=0.3))
    assert set(both) == alone
    assert len(both) > len(alone)


def test_another_seed_loses_other_frames() -> None:
    assert numbers(faulty(seed=1, loss=0.2)) != numbers(faulty(seed=2, loss=0.2))


def test_duplicates_arrive_right_behind_or_before_their_original() -> None:
    got = numbers(faulty(duplicate=0.1))
    assert sorted(set(got)) == list(range(COUNT))
    doubled = len(got) - COUNT
    assert abs(doubled - 0.1 * COUNT) < 5 * sqrt(COUNT * 0.1 * 0.9)
    assert got == sorted(got)


def test_reordered_frames_arrive_late_and_whole() -> None:
    got = numbers(faulty(reorder=0.1, reorder_ns=1000))
    assert sorted(got) == list(range(COUNT))
    late = int((np.array(got) < np.maximum.accumulate(got)).sum())
    assert 0.05 * COUNT < late < 0.1 * COUNT  # 64 ns apart, so most that are late are overtaken


def test_corruption_flips_one_bit() -> None:
    [group] = faulty(corrupt=0.25)
    sent = frame(2, size=80)
    tail = np.frombuffer(sent[HEADER_BYTES:], np.uint8)
    flips = np.bitwise_count(group[:, HEADER_BYTES:] ^ tail).sum(axis=1)
    hits = int((flips == 1).sum())
    share = 0.25 * 16 / 80
    assert set(flips.tolist()) == {0, 1}
    assert abs(hits - share * COUNT) < 5 * sqrt(COUNT * share)


def test_a_cut_link_loses_what_is_sent_and_what_flies() -> None:
    fabric = Fabric()
    fabric.add_switch("s1", switch())
    for name, port in (("h1", 1), ("h2", 2)):
        fabric.add_host(name)
        fabric.add_link((name, 0), ("s1", port), delay_ns=1000)
    fabric.send("h1", frame(2, number=1))
    fabric.run(1500)
    fabric.set_link(("h2", 0), up=False)
    assert fabric.run(5000) == []
    fabric.send("h1", frame(2, number=2))
    assert fabric.run(10_000) == []
    assert fabric.port_counters()["s1", 2].lost_packets == 2
    fabric.set_link(("s1", 2), up=True)
    fabric.send("h1", frame(2, number=3))
    [wake] = fabric.run(20_000)
    assert headers(wake.frames[0])["number"].tolist() == [3]
    assert fabric.packets_in_flight == 0


def test_a_short_link_failure_loses_only_frames_in_flight() -> None:
    """A frame takes 800 ns and flies for 1000 more. All others arrive when they would have."""

    def arrivals(cut: bool) -> set[tuple[str, int, int]]:
        fabric = Fabric()
        fabric.add_switch("s1", switch())
        for name, port in (("h1", 1), ("h2", 2), ("h3", 3)):
            fabric.add_host(name)
            fabric.add_link((name, 0), ("s1", port), rate_bps=1e9, delay_ns=1000)
        for name, port in (("h1", 2), ("h2", 3), ("h3", 1)):
            fabric.send(name, frames(range(20), port=port))
        wakes = list(fabric.wakes_until(10_000))
        if cut:
            fabric.set_link(("s1", 2), up=False)
            fabric.set_link(("s1", 2), up=True)
            lost = fabric.port_counters()["s1", 2].lost_packets, fabric.nic_counters("h2").lost_packets
            assert lost == (2, 2)
        wakes += fabric.wakes_until(100_000)
        assert fabric.packets_in_flight == 0
        return {(wake.host, int(headers(data)["number"]), at) for wake in wakes for at, data in wake.arrivals()}

    lost = arrivals(cut=False) - arrivals(cut=True)
    assert lost == {("h2", 9, 10_800), ("h2", 10, 11_600), ("h3", 11, 12_400), ("h3", 12, 13_200)}
    assert len(arrivals(cut=True)) == 3 * 20 - 4
