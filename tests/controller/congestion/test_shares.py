"""Jobs of unlike round trips divide a queue's windows so that all have the same rate, and the link is full."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from weir.controller.congestion.shares import fair_windows, proportional_windows
from weir.topologies import Endpoint

FRAME_NS = 8_752.0


def rates(windows: list[int], streams: list[tuple[int, int]]) -> tuple[list[float], float]:
    """Rate of each stream on the link, and the wait in its queue: the q with Σ W/(T + q) equal to the link's rate, by
    bisection, or 0 if the link is not full.
    """
    counts, trips = [n for n, _ in streams], [trip for _, trip in streams]

    def share(wait_ns: float) -> list[float]:
        return [window * FRAME_NS / (trip + wait_ns) for window, trip in zip(windows, trips, strict=True)]

    def load(wait_ns: float) -> float:
        return sum(n * part for n, part in zip(counts, share(wait_ns), strict=True))

    low, high = 0.0, 1e9
    if load(0.0) <= 1:
        return share(0.0), 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if load(middle) > 1 else (low, middle)
    return share(high), high


def test_round_trips_of_65_161_and_461_us() -> None:
    streams = [(1, 65_000), (1, 161_000), (1, 461_000)]
    assert proportional_windows(126, FRAME_NS, streams) == [35, 39, 50]
    had, _ = rates([35, 39, 50], streams)
    assert had == pytest.approx([1 / 3] * 3, rel=0.02)
    had, _ = rates([42] * 3, streams)
    assert max(had) > 1.4 * min(had), "what equal windows would come to"


@pytest.mark.parametrize("seed", range(50))
def test_windows_fill_the_link_and_are_fair_where_they_can_be(seed: int) -> None:
    rng = random.Random(seed)
    streams = [(rng.randrange(1, 4), int(10 ** rng.uniform(4.3, 6))) for _ in range(rng.randrange(2, 6))]
    count = sum(n for n, _ in streams)
    level = rng.randrange(20 * count, 200 * count)  # a round more or less is little
    windows = proportional_windows(level, FRAME_NS, streams)
    total = sum(n * window for (n, _), window in zip(streams, windows, strict=True))
    assert level - count < total <= level, f"seed {seed}"
    had, wait_ns = rates(windows, streams)
    equal, _ = rates([level // count] * len(streams), streams)
    load = sum(n * part for (n, _), part in zip(streams, had, strict=True))
    most = sum(n * part for (n, _), part in zip(streams, equal, strict=True))
    assert load >= 0.93 * min(1.0, most), f"seed {seed}: {load} of {most}"
    mean_ns = sum(n * trip for n, trip in streams) / count
    if level * FRAME_NS > 1.1 * mean_ns:
        assert wait_ns > 0, f"seed {seed}"
        assert max(had) < 1.1 * min(had), f"seed {seed}: {had}"
    else:
        assert max(had) / min(had) <= 1.1 * max(equal) / min(equal), f"seed {seed}"


def test_less_than_a_round_for_each_is_one_for_each() -> None:
    assert proportional_windows(3, FRAME_NS, [(2, 65_000), (3, 461_000)]) == [1, 1]
    assert proportional_windows(64, FRAME_NS, [(3, 0), (1, 0)]) == [16, 16]


@dataclass
class Job:
    count: dict[Endpoint, int]
    round_trip_ns: int
    window: int = 512


def link(name: str) -> Endpoint:
    return Endpoint(name, 1)


def divided(jobs: list[Any], levels: dict[Endpoint, int]) -> list[int]:
    equal = {at: max(1, level // max(1, sum(job.count.get(at, 0) for job in jobs))) for at, level in levels.items()}
    return fair_windows(jobs, equal, levels, dict.fromkeys(levels, FRAME_NS))


def test_a_job_is_held_to_less_at_a_port_of_its_own() -> None:
    shared, levels = link("s9"), {link(name): 126 for name in ("s1", "s2", "s9")}
    near, far = Job({shared: 1, link("s1"): 1}, 65_000), Job({shared: 1, link("s2"): 1}, 461_000)
    windows = divided([near, far], levels)
    assert windows == proportional_windows(126, FRAME_NS, [(1, 65_000), (1, 461_000)])
    assert windows[0] < 63 < windows[1]
    near.count = {shared: 1}  # nothing but the shared port, which has the far one's window
    assert divided([near, far], levels) == [63, 63]


@pytest.mark.parametrize("seed", range(30))
def test_no_queue_has_more_than_its_level(seed: int) -> None:
    rng = random.Random(seed)
    names = [link(f"s{number}") for number in range(6)]
    levels = {at: rng.randrange(40, 200) for at in names}
    jobs = [
        Job(
            {at: rng.randrange(1, 4) for at in rng.sample(names, rng.randrange(1, 5))},
            int(10 ** rng.uniform(4, 6)),
            rng.choice([8, 64, 512]),
        )
        for _ in range(rng.randrange(1, 7))
    ]
    windows = divided(jobs, levels)
    largest = {at: max((w for job, w in zip(jobs, windows, strict=True) if at in job.count), default=0) for at in names}
    for job, window in zip(jobs, windows, strict=True):
        assert window == min(job.window, *(largest[at] for at in job.count)), "what its ports let it have"
    for at in names:
        total = sum(job.count.get(at, 0) * window for job, window in zip(jobs, windows, strict=True))
        assert total <= levels[at], f"seed {seed}: {at}"
