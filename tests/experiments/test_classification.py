"""Forests in the compiled switch program: the class by packets is scikit-learn's hard vote."""

from __future__ import annotations

import numpy as np
import pytest

from weir.controller.inference.forest import LEAF, DecisionTree, Forest
from weir.experiments.classification import drawn_samples, loaded_switch, request, try_model
from weir.tests.controller.inference.forests import digits, digits_model, drawn_forests, hard_votes
from weir.wire.classification import Status, pack_requests


def test_all_held_out_digits_get_scikit_learns_hard_vote() -> None:
    model = digits_model()
    forest = Forest.of(model)
    _, (images, _) = digits()
    switch = loaded_switch(forest)
    answers = [request(switch, payload) for payload in pack_requests(forest.encode(images), first_sequence=7)]
    assert all(answer is not None and answer.status is Status.CLASSIFIED for answer in answers)
    found = [answer.class_index for answer in answers if answer is not None]
    assert (model.classes_[found] == hard_votes(model, images)).all()
    assert [answer.sequence for answer in answers if answer is not None] == list(range(7, 457))
    assert {(answer.model, answer.trees) for answer in answers if answer is not None} == {(forest.number, 9)}


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.long)])
def test_drawn_forests_decide_in_the_switch_as_in_scikit_learn(count: int) -> None:
    for number, model, forest, samples in drawn_forests(count, seed=2):
        switch = loaded_switch(forest)
        some = samples[:: max(1, len(samples) // 20)]
        answers = [request(switch, payload) for payload in pack_requests(forest.encode(some), model=forest.number)]
        found = [-1 if answer is None else answer.class_index for answer in answers]
        assert (model.classes_[found] == hard_votes(model, some)).all(), f"seed 2, forest {number}"


def test_bytes_around_thresholds_get_the_models_class_and_votes() -> None:
    forest = Forest.of(digits_model(trees=16, leaves=128))
    outcome = try_model(forest, drawn_samples(forest, seed=3, count=200))
    assert (outcome.samples, outcome.wrong, outcome.trees) == (200, 0, 16)
    assert outcome.key_bits <= 128


def test_nine_trees_of_64_leaves_fit_a_chip() -> None:
    forest = Forest.of(digits_model())
    outcome = try_model(forest, np.zeros((0, 64), np.uint8))
    assert (outcome.trees, outcome.leaves, outcome.ternary_blocks) == (9, 576, 108)
    assert not outcome.chip_refusal
    assert outcome.key_bits <= 63


def test_first_class_wins_among_equal_votes() -> None:
    votes = [3, 1, 2, 1, 2]
    forest = Forest(tuple(range(4)), 1, tuple(DecisionTree((LEAF,), (0,), (0,), (0,), (vote,)) for vote in votes))
    answer = request(loaded_switch(forest), pack_requests(np.zeros((1, 1), np.uint8))[0])
    assert answer is not None
    assert (answer.class_index, answer.votes, answer.trees) == (1, 2, 5)


def test_another_model_is_not_served() -> None:
    forest = Forest.of(digits_model(trees=1, leaves=4))
    answer = request(loaded_switch(forest), pack_requests(np.zeros((1, 64), np.uint8), model=forest.number ^ 1)[0])
    assert answer is not None
    assert answer.status is Status.UNKNOWN_MODEL


def test_a_model_of_numbers_answers_only_to_its_own_number() -> None:
    forest = Forest(
        (0, 1), 1, (DecisionTree((0, LEAF, LEAF), (0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 0, 1)),), edges=((0.5,),)
    )
    switch = loaded_switch(forest)
    for model, status in ((0, Status.UNKNOWN_MODEL), (forest.number, Status.CLASSIFIED)):
        answer = request(switch, pack_requests(forest.encode([[0.7]]), model=model)[0])
        assert answer is not None
        assert answer.status is status
