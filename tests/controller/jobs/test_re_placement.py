"""Jobs that move for their own good, through the whole controller: no herding, no flapping, no waiting, exact sums."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from weir.controller.controller import ControllerOptions
from weir.controller.errors import OutOfMemory
from weir.controller.jobs import re_placement
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.placement.model.loads import LinkLoad
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import JobSpec, rounds_of_step
from weir.controller.planning.planner import loads_of
from weir.controller.telemetry.snapshot import Snapshot
from weir.tests.controller.job_rig import MS, Fixed, Job, JobRig, make_rig
from weir.topologies import Endpoint
from weir.topologies.generators import leaf_spine
from weir.wire.control import Pause

TOPOLOGY = leaf_spine(3, 2, 2, rate_bps=1_000_000_000)
PERIOD = 2 * MS
OPTIONS = ControllerOptions(
    probe_period_ns=PERIOD, solve_period_ns=5 * PERIOD, dwell_ns=10 * PERIOD, retry_ns=MS, together=True
)
SPINES = {"s4", "s5"}
WIDE = leaf_spine(3, 4, 4, rate_bps=1_000_000_000)
CHUNKS = 80


@pytest.fixture
async def rig(pipeline: CompiledPipeline) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, strategy("widest"), OPTIONS) as rig:
        await rig.run(5 * PERIOD)
        yield rig


def spines(rig: JobRig, number: int) -> set[str]:
    placement = rig.controller.jobs[number].plan.placement
    nodes = {placement.root, *placement.parents, *placement.aggregators.values()}
    return {switch.name for switch in rig.controller.planner.topology.switches if switch.tier == "spine"} & nodes


def moves(rig: JobRig) -> list[int]:
    """When jobs were told to pause, once for each move."""
    first: dict[Pause, int] = {}
    for at_ns, message in rig.told:
        if isinstance(message.content, Pause):
            first.setdefault(message.content, at_ns)
    return sorted(first.values())


async def train(
    rig: JobRig, jobs: list[Job], until_ns: int, think_ns: int = 0, handles: dict[int, int] | None = None
) -> dict[int, int]:
    """Run sums without end, each compared with the expected one. Returns the number of sums by job; `handles`: earlier
    number.
    """
    handles = {} if handles is None else handles
    while rig.fabric.now_ns < until_ns:
        for job in jobs:
            rig.submit(job, 1000 * job.number + rig.fabric.now_ns, CHUNKS)
        await rig.run(rig.fabric.now_ns + 1000 * MS, *jobs)
        for job in jobs:
            handle = handles.setdefault(job.number, 0)
            assert job.take(handle) == dict.fromkeys(job.workers, job.sum_of()), job.number
            handles[job.number] += 1
        if think_ns:
            await rig.run(rig.fabric.now_ns + think_ns)
    return handles


def spec(number: int, *workers: str, server: str) -> JobSpec:
    return JobSpec(number, workers, server, slots=64, window=32, gradient_bytes=1100 * CHUNKS)


FIRST = spec(1, "h1", "h3", server="h5")
SECOND = spec(2, "h2", "h4", server="h6")


def noisy(rig: JobRig, monkeypatch: pytest.MonkeyPatch, share: float, seed: int = 7) -> None:
    """Make telemetry wrong by up to this share of each link's rate, drawn for every reading."""
    rng, true = np.random.default_rng(seed), rig.controller.links.snapshot

    def snapshot(now_ns: int, exclude: Mapping[object, float] | None = None) -> Snapshot:
        seen = true(now_ns, exclude)  # type: ignore[arg-type]
        links = {
            link: replace(view, background_bps=max(0.0, view.background_bps + 1e9 * share * rng.uniform(-1, 1)))
            for link, view in seen.links.items()
        }
        return replace(seen, links=links)

    monkeypatch.setattr(rig.controller.links, "snapshot", snapshot)


@pytest.mark.parametrize(("noise", "think_ns"), [pytest.param(0.0, MS, marks=pytest.mark.long), (0.1, 0)])
async def test_two_equal_jobs_settle_at_once_and_never_move(
    rig: JobRig, monkeypatch: pytest.MonkeyPatch, noise: float, think_ns: int
) -> None:
    """The second knows the first's streams, not its measured traffic: each has a spine of its own from the start."""
    if noise:
        noisy(rig, monkeypatch, noise)
    jobs = [await rig.admit(FIRST), await rig.admit(SECOND)]
    assert spines(rig, 1) != spines(rig, 2)
    assert len(spines(rig, 1)) == len(spines(rig, 2)) == 1
    await train(rig, jobs, rig.fabric.now_ns + 14 * PERIOD, think_ns)
    assert moves(rig) == []


@pytest.mark.long
async def test_four_equal_jobs_settle_on_four_spines_and_never_move(
    pipeline: CompiledPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that comes knows the streams of all before it. They are looked at one by one and together ever after, by
    readings as they are at first, and then by such as are 10 % off.
    """
    async with make_rig(WIDE, pipeline, strategy("widest"), OPTIONS) as rig:
        await rig.run(5 * PERIOD)
        looks: list[int] = []
        together = rig.controller.planner.better_together

        def watched(jobs, movable, readings, gain):  # type: ignore[no-untyped-def]
            looks.append(len(jobs))
            return together(jobs, movable, readings, gain)

        rig.controller.planner.better_together = watched  # type: ignore[method-assign]
        jobs = [
            await rig.admit(spec(index, f"h{index}", f"h{4 + index}", server=f"h{8 + index}")) for index in range(1, 5)
        ]
        settled = [spines(rig, job.number) for job in jobs]
        assert sorted(settled, key=sorted) == [{"s4"}, {"s5"}, {"s6"}, {"s7"}]
        sums = await train(rig, jobs, rig.fabric.now_ns + 12 * PERIOD, 2 * MS)
        noisy(rig, monkeypatch, 0.1)
        await train(rig, jobs, rig.fabric.now_ns + 18 * PERIOD, 2 * MS, sums)
        assert [spines(rig, job.number) for job in jobs] == settled
        assert moves(rig) == []
        assert len(looks) >= 4
        assert set(looks) == {4}


async def test_readings_are_taken_once_for_all_jobs(rig: JobRig, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Snapshot] = []

    def noted(links: Snapshot) -> Mapping[Endpoint, LinkLoad]:
        taken.append(links)
        return loads_of(links)

    monkeypatch.setattr(re_placement, "loads_of", noted)
    asked: list[tuple[int, int]] = []
    better = rig.controller.planner.better

    def watched(plan, workers, readings, gain, beside):  # type: ignore[no-untyped-def]
        asked.append((plan.spec.job, len(readings)))
        return better(plan, workers, readings, gain, beside)

    rig.controller.planner.better = watched  # type: ignore[method-assign,assignment]
    jobs = [await rig.admit(FIRST), await rig.admit(SECOND)]
    await train(rig, jobs, rig.fabric.now_ns + 14 * PERIOD, MS)
    assert {job for job, _ in asked} == {1, 2}
    assert len(taken) == len({id(links) for links in taken}) < sum(readings for _, readings in asked)


async def admit_both_at_one_spine(rig: JobRig) -> None:
    for admitted in (FIRST, SECOND):
        assert admitted.server is not None
        rig.controller.planner.strategy = Fixed(
            Placement(dict.fromkeys(admitted.workers, "s4"), {"s4": admitted.server}, admitted.server)
        )
        await rig.admit(admitted)
    rig.controller.planner.strategy = strategy("widest")


@pytest.mark.long
async def test_one_of_two_jobs_on_one_spine_moves_once(rig: JobRig) -> None:
    await admit_both_at_one_spine(rig)
    jobs = list(rig.jobs.values())
    await train(rig, jobs, rig.fabric.now_ns + 25 * PERIOD)
    assert spines(rig, 1) != spines(rig, 2)
    assert len(moves(rig)) == 1


class Held:
    """Improver that decides only on request."""

    def __init__(self) -> None:
        self.asked: list[tuple[Callable[[], Any], Future[Any]]] = []

    def begin(self, decide: Callable[[], Any]) -> Future[Any]:
        self.asked.append((decide, Future()))
        return self.asked[-1][1]


@pytest.mark.parametrize(
    ("meanwhile", "together"),
    [
        ("moves", True),
        *(pytest.param(*row, marks=pytest.mark.long) for row in (("ends", True), ("ends", False), ("moves", False))),
    ],
)
async def test_decisions_for_a_job_at_another_place_are_dropped(
    rig: JobRig, monkeypatch: pytest.MonkeyPatch, meanwhile: str, together: bool
) -> None:
    """One of two jobs on one spine would move, alone or with the other."""
    rig.controller.moves.options = replace(OPTIONS, together=together)
    await admit_both_at_one_spine(rig)
    held = Held()
    monkeypatch.setattr(rig.controller.improver, "_decisions", held)
    jobs, sums = list(rig.jobs.values()), dict[int, int]()
    while True:
        sums = await train(rig, jobs, rig.fabric.now_ns + PERIOD, handles=sums)
        if held.asked and not held.asked[-1][1].done():
            decide, future = held.asked[-1]
            if decided := better_of(found := decide()):
                break
            future.set_result(found)
    if meanwhile == "ends":
        for number in decided:
            await rig.controller.finish(number)
            del rig.jobs[number]
    else:
        for number in decided:
            rig.controller.moves.begin(number, rig.fabric.now_ns, why="a test moves it")
    sums = await train(rig, list(rig.jobs.values()), rig.fabric.now_ns + 2 * PERIOD, handles=sums)
    there = {number: job.plan.placement for number, job in rig.controller.jobs.items()}
    before = moves(rig)
    future.set_result(found)
    await train(rig, list(rig.jobs.values()), rig.fabric.now_ns + PERIOD // 2, handles=sums)
    assert moves(rig) == before
    assert {number: job.plan.placement for number, job in rig.controller.jobs.items()} == there


def better_of(found: Any) -> list[int]:
    """The jobs that would move by a decision: of one job, which is then the first or the second, or of all."""
    if isinstance(found, dict):
        return [number for index, number in enumerate((1, 2)) if index in found]
    return [1, 2] if found[1] is not None else []


@pytest.mark.long
async def test_a_job_that_others_leave_room_for_moves_only_if_it_pays(rig: JobRig) -> None:
    """When one of two ends, the other is alone where it is, too."""
    jobs = [await rig.admit(FIRST), await rig.admit(SECOND)]
    sums = await train(rig, jobs, rig.fabric.now_ns + 10 * PERIOD)
    await rig.controller.finish(2)
    del rig.jobs[2]
    await train(rig, jobs[:1], rig.fabric.now_ns + 25 * PERIOD, handles=sums)
    assert moves(rig) == []


async def test_a_job_moves_around_others_traffic_and_stays(rig: JobRig) -> None:
    """The move is earned when the job has lost as much time as the move takes, its pause included, since readings
    favour the other spine. It happens within two periods after that, and not before.
    """
    rig.controller.moves.options = replace(OPTIONS, solve_period_ns=PERIOD, dwell_ns=10 * PERIOD)
    job = await rig.admit(FIRST)
    sums = await train(rig, [job], rig.fabric.now_ns + 10 * PERIOD)
    (before,) = spines(rig, 1)
    # a queue of others' frames in front of the job's on its spine
    rig.emulated.add_flow("h2", before, payload_bytes=958, rate_bps=7e8, start_ns=rig.fabric.now_ns)
    looks: list[tuple[int, float, float]] = []
    better = rig.controller.planner.better

    def watched(plan, workers, readings, gain, beside):  # type: ignore[no-untyped-def]
        """Record the verdict of the last reading: seconds that the other spine saves in each, and the cost of a
        move.
        """
        found, running = better(plan, workers, readings[-1:], gain, beside)(), rig.controller.jobs[1]
        if found is None:
            looks.append((rig.fabric.now_ns, 0.0, 0.0))
        else:
            rounds = sum(rounds_of_step(FIRST, TOPOLOGY))
            steps = min(running.rounds_per_second / rounds, 1 / found.now_seconds)
            price = 1e-9 * (PERIOD + rig.controller.windows.round_trip_ns(plan)) + found.refill_seconds
            looks.append((rig.fabric.now_ns, steps * found.saved[0], price))
        return better(plan, workers, readings, gain, beside)

    rig.controller.planner.better = watched  # type: ignore[method-assign,assignment]
    await train(rig, [job], rig.fabric.now_ns + 25 * PERIOD, handles=sums)
    assert spines(rig, 1) == SPINES - {before}
    (moved_ns,) = moves(rig)
    earned_ns = earned(looks)
    assert earned_ns <= moved_ns <= earned_ns + 2 * PERIOD
    hold_ns = rig.controller.jobs[1].plan.pacing.hold_ns
    assert hold_ns > 0
    assert list(rig.controller.moves.pauses_ns) == [hold_ns], "hosts answer at once here"
    account = rig.controller.jobs[1].account
    assert account is not None
    assert not account.at_baseline, "what the move wins is counted against having stayed"


def earned(looks: list[tuple[int, float, float]]) -> int:
    """The first look by which what was lost since the last that spoke for no move is as much as a move takes."""
    lost, looked_ns = 0.0, looks[0][0] - PERIOD
    for at_ns, saving, price in looks:
        lost = lost + saving * min(at_ns - looked_ns, PERIOD) * 1e-9 if saving else 0.0
        if saving and lost >= price:
            return at_ns
        looked_ns = at_ns
    raise AssertionError(f"no move was ever earned: {looks}")


def congested(rig: JobRig, monkeypatch: pytest.MonkeyPatch, spine: str, start_ns: int, stop_ns: int) -> list[int]:
    """Telemetry that has others' traffic on all of a spine's links in between; when readings had it."""
    true, seen_ns = rig.controller.links.snapshot, []

    def snapshot(now_ns: int, exclude: Mapping[object, float] | None = None) -> Snapshot:
        seen = true(now_ns, exclude)  # type: ignore[arg-type]
        if not start_ns <= now_ns < stop_ns:
            return seen
        seen_ns.append(now_ns)
        busy = {link: view for link, view in seen.links.items() if spine in (link.node, TOPOLOGY.peer(link).node)}
        return replace(
            seen, links={**seen.links, **{link: replace(view, background_bps=8e8) for link, view in busy.items()}}
        )

    monkeypatch.setattr(rig.controller.links, "snapshot", snapshot)
    return seen_ns


@pytest.mark.parametrize(
    ("periods", "pause_ns", "moved"),
    [(1, 0, 0), *(pytest.param(*row, marks=pytest.mark.long) for row in ((12, 0, 1), (12, 10**15, 0)))],
)
async def test_a_job_moves_only_if_two_readings_pay_for_its_pause(
    rig: JobRig, monkeypatch: pytest.MonkeyPatch, periods: int, pause_ns: int, moved: int
) -> None:
    """One reading alone moves nothing, nor does lasting traffic where moves have been seen to take 11 days."""
    rig.controller.moves.options = replace(OPTIONS, solve_period_ns=PERIOD, dwell_ns=0)
    job = await rig.admit(FIRST)
    sums = await train(rig, [job], rig.fabric.now_ns + 6 * PERIOD)
    (before,) = spines(rig, 1)
    if pause_ns:
        rig.controller.moves.pauses_ns.append(pause_ns)
    start_ns = rig.fabric.now_ns
    seen_ns = congested(rig, monkeypatch, before, start_ns, start_ns + periods * PERIOD)
    await train(rig, [job], start_ns + 12 * PERIOD, handles=sums)
    assert seen_ns
    assert len(moves(rig)) == moved


async def test_a_job_that_has_lost_by_moving_moves_no_more(rig: JobRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much faster it would be elsewhere: until what it has lost is a small part of its time."""
    rig.controller.moves.options = replace(OPTIONS, solve_period_ns=PERIOD, dwell_ns=0)
    job = await rig.admit(FIRST)
    sums = await train(rig, [job], rig.fabric.now_ns + 6 * PERIOD)
    (before,) = spines(rig, 1)
    start_ns = rig.fabric.now_ns
    account = rig.controller.jobs[1].account
    assert account is not None
    account.balance = -1000.0
    congested(rig, monkeypatch, before, start_ns, start_ns + 12 * PERIOD)
    await train(rig, [job], start_ns + 12 * PERIOD, handles=sums)
    assert moves(rig) == []


@pytest.mark.parametrize(("balance", "goes"), [pytest.param(0.0, False, marks=pytest.mark.long), (-1000.0, True)])
async def test_a_job_returns_home_after_losing_moves(
    rig: JobRig, monkeypatch: pytest.MonkeyPatch, balance: float, goes: bool
) -> None:
    """And else does not, though it would be a little better there."""
    rig.controller.moves.options = replace(OPTIONS, solve_period_ns=PERIOD, dwell_ns=0)
    job = await rig.admit(FIRST)
    sums = await train(rig, [job], rig.fabric.now_ns + 6 * PERIOD)
    (here,) = spines(rig, 1)
    (home,) = SPINES - {here}
    account = rig.controller.jobs[1].account
    assert account is not None
    there = {here: home}
    aggregators, parents = (
        {there.get(node, node): there.get(above, above) for node, above in part.items()}
        for part in (account.current.aggregators, account.current.parents)
    )
    account.baseline = Placement(aggregators, parents, there.get(account.current.root, account.current.root))
    account.balance, account.behind = balance, 1000.0
    monkeypatch.setattr(rig.controller.planner, "better", lambda *_: lambda: None)
    monkeypatch.setattr(rig.controller.planner, "saving", lambda *_: lambda: -1e-9)
    await train(rig, [job], rig.fabric.now_ns + 6 * PERIOD, handles=sums)
    assert len(moves(rig)) == goes
    assert spines(rig, 1) == {home if goes else here}


@pytest.mark.long
async def test_fast_changing_traffic_makes_a_job_move_rarely(rig: JobRig) -> None:
    rng = random.Random(3)
    start_ns = rig.fabric.now_ns
    for turn in range(10):
        at_ns = start_ns + turn * 4 * PERIOD
        rig.emulated.add_flow(
            "h2",
            rng.choice(sorted(SPINES)),
            payload_bytes=958,
            rate_bps=8e8,
            start_ns=at_ns,
            stop_ns=at_ns + 3 * PERIOD,
        )
    job = await rig.admit(FIRST)
    await train(rig, [job], start_ns + 40 * PERIOD)
    when = moves(rig)
    assert all(later - sooner >= OPTIONS.dwell_ns for sooner, later in itertools.pairwise(when))


@pytest.mark.long
@pytest.mark.parametrize(("weight", "moved"), [(1.0, 1), (5.0, 0)])
async def test_a_job_does_not_move_if_a_heavier_one_loses_more(
    rig: JobRig, monkeypatch: pytest.MonkeyPatch, weight: float, moved: int
) -> None:
    """Others' traffic comes onto the spine of the first; on the other spine is the second, whose time would double."""
    rig.controller.moves.options = replace(OPTIONS, solve_period_ns=PERIOD, dwell_ns=0)
    jobs = [await rig.admit(FIRST), await rig.admit(replace(SECOND, weight=weight))]
    sums = await train(rig, jobs, rig.fabric.now_ns + 3 * PERIOD)
    (before,) = spines(rig, 1)
    congested(rig, monkeypatch, before, rig.fabric.now_ns, rig.fabric.now_ns + 1000 * PERIOD)
    await train(rig, jobs, rig.fabric.now_ns + 12 * PERIOD, handles=sums)
    assert len(moves(rig)) == moved
    assert (spines(rig, 1) == {before}) == (not moved)


@pytest.mark.parametrize("higher", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_a_lower_job_cedes_the_better_spine_and_stays(
    rig: JobRig, monkeypatch: pytest.MonkeyPatch, higher: int
) -> None:
    """Others' traffic comes onto one spine; the job that is there takes the other if it is the higher one, and the
    lower one goes where the traffic is, though that makes it five times as slow, and not back.
    """
    rig.controller.moves.options = replace(OPTIONS, solve_period_ns=PERIOD, dwell_ns=0)
    jobs = [await rig.admit(replace(admitted, priority=int(admitted.job == higher))) for admitted in (FIRST, SECOND)]
    sums = await train(rig, jobs, rig.fabric.now_ns + 3 * PERIOD)
    (first,), (second,) = spines(rig, 1), spines(rig, 2)
    assert first != second
    congested(rig, monkeypatch, first, rig.fabric.now_ns, rig.fabric.now_ns + 1000 * PERIOD)
    await train(rig, jobs, rig.fabric.now_ns + 20 * PERIOD, handles=sums)
    assert spines(rig, higher) == {second}
    assert spines(rig, 3 - higher) == {first}
    assert len(moves(rig)) == (2 if higher == 1 else 0)


async def test_a_job_whose_home_is_lost_goes_on_where_it_is(
    pipeline: CompiledPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spine that it moved away from dies: the saving of a return is not computed any more."""
    options = replace(OPTIONS, solve_period_ns=PERIOD, dwell_ns=0, lease_ns=4 * PERIOD)
    async with make_rig(TOPOLOGY, pipeline, strategy("widest"), options) as rig:
        await rig.run(5 * PERIOD)
        job = await rig.admit(FIRST)
        sums = await train(rig, [job], rig.fabric.now_ns + 3 * PERIOD)
        (before,) = spines(rig, 1)
        congested(rig, monkeypatch, before, rig.fabric.now_ns, rig.fabric.now_ns + 1000 * PERIOD)
        sums = await train(rig, [job], rig.fabric.now_ns + 8 * PERIOD, handles=sums)
        assert spines(rig, 1) == SPINES - {before}
        await rig.kill_switch(before)
        await train(rig, [job], rig.fabric.now_ns + 8 * PERIOD, handles=sums)
        assert rig.controller.switches.lost == {before}
        assert spines(rig, 1) == SPINES - {before}
        assert len(moves(rig)) == 1


async def test_jobs_that_have_no_room_beside_each_other_all_stay(rig: JobRig) -> None:
    """Each would find room at the switch that both are to move to: none moves, and nothing stays occupied."""
    slots = TOPOLOGY.switch("s5").slots
    rig.controller.planner.strategy = strategy("ps")
    for admitted in (FIRST, SECOND):
        await rig.admit(replace(admitted, slots=slots))
    free = dict(rig.controller.planner.memory.free_slots)
    wanted = {
        job.job: Placement(dict.fromkeys(job.workers, "s5"), {"s5": str(job.server)}, str(job.server))
        for job in (FIRST, SECOND)
    }
    with pytest.raises(OutOfMemory):
        rig.controller.moves.migrate_jointly(wanted, rig.fabric.now_ns, "asked to")
    assert all(job.move is None for job in rig.controller.jobs.values())
    assert dict(rig.controller.planner.memory.free_slots) == free
    rig.controller.moves.migrate_jointly({1: wanted[1]}, rig.fabric.now_ns, "asked to")
    assert rig.controller.jobs[1].move is not None
