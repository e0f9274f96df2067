"""Turns under drawn schedules of events."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from weir.controller.scheduling.errors import SchedulingError
from weir.controller.scheduling.turns import DeviceTurns, Turn

DEVICES = ("d0", "d1", "d2")


@pytest.mark.parametrize("seed", range(20))
def test_all_devices_serve_one_order_and_nobody_waits_for_ever(seed: int) -> None:
    rng = random.Random(seed)
    jobs = {"a": DEVICES, "b": DEVICES, "c": DEVICES[:2]}
    turns = DeviceTurns(jobs)
    computing: set[tuple[str, str]] = set()
    summing: dict[str, set[str]] = defaultdict(set)
    served: dict[str, list[tuple[int, str]]] = defaultdict(list)
    waiting: set[tuple[str, str]] = set()

    def begin(granted: list[Turn]) -> None:
        for turn in granted:
            assert turn.device not in {device for _, device in computing}
            waiting.remove((turn.job, turn.device))
            computing.add((turn.job, turn.device))
            served[turn.device].append((turn.number, turn.job))

    def ask(job: str, device: str) -> None:
        waiting.add((job, device))
        begin(turns.request(job, device))

    idle = [(job, device) for job, devices in jobs.items() for device in devices]
    killed = rng.choice([None, "a"])
    lost = rng.choice([None, ("b", rng.choice(DEVICES))])
    for event in range(400):
        if event == 100 and lost:  # a worker, without which its job goes on
            begun = turns.leave(*lost)
            for each in (computing, waiting):
                each.discard(lost)
            idle = [seat for seat in idle if seat != lost]
            jobs["b"] = tuple(device for device in jobs["b"] if device != lost[1])
            summing["b"].discard(lost[1])
            begin(begun)
        if event == 300 and lost:  # it is back
            turns.join(*lost)
            jobs["b"] = (*jobs["b"], lost[1])
            idle.append(lost)
        if event == 200 and killed:
            begin_after = turns.remove(killed)
            for them in (computing, waiting):
                them.difference_update({each for each in them if each[0] == killed})
            idle = [seat for seat in idle if seat[0] != killed]
            del jobs[killed]
            begin(begin_after)
        whole = [job for job in jobs if summing[job] == set(jobs[job])]
        choices = [("idle", seat) for seat in idle] + [("computing", seat) for seat in sorted(computing)]
        choices += [("sum", (job, "")) for job in whole]
        assert choices, f"seed {seed}: nothing can happen"
        kind, (job, device) = rng.choice(choices)
        if kind == "idle":
            idle.remove((job, device))
            ask(job, device)
        elif kind == "computing":
            computing.remove((job, device))
            summing[job].add(device)
            begin(turns.release(job, device))
        else:
            summing[job].clear()
            idle += [(job, each) for each in jobs[job]]
    for order in served.values():
        assert [number for number, _ in order] == sorted(number for number, _ in order)
    assert len({job for number, job in (pair for order in served.values() for pair in order)}) == 3
    of_number: dict[int, str] = {}
    for order in served.values():
        for number, job in order:
            assert of_number.setdefault(number, job) == job


def test_a_job_that_communicates_is_passed_over() -> None:
    turns = DeviceTurns({"a": ["d"], "b": ["d"]})
    assert [turn.job for turn in turns.request("a", "d")] == ["a"]
    assert turns.release("a", "d") == []
    assert [turn.number for turn in turns.request("a", "d")] == [2]


def test_jobs_alternate_if_both_wait() -> None:
    turns = DeviceTurns({"a": ["d"], "b": ["d"]})
    turns.request("a", "d")
    turns.request("b", "d")
    order = []
    for _ in range(6):
        holder = turns.held["d"].job
        order.append(holder)
        turns.release(holder, "d")
        turns.request(holder, "d")
    assert order == ["a", "b"] * 3


def test_a_turn_waits_for_all_workers_of_its_job() -> None:
    turns = DeviceTurns({"a": ["d", "e"], "b": ["d", "e"]})
    assert turns.request("a", "d") == []
    assert turns.request("b", "e") == []
    assert [(turn.job, turn.device) for turn in turns.request("b", "d")] == [("b", "d"), ("b", "e")]


def test_a_killed_job_frees_its_devices() -> None:
    turns = DeviceTurns({"a": ["d"], "b": ["d"]})
    turns.request("a", "d")
    turns.request("b", "d")
    assert [turn.job for turn in turns.remove("a")] == ["b"]
    assert turns.remove("a") == []


def test_wrong_requests_are_refused() -> None:
    turns = DeviceTurns({"a": ["d"], "b": ["d", "e"]})
    with pytest.raises(SchedulingError):
        turns.request("a", "e")
    with pytest.raises(SchedulingError):
        turns.release("a", "d")
    turns.request("b", "e")
    with pytest.raises(SchedulingError):
        turns.request("b", "e")
    turns.request("a", "d")
    with pytest.raises(SchedulingError):
        turns.request("a", "d")
    with pytest.raises(SchedulingError):
        DeviceTurns({"a": ["d", "d"]})
