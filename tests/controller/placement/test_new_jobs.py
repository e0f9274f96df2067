"""Joint placement of new jobs in switches with few slots."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from weir.controller.placement import Placement, PlacementError, Problem
from weir.controller.placement.multi_job.joint import RunningAggregation, before_and_after, classes_of, pays
from weir.controller.placement.multi_job.new_jobs import place_jointly
from weir.controller.placement.strategies.widest import WidestTree
from weir.tests.controller.placement.joint_oracle import Mode, drawn_problems


def place(problem: Problem) -> Placement:
    return WidestTree().place(problem, random.Random(0))


def sums_in(placement: Placement) -> set[str]:
    return {*placement.parents, placement.root}


def taken_by(jobs: Sequence[Placement]) -> Counter[str]:
    return Counter(name for placement in jobs for name in sums_in(placement))


def in_turn(seed: int, mode: Mode, room: int) -> list[RunningAggregation]:
    """Drawn jobs, each placed beside those before it in switches with room for this many jobs."""
    drawn = drawn_problems(seed, mode)
    placements: list[Placement] = []
    for problem, _, _ in drawn:
        left = {name: room - taken_by(placements)[name] for name in problem.room or {}}
        placements.append(place(replace(problem, room=left)))
    jobs = []
    for index, (problem, weight, priority) in enumerate(drawn):
        others = taken_by([*placements[:index], *placements[index + 1 :]])
        left = {name: room - others[name] for name in problem.room or {}}
        jobs.append(RunningAggregation(replace(problem, room=left), placements[index], weight, priority))
    return jobs


@pytest.mark.parametrize("room", [1, 2, 8])
@pytest.mark.parametrize("mode", ["equal", "weights", "priorities"])
@pytest.mark.parametrize("seed", range(12))
def test_moves_pay_and_fit_the_switches(seed: int, mode: Mode, room: int) -> None:
    try:
        jobs = in_turn(seed, mode, room)
    except PlacementError:
        pytest.skip("the switches have no room for these jobs in turn")
    joint = place_jointly(jobs, place, searches=3)
    after = [joint.placements.get(index, job.placement) for index, job in enumerate(jobs)]
    hosts = {host.name for host in jobs[0].problem.topology.hosts}
    assert all(count <= room for name, count in taken_by(after).items() if name not in hosts)
    if joint.placements:
        now, then = before_and_after(jobs, joint.placements)
        assert pays(now, then, list(joint.placements), 0.01, classes_of(jobs))


def test_moves_without_room_are_not_made() -> None:
    jobs = in_turn(14, "weights", 2)
    first, both = (place_jointly(jobs, place, searches=searches) for searches in (1, 2))
    assert (first.note, both.note) == ("", "placed jointly, jobs would need more slots than s4 has; they stay")
    assert both.placements == first.placements
    roomy = [replace(job, problem=replace(job.problem, room=None)) for job in jobs]
    assert place_jointly(roomy, place, searches=2).note == ""


def test_jobs_that_cannot_be_evaluated_together_stay() -> None:
    jobs = in_turn(14, "weights", 2)
    other = in_turn(0, "weights", 8)  # of another fabric
    joint = place_jointly([*jobs, *other], place)
    assert joint.placements == {}
    assert joint.note.startswith("not placed jointly: ")


def test_a_search_begins_at_the_trees_of_the_one_before_it() -> None:
    jobs = in_turn(25, "priorities", 2)
    once = place_jointly(jobs, place).placements
    moved = [
        replace(job, placement=once.get(index, job.placement), problem=replace(job.problem, room=room))
        for index, (job, room) in enumerate(zip(jobs, rooms_after(jobs, once), strict=True))
    ]
    again = place_jointly(moved, place).placements
    assert again
    assert place_jointly(jobs, place, searches=2).placements == {
        index: placement for index, placement in {**once, **again}.items() if placement != jobs[index].placement
    }


def rooms_after(jobs: Sequence[RunningAggregation], moved: Mapping[int, Placement]) -> list[dict[str, int]]:
    """Room of each job after moves in switches with room for two jobs."""
    after = [moved.get(index, job.placement) for index, job in enumerate(jobs)]
    return [
        {name: 2 - taken_by([*after[:index], *after[index + 1 :]])[name] for name in job.problem.room or {}}
        for index, job in enumerate(jobs)
    ]


def test_jobs_that_run_stay() -> None:
    jobs = in_turn(25, "priorities", 2)
    assert place_jointly(jobs, place).placements
    running = [replace(job, movable=False) for job in jobs]
    assert place_jointly(running, place).placements == {}
