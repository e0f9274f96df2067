"""Forests of scikit-learn as data: the same classes, files without pickle, and refusals that name the limit."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
import skops.io
from numpy.typing import NDArray
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from weir.controller.inference.errors import ModelError, ModelTooLarge
from weir.controller.inference.forest import LEAF, DecisionTree, Forest
from weir.tests.controller.inference.forests import digits, digits_model, drawn_forests, hard_votes
from weir.tests.support.errors import raises
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
def test_drawn_classifiers_and_files_give_scikit_learns_classes(count: int) -> None:
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


def test_a_hard_voting_of_trees_decides_as_it_predicts() -> None:
    (images, right), (some, _) = digits()
    named = [(str(seed), DecisionTreeClassifier(max_leaf_nodes=30, random_state=seed)) for seed in range(5)]
    model = VotingClassifier(named).fit(images[:, :20], right)
    assert (Forest.of(model).predict(some[:, :20]) == model.predict(some[:, :20])).all()


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
        fitted(OneVsRestClassifier(DecisionTreeClassifier()), samples=50, classes=3),
        fitted(StackingClassifier([("a", DecisionTreeClassifier())], DecisionTreeClassifier()), samples=50),
        fitted(VotingClassifier([("a", DecisionTreeClassifier())], weights=[2]), samples=50),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_without_one_vote_a_tree_are_refused(model: Any) -> None:
    with pytest.raises(ModelError):
        Forest.of(model)


def test_a_pickle_is_read_only_if_it_is_trusted(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harm",)

    path = tmp_path / "model.joblib"
    path.write_bytes(pickle.dumps(Harm()))
    with pytest.raises(ModelError):
        Forest.load(path)
    assert not (tmp_path / "harm").exists()
    model = digits_model(trees=2, leaves=8)
    for name, compress in (("plain.joblib", 0), ("packed.joblib", 3)):
        joblib.dump(model, tmp_path / name, compress=compress)
        assert Forest.load(tmp_path / name, trust=True) == Forest.of(model)
    path.write_bytes(b"\x80\x04no pickle")
    with raises(ModelError, place=str(path)):
        Forest.load(path, trust=True)


@pytest.mark.parametrize("seed", range(6))
def test_a_classifier_in_a_file_of_skops_is_the_one_in_memory(seed: int, tmp_path: Path) -> None:
    for number, model, forest, _ in drawn_forests(2, seed=seed):
        skops.io.dump(model, tmp_path / "model.skops")
        read = Forest.load(tmp_path / "model.skops", features=forest.features)
        assert read == forest, f"seed {seed}, forest {number}"


def test_skops_file_with_other_types_is_refused_by_name(tmp_path: Path) -> None:
    model = make_pipeline(FunctionTransformer(json.dumps), DecisionTreeClassifier())
    skops.io.dump(model, tmp_path / "model.skops")
    with raises(ModelError, place=str(tmp_path / "model.skops"), value=["json.dumps"]):
        Forest.load(tmp_path / "model.skops")


def nodes(change: Callable[[NDArray[Any]], object]) -> Callable[[str, bytes], bytes]:
    """Rewrite the arrays of trees' nodes in a file of skops."""

    def rewrite(name: str, content: bytes) -> bytes:
        array = np.load(io.BytesIO(content)) if name.endswith(".npy") else np.zeros(0)
        if array.dtype.names is None:
            return content
        change(array)
        out = io.BytesIO()
        np.save(out, array)
        return out.getvalue()

    return rewrite


def schema(old: str, new: str) -> Callable[[str, bytes], bytes]:
    return lambda name, content: content.replace(old.encode(), new.encode()) if name == "schema.json" else content


@pytest.mark.parametrize(
    "rewrite",
    [
        nodes(lambda array: array["left_child"].fill(10**9)),
        nodes(lambda array: array["left_child"].fill(-7)),
        nodes(lambda array: array["feature"].fill(10**9)),
        nodes(lambda array: array["feature"].fill(-7)),
        schema('"content": "64"', '"content": "1000000000000"'),
        schema('"content": "64"', '"content": "6"'),
        schema('"tree_"', '"tree"'),
        schema('"classes_"', '"clazzes_"'),
        schema('"estimators_"', '"n_jobs"'),
        schema("sklearn.tree._tree", "os"),
        lambda name, content: b"[" * 100_000 if name == "schema.json" else content,
        lambda name, content: b"{}" if name == "schema.json" else content,
        lambda name, content: content[:60],
        lambda name, content: content + bytes(1 << 29) if name == "schema.json" else content,
    ],
)
def test_a_malformed_file_of_skops_is_refused(rewrite: Callable[[str, bytes], bytes], tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        Forest.load(rewritten(tmp_path / "model.skops", rewrite))


@pytest.mark.parametrize("count", [1_000_000_000, -1])
def test_a_wrong_number_of_nodes_reads_no_other_memory(count: int, tmp_path: Path) -> None:
    """Some versions of scikit-learn count the nodes again."""
    path = rewritten(tmp_path / "model.skops", schema('"content": "15"', f'"content": "{count}"'))
    try:
        read = Forest.load(path)
    except ModelError:
        return
    assert read == Forest.of(digits_model(trees=2, leaves=8))


def rewritten(path: Path, rewrite: Callable[[str, bytes], bytes]) -> Path:
    """Save a model of 8 leaves a tree, and change its file's parts."""
    skops.io.dump(digits_model(trees=2, leaves=8), path)
    with zipfile.ZipFile(path) as packed:
        content = {name: rewrite(name, packed.read(name)) for name in packed.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, each in content.items():
            packed.writestr(name, each)
    return path


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
        {"features": True},
        {"features": 0},
        {"features": 1e9},
        {"classes": "ab"},
        {"classes": [[0], [1]]},
        {"classes": [None, 1]},
        {"classes": [1, 1]},
        {"classes": [1, "a"]},
        {"classes": [float("nan"), 1]},
        {"trees": [{**TWO_LEAVES, "threshold": [7.5, 0, 0]}]},
        {"trees": [{**TWO_LEAVES, "threshold": [10**400, 0, 0]}]},
        {"trees": [{**TWO_LEAVES, "left": ["1", 0, 0]}]},
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


def test_thresholds_beyond_bytes_leave_only_reachable_leaves() -> None:
    tree = DecisionTree((0, 0, LEAF, LEAF, LEAF), (-1, 255, 0, 0, 0), (2, 3, 0, 0, 0), (1, 4, 0, 0, 0), (0, 0, 0, 1, 2))
    assert list(tree.leaves()) == [((), 1)]
