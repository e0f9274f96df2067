"""Searches by stages: the state machine against drawn values, its models, and Optuna."""

from __future__ import annotations

import math
import random
from importlib.util import find_spec

import numpy as np
import pytest

from weir.training.errors import TrainingError
from weir.training.optimiser import Floats
from weir.training.optuna_source import OptunaSource
from weir.training.search import RandomSource, Range, Schedule, Space, StagedSearch, Trial
from weir.training.search_models import SearchModels, check_parameters

SPACE: Space = {
    "learning_rate": Range(low=0.01, high=0.5, log=True),
    "batch": Range(low=8, high=32, log=True, integer=True),
    "optimiser": ["sgd", "adam"],
    "momentum": [0.0, 0.9],
}


@pytest.mark.parametrize("seed", range(20))
def test_the_worst_of_each_stage_stop_and_new_ones_start(seed: int) -> None:
    rng = random.Random(seed)
    schedule = Schedule(
        configurations=rng.randint(1, 9),
        stages=rng.randint(1, 4),
        steps=rng.randint(1, 10),
        keep=rng.choice([0.3, 0.5, 1.0]),
        growth=rng.choice([0.5, 1.0, 2.0]),
        new=rng.randint(0, 2),
    )
    search = StagedSearch(RandomSource(SPACE, seed), schedule)
    running, trainings = set(range(schedule.configurations)), 0
    for stage in range(schedule.stages):
        assert (search.stage, search.steps, search.over) == (stage, schedule.steps_of(stage), False)
        assert {trial.number for trial in search.ask()} == running
        values = {number: rng.choice([rng.random(), math.nan]) for number in running}
        for number in rng.sample(sorted(running), len(running)):
            search.tell(number, values[number])
        trainings += len(running)
        known = {number: -math.inf if math.isnan(value) else value for number, value in values.items()}
        stopped = {trial.number for trial in search.trials if trial.stopped} & running
        kept = running - stopped
        if stage + 1 < schedule.stages:
            assert len(kept) == max(1, math.floor(schedule.keep * len(running)))
            assert all(known[good] >= known[bad] for good in kept for bad in stopped)
            running = kept | {trial.number for trial in search.trials[len(search.trials) - schedule.new :]}
        else:
            assert not stopped
            assert known[search.best.number] == max(known.values())
    assert search.over
    assert search.ask() == []
    assert trainings == schedule.trainings
    for trial in search.trials:
        first = trial.begun_stage
        assert trial.steps == sum(map(schedule.steps_of, range(first, first + len(trial.values))))


def test_configurations_depend_on_seed_and_number_alone() -> None:
    drawn = [RandomSource(SPACE, 3).propose(number) for number in range(200)]
    assert drawn == [RandomSource(SPACE, 3).propose(number) for number in reversed(range(200))][::-1]
    assert drawn != [RandomSource(SPACE, 4).propose(number) for number in range(200)]
    rates, batches = ([each[name] for each in drawn] for name in ("learning_rate", "batch"))
    assert 0.01 <= min(rates) < 0.02
    assert 0.25 < max(rates) <= 0.5
    assert abs(np.mean(np.log(rates)) - np.log(0.01 * 0.5) / 2) < 0.25
    assert {8, 32} <= set(batches) <= set(range(8, 33))


def test_wrong_searches_are_refused() -> None:
    search = StagedSearch(RandomSource(SPACE), Schedule(configurations=1, stages=1))
    with pytest.raises(TrainingError):
        _ = search.best
    search.tell(0, 0.5)
    for wrong in (
        lambda: search.tell(0, 0.5),
        lambda: Schedule(configurations=0),
        lambda: Schedule(keep=0),
        lambda: Schedule(growth=math.inf),
        lambda: Schedule(new=-1),
        lambda: Range(low=2, high=1),
        lambda: Range(low=0, high=1, log=True),
        lambda: Range(low=0.5, high=1, integer=True),
        lambda: RandomSource({"batch": []}),
        lambda: check_parameters(["rate"]),
        lambda: SearchModels().train(Trial(0, {"batch": 0}, 0), 1),
        lambda: SearchModels().train_share(Trial(0, {"batch": 1}, 0), 1, [1, 0], 1, lambda gradient, step: gradient),
    ):
        with pytest.raises(TrainingError):
            wrong()


def test_a_model_continues_where_its_stage_has_ended() -> None:
    parameters = {"learning_rate": 0.1, "momentum": 0.9, "batch": 24, "hidden": 8}
    models = SearchModels("digits")
    whole, parts = Trial(0, parameters, 0), Trial(1, parameters, 0)
    models.train(parts, 7)
    assert models.train(parts, 13) == models.train(whole, 20)
    assert np.array_equal(models._models[0].weights, models._models[1].weights)
    assert math.isnan(models.train(Trial(2, {"learning_rate": 1e30}, 0), 20))
    assert models.gradient_bytes(parameters) == 4 * whole_size(8)


def test_workers_with_shares_of_a_batch_take_its_steps() -> None:
    """Each worker's gradient of every step, recorded first with the weights of one process."""
    trial, shares = Trial(0, {"learning_rate": 0.1, "batch": 24, "hidden": 8}, 0), [10, 6, 8]
    whole = SearchModels("digits")
    whole.train(trial, 1)
    gradients = []

    def kept(gradient: Floats, step: int) -> Floats:
        gradients.append(gradient)
        return gradient

    for rank in range(3):
        SearchModels("digits").train_share(trial, 1, shares, rank, kept)
    mean = np.average(gradients, axis=0, weights=shares).astype(np.float32)
    together = SearchModels("digits")
    together.train_share(trial, 1, shares, 0, lambda gradient, step: mean)
    assert np.allclose(together._models[0].weights, whole._models[0].weights, atol=1e-6)


def whole_size(hidden: int) -> int:
    """Numbers of the digits' network: 64 inputs, 10 classes."""
    return 64 * hidden + hidden + 10 * hidden + 10


@pytest.mark.skipif(find_spec("optuna") is None, reason="Optuna is not installed (pip install 'weir-fabric[search]')")
def test_optuna_proposes_and_learns_from_stages() -> None:
    import optuna

    source = OptunaSource(SPACE, seed=1)
    search = StagedSearch(source, Schedule(configurations=12, stages=3, steps=10, new=4))
    while not search.over:
        for trial in search.ask():  # best at a rate of 0.1
            search.tell(trial.number, -abs(math.log(trial.parameters["learning_rate"] / 0.1)))
    for trial in search.trials:
        own = source.study.trials[trial.number]
        assert own.params == trial.parameters
        assert list(own.intermediate_values.values()) == trial.values
        assert max(own.intermediate_values) == trial.steps
        assert (own.state == optuna.trial.TrialState.PRUNED) == trial.stopped
    assert source.study.best_value == max(trial.value for trial in search.trials if not trial.stopped)
