"""Re-placement of running jobs: its times, readings and decisions: the improver alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from weir.controller.jobs.job import RunningJob, WorkerProgress
from weir.controller.jobs.migration_cost import RISK
from weir.controller.options import ControllerOptions
from weir.controller.placement import Placement, PlacementError
from weir.controller.planning.improvement import Improvement
from weir.controller.planning.plan import JobPlan, JobSpec, rounds_of_step
from weir.controller.planning.planner import LinkConditions
from weir.controller.telemetry.snapshot import LinkView, Snapshot
from weir.tests.controller.pure_rig import MS, PureRig
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint

TOPOLOGY = leaf_spine(2, 4, 4)
"""h1…h4 at s1, h5…h8 at s2; spines s3…s6."""
TO_S3 = Endpoint("s1", 5)
BEGAN = 7 * MS
PERIOD = 10 * MS
SOLVE = 1000 * MS
OPTIONS = ControllerOptions(probe_period_ns=PERIOD, solve_period_ns=SOLVE, dwell_ns=SOLVE)
LOOK = BEGAN + SOLVE
"""When all are looked at first."""


def at(spine: str, *workers: str) -> Placement:
    return Placement(dict.fromkeys(workers, spine), {}, spine)


class Scene(PureRig):
    """Jobs 1, 2, … of two workers each, at the first spine, and a planner that answers what a test says."""

    def __init__(self, jobs: int = 1, options: ControllerOptions = OPTIONS) -> None:
        super().__init__(TOPOLOGY, options, BEGAN)
        for number in range(1, jobs + 1):
            workers = (f"h{number}", f"h{4 + number}")
            self.add(JobSpec(number, workers), at("s3", *workers), BEGAN)
        self.better: dict[int, Improvement | PlacementError | None] = {}
        self.together: dict[int, Improvement] | PlacementError = {}
        self.saving = 0.25
        """Seconds of a step, against home."""
        self.asked: list[tuple[int, ...]] = []
        """Subjects of the decisions in order: one job, or all."""
        self.readings = 0
        """Number of readings in the last decision."""
        self.around: list[LinkConditions] = []
        self.beside: list[tuple[int, ...]] = []
        self.movable: list[bool] = []
        self.planner.better = self._better  # type: ignore[method-assign,assignment]
        self.planner.saving = self._saving  # type: ignore[method-assign]
        self.planner.better_together = self._together  # type: ignore[method-assign]

    def _better(
        self,
        plan: JobPlan,
        workers: tuple[str, ...],
        readings: Sequence[LinkConditions],
        gain: float,
        beside: Sequence[tuple[JobPlan, tuple[str, ...]]],
    ) -> Callable[[], Improvement | None]:
        self.asked.append((plan.spec.job,))
        self.readings, self.around = len(readings), list(readings)
        self.beside.append(tuple(each.spec.job for each, _ in beside))
        return lambda: answer(self.better.get(plan.spec.job))

    def _saving(
        self, plan: JobPlan, workers: tuple[str, ...], reading: LinkConditions, home: Placement
    ) -> Callable[[], float]:
        assert reading is self.around[-1]
        return lambda: self.saving

    def _together(
        self,
        plans: Sequence[tuple[JobPlan, tuple[str, ...]]],
        movable: Sequence[bool],
        readings: Sequence[LinkConditions],
        gain: float,
    ) -> Callable[[], dict[int, Improvement]]:
        self.asked.append(tuple(plan.spec.job for plan, _ in plans))
        self.readings, self.around, self.movable = len(readings), list(readings), list(movable)
        return lambda: answer(self.together)

    def job(self, number: int = 1) -> RunningJob:
        return self.jobs[number]

    def run(self, until_ns: int, since_ns: int = BEGAN) -> None:
        """A look each millisecond, up to this one."""
        for now_ns in range(since_ns, until_ns + 1, MS):
            self.improver.step(now_ns)

    def look(self, times: int, now_ns: int = LOOK) -> None:
        """Observe this many times at this instant."""
        for _ in range(times):
            self.improver.step(now_ns)

    def goes(self, number: int, steps_per_second: float) -> None:
        """Report this number of steps from the job's hosts."""
        rounds = steps_per_second * sum(rounds_of_step(self.job(number).spec, TOPOLOGY))
        self.job(number).progress = {
            worker: WorkerProgress(0, 0, 0, True, average=rounds) for worker in self.job(number).active
        }


def answer(said: Any) -> Any:
    if isinstance(said, PlacementError):
        raise said
    return said


def elsewhere(job: RunningJob, saved: tuple[float, ...], spine: str = "s4", **more: Any) -> Improvement:
    """A placement at another spine, in place of one where a step takes 0.4 s."""
    return Improvement(at(spine, *job.active), 0.4, saved, **more)


# --- when ---


def test_without_a_period_nobody_is_looked_at() -> None:
    scene = Scene(options=replace(OPTIONS, solve_period_ns=0))
    assert scene.improver.deadline_ns is None
    scene.run(BEGAN + 50 * MS)
    assert (scene.asked, scene.links.read_ns) == ([], [])


def test_jobs_are_examined_singly_after_two_periods_of_readings() -> None:
    scene = Scene(jobs=2)
    assert scene.improver.deadline_ns == LOOK
    scene.run(LOOK - 1 * MS)
    assert (scene.asked, scene.links.read_ns) == ([], [LOOK - 2 * PERIOD, LOOK - PERIOD])
    scene.look(1)
    assert (scene.asked, scene.readings, scene.improver.deadline_ns) == ([(1,)], 3, 0)
    scene.look(1)
    assert (scene.asked, scene.readings, scene.improver.deadline_ns) == ([(1,), (2,)], 3, LOOK + SOLVE)
    assert scene.beside == [(2,), (1,)]
    assert scene.links.read_ns == [LOOK - 2 * PERIOD, LOOK - PERIOD, LOOK, LOOK]
    scene.look(1)
    assert len(scene.asked) == 2
    scene.run(LOOK + SOLVE, LOOK + MS)
    assert scene.links.read_ns[4:] == [LOOK + SOLVE - 2 * PERIOD, LOOK + SOLVE - PERIOD, LOOK + SOLVE]
    assert (scene.asked[2:], scene.readings) == ([(1,)], 6)


def test_waiting_jobs_are_examined_before_all_again() -> None:
    """Looks that come late, one each period."""
    scene = Scene(jobs=3)
    for turn in range(5):
        scene.improver.step(LOOK + turn * SOLVE + turn)
    assert scene.asked == [(1,), (2,), (3,), (1,), (2,)]


def test_readings_that_are_closer_than_a_period_are_one() -> None:
    """Observations at odd times are included."""
    scene = Scene()
    for before_ns in (19 * MS, 12 * MS, 8 * MS, 1 * MS):
        scene.improver.step(LOOK - before_ns)
    assert scene.links.read_ns == [LOOK - 19 * MS, LOOK - 8 * MS]


def busy(share: float) -> Snapshot:
    """Others take this share of the link from s1 to s3."""
    view = LinkView(share * 1e9, share * 1e9, queue_packets=0, latency_us=0, loss=0, age_ns=0, confidence=1)
    return Snapshot({TO_S3: view}, frozenset(), frozenset())


def test_readings_are_used_in_order_and_at_most_a_dozen() -> None:
    scene = Scene(jobs=2, options=replace(OPTIONS, together=True, solve_period_ns=2 * PERIOD, dwell_ns=0))
    for period in range(21):
        scene.links.said = busy(period / 100)
        scene.look(1, BEGAN + period * PERIOD)
        alone = scene.around
        scene.look(2, BEGAN + period * PERIOD)
    assert scene.asked[-3:] == [(1,), (2,), (1, 2)]
    for around in (alone, scene.around):
        shares = [each.loads[TO_S3].background_bps / 1e9 for each in around]
        assert shares == pytest.approx([0.09, 0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 0.19, 0.2])


def test_a_job_is_left_alone_until_it_has_dwelt_where_it_is() -> None:
    scene = Scene(jobs=3)
    scene.job(2).moved_ns = BEGAN + 1
    scene.moves.begin(3, BEGAN)
    scene.look(2)
    assert scene.asked == [(1,)]


def test_readings_before_a_move_do_not_count_after_it() -> None:
    scene = Scene(options=replace(OPTIONS, dwell_ns=0))
    scene.run(LOOK - MS)
    scene.job().moved_ns = LOOK - 2 * PERIOD
    scene.look(1)
    assert scene.readings == 2
    scene.job().moved_ns = scene.links.read_ns[-1] + SOLVE
    scene.look(1, LOOK + SOLVE)
    assert scene.readings == 1


@pytest.mark.parametrize("kind", ["stale", "unmeasured", "unsettled"])
def test_links_of_which_too_little_is_known_speak_for_no_move(kind: str) -> None:
    """They are idle where the job is, and full where it is not."""
    scene = Scene()
    own, other = TO_S3, Endpoint("s1", 6)
    view = LinkView(1e8, 1e8, queue_packets=0, latency_us=0, loss=0, age_ns=0, confidence=1)
    untrusted, nobody = frozenset({own, other}), frozenset[Endpoint]()
    scene.links.said = Snapshot(
        {own: view, other: view},
        untrusted if kind == "stale" else nobody,
        untrusted if kind == "unmeasured" else nobody,
    )
    if kind == "unsettled":
        scene.add(JobSpec(9, ("h2", "h6")), at("s4", "h2", "h6"))
        scene.outlook.update(LOOK)
    assert own in scene.job().plan.streams
    scene.look(1)
    loads = scene.around[-1].loads
    assert (loads[own].background_bps, loads[other].background_bps > 1e9) == (0.0, True)


# --- decisions that take their time ---


class Later:
    """Improver that decides only on request."""

    def __init__(self) -> None:
        self.pending: list[tuple[Callable[[], Any], Future[Any]]] = []

    def begin(self, decide: Callable[[], Any]) -> Future[Any]:
        self.pending.append((decide, Future()))
        return self.pending[-1][1]

    def decide(self) -> None:
        decide, future = self.pending[-1]
        future.set_result(decide())


def test_while_a_decision_is_awaited_nothing_else_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, later = Scene(jobs=2), Later()
    monkeypatch.setattr(scene.improver, "_decisions", later)
    scene.look(3)
    assert (scene.asked, scene.improver.deadline_ns) == ([(1,)], None)
    later.decide()
    assert scene.improver.deadline_ns == 0
    scene.look(1)
    assert (scene.asked, scene.improver.deadline_ns) == ([(1,)], 0)
    scene.look(1)
    assert scene.asked == [(1,), (2,)]


def test_a_failed_placement_is_logged_and_the_next_job_examined(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(jobs=2, options=replace(OPTIONS, together=True))
    scene.better[1] = scene.together = PlacementError("no switch has room")
    scene.look(3)
    assert scene.asked == [(1,), (2,), (1, 2)]
    assert [record.getMessage() for record in caplog.records] == [
        "job 1 stays where it is: no switch has room",
        "all jobs stay where they are: no switch has room",
    ]


# --- one job ---


def test_a_job_moves_after_two_periods_and_an_earned_move() -> None:
    scene = Scene()
    scene.goes(1, 2.0)
    home = scene.job().plan.placement
    scene.moves.pauses_ns.append(1 * MS)
    scene.better[1] = better = elsewhere(scene.job(), (0.1, 0.1), refill_seconds=0.002)
    scene.run(LOOK)
    job = scene.job()
    assert job.move is not None
    assert (job.target, job.why) == (better.placement, "a faster placement")
    account = job.account
    assert account is not None
    assert (account.current, account.baseline) == (better.placement, home)
    assert account.balance == pytest.approx(-0.003)
    assert (account.began, account.looked) == pytest.approx((LOOK * 1e-9, LOOK * 1e-9))


def test_one_reading_for_a_move_is_rechecked_in_a_period() -> None:
    scene = Scene(jobs=2)
    scene.moves.pauses_ns.append(0)
    scene.better[1] = elsewhere(scene.job(), (0.1,))
    scene.run(LOOK)
    scene.look(1)
    assert scene.job().move is None
    assert scene.improver.deadline_ns == LOOK + PERIOD
    scene.better[1] = elsewhere(scene.job(), (0.1, 0.1))
    scene.run(LOOK + PERIOD, LOOK + MS)
    assert scene.asked == [(1,), (2,), (1,)]
    assert scene.job().move is not None


def test_a_recheck_comes_first_and_once() -> None:
    scene = Scene(jobs=3)
    scene.moves.pauses_ns.append(0)
    scene.better[1] = elsewhere(scene.job(), (0.1,))
    scene.run(LOOK)
    scene.better[1] = None
    scene.look(4, LOOK + PERIOD)
    assert scene.asked == [(1,), (1,), (2,), (3,)]
    scene = Scene(jobs=2)
    scene.moves.pauses_ns.append(0)
    scene.better[2] = elsewhere(scene.job(2), (0.1,))
    scene.run(LOOK)
    scene.look(1)
    scene.better[2] = None
    scene.look(1, LOOK + PERIOD - 1)
    assert len(scene.asked) == 2
    scene.improver.step(LOOK + PERIOD + SOLVE)
    scene.look(2, LOOK + PERIOD + SOLVE)
    assert scene.asked == [(1,), (2,), (2,), (1,), (2,)]


def test_a_move_begins_when_staying_has_cost_as_much() -> None:
    """A fifth of each second is lost, of which there is 0.03 s in three readings; a move takes 0.04 s on average, and
    0.02 s to fill the network again.
    """
    scene = Scene()
    scene.goes(1, 2.0)
    scene.moves.pauses_ns.extend((30 * MS, 50 * MS))
    scene.better[1] = elsewhere(scene.job(), (0.1,) * 3, refill_seconds=0.02)
    scene.run(LOOK)
    earned_ns = LOOK + 270 * MS
    assert scene.job().move is None
    assert scene.improver.deadline_ns == earned_ns
    scene.better[1] = elsewhere(scene.job(), (0.1,) * 6, refill_seconds=0.02)
    scene.run(earned_ns - MS, LOOK + MS)
    assert (scene.asked, scene.job().move) == ([(1,)], None)
    scene.look(1, earned_ns)
    assert scene.readings == 6
    assert scene.job().move is not None


@pytest.mark.parametrize(("reported", "counts"), [(0.0, 2.5), (1.5, 1.5), (9.0, 2.5)])
def test_a_jobs_steps_are_as_reported_up_to_back_to_back(reported: float, counts: float) -> None:
    """And as many as that where they have not reported any."""
    scene = Scene()
    scene.goes(1, reported)
    scene.moves.pauses_ns.append(40 * MS)
    scene.better[1] = elsewhere(scene.job(), (0.05,))
    scene.look(1)
    assert scene.improver.deadline_ns == LOOK - PERIOD + round(40 * MS / (0.05 * counts))


def test_an_unseen_move_takes_a_period_and_a_round() -> None:
    scene = Scene()
    scene.better[1] = elsewhere(scene.job(), (0.025,))
    scene.look(1)
    price_ns = PERIOD + scene.windows.round_trip_ns(scene.job().plan)
    assert scene.improver.deadline_ns == pytest.approx(LOOK + 16 * price_ns - PERIOD, abs=10)


def gone(scene: Scene) -> RunningJob:
    """A job that has moved from s3 to s4, before the decision on its gain."""
    job = scene.job()
    scene.look(1)
    assert job.account is not None
    job.account.move(at("s4", *job.active), 0.0)
    job.plan = scene.planner.plan(job.spec, at("s4", *job.active), job.plan.generation)
    return job


def test_a_moves_gain_is_the_saving_of_each_step_since() -> None:
    scene = Scene()
    job = gone(scene)
    assert job.account is not None
    scene.look(1, LOOK + SOLVE)
    assert job.account.balance == 0.0, "nobody has reported any step"
    scene.goes(1, 2.0)
    scene.look(1, LOOK + 2 * SOLVE)
    assert job.account.balance == pytest.approx(0.25 * 2.0 * SOLVE * 1e-9)
    assert job.account.looked == pytest.approx((LOOK + 2 * SOLVE) * 1e-9)


def test_nothing_is_won_or_lost_at_home() -> None:
    scene = Scene()
    scene.goes(1, 2.0)
    scene.look(1)
    scene.look(1, LOOK + SOLVE)
    account = scene.job().account
    assert account is not None
    assert (account.balance, account.began, account.looked) == pytest.approx((0.0, LOOK * 1e-9, (LOOK + SOLVE) * 1e-9))


@pytest.mark.parametrize("why", ["elsewhere", "homeless"])
def test_a_job_elsewhere_or_without_a_way_home_is_at_home(why: str) -> None:
    scene = Scene()
    job = gone(scene)
    before, later_ns = job.account, LOOK + SOLVE
    if why == "elsewhere":
        job.plan = scene.planner.plan(job.spec, at("s5", *job.active), job.plan.generation)
    else:
        scene.planner.update_topology((), {"s3"})
    scene.look(1, later_ns)
    account = job.account
    assert account is not None
    assert account is not before
    assert (account.current, account.baseline) == (job.plan.placement, job.plan.placement)
    assert account.began == pytest.approx(later_ns * 1e-9)


@pytest.mark.parametrize("better", [False, True])
@pytest.mark.parametrize(("behind", "goes"), [(0.9, False), (1.1, True)])
def test_a_job_returns_home_after_moves_that_lost_too_much(better: bool, behind: float, goes: bool) -> None:
    """Even where it would be better off at a third place; it costs what moves took."""
    scene = Scene()
    job = gone(scene)
    account = job.account
    assert account is not None
    scene.moves.pauses_ns.append(SOLVE)
    account.balance, account.behind = -5.0, behind
    scene.saving = 0.0
    if better:
        scene.better[1] = elsewhere(job, (0.1,), "s5")
    scene.saving = -1e-12
    scene.goes(1, 1.0)
    scene.look(1, LOOK + SOLVE)
    assert (job.move is not None) == goes
    assert scene.improver.deadline_ns == LOOK + 2 * SOLVE
    if goes:
        assert (job.target, job.why) == (at("s3", *job.active), "what moves have won is lost again")
        assert account.balance == pytest.approx(-6.0)


@pytest.mark.parametrize(("over", "goes"), [(0.999, True), (1.001, False)])
def test_a_job_may_owe_a_fiftieth_of_its_time(over: float, goes: bool) -> None:
    """It moves on to a better place, or else returns."""
    scene = Scene()
    job = gone(scene)
    account = job.account
    assert account is not None
    scene.moves.pauses_ns.append(0)
    scene.better[1] = elsewhere(job, (0.1,) * 4, "s5")
    scene.saving = 0.0
    account.balance = -over * RISK * SOLVE * 1e-9
    scene.look(1, LOOK + SOLVE)
    assert (job.target == at("s5", *job.active)) == goes
    scene = Scene()
    job = gone(scene)
    account = job.account
    assert account is not None
    scene.moves.pauses_ns.append(0)
    scene.saving, account.behind = -1e-12, 1.0
    scene.goes(1, 1.0)
    account.balance = -over * RISK * SOLVE * 1e-9
    scene.look(1, LOOK + SOLVE)
    assert (job.target == at("s3", *job.active)) == (not goes)


# --- all together ---

TOGETHER = replace(OPTIONS, together=True)


def looked_at_together(scene: Scene) -> bool:
    scene.look(len(scene.jobs) + 1)
    return scene.asked[-1] == tuple(scene.jobs)


def test_several_jobs_are_looked_at_together_after_each_alone() -> None:
    scene = Scene(jobs=2, options=TOGETHER)
    scene.run(LOOK)
    scene.look(2)
    assert (scene.asked, scene.readings, scene.movable) == ([(1,), (2,), (1, 2)], 3, [True, True])
    assert [dict(each.others) for each in scene.around] == [{}, {}, {}]
    for jobs, options in ((1, TOGETHER), (2, OPTIONS)):
        scene = Scene(jobs, options)
        scene.look(jobs + 1)
        assert scene.asked == [(number,) for number in range(1, jobs + 1)]


def test_a_job_that_is_left_alone_meanwhile_is_looked_at_alone() -> None:
    """A reason against moving one job does not apply to all together."""
    scene = Scene(jobs=2, options=TOGETHER)
    scene.look(2)
    scene.jobs.remove(2)
    scene.look(2)
    assert scene.asked == [(1,), (2,)]


@pytest.mark.parametrize("why", ["moves", "unsettled", "stale", "all have just moved"])
def test_jobs_are_not_looked_at_together_while(why: str) -> None:
    scene = Scene(jobs=3, options=TOGETHER)
    match why:
        case "moves":
            scene.moves.begin(2, BEGAN)
        case "unsettled":
            scene.outlook.update(LOOK)
        case "stale":
            scene.links.said = Snapshot({}, frozenset({TO_S3}), frozenset())
        case _:
            for job in scene.jobs.values():
                job.moved_ns = BEGAN + 1
    scene.look(5)
    assert all(len(each) == 1 for each in scene.asked)


def test_a_job_that_just_moved_stays_while_others_move() -> None:
    scene = Scene(jobs=3, options=TOGETHER)
    scene.job(2).moved_ns = BEGAN + 1
    assert looked_at_together(scene)
    assert scene.movable == [True, False, True]


def test_stale_readings_and_earlier_ones_do_not_count_jointly() -> None:
    scene = Scene(jobs=2, options=replace(TOGETHER, solve_period_ns=SOLVE))
    fresh, stale = scene.links.said, Snapshot({}, frozenset({TO_S3}), frozenset())
    scene.run(LOOK)
    scene.look(2)
    scene.links.said = stale
    scene.run(LOOK + SOLVE - 2 * PERIOD, LOOK + MS)
    scene.links.said = fresh
    scene.run(LOOK + SOLVE, LOOK + SOLVE - 2 * PERIOD + MS)
    scene.look(2, LOOK + SOLVE)
    assert (scene.asked[-1], scene.readings) == ((1, 2), 2)
    scene.links.said = stale
    scene.run(LOOK + 2 * SOLVE - PERIOD, LOOK + SOLVE + MS)
    scene.links.said = fresh
    scene.run(LOOK + 2 * SOLVE, LOOK + 2 * SOLVE - PERIOD + MS)
    scene.look(2, LOOK + 2 * SOLVE)
    assert scene.asked[-1] == (2,), "of the last two periods' readings one was not fresh"


def both_better(scene: Scene, saved: tuple[float, ...] = (0.1, 0.1), **more: Any) -> None:
    """The second is to move, and the first stays and gains by that."""
    stays = Improvement(at("s3", "h1", "h5"), 0.4, saved)
    scene.together = {0: stays, 1: elsewhere(scene.job(2), saved, **more)}


def test_in_a_joint_decision_jobs_move_when_both_gains_pay() -> None:
    """Each makes 2.5 steps a second and saves 0.1 s in each: half a second of each, so 5 ms are lost in a period."""
    scene = Scene(jobs=2, options=TOGETHER)
    scene.moves.pauses_ns.append(4 * MS)
    both_better(scene, (0.1,))
    assert looked_at_together(scene)
    assert [job.move is not None for job in scene.jobs.values()] == [False, True]
    assert (scene.job(2).target, scene.job(2).why) == (at("s4", "h2", "h6"), "a faster placement of all jobs")
    account = scene.job(2).account
    assert account is not None
    assert (account.current, account.baseline) == (at("s4", "h2", "h6"), at("s3", "h2", "h6"))
    assert account.balance == pytest.approx(-0.004)


@pytest.mark.parametrize("why", ["not earned", "not steady", "not allowed", "nothing better"])
def test_all_stay_where(why: str) -> None:
    scene = Scene(jobs=2, options=TOGETHER)
    scene.moves.pauses_ns.append(6 * MS if why == "not earned" else 0)
    both_better(scene, (0.1,))
    if why == "not steady":
        scene.run(LOOK)
    elif why == "not allowed":
        scene.look(2)
        account = scene.job(2).account
        assert account is not None
        account.balance = -1.0
    elif why == "nothing better":
        scene.together = {}
    scene.look(3)
    assert scene.asked[-1] == (1, 2)
    assert [job.move for job in scene.jobs.values()] == [None, None]


def test_the_cost_of_a_joint_move_is_shared_by_its_movers() -> None:
    scene = Scene(jobs=3, options=TOGETHER)
    scene.moves.pauses_ns.append(2 * MS)
    scene.together = {0: elsewhere(scene.job(1), (0.1,)), 2: elsewhere(scene.job(3), (0.1,), "s5")}
    assert looked_at_together(scene)
    accounts = [job.account for job in scene.jobs.values()]
    assert [account and account.balance for account in accounts] == pytest.approx([-0.002, 0.0, -0.002])
    assert [job.target and job.target.root for job in scene.jobs.values()] == ["s4", None, "s5"]


def test_a_job_that_yields_to_a_higher_one_has_its_home_there() -> None:
    scene = Scene(jobs=2, options=TOGETHER)
    scene.moves.pauses_ns.append(4 * MS)
    both_better(scene, (0.1,), counts=False)
    assert looked_at_together(scene)
    assert scene.job(2).move is None, "what it saves does not count, so too little is lost by now"
    scene = Scene(jobs=2, options=TOGETHER)
    scene.moves.pauses_ns.append(2 * MS)
    both_better(scene, (0.1,), counts=False)
    assert looked_at_together(scene)
    account = scene.job(2).account
    assert account is not None
    assert account.at_baseline
    assert (account.current, account.balance) == (at("s4", "h2", "h6"), 0.0)
    assert account.began == pytest.approx(LOOK * 1e-9)


@pytest.mark.parametrize("meanwhile", ["comes", "ends", "moves", "has moved", "has moved often", "is another"])
@pytest.mark.parametrize("together", [False, True])
def test_a_decision_is_dropped_after_a_change_of_the_job(
    monkeypatch: pytest.MonkeyPatch, together: bool, meanwhile: str
) -> None:
    scene, later = Scene(jobs=2, options=TOGETHER), Later()
    scene.moves.pauses_ns.append(0)
    scene.better[1] = elsewhere(scene.job(1), (0.1,))
    scene.together = {0: elsewhere(scene.job(1), (0.1,)), 1: elsewhere(scene.job(2), (0.1,))}
    if together:
        scene.better.clear()
        scene.look(2)
    monkeypatch.setattr(scene.improver, "_decisions", later)
    job = scene.job(1)
    job.plan = replace(job.plan, generation=255)
    scene.look(1)
    match meanwhile:
        case "comes":
            scene.add(JobSpec(3, ("h3", "h7")), at("s6", "h3", "h7"), LOOK)
        case "ends":
            scene.jobs.remove(1)
        case "moves":
            scene.moves.begin(1, LOOK)
        case "has moved":
            job.plan = replace(job.plan, generation=1)  # 0 is none
        case "has moved often":
            job.plan = replace(job.plan, generation=254)
        case _:
            scene.jobs.remove(1)
            scene.add(job.spec, job.plan.placement, LOOK)
    targets = {number: job.target for number, job in scene.jobs.items()}
    begun = scene.jobs.counts.moves
    later.decide()
    scene.look(1)
    if meanwhile == "comes" and not together:  # which is nothing to a job that is looked at alone
        assert scene.job(1).target == at("s4", "h1", "h5")
        return
    assert scene.jobs.counts.moves == begun
    assert {number: job.target for number, job in scene.jobs.items()} == targets
