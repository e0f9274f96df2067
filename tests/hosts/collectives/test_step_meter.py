"""Measurement of a step: blocked time is exposed communication, the rest is computation."""

from __future__ import annotations

import pytest

from weir.hosts.collectives.step_meter import StepMeter


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns


def test_each_step_is_measured_by_itself() -> None:
    clock = Clock()
    meter = StepMeter(clock)
    for compute_ns, blocked_ns, count in ((70, 30, 8), (5, 0, 0), (0, 9, 4)):
        clock.now_ns += compute_ns
        meter.add_bytes(count)
        with meter.blocked(), meter.blocked():  # a call that waits for another one within itself
            clock.now_ns += blocked_ns
        assert meter.finish_step() == (compute_ns, blocked_ns, count)


def test_a_wait_that_fails_is_blocked_time_too() -> None:
    clock = Clock()
    meter = StepMeter(clock)

    def wait() -> None:
        with meter.blocked():
            clock.now_ns += 40
            raise TimeoutError

    with pytest.raises(TimeoutError):
        wait()
    assert meter.finish_step() == (0, 40, 0)
