"""Flows in traffic classes: strict priority, the guard of the lowest class, and jobs that change class."""

from __future__ import annotations

import numpy as np
import pytest

from weir.experiments.errors import ExperimentError
from weir.experiments.flows.coflows import Coflow
from weir.experiments.flows.fair_shares import Floats, fair_rates, fill_by_class
from weir.experiments.flows.simulator import FlowJob, Simulator

MB = 8e6
"""Bit/s of a link that carries a megabyte in a second."""


def rates(paths: list[dict[int, float]], classes: list[int], capacity: list[float], guard: float = 0.0) -> Floats:
    sizes = np.array([len(path) for path in paths], np.int64)
    end = np.cumsum(sizes)
    found = np.zeros(len(paths))
    fill_by_class(
        np.arange(len(paths)),
        np.array(classes, np.int64),
        guard,
        end - sizes,
        end,
        np.array([link for path in paths for link in path], np.int64),
        np.array([weight for path in paths for weight in path.values()], np.float64),
        np.full(len(paths), np.inf),
        np.array(capacity, np.float64),
        found,
    )
    return found


def coflow(*links: int) -> Coflow:
    return Coflow(np.array(links, np.int64), np.ones(len(links)), 0.0, 0.0, np.inf)


def test_a_class_gets_what_higher_ones_leave() -> None:
    found = rates([{0: 1}, {0: 1}, {0: 1, 1: 1}, {1: 1}], [2, 2, 1, 0], [10, 4])
    assert found == pytest.approx([5, 5, 0, 4])


def test_guard_is_left_to_the_lowest_class_of_each_link() -> None:
    assert rates([{0: 1}, {0: 1}], [3, 1], [10], 0.1) == pytest.approx([9, 1])
    assert rates([{0: 1}, {1: 1}], [3, 1], [10, 10], 0.1) == pytest.approx([10, 10])


@pytest.mark.parametrize("seed", range(10))
def test_flows_are_limited_by_full_links_of_their_class_and_above(seed: int) -> None:
    rng = np.random.default_rng(seed)
    paths = [
        {int(link): float(rng.integers(1, 4)) for link in rng.choice(6, rng.integers(1, 4), replace=False)}
        for _ in range(9)
    ]
    classes = [int(integer) for integer in rng.integers(0, 3, 9)]
    capacity = rng.uniform(1, 9, 6)
    found = rates(paths, classes, [*capacity])
    for flow, path in enumerate(paths):
        loads = {
            link: sum(
                found[other] * each.get(link, 0) for other, each in enumerate(paths) if classes[other] >= classes[flow]
            )
            for link in path
        }
        assert all(loads[link] <= capacity[link] * (1 + 1e-9) for link in path)
        assert any(loads[link] >= capacity[link] * (1 - 1e-9) for link in path)


def test_one_class_is_max_min_fair() -> None:
    paths: list[dict[int, float]] = [{0: 1}, {0: 2, 1: 1}, {1: 1}]
    assert rates(paths, [4, 4, 4], [6, 5]) == pytest.approx(fair_rates(paths, np.array([6.0, 5.0])))


def test_the_higher_class_runs_as_if_alone() -> None:
    simulator = Simulator(np.array([MB]))
    low = simulator.add("low", 1e6, [(coflow(0), 1.0)], steps=1)
    high = simulator.add("high", 1e6, [(coflow(0), 1.0)], steps=2, compute_seconds=0.5)
    simulator.classify(high, 1)
    simulator.run_until_done()
    assert high.durations == pytest.approx([1, 1])
    assert low.durations == pytest.approx([2.0])


def test_a_change_of_class_takes_effect_at_once() -> None:
    simulator = Simulator(np.array([MB]))
    first = simulator.add("first", 1e6, [(coflow(0), 1.0)], steps=1)
    second = simulator.add("second", 1e6, [(coflow(0), 1.0)], steps=1)
    simulator.at(1.0, lambda: simulator.classify(second, 1))
    simulator.run_until_done()
    assert second.durations == pytest.approx([1.5])
    assert first.durations == pytest.approx([2.0])


def test_an_ended_job_leaves_its_links() -> None:
    simulator = Simulator(np.array([MB]))
    killed = simulator.add("killed", 1e6, [(coflow(0), 1.0)], steps=5)
    other = simulator.add("other", 1e6, [(coflow(0), 1.0)], steps=1)
    simulator.at(1.0, lambda: simulator.end(killed))
    simulator.run_until_done()
    assert other.durations == pytest.approx([1.5])
    assert killed.durations == []


def test_a_job_computes_as_it_is_told_and_reports_each_step() -> None:
    simulator = Simulator(np.array([MB]))
    seen: list[float] = []

    def later(job: FlowJob, done: object) -> None:
        assert callable(done)
        simulator.at(simulator.now + 0.25 * (1 + len(job.durations)), done)

    simulator.add("a", 1e6, [(coflow(0), 1.0)], 2, compute=later, after_step=lambda _: seen.append(simulator.now))
    simulator.run_until_done()
    assert seen == pytest.approx([1.25, 2.75])


def test_a_guard_of_everything_is_refused() -> None:
    with pytest.raises(ExperimentError):
        Simulator(np.array([MB]), guard_share=1.0)
