"""FlexRR and static balancing: every row counts once, helpers shorten iterations, and slow messages cost time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.tests.support.errors import raises
from weir.tests.training.ideal_run import train
from weir.training import LossCurve, Machine, TrainingError, make_mode
from weir.training.exchanges.work_stealing import Cancel, Offer, Progress, SharingLimits, Slice, Started, WorkSharing
from weir.training.machines import jitter, stepping
from weir.training.samples import Rows, Samples
from weir.training.workload import Batch
from weir.training.workloads.synthetic import LeastSquares

MS = 1_000_000
LIMITS = SharingLimits(helpers=2, threshold=0.2, first=0.1, slice=0.2)


class Counted(LeastSquares):
    """Counts in how many gradients each row was."""

    def __init__(self) -> None:
        super().__init__(4, 4096, seed=1)
        self.rows_of: Counter[int] = Counter()

    def fetch(self, rows: Rows) -> Batch:
        self.rows_of.update(rows.tolist())
        return super().fetch(rows)


def played(
    machines: Sequence[Machine], iterations: int, *, delay_ms: float = 0.0, staleness: int = 1, batch: int = 64
) -> tuple[LossCurve, Counted]:
    """Train until each worker has ended this many iterations."""
    workload = Counted()

    def done(curve: LossCurve) -> bool:
        ended = Counter(iteration.worker for iteration in curve.iterations if iteration.ended_ns >= 0)
        return all(ended[rank] >= iterations for rank in range(len(machines)))

    mode = make_mode("flexrr", delay_ms=delay_ms, staleness=staleness)
    curve, _ = train(mode, machines, done, workload=workload, batch=batch, delay_ns=lambda _: MS // 2)
    return curve, workload


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 3.0, 20.0]), st.integers(0, 2))
def test_no_row_counts_twice_or_is_lost(seed: int, delay_ms: float, staleness: int) -> None:
    rng = np.random.default_rng(seed)
    speeds = rng.choice([300.0, 1000.0, 4000.0], 4)
    machines = [
        Machine(float(speed), span_ns=50 * MS, cpu=stepping(rng, 40), jitter=jitter(rng, 101)) for speed in speeds
    ]
    curve, workload = played(machines, 12, delay_ms=delay_ms, staleness=staleness)
    began = Counter(iteration.worker for iteration in curve.iterations)
    wanted: Counter[int] = Counter()
    for rank, count in began.items():  # what every worker would compute alone, in all iterations that it has begun
        wanted.update(Samples(workload.rows, (1, 1 + rank)).rows(0, 16 * count).tolist())
    assert not workload.rows_of - wanted
    under_way = (wanted - workload.rows_of).total()
    assert under_way <= 2 * 4 * 16, "rows of the present iterations, and slices in hand"
    sent = sum(iteration.samples for iteration in curve.iterations if iteration.taken_ns >= 0)
    assert curve.samples == sent <= workload.rows_of.total()


def test_helpers_shorten_the_iterations_of_a_slow_worker() -> None:
    """The ideal of a step of 64 rows is 64 / 3300 s; alone the slowest worker takes 16 / 300 s."""
    speeds = (1000.0, 1000.0, 1000.0, 300.0)
    machines = [Machine(speed) for speed in speeds]
    alone, _ = train(make_mode("ssp", staleness=1), machines, lambda curve: curve.updates >= 80, batch=64)
    helped, _ = played(machines, 20)
    late, _ = played(machines, 20, delay_ms=50.0)
    per_update = [curve.losses[-1].time_ns / curve.updates for curve in (helped, late, alone)]
    assert per_update[0] < 1.15 * 1e9 * 16 / sum(speeds)
    assert per_update[0] < 0.8 * per_update[1]
    assert per_update[2] > 2.2 * per_update[0]


def test_equal_machines_send_every_row_themselves() -> None:
    curve, _ = played([Machine(1000.0)] * 4, 10)
    assert {iteration.samples for iteration in curve.iterations if iteration.taken_ns >= 0} == {16}


def test_no_worker_is_ahead_by_more_than_the_staleness() -> None:
    curve, _ = played([Machine(speed) for speed in (4000.0, 1000.0, 250.0)], 15, delay_ms=1.0, staleness=1, batch=48)
    for iteration in curve.iterations:
        if iteration.given_ns >= 0:
            clocks = [
                sum(0 <= other.taken_ns <= iteration.given_ns for other in curve.iterations if other.worker == rank)
                for rank in range(3)
            ]
            assert iteration.clock + 1 <= min(clocks) + 1


# --- the state machine ---


def about(done: float) -> Any:
    """Progress in an expected message, which is a sum of shares."""
    return pytest.approx(done)


def sharing(rank: int = 0) -> WorkSharing:
    """Worker of three with ten rows, 100 to 109, in its iteration 0."""
    work = WorkSharing(rank, 3, LIMITS)
    work.begin(0, np.arange(100, 110))
    return work


def test_reports_go_to_the_helpers() -> None:
    work = sharing()
    assert work.outbox == [(2, Progress(0, 0.0)), (1, Progress(0, 0.0))]
    assert (work.unit(), work.done) == (2, about(0.2))


def test_a_helper_gets_a_small_slice_first_and_larger_ones_then() -> None:
    work = sharing()
    work.unit()
    work.outbox.clear()
    work.receive(Offer(2, 0.3))
    work.receive(Offer(2, 1.0))
    work.receive(Offer(2, 1.0))
    assert work.outbox[0] == (2, Progress(0, about(0.2), refuses=True)), "not far enough ahead"
    slices = [message for _, message in work.outbox if isinstance(message, Slice)]
    assert [each.rows.tolist() for each in slices] == [[109], [107, 108]]


def test_the_next_unit_is_never_given_away() -> None:
    work = sharing()
    for _ in range(9):
        work.receive(Offer(2, 3.0))
    assert (work.unit(), work.unit()) == (2, 0)
    assert np.concatenate(work.kept).tolist() == [100, 101]


def test_one_offer_at_a_time_and_none_after_a_refusal_until_a_report() -> None:
    work = sharing()
    for _ in range(3):
        work.unit()
    work.outbox.clear()
    work.receive(Progress(1, 0.1))
    for _ in range(2):
        work.offer_help()
    assert [message for _, message in work.outbox] == [Offer(0, about(0.6))]
    work.receive(Progress(1, 0.1, refuses=True))
    work.offer_help()
    assert len(work.outbox) == 1
    work.receive(Progress(1, 0.1))
    work.offer_help()
    assert len(work.outbox) == 2


@pytest.mark.parametrize("started", [False, True])
def test_a_slice_that_was_taken_back_counts_at_the_helper_if_it_had_started(started: bool) -> None:
    owner, helper = sharing(0), sharing(2)
    owner.receive(Offer(2, 3.0))
    slices = [message for _, message in owner.outbox if isinstance(message, Slice)]
    while owner.unit():
        pass
    assert (owner.take_back(), owner.take_back()) == (1, 0)
    assert owner.outbox[-1] == (2, Cancel(0, 1))
    helper.receive(slices[0])
    if started:
        assert helper.taken_slice() == slices[0]
        assert helper.outbox[-1] == (0, Started(1))
        owner.receive(Started(1))
    helper.receive(Cancel(0, 1))
    assert helper.taken_slice() is None
    owner.settle()
    assert np.concatenate(owner.kept).tolist() == [*range(100, 109), *([] if started else [109])]


def test_impossible_options_are_refused() -> None:
    with raises(TrainingError, value=(-1.0, 4, 0.2)):
        make_mode("flexrr", delay_ms=-1.0)
    with raises(TrainingError, value=(0.5, 0.05)):
        make_mode("flexrr", first=0.5)


# --- static balancing ---


def test_static_sizes_follow_rated_speeds_whatever_is_free() -> None:
    machines = [Machine(1000.0), Machine(3000.0, cpu=np.array([0.25]))]
    curve, _ = train(make_mode("static"), machines, lambda curve: curve.updates >= 5, batch=32)
    assert {(iteration.worker, iteration.samples) for iteration in curve.iterations} == {(0, 8), (1, 24)}


def test_static_balancing_makes_the_steps_of_bsp() -> None:
    machines = [Machine(1000.0), Machine(3000.0)]
    equal, static = (
        [point.loss for point in train(make_mode(name), machines, lambda curve: curve.updates >= 5, batch=32)[0].losses]
        for name in ("bsp", "static")
    )
    assert static == pytest.approx(equal, rel=1e-4)
