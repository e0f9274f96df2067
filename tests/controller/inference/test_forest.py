"""Forests of scikit-learn as data: the same classes, files without pickle, and refusals that name the limit."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from weir.controller.inference.forest import LEAF, Forest, ModelError, ModelTooLarge, Tree
from weir.tests.controller.inference.forests import digits, digits_model, drawn_forests, hard_votes
from weir.wire.errors import WireError

RANDOM = np.random.default_rng(5)
TWO_LEAVES = {"feature": [0, -1, -1], "threshold": [7, 0, 0], "left": [1, 0, 0], "right": [2, 0, 0], "class": [0, 0, 1]}
SAVED: dict[str, Any] = {
    "format": "weir-forest",
    "version": 1,
    "classes": [0, 1],
    "features": 2,
    "edges": None,
    "trees": [TWO_LEAVES],
}


def test_all_digits_get_the_class_of_scikit_learns_hard_vote() -> None:
    model = digits_model()
    forest = Forest.of(model)
    for images, _ in digits():
        assert (forest.predict(images) == hard_votes(model, images)).all()


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.long)])
def test_drawn_classifiers_and_their_files_give_scikit_learns_classes(count: int) -> None:
    for number, model, forest, samples in drawn_forests(count, seed=1):
        expected = hard_votes(model, samples)
        assert (forest.predict(samples) == expected).all(), f"seed 1, forest {number}"
        read = Forest.from_json(forest.as_json())
        assert (read, read.number) == (forest, forest.number), f"seed 1, forest {number}"


def test_values_at_a_threshold_go_left_as_in_scikit_learn() -> None:
    samples = RANDOM.normal(size=(200, 3))
    model = DecisionTreeClassifier(random_state=0).fit(samples, RANDOM.integers(0, 3, 200))
    inner = model.tree_.children_left != LEAF
    edge = np.repeat(samples[:1], inner.sum(), axis=0)
    edge[np.arange(len(edge)), model.tree_.feature[inner]] = model.tree_.threshold[inner]
    around = np.concatenate([edge, np.nextafter(edge.astype(np.float32), np.float32(np.inf)), edge - 1e-9])
    assert (Forest.of(model, features="numbers").predict(around) == model.predict(around)).all()


def test_a_saved_model_is_read_back(tmp_path: Path) -> None:
    forest = Forest.of(digits_model(trees=2, leaves=8))
    forest.save(tmp_path / "model.json")
    assert Forest.load(tmp_path / "model.json") == forest


def test_classes_may_be_names() -> None:
    model = DecisionTreeClassifier().fit([[1], [2], [3]], ["bee", "ant", "bee"])
    assert Forest.of(model).predict([[1], [2], [3]]).tolist() == ["bee", "ant", "bee"]


def fitted(model: Any, *, samples: int = 3000, features: int = 20, classes: int = 2) -> Any:
    return model.fit(RANDOM.normal(size=(samples, features)), np.arange(samples) % classes)


@pytest.mark.parametrize(
    ("model", "shape", "limit"),
    [
        (DecisionTreeClassifier(max_leaf_nodes=4), {"features": 65}, "features"),
        (DecisionTreeClassifier(max_leaf_nodes=4), {"classes": 17}, "classes"),
        (RandomForestClassifier(17, max_leaf_nodes=4), {}, "trees"),
        (DecisionTreeClassifier(max_leaf_nodes=130), {}, "distinct thresholds of tree 0"),
        (DecisionTreeClassifier(max_leaf_nodes=300), {"features": 1}, "distinct thresholds of feature 0"),
    ],
)
def test_a_model_beyond_a_limit_is_refused_by_its_name(model: Any, shape: dict[str, int], limit: str) -> None:
    with pytest.raises(ModelTooLarge) as refused:
        Forest.of(fitted(model, **shape), features="numbers")
    assert refused.value.limit == limit
    assert isinstance(refused.value.value, int)
    assert refused.value.value > refused.value.most


def test_too_many_leaves_are_refused_by_number() -> None:
    """A tree over two features of 16 values each has few thresholds and up to 256 leaves, and one more by a third."""
    grid = np.stack([axis.ravel() for axis in np.meshgrid(range(16), range(16), range(2))], axis=1)
    model = DecisionTreeClassifier(random_state=0).fit(grid, grid.sum(axis=1) % 2)
    with pytest.raises(ModelTooLarge) as refused:
        Forest.of(model)
    assert refused.value.limit == "leaves of tree 0"


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(),
        fitted(LogisticRegression(), samples=50),
        fitted(AdaBoostClassifier(n_estimators=2), samples=50),
        fitted(GradientBoostingClassifier(n_estimators=2), samples=50),
        fitted(RandomForestRegressor(2), samples=50),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_without_one_vote_a_tree_are_refused(model: Any) -> None:
    with pytest.raises(ModelError):
        Forest.of(model)


def test_a_pickle_is_refused_without_running_it(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harm",)

    path = tmp_path / "model.joblib"
    path.write_bytes(pickle.dumps(Harm()))
    with pytest.raises(ModelError):
        Forest.load(path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"trees": []},
        {"classes": []},
        {"trees": [{**TWO_LEAVES, "left": [0, 0, 0]}]},
        {"trees": [{**TWO_LEAVES, "left": [2, 0, 0]}]},
        {"trees": [{**TWO_LEAVES, "right": [3, 0, 0]}]},
        {"trees": [{**TWO_LEAVES, "feature": [2, -1, -1]}]},
        {"trees": [{**TWO_LEAVES, "threshold": [256, 0, 0]}]},
        {"trees": [{**TWO_LEAVES, "class": [0, 0, 2]}]},
        {"trees": [{**TWO_LEAVES, "class": [0, 0]}]},
        {"edges": [[1.0, 1.0], []]},
        {"edges": [[1.0]]},
        {"features": "many"},
    ],
    ids=str,
)
def test_a_malformed_file_is_refused(change: dict[str, Any]) -> None:
    assert Forest.from_json(json.dumps(SAVED)).predict([[7, 0], [8, 0]]).tolist() == [0, 1]
    with pytest.raises(ModelError):
        Forest.from_json(json.dumps({**SAVED, **change}))


@pytest.mark.parametrize(
    "text", ["[" * 10_000, json.dumps(SAVED).replace('"features": 2', '"features": 1e999'), "7", ""]
)
def test_text_of_any_kind_is_refused(text: str) -> None:
    with pytest.raises(ModelError):
        Forest.from_json(text)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ModelError) as refused:
        Forest.load("/nonexistent/model.json")
    assert refused.value.place == "/nonexistent/model.json"


@pytest.mark.parametrize("samples", [[[0.5, 1]], [[256, 1]], [[-1, 1]], [[np.nan, 1]], [[1, 2, 3]], [1, 2]])
def test_values_that_are_no_bytes_are_refused(samples: Any) -> None:
    with pytest.raises(WireError):
        Forest.from_json(json.dumps(SAVED)).encode(samples)


def test_thresholds_outside_bytes_leave_only_leaves_that_bytes_reach() -> None:
    tree = Tree((0, 0, LEAF, LEAF, LEAF), (-1, 255, 0, 0, 0), (2, 3, 0, 0, 0), (1, 4, 0, 0, 0), (0, 0, 0, 1, 2))
    assert list(tree.leaves()) == [((), 1)]
