"""Classifiers of scikit-learn, and what they say: the oracle of models in switches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from weir.controller.inference.forest import MAX_CLASSES, MAX_TREES, Forest

Arrays = tuple[NDArray[Any], NDArray[Any]]


@cache
def digits() -> tuple[Arrays, Arrays]:
    """1,347 digits to learn from, and 450 held out: (images, classes) of each."""
    images, classes = load_digits(return_X_y=True)
    learned, held_out, of_learned, of_held_out = train_test_split(images, classes, test_size=450, random_state=0)
    return (learned, of_learned), (held_out, of_held_out)


@cache
def digits_model(trees: int = 9, leaves: int = 64, seed: int = 0) -> RandomForestClassifier:
    """A random forest that has learned digits."""
    return RandomForestClassifier(trees, max_leaf_nodes=leaves, random_state=seed).fit(*digits()[0])


def hard_votes(model: Any, samples: NDArray[Any]) -> NDArray[Any]:
    """Class of each sample by scikit-learn's trees, one vote each; of equals the first class."""
    if not hasattr(model, "estimators_"):
        predicted: NDArray[Any] = model.predict(samples)
        return predicted
    votes = np.zeros((len(samples), len(model.classes_)), int)
    picked = getattr(model, "estimators_features_", None) or [slice(None)] * len(model.estimators_)
    for tree, own in zip(model.estimators_, picked, strict=True):
        votes[np.arange(len(samples)), tree.predict(samples[:, own]).astype(int)] += 1
    chosen: NDArray[Any] = model.classes_[votes.argmax(axis=1)]
    return chosen


def drawn_forests(count: int, seed: int) -> Iterator[tuple[int, Any, Forest, NDArray[Any]]]:
    """Yield (number, classifier, its forest, samples) of random kinds, sizes and data."""
    for number in range(count):
        random = np.random.default_rng((seed, number))
        features, classes = int(random.integers(1, 65)), int(random.integers(2, MAX_CLASSES + 1))
        whole = bool(random.integers(2))
        if whole:
            samples = random.integers(0, 256, (120, features)).astype(float)
        else:
            samples = random.normal(size=(120, features)) * 10.0 ** random.integers(-3, 4)
        labels = random.integers(0, classes, 120)
        labels[:classes] = range(classes)
        model = _model(random, number)
        model.fit(samples[:60], labels[:60])
        yield number, model, Forest.of(model, features="bytes" if whole else "numbers"), samples


def _model(random: np.random.Generator, number: int) -> Any:
    trees, leaves = int(random.integers(1, MAX_TREES + 1)), int(random.integers(2, 40))
    match random.integers(4):
        case 0:
            return DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=number)
        case 1:
            return ExtraTreesClassifier(trees, max_leaf_nodes=leaves, random_state=number)
        case 2:
            tree = DecisionTreeClassifier(max_leaf_nodes=leaves)
            return BaggingClassifier(tree, trees, max_features=0.7, random_state=number)
        case _:
            return RandomForestClassifier(trees, max_leaf_nodes=leaves, random_state=number)
