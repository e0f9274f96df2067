"""Load-balanced BSP: shares, predictors, rules and whole runs, held to optima that are computed by other ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.hosts import reference_sum
from weir.imports.extras import MissingExtra
from weir.tests.support.errors import raises
from weir.tests.training.ideal_run import IdealBatchSizes, train
from weir.training import LossCurve, Machine, TrainingError, TrainingPlan, make_mode
from weir.training.batching.analytic import equal_shares, proportional_shares
from weir.training.batching.history import SpeedHistory
from weir.training.batching.manager import MAX_APART, BatchSizeManager, RuleName, Turns
from weir.training.batching.numeric import NumericRule, TuningPhase
from weir.training.batching.predictor import Predictor
from weir.training.batching.predictors import PREDICTORS
from weir.training.batching.predictors.ar import AutoRegressive
from weir.training.batching.predictors.ema import MovingAverage
from weir.training.batching.predictors.memoryless import Memoryless
from weir.training.batching.predictors.narx import Narx
from weir.training.batching.reporter import REPORT_VALUES, SpeedReporter
from weir.training.machines import Readings, jitter, stepping
from weir.training.optimisers import make_optimiser
from weir.training.samples import Samples
from weir.training.workloads.synthetic import LeastSquares

FREE = Readings(1.0, 1.0)
MS = 1_000_000


def updates(last: int) -> Callable[[LossCurve], bool]:
    """Return whether a job has made this many updates, for `train`."""
    return lambda curve: curve.updates >= last


# --- the analytic rule ---


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 40)), min_size=1, max_size=6),
    st.data(),
)
def test_shares_are_the_fastest_that_there_are(workers: list[tuple[int, int]], data: st.DataObject) -> None:
    speeds, caps = [speed for speed, _ in workers], [cap for _, cap in workers]
    total = data.draw(st.integers(len(workers), max(len(workers), sum(caps))))
    shares = proportional_shares(total, speeds, caps)
    assert sum(shares) == total
    assert all(1 <= share <= cap for share, cap in zip(shares, caps, strict=True))
    instants = sorted({Fraction(samples, speed) for speed, cap in workers for samples in range(1, cap + 1)})
    possible = (
        instant
        for instant in instants
        if all(int(instant * speed) >= 1 for speed in speeds)
        and sum(min(cap, int(instant * speed)) for speed, cap in workers) >= total
    )
    assert max(Fraction(share, speed) for share, speed in zip(shares, speeds, strict=True)) == next(possible)


def test_the_shares_of_the_reference() -> None:
    assert proportional_shares(512, [100, 100, 50, 25]) == [187, 186, 93, 46]
    assert equal_shares(10, 4) == [3, 3, 2, 2]
    with raises(TrainingError, value=9):
        proportional_shares(9, [1, 1], [4, 4])
    with raises(TrainingError, place="speeds", value=[1, 0]):
        proportional_shares(9, [1, 0])
    for speeds in ([1e300, 1], [1e308, 1e308, 1]):
        with raises(TrainingError, place="speeds", value=speeds):
            proportional_shares((1 << 32) - 1, speeds)


MAX_SAMPLES = (1 << 32) - 1


@given(st.lists(st.tuples(st.floats(1e-9, 1e12), st.integers(1, MAX_SAMPLES)), min_size=1, max_size=6), st.data())
def test_the_slowest_share_cannot_give_a_sample_away(workers: list[tuple[float, int]], data: st.DataObject) -> None:
    """No worker with room would finish one more sample before the slowest does now, for any number of samples."""
    speeds, caps = [speed for speed, _ in workers], [cap for _, cap in workers]
    total = data.draw(st.integers(len(workers), max(len(workers), min(MAX_SAMPLES, sum(caps)))))
    shares = proportional_shares(total, speeds, caps)
    assert sum(shares) == total
    assert all(1 <= share <= cap for share, cap in zip(shares, caps, strict=True))
    can_give = [share / speed for share, speed in zip(shares, speeds, strict=True) if share > 1]
    can_take = [(share + 1) / speed for share, (speed, cap) in zip(shares, workers, strict=True) if share < cap]
    assert max(can_give, default=0.0) <= min(can_take, default=inf)


def test_a_cpu_cluster_is_balanced_within_a_sample() -> None:
    """The limit is 1.02 times the optimum of the machines' speeds, plus one sample, once each speed was seen."""
    speeds, batch = (1000.0, 900.0, 350.0, 120.0), 256
    curve, _ = train(
        make_mode("lb-bsp"), [Machine(speed) for speed in speeds], lambda curve: curve.updates >= 60, batch=batch
    )
    by_step = np.array(
        [
            (iteration.clock, iteration.samples, iteration.computed_ns - iteration.began_ns)
            for iteration in curve.iterations
        ]
    )
    assert curve.updates == 60
    for step in range(60):
        sizes, times_ns = by_step[by_step[:, 0] == step, 1:].T
        assert sizes.sum() == batch
        if step >= 10:
            assert times_ns.max() / 1e9 <= 1.02 * batch / sum(speeds) + 1 / min(speeds)


# --- queries, and late answers ---


@pytest.mark.parametrize(("rule", "asked"), [("analytic", [1, 2, 4, 6, 8]), ("numeric", list(range(1, 10)))])
def test_a_step_has_at_most_one_question_for_any_workers(rule: RuleName, asked: list[int]) -> None:
    """None by the analytic rule where the one before it has changed nothing: here all but the first."""
    speeds = [1000.0 - 50 * rank for rank in range(12)]
    plan = TrainingPlan(make_mode("lb-bsp", predictor="memoryless", sizes=rule), len(speeds), 96, 0.5)
    sizes = IdealBatchSizes(plan)
    when: list[int] = []

    def over(curve: LossCurve) -> bool:
        if sizes.asked > len(when):
            when.append(curve.updates)
        return curve.updates >= 10

    curve, _ = train(plan.mode, [Machine(speed) for speed in speeds], over, batch=96, sizes=sizes)
    assert [step for step in when if step < 10] == asked
    for step in range(10):
        assert sum(iteration.samples for iteration in curve.iterations if iteration.clock == step) == 96
    assert len({iteration.samples for iteration in curve.iterations if iteration.clock == 9}) > 1


def test_turns_rest_the_longer_the_longer_nothing_has_changed() -> None:
    stays = [*[1, 0] * 9, *[1, 0, 0] * 10, *[1, 0, 0, 0] * 10, *[1, 0, 0, 0, 0] * 13]
    for rule, changed, due in (
        ("analytic", [True, True, False, False, True], [1, 1, 1, 0, 1, 0, 1, 1]),
        ("analytic", [False] * 42, stays),
        ("analytic", [*[False] * 42, True, False, False], [*stays, 1, 1, 0, 1, 0]),
        ("numeric", [True, False, False, True], [1, 1, 1, 1, 1]),
    ):
        turns, answers, seen = Turns(rule), iter(changed), []  # type: ignore[arg-type]
        for _ in due:
            seen.append(int(turns.due()))
            if seen[-1]:
                turns.decided(changed=next(answers, True))
        assert seen == due, rule


@pytest.mark.parametrize("stayed", [0, 25, 60, 150])
@pytest.mark.parametrize(("slower", "most"), [(0.82, 14), (0.6, 0)], ids=["a tenth longer", "a third longer"])
def test_speed_changes_are_followed_after_any_constant_time(stayed: int, slower: float, most: int) -> None:
    """Two equal workers for a number of iterations, then one is slower; the change takes at most one more interval."""
    manager, turns, changed = BatchSizeManager(100, 2), Turns("analytic"), []
    sizes = manager.sizes
    for iteration in range(stayed + 40):
        if turns.due():
            second = 1000.0 * (slower if iteration >= stayed else 1)
            found = manager.decide(np.array([[1000.0, 0, 0], [second, 0, 0]]))
            turns.decided(changed=found != sizes)
            changed += [iteration] if found != sizes else []
            sizes = found
    assert most <= changed[0] - stayed + MAX_APART
    assert changed[0] - stayed <= most + MAX_APART
    assert len(changed) == 1
    assert sizes == [55, 45] if most else sizes == [63, 37]


@dataclass
class LateSizes:
    """A controller that answers after this many updates."""

    at: int
    course_updates: int = 0
    asked: int = 0

    def request(self, reports: np.ndarray, present: np.ndarray, *, rule: RuleName, size_step: int) -> LateSizes:
        self.asked += 1
        return self

    def done(self) -> bool:
        return self.course_updates >= self.at

    def wait(self, timeout_s: float, /) -> list[int]:
        return [30, 2]

    def until(self, last: int) -> Callable[[LossCurve], bool]:
        """Return whether the training is over, for `train`."""

        def over(curve: LossCurve) -> bool:
            self.course_updates = curve.updates
            return curve.updates >= last

        return over


def test_a_controller_that_hangs_holds_up_one_step() -> None:
    """The delay is a tenth of a second; then all continue with their sizes, and take the answer when it comes."""
    sizes = LateSizes(at=2)
    curve, training = train(make_mode("lb-bsp"), [Machine(1000.0)] * 2, sizes.until(8), sizes=sizes)
    began = {(iteration.worker, iteration.clock): iteration.began_ns for iteration in curve.iterations}
    ended = {(iteration.worker, iteration.clock): iteration.ended_ns for iteration in curve.iterations}
    for rank in (0, 1):
        waits = [began[rank, step + 1] - ended[rank, step] for step in range(7)]
        assert waits == [100 * MS, *[0] * 6]
        samples = [iteration.samples for iteration in curve.iterations if iteration.worker == rank]
        assert samples[:8] == [16] * 3 + [[30, 2][rank]] * 5
    assert training.weights[0].tobytes() == training.weights[1].tobytes()
    assert sizes.asked == 4, "at once, and again when its answer was acted on"


# --- exactness ---


def test_unequal_batches_train_as_one_process_does() -> None:
    """Same samples; a mean without weights by samples would differ."""
    workload = LeastSquares(20, 500, seed=3)
    machines = [Machine(speed) for speed in (1000.0, 700.0, 300.0, 150.0)]
    curve, training = train(
        make_mode("lb-bsp", predictor="memoryless"),
        machines,
        lambda curve: curve.updates >= 50,
        workload=workload,
        batch=120,
    )
    assert len({iteration.samples for iteration in curve.iterations if iteration.clock == 40}) == 4, "sizes differ"
    alone, naive = workload.initial(), workload.initial()
    optimiser, naive_optimiser = make_optimiser("sgd", [20], 0.5), make_optimiser("sgd", [20], 0.5)
    samples = Samples(workload.rows, (1, 0))
    for step in range(50):
        sizes = [iteration.samples for iteration in curve.iterations if iteration.clock == step]
        alone = optimiser.step(alone, workload.gradient(alone, workload.fetch(samples.rows(120 * step, 120))))
        parts = [workload.gradient(naive, workload.fetch(samples.share(step, sizes, rank))) for rank in range(4)]
        naive = naive_optimiser.step(naive, reference_sum(parts, mean=True))
    scale = np.abs(alone).max()
    for weights in training.weights:
        assert weights.tobytes() == training.weights[0].tobytes()
        assert np.abs(weights - alone).max() < 1e-5 * scale
    assert np.abs(naive - alone).max() > 1e-3 * scale


@given(st.integers(1, 50), st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_every_pass_has_each_row_once_however_it_is_shared(rows: int, seed: int, sizes: list[int]) -> None:
    samples, again = Samples(rows, (seed,)), Samples(rows, (seed,))
    total = sum(sizes)
    steps = -(-3 * rows // total)
    shared = np.concatenate([samples.share(step, sizes, rank) for step in range(steps) for rank in range(len(sizes))])
    assert np.array_equal(shared, again.rows(0, steps * total))
    for epoch in range(3):
        assert np.array_equal(np.sort(shared[epoch * rows : (epoch + 1) * rows]), np.arange(rows))


# --- the numeric rule ---


@dataclass
class Device:
    """A GPU as `Machine` has them, and the way to it."""

    machine: Machine
    communication_s: float

    def time_s(self, samples: int) -> float:
        return self.machine.compute_ns(samples, 0, 0) / 1e9 + self.communication_s


def optimum_s(devices: Sequence[Device], total: int, limits: Sequence[int]) -> float:
    """Minimum time, by bisection: a device holds the samples it finishes by then."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        held = 0
        for device, limit in zip(devices, limits, strict=True):
            able = [samples for samples in (1, limit) if device.time_s(samples) <= middle]
            if not able:
                held = -total
                break
            lowest, highest = 1, limit
            while lowest < highest:
                guess = (lowest + highest + 1) // 2
                lowest, highest = (guess, highest) if device.time_s(guess) <= middle else (lowest, guess - 1)
            held += lowest
        low, high = (low, middle) if held >= total else (middle, high)
    return high


def drawn_cluster(rng: np.random.Generator) -> tuple[list[Device], list[int]]:
    devices = [
        Device(Machine(rng.uniform(300, 2000), 10 * MS, saturation=int(rng.integers(1, 48))), 0.02) for _ in range(8)
    ]
    return devices, [int(limit) for limit in rng.integers(100, 400, 8)]


def played(
    rule: NumericRule, devices: Sequence[Device], rng: np.random.Generator, iterations: int, *, spikes: float = 0.0
) -> list[list[int]]:
    """The sizes of each iteration, with 2 % noise and, that often, iterations of twice the time."""
    sizes = []
    for _ in range(iterations):
        sizes.append(rule.sizes)
        times = np.array([device.time_s(size) for device, size in zip(devices, rule.sizes, strict=True)])
        rule.observe(
            (times * rng.normal(1, 0.02, len(times)) * np.where(rng.random(len(times)) < spikes, 2, 1)).tolist()
        )
    return sizes


def slowest_s(devices: Sequence[Device], sizes: Sequence[int]) -> float:
    return max(device.time_s(size) for device, size in zip(devices, sizes, strict=True))


@pytest.mark.parametrize("spikes", [0.0, 0.03])
@pytest.mark.parametrize("seed", range(6))
def test_the_numeric_rule_comes_near_the_optimum_and_stays(seed: int, spikes: float) -> None:
    """Eight GPUs from equal sizes: within 10 % in 80 iterations, within 3 % in the end, limits always kept."""
    rng = np.random.default_rng(seed)
    devices, limits = drawn_cluster(rng)
    best = optimum_s(devices, 512, limits)
    sizes = played(NumericRule(512, 8, limits=limits), devices, rng, 300, spikes=spikes)
    assert all(sum(size) == 512 for size in sizes)
    assert all(size <= limit for each in sizes for size, limit in zip(each, limits, strict=True))
    assert min(slowest_s(devices, size) for size in sizes[:80]) <= 1.1 * best
    assert np.mean([slowest_s(devices, size) for size in sizes[-50:]]) <= 1.03 * best
    assert np.abs(np.diff(sizes[-100:], axis=0)).sum() < 0.05 * 512


@pytest.mark.parametrize("seed", range(4))
def test_a_link_that_becomes_slow_is_absorbed(seed: int) -> None:
    """The reference's four devices; the fastest one's way takes 80 ms more from iteration 150 on."""
    rng = np.random.default_rng(seed)
    devices = [
        Device(Machine(speed, 10 * MS, saturation=saturation), 0.02)
        for speed, saturation in ((2000.0, 64), (1200.0, 48), (700.0, 24), (350.0, 8))
    ]
    rule = NumericRule(512, 4)
    before = slowest_s(devices, rule.sizes)
    settled = slowest_s(devices, played(rule, devices, rng, 150)[-1])
    assert (round(before, 3), settled < 0.165) == (0.396, True)
    devices[0].communication_s += 0.08
    disturbed = slowest_s(devices, rule.sizes)
    sizes = played(rule, devices, rng, 41)[-1]
    times = [device.time_s(size) for device, size in zip(devices, sizes, strict=True)]
    assert (max(times) - min(times)) / np.mean(times) < 0.08
    assert max(times) < 0.85 * disturbed


def test_a_saturated_device_is_not_drained() -> None:
    """It is the slowest whatever it has: taking from it stops, and the others are no worse off."""
    devices = [Device(Machine(1000.0, saturation=400), 0.0)] + [Device(Machine(1000.0), 0.0) for _ in range(3)]
    rule = NumericRule(512, 4)
    sizes = played(rule, devices, np.random.default_rng(1), 200)
    assert sizes[-1][0] >= 40
    assert slowest_s(devices, sizes[-1]) == 0.4


@given(st.lists(st.none() | st.integers(1, 12), min_size=2, max_size=6), st.integers(2, 40))
def test_samples_beyond_limits_go_to_the_smallest_shares(limits: list[int | None], total: int) -> None:
    """Sample by sample, of equals to the first."""
    sizes = equal_shares(total, len(limits))
    fitted = [size if limit is None else min(size, limit) for size, limit in zip(sizes, limits, strict=True)]
    for _ in range(total - sum(fitted)):
        able = [worker for worker, limit in enumerate(limits) if limit is None or fitted[worker] < limit]
        if not able:
            with raises(TrainingError, value=[*limits]):
                NumericRule(total, len(limits), limits=limits)
            return
        fitted[min(able, key=lambda worker: fitted[worker])] += 1
    assert NumericRule(total, len(limits), limits=limits).sizes == fitted


def test_memory_limits_are_learned_and_kept() -> None:
    """A device that had no memory for its share says what it holds; from then on it has no more than that."""
    rule = NumericRule(96, 3)
    rule.learn_limits([None, 20, None])
    assert (rule.sizes, rule.phase) == ([38, 20, 38], TuningPhase.FAST)
    for _ in range(100):
        rule.observe([0.1 * rule.sizes[0], 0.01, 0.1 * rule.sizes[2]])
        assert rule.sizes[1] <= 20
    rule.learn_limits([None, 30, None])
    assert rule.limits == [None, 20, None]
    with raises(TrainingError, value=[10, 10, 10]):
        rule.learn_limits([10, 10, 10])


# --- predictors ---


@pytest.mark.parametrize("seed", [1, 2])
def test_narx_foresees_what_the_machine_shows(seed: int) -> None:
    """Its error is at most 0.8 times the best other predictor's, on speeds that jump with the free processor."""
    rng = np.random.default_rng(seed)
    count = 1200
    cpu = np.repeat(stepping(rng, count), rng.integers(10, 60, count))[:count]
    memory = np.clip(0.3 + 0.6 * cpu + rng.normal(0, 0.02, count), 0.05, 1)
    machine = Machine(100.0, span_ns=1, cpu=cpu, memory=memory, jitter=jitter(rng, count))
    others: dict[str, Predictor] = {"memoryless": Memoryless(), "ar": AutoRegressive()}
    others |= {f"ema {newest}": MovingAverage(newest) for newest in (0.2, 0.5)}
    errors = {name: root_mean_square(predictor, machine, count) for name, predictor in others.items()}
    assert root_mean_square(Narx(), machine, count) <= 0.8 * min(errors.values()), errors


@pytest.mark.parametrize("past_only", [False, True])
def test_narx_inputs_of_an_iteration_precede_it(past_only: bool) -> None:
    order, memory, count = 3, 40, 250
    rng, history = np.random.default_rng(4), SpeedHistory(order, memory, past_only=past_only)
    speeds, shares, read = rng.uniform(100, 1000, count), rng.uniform(0.2, 1, (count, 2)), Readings(1.0, 1.0)
    for k in range(count):
        if k % 7:  # else nobody has asked, and the machine is as it was
            read = Readings(*shares[k].tolist())
            history.read(read)
        shares[k] = read.cpu, read.memory
        history.append(speeds[k])
        kept = range(max(k + 1 - memory, 0), k + 1)
        told = [each for each in kept if each >= order]
        if not told:
            continue
        seen = np.column_stack([speeds, shares])
        lags = np.array(told)[:, None] - np.arange(order)
        lagged = [seen[lags - 1, 0], seen[lags - past_only, 1], seen[lags - past_only, 2]]
        mean, spread = seen[kept].mean(axis=0), seen[kept].std(axis=0)
        spread[spread < 1e-12] = 1.0
        wanted = [(part - mean[index]) / spread[index] for index, part in enumerate(lagged)]
        inputs, outputs = history.batches(np.array(told)[None] - kept[0])
        assert inputs[0] == pytest.approx(np.concatenate(wanted, axis=1), abs=1e-9)
        assert outputs[0] == pytest.approx((speeds[told] - mean[0]) / spread[0], abs=1e-9)
        assert history.within(2000.0) == speeds[kept].max()
        assert history.within(0.0) == speeds[kept].min()


def root_mean_square(predictor: Predictor, machine: Machine, count: int, first: int = 300) -> float:
    squares = []
    for iteration in range(count):
        predicted, speed = predictor.predict(machine.readings(iteration)), machine.speed(iteration, iteration)
        predictor.observe(speed)
        if iteration >= first:
            assert predicted is not None
            squares.append((predicted - speed) ** 2)
    return float(np.sqrt(np.mean(squares)))


def made(name: str) -> Predictor:
    """A registered predictor, or a skip if its package is not installed."""
    try:
        return PREDICTORS[name].make()
    except MissingExtra as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", PREDICTORS)
def test_predictors_learn_a_steady_speed(name: str) -> None:
    predictor = made(name)
    assert predictor.predict(FREE) is None
    for _ in range(150):
        predictor.observe(250.0)
        assert predictor.predict(FREE) == pytest.approx(250.0)


# --- the manager ---


@pytest.mark.parametrize("rule", ["analytic", "numeric"])
def test_jitter_moves_nothing(rule: RuleName) -> None:
    """Iterations that take twice as long, 3 of 100, and no lasting change: sizes stay once they are found."""
    rng = np.random.default_rng(0)
    machines = [Machine(rng.uniform(300, 2000), 10 * MS, jitter=jitter(rng, 997, noise=0.0)) for _ in range(8)]
    managers = [BatchSizeManager(512, 8, rule=rule) for _ in machines]
    reporters = [SpeedReporter(rule=rule) for _ in machines]
    sizes = []
    for iteration in range(350):
        reports = np.stack([reporter.report(FREE) for reporter in reporters])
        decided = [manager.decide(reports) for manager in managers]
        assert decided == [decided[0]] * 8, "all decide alike"
        sizes.append(decided[0])
        for reporter, machine, size in zip(reporters, machines, decided[0], strict=True):
            reporter.observe(size, machine.compute_ns(size, iteration, 0) / 1e9)
    assert np.abs(np.diff(sizes[50:], axis=0)).sum() < 0.02 * 512


def test_the_manager_keeps_memory_limits_under_either_rule() -> None:
    for rule in ("analytic", "numeric"):
        manager, reporter = BatchSizeManager(100, 2, rule=rule), SpeedReporter("memoryless")
        reporter.observe(50, 0.1, limit=30)
        own = reporter.report(FREE)
        assert own.shape == (REPORT_VALUES,)
        other = np.array([100.0, 0.5, 0.0])
        assert manager.decide(np.stack([own, other])) == [30, 70]


def test_a_manager_refuses_what_it_does_not_know() -> None:
    with raises(TrainingError, value="fast", allowed=("analytic", "numeric")):
        BatchSizeManager(8, 2, rule="fast")  # type: ignore[arg-type]
    with raises(TrainingError, value="arma", allowed=(*PREDICTORS, "the path of a Python file")):
        SpeedReporter("arma")
    with raises(TrainingError, value=0.0):
        SpeedReporter().observe(4, 0.0)
