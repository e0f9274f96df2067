"""Courses of ranks that train with PyTorch: the model's gradient, every hook, and the courses that are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from weir.experiments.papers.compression_mininet import DESCRIPTION
from weir.experiments.repetition.compressed_courses import LIMIT, MODELS, RATIO, WAYS
from weir.experiments.repetition.compressed_steps import SAMPLES
from weir.experiments.repetition.process_course import COURSES, Course
from weir.experiments.repetition.process_course_rank import _Perceptron, _Training, train
from weir.experiments.repetition.process_courses import BACK_ENDS
from weir.training.optimisers import make_optimiser
from weir.training.samples import Samples
from weir.training.workloads import make_workload

COURSE: Final = Course("digits", 32, 0.9, 3, "gloo", "float32", 0.2, 0.9, 150, 0.1)


@pytest.fixture
def alone() -> Any:
    """A group of this process alone."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return dist.group.WORLD


def test_every_contender_has_a_back_end_a_hook_and_arithmetic() -> None:
    assert set(BACK_ENDS) == {contender.name for contender in DESCRIPTION.contenders}
    assert {hook for _, hook in BACK_ENDS.values()} <= set(WAYS)


def test_courses_reach_ranks_as_they_are() -> None:
    courses = [COURSE, replace(COURSE, back_end="weir", hook="packed8", limit=LIMIT, ratio=RATIO)]
    assert COURSES.validate_json(COURSES.dump_json(courses)) == courses


@pytest.mark.parametrize("model", [model for model in MODELS if model.workload == "digits"])
def test_gradients_are_those_of_the_workload(model: Any) -> None:
    workload = model.made(5)
    network, batch = _Perceptron(workload), workload.fetch(np.arange(SAMPLES))
    network(batch).backward()
    mine = torch.cat([part.grad.ravel() for part in network.parts]).numpy()
    np.testing.assert_allclose(mine, workload.gradient(workload.initial(), batch), rtol=1e-4, atol=1e-6)
    assert network.weights().tolist() == workload.initial().tolist()


def test_steps_are_those_of_the_optimiser(alone: Any) -> None:
    workload = make_workload("digits", COURSE.seed, COURSE.hidden)
    training, weights = _Training(COURSE, workload, alone), workload.initial()
    samples = Samples(workload.rows, (COURSE.seed, 0))
    optimiser = make_optimiser("sgd", workload.layers, COURSE.rate, momentum=COURSE.momentum)
    for number in range(5):
        training.step(number)
        weights = optimiser.step(
            weights, workload.gradient(weights, workload.fetch(samples.share(number, [SAMPLES], 0)))
        )
    np.testing.assert_allclose(training.network.weights(), weights, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("hook", sorted({hook for _, hook in BACK_ENDS.values()}))
def test_every_hook_trains_to_the_accuracy(alone: Any, hook: str) -> None:
    momentum = 0.0 if hook in ("topk", "dgc") else 0.9
    outcome = train(replace(COURSE, hook=hook, momentum=momentum), alone, alone)
    assert outcome.steps is not None
    assert outcome.seconds > 0


def test_a_course_ends_at_its_limit(alone: Any) -> None:
    outcome = train(replace(COURSE, accuracy=1.01, limit=3), alone, alone)
    assert outcome.steps is None
