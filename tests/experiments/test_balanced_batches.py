"""Comparison of balanced batches without packets, and of predictors of speeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.experiments.config import RunConfig
from weir.experiments.papers import PAPERS
from weir.experiments.repetition.balanced_batches import (
    drawn_machines,
    named,
    predicted_steps,
    reached_ns,
)
from weir.training import make_mode
from weir.training.batching.predictor import Predictor
from weir.training.batching.predictors import PREDICTORS
from weir.training.machines import Readings

FILE = PAPERS["lb-bsp"].files[0]


@pytest.mark.parametrize("file", PAPERS["lb-bsp"].files, ids=lambda file: file.stem)
def test_every_contender_is_a_mode_of_every_run_file(file: Path) -> None:
    config = RunConfig.load(file)
    assert config.synchronisation is not None
    modes = config.synchronisation.modes
    assert {named(mode, modes) for mode in modes} == {each.name for each in PAPERS["lb-bsp"].contenders}


def test_modes_of_one_name_are_told_by_their_options() -> None:
    modes = [make_mode("flexrr"), make_mode("flexrr", delay_ms=1.0), make_mode("ssp", staleness=3)]
    assert [named(mode, modes) for mode in modes] == ["flexrr", "flexrr delay_ms=1.0", "ssp"]


def test_balanced_batches_reach_a_loss_before_equal_ones() -> None:
    config = RunConfig.load(FILE)
    assert config.synchronisation is not None
    easy = config.replaced("synchronisation", synchronisation=config.synchronisation.model_copy(update={"target": 1.5}))
    equal, static, balanced, helped = (
        reached_ns(easy, make_mode(name)) for name in ("bsp", "static", "lb-bsp", "flexrr")
    )
    assert equal is not None
    assert static is not None
    assert balanced is not None
    assert helped is not None
    assert max(static, balanced, helped) < 0.8 * equal
    assert reached_ns(easy, make_mode("lb-bsp")) == balanced


class Fixed:
    """Predictor that always says the same."""

    def predict(self, readings: Readings) -> float | None:
        return 1000.0

    def observe(self, speed: float) -> None:
        pass


def test_better_predictions_make_shorter_steps() -> None:
    machines = drawn_machines([4000.0, 1000.0], 1)

    def told() -> Predictor:
        return Fixed()

    wrong, last = predicted_steps(told, machines), predicted_steps(PREDICTORS["memoryless"].make, machines)
    assert wrong[0] > last[0] > 0
    assert wrong[1] > last[1]
