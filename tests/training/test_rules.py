"""Each mode's clock rule, on every iteration of drawn jobs in virtual time: workers of many speeds, jitter, delays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.tests.support.errors import raises
from weir.tests.training.ideal_run import train
from weir.training import MODES, LossCurve, Machine, Mode, TrainingError, make_mode
from weir.training.loss_curve import Iteration
from weir.training.machines import jitter, stepping
from weir.training.rules import Quorum, RoundRobin, Staleness, UpdateOutcome

MS = 1_000_000


@st.composite
def clusters(draw: st.DrawFn) -> list[Machine]:
    """Machines of other speeds, other tenants and other jitter."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return [
        Machine(
            draw(st.sampled_from([200.0, 500.0, 1000.0, 4000.0])),
            launch_ns=draw(st.sampled_from([0, 1 * MS])),
            span_ns=100 * MS,
            cpu=stepping(rng, 50),
            jitter=jitter(rng, 101),
        )
        for _ in range(draw(st.integers(2, 4)))
    ]


delays = st.integers(0, 3 * MS)


def iterations_of(curve: LossCurve, worker: int) -> list[Iteration]:
    return [iteration for iteration in curve.iterations if iteration.worker == worker]


def clocks_at(curve: LossCurve, workers: int, now_ns: int) -> list[int]:
    """Updates of each worker that were taken by then."""
    return [
        sum(0 <= iteration.taken_ns <= now_ns for iteration in iterations_of(curve, worker))
        for worker in range(workers)
    ]


def whole(curve: LossCurve) -> list[Iteration]:
    """Iterations whose worker was let go on."""
    return [iteration for iteration in curve.iterations if iteration.given_ns >= 0]


def played(mode: Mode, machines: Sequence[Machine], delay_ns: int, iterations: int = 90) -> LossCurve:
    curve, _ = train(
        mode, machines, lambda curve: len(curve.iterations) >= iterations, delay_ns=lambda _: delay_ns, batch=32
    )
    return curve


@settings(max_examples=12, deadline=None)
@given(clusters(), st.integers(0, 4), delays)
def test_no_worker_is_ahead_by_more_than_the_staleness(machines: list[Machine], bound: int, delay_ns: int) -> None:
    curve = played(make_mode("ssp", staleness=bound), machines, delay_ns)
    for iteration in whole(curve):
        clocks = clocks_at(curve, len(machines), iteration.given_ns)
        assert iteration.clock + 1 <= min(clocks) + bound
        earlier = clocks_at(curve, len(machines), iteration.given_ns - 1)
        if (
            iteration.given_ns > iteration.taken_ns
        ):  # it has waited: until the instant that the rule says, and no longer
            assert iteration.clock + 1 > min(earlier) + bound
        if iteration.clock + 1 == min(clocks_at(curve, len(machines), iteration.taken_ns)):
            assert iteration.given_ns == iteration.taken_ns, "the slowest does not wait"


@settings(max_examples=10, deadline=None)
@given(clusters(), delays)
def test_asynchronous_and_elastic_workers_never_wait(machines: list[Machine], delay_ns: int) -> None:
    for mode in (make_mode("asp"), make_mode("easgd", period=3)):
        curve = played(mode, machines, delay_ns)
        assert all(
            iteration.given_ns == iteration.taken_ns == iteration.computed_ns + delay_ns for iteration in whole(curve)
        )
        assert whole(curve)


@settings(max_examples=12, deadline=None)
@given(clusters(), st.integers(0, 3), delays)
def test_a_step_takes_the_first_of_its_quorum_and_drops_the_rest(
    machines: list[Machine], spare: int, delay_ns: int
) -> None:
    quorum = max(1, len(machines) - spare)
    curve = played(make_mode("backup", quorum=quorum), machines, delay_ns)
    taken = sorted(
        (iteration for iteration in curve.iterations if iteration.taken_ns >= 0), key=lambda each: each.taken_ns
    )
    released = [iteration for iteration in taken if iteration.given_ns >= 0]
    assert curve.updates >= 1
    assert curve.dropped + quorum * curve.updates <= len(taken) < curve.dropped + quorum * (curve.updates + 1)
    for iteration in released:  # a waiting worker is released by the update that completes a step, or was late
        assert iteration.given_ns == iteration.taken_ns or any(other.taken_ns == iteration.given_ns for other in taken)
    if quorum == len(machines):
        assert curve.dropped == 0


@settings(max_examples=12, deadline=None)
@given(clusters(), st.sampled_from([0.0, 0.5, 0.8]), delays)
def test_round_robin_keeps_order_gap_and_clocks(machines: list[Machine], relaxation: float, delay_ns: int) -> None:
    curve = played(make_mode("r2sp", relaxation=relaxation), machines, delay_ns)
    taken = sorted(
        (iteration for iteration in curve.iterations if iteration.taken_ns >= 0),
        key=lambda each: (each.taken_ns, each.clock, each.worker),
    )
    count = len(machines)
    assert [(iteration.clock, iteration.worker) for iteration in taken] == [
        (turn // count, turn % count) for turn in range(len(taken))
    ]
    for turn in range(count, len(taken) - 1):
        round_ns = taken[turn].taken_ns - taken[turn - count].taken_ns
        assert taken[turn + 1].taken_ns >= taken[turn].taken_ns + int(relaxation * round_ns / count)
    assert all(iteration.given_ns == iteration.taken_ns for iteration in whole(curve))


def test_the_slowest_never_waits_for_its_turn() -> None:
    """Once the gaps have settled on how long a round takes."""
    machines = [Machine(speed) for speed in (1000.0, 800.0, 100.0, 500.0)]
    curve = played(make_mode("r2sp"), machines, delay_ns=1 * MS, iterations=80)
    slowest = [iteration for iteration in iterations_of(curve, 2) if iteration.clock >= 4 and iteration.taken_ns >= 0]
    assert len(slowest) > 10
    assert [iteration.taken_ns - iteration.computed_ns for iteration in slowest] == [1 * MS] * len(slowest)


@settings(max_examples=15, deadline=None)
@given(
    clusters(),
    delays,
    st.sampled_from(
        [make_mode("bsp"), make_mode("lb-bsp"), make_mode("local", period=1), make_mode("local", period=4)]
    ),
)
def test_summed_modes_begin_every_iteration_together(machines: list[Machine], delay_ns: int, mode: Mode) -> None:
    curve = played(mode, machines, delay_ns)
    count = len(machines)
    for clock in range(len(whole(curve)) // count):
        step = [iteration for iteration in curve.iterations if iteration.clock == clock]
        assert len({iteration.began_ns for iteration in step}) == 1
        assert {iteration.given_ns for iteration in step} == {
            max(iteration.computed_ns for iteration in step) + delay_ns
        }


def test_a_staleness_of_0_trains_as_a_quorum_of_all_does() -> None:
    """Every step has each worker's gradient of the same weights, one by one or together."""
    machines = [Machine(speed) for speed in (1000.0, 300.0, 500.0)]
    one_by_one, _ = train(make_mode("ssp", staleness=0), machines, lambda curve: curve.updates >= 60, batch=30)
    together, _ = train(make_mode("backup", quorum=3), machines, lambda curve: curve.updates >= 20, batch=30)
    by_step = [(point.time_ns, point.loss) for point in one_by_one.losses[2::3]]
    assert [time_ns for time_ns, _ in by_step] == [point.time_ns for point in together.losses]
    np.testing.assert_allclose([loss for _, loss in by_step], [point.loss for point in together.losses], rtol=1e-4)


@pytest.mark.parametrize("name", ["bsp", "local", "backup", "ssp", "asp", "r2sp", "easgd"])
def test_every_mode_learns(name: str) -> None:
    """The rest of the loss is at most twice the measurements' noise."""
    machines = [Machine(speed) for speed in (1000.0, 700.0, 500.0, 250.0)]
    curve, _ = train(
        make_mode(name),
        machines,
        lambda curve: curve.samples >= 20_000 or curve.reached_ns(0.02) is not None,
        batch=64,
    )
    assert curve.losses[0].loss > 0.1
    assert curve.reached_ns(0.02) == curve.losses[-1].time_ns


def test_rules_refuse_numbers_that_none_can_have() -> None:
    with raises(TrainingError, place="staleness", value=-1):
        Staleness(4, -1)
    with raises(TrainingError, place="quorum", value=5):
        Quorum(4, 5)
    with raises(TrainingError, place="relaxation", value=1.0):
        RoundRobin(4, 1.0)
    with pytest.raises(TrainingError, match='unknown mode "sync"; supported: bsp, '):
        make_mode("sync")
    with raises(TrainingError, value=(0.4, 0.2)):
        make_mode("easgd", push=0.4, pull=0.2)


def test_a_quorum_by_hand() -> None:
    rule = Quorum(3, 2)
    assert (rule.on_update(0, 0), rule.may_continue(0)) == (UpdateOutcome.KEPT, False)
    assert (rule.on_update(2, 0), rule.may_continue(2), rule.may_continue(0)) == (UpdateOutcome.COMPLETES, True, True)
    rule.on_weights_sent(0)
    rule.on_weights_sent(2)
    assert (rule.on_update(1, 0), rule.may_continue(1)) == (UpdateOutcome.DROPPED, True)
    rule.on_weights_sent(1)
    assert (rule.on_update(1, 0), rule.may_continue(1)) == (UpdateOutcome.KEPT, False)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [("local", "period", "three"), ("local", "period", 2.5), ("easgd", "pull", "a"), ("ssp", "staleness", True)],
)
def test_an_option_of_another_type_is_refused(name: str, option: str, value: object) -> None:
    with raises(TrainingError, value=value):
        make_mode(name, **{option: value})
    assert make_mode("easgd", pull=0.5, push=0.25).name == "easgd"
    assert make_mode("backup", quorum=None).name == "backup"


def test_every_mode_has_defaults_and_refuses_unknown_options() -> None:
    for name in MODES:
        mode = make_mode(name)
        assert (mode.name, set(mode.options)) == (name, set(MODES[name].options))
        assert make_mode(name, **mode.options) == mode
        with pytest.raises(TrainingError):
            make_mode(name, nonsense=1)


def test_a_mode_of_a_users_file_trains(tmp_path: Path) -> None:
    """The mode is BSP by another name: the same curve."""
    own = tmp_path / "mine.py"
    own.write_text(
        "from dataclasses import dataclass\n"
        "from weir.training.mode import ModeDescription\n"
        "from weir.training.modes.bsp import BulkSynchronous\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(BulkSynchronous):\n    rest: int = 0\n\n\n"
        'DESCRIPTION = ModeDescription("mine", "Mine", "as BSP", Mine)\n'
    )
    machines = [Machine(1000.0), Machine(500.0)]
    courses = [
        train(mode, machines, lambda curve: curve.updates >= 9)[0].losses
        for mode in (make_mode("bsp"), make_mode(str(own), rest=2))
    ]
    assert courses[0] == courses[1]
