"""Computation and exposed communication by the calls of a process."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("torch")

from weir.hosts.torch.phases import Phases
from weir.tests.emulator.harness import seeded_random


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_calls_behind_the_last_gradient_are_exposed_and_overlapped_ones_are_not() -> None:
    clock = Clock()
    phases = Phases(clock)
    for now, change in ((0, phases.begin), (50, phases.end)):  # the first call: other ranks were late
        clock.now = now
        change()
    for now, change in ((150, phases.begin), (170, phases.begin), (175, phases.end), (200, phases.end)):
        clock.now = now
        change()
    clock.now = 210
    assert phases.take() == (130, 30)
    clock.now = 250
    assert phases.take() == (40, 0)


def test_a_look_while_calls_are_on_their_way_divides_the_time() -> None:
    clock = Clock()
    phases = Phases(clock)
    assert phases.take() == (0, 0)
    phases.begin()
    assert phases.take() == (0, 0)
    phases.end()
    clock.now = 10
    phases.begin()
    clock.now = 30
    assert phases.take() == (10, 20)
    clock.now = 35
    phases.end()
    assert phases.take() == (0, 5)


def test_times_add_up_to_the_time_between_looks() -> None:
    rng, clock = seeded_random(), Clock()
    phases = Phases(clock)
    phases.begin()
    phases.end()
    calls, looks = 0, [(0, 0, 0)]
    for _ in range(2000):
        clock.now += rng.randrange(100)
        match rng.choice(["begin", "end", "look"]):
            case "begin":
                phases.begin()
                calls += 1
            case "end" if calls:
                phases.end()
                calls -= 1
            case "look":
                looks.append((clock.now, *phases.take()))
    assert min(min(times) for times in looks) >= 0
    for (before, *_), (now, compute, exposed) in pairwise(looks):
        assert compute + exposed == now - before
