"""A decision forest as plain data: read from a fitted classifier of scikit-learn, and kept in a JSON file.

Switches compare bytes. A model is made for one of two kinds of features:

* Bytes: whole numbers in 0…255, such as pixels. They are sent as they are.
* Other numbers: the file has each feature's thresholds (`edges`), and a sender sends the number of edges below the
  value. That number compares with every threshold as the value does.

A file holds numbers and names only: unlike a pickle, it runs no code when it is loaded.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...wire.classification import FEATURES, as_bytes
from .errors import ModelError, ModelTooLarge
from .fitted import MALFORMED, Part, malformed, parts, read_file

FORMAT: Final = "weir-forest"
VERSION: Final = 1

MAX_TREES: Final = 16
MAX_CLASSES: Final = 16
MAX_KEY_BITS: Final = 128
"""Distinct thresholds of one tree: bits of its table's key."""
MAX_LEAVES: Final = 256
"""Leaves of one tree: rows of its table, which two models share."""
MAX_FEATURE_THRESHOLDS: Final = 255
"""Distinct thresholds of one feature in all trees: what a byte can tell apart."""

LEAF: Final = -1
_START_BYTES: Final = 64
_LARGEST: Final = 1 << 31

Label = int | float | str | bool
Condition = tuple[int, int, bool]
"""(feature, threshold, True if the value is above it)."""


@dataclass(frozen=True, slots=True)
class DecisionTree:
    """One decision tree: arrays by node, the root first."""

    feature: tuple[int, ...]
    """Feature that the node compares; `LEAF` at a leaf."""
    threshold: tuple[int, ...]
    """A byte up to this goes left, a larger one right; -1…255."""
    left: tuple[int, ...]
    right: tuple[int, ...]
    """Following nodes; unused at a leaf."""
    decision: tuple[int, ...]
    """Index of the leaf's class; unused at other nodes."""

    def leaves(self) -> Iterator[tuple[tuple[Condition, ...], int]]:
        """Yield each leaf that a byte can reach: conditions from the root down, and the class's index."""
        waiting: list[tuple[int, tuple[Condition, ...]]] = [(0, ())]
        while waiting:
            node, path = waiting.pop()
            feature, threshold = self.feature[node], self.threshold[node]
            if feature == LEAF:
                yield path, self.decision[node]
                continue
            low, high = _bounds(path, feature)
            if threshold < high:
                above = path if threshold < low else (*path, (feature, threshold, True))
                waiting.append((self.right[node], above))
            if threshold >= low:
                up_to = path if threshold >= high else (*path, (feature, threshold, False))
                waiting.append((self.left[node], up_to))

    def decide(self, samples: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the class index of each sample, (n,), of bytes of shape (n, features)."""
        feature, threshold = np.array(self.feature), np.array(self.threshold)
        left, right = np.array(self.left), np.array(self.right)
        node = np.zeros(len(samples), np.int64)
        rows = np.arange(len(samples))
        while (inner := feature[node] != LEAF).any():
            nodes, who = node[inner], rows[inner]
            below = samples[who, feature[nodes]].astype(np.int64) <= threshold[nodes]
            node[inner] = np.where(below, left[nodes], right[nodes])
        return np.array(self.decision)[node]


@dataclass(frozen=True)
class Forest:
    """An ensemble of decision trees with one vote each. The class with the most votes wins; of equals, the first in
    `classes`.
    """

    classes: tuple[Label, ...]
    n_features: int
    trees: tuple[DecisionTree, ...]
    edges: tuple[tuple[float, ...], ...] | None = None
    """Thresholds by feature, in ascending order, which values are compared with to become bytes; None: features are
    bytes."""

    @classmethod
    def of(cls, model: Any, *, features: str = "bytes") -> Self:
        """Read a fitted classifier of scikit-learn.

        Args:
            model: A decision tree, or an ensemble of them in which each has one vote (random forest, extra trees,
                bagging, voting).
            features: "bytes" if all values are whole numbers in 0…255, else "numbers".

        Raises:
            ModelError: The model is of another kind, not fitted, or beyond a limit of a switch.
        """
        if features not in ("bytes", "numbers"):
            raise ModelError(
                f'features "{features}" is unknown', place="model", value=features, allowed=("bytes", "numbers")
            )
        try:
            read = parts(model)
            _check_sizes(int(model.n_features_in_), len(model.classes_), len(read))
            classes = tuple(_plain(label) for label in model.classes_)
            edges = None if features == "bytes" else _edges(read, int(model.n_features_in_))
            trees = tuple(_tree(*part, edges) for part in read)
            forest = cls(classes, int(model.n_features_in_), trees, edges)
        except MALFORMED as error:
            raise malformed(model, error) from None
        forest.check()
        return forest

    @classmethod
    def load(cls, path: Path | str, *, features: str | None = None, trust: bool = False) -> Self:
        """Read a model: a file that `save` wrote, or a fitted classifier in a file of skops, joblib or pickle.

        Args:
            path: The file.
            features: As in `of`, for classifiers ("bytes" if it is not given); a file of `save` has it.
            trust: True to read pickles, which execute the code in them. The other formats execute none.

        Raises:
            ModelError: The file is missing, malformed, a pickle without `trust`, or beyond a limit of a switch.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                start = file.read(_START_BYTES)
            if not start.lstrip().startswith(b"{"):
                return cls.of(read_file(path, start, trust=trust), features=features or "bytes")
            forest = cls.from_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"cannot be read: {error.strerror}", place=str(path)) from None
        except UnicodeDecodeError:
            raise ModelError("is no text in UTF-8", place=str(path)) from None
        except ModelError as error:
            raise error if error.place == str(path) else error.within(str(path)) from None
        if features not in (None, forest.features):
            raise ModelError(f"has features of {forest.features}", place=str(path), value=features)
        return forest

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode the text of a model file.

        Raises:
            ModelError: The text is malformed, or the model is beyond a limit of a switch.
        """
        try:
            saved = json.loads(text)
            if (saved["format"], saved["version"]) != (FORMAT, VERSION):
                raise ValueError(f"format {saved['format']!r}, version {saved['version']!r}")
            edges = saved["edges"]
            forest = cls(
                _labels(saved["classes"]),
                _integers([saved["features"]])[0],
                tuple(
                    DecisionTree(
                        *(_integers(tree[part]) for part in ("feature", "threshold", "left", "right", "class"))
                    )
                    for tree in saved["trees"]
                ),
                None if edges is None else tuple(tuple(float(edge) for edge in row) for row in edges),
            )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ModelError(
                f"is no model of {FORMAT} {VERSION}: {type(error).__name__}: {error}", place="model"
            ) from None
        forest.check()
        return forest

    def as_json(self) -> str:
        """Return the text of a model file; equal models have equal texts."""
        trees = [
            {
                "feature": list(tree.feature),
                "threshold": list(tree.threshold),
                "left": list(tree.left),
                "right": list(tree.right),
                "class": list(tree.decision),
            }
            for tree in self.trees
        ]
        saved = {
            "format": FORMAT,
            "version": VERSION,
            "classes": list(self.classes),
            "features": self.n_features,
            "edges": None if self.edges is None else [list(edge) for edge in self.edges],
            "trees": trees,
        }
        return json.dumps(saved, separators=(",", ":")) + "\n"

    def save(self, path: Path | str) -> None:
        """Write a model file, which `load` and `weir model load` read. Raises OSError."""
        Path(path).write_text(self.as_json())

    @property
    def features(self) -> str:
        """Kind of the features: "bytes" or "numbers"."""
        return "bytes" if self.edges is None else "numbers"

    @cached_property
    def number(self) -> int:
        """Number by which requests name the model: CRC-32 of its text, never 0."""
        return zlib.crc32(self.as_json().encode()) or 1

    @cached_property
    def keys(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """(feature, threshold) by tree, of each bit of its key, from bit 0 on."""
        return tuple(
            tuple(sorted({(feature, threshold) for path, _ in tree.leaves() for feature, threshold, _ in path}))
            for tree in self.trees
        )

    @cached_property
    def thresholds(self) -> Mapping[int, tuple[int, ...]]:
        """Distinct thresholds of each used feature, in ascending order."""
        used = sorted({threshold for key in self.keys for threshold in key})
        return {feature: tuple(t for f, t in used if f == feature) for feature in sorted({f for f, _ in used})}

    def encode(self, samples: ArrayLike) -> NDArray[np.uint8]:
        """Encode samples as the bytes that requests carry.

        Args:
            samples: Numbers of shape (n, features).

        Returns:
            uint8 of shape (n, features).

        Raises:
            WireError: A value cannot be encoded.
        """
        return as_bytes(samples, self.n_features, self.edges)

    def votes(self, samples: ArrayLike) -> NDArray[np.int64]:
        """Count votes for each class: int64 (n, classes), for samples (n, features)."""
        return self.votes_of_bytes(self.encode(samples))

    def votes_of_bytes(self, encoded: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Count votes for each class: int64 (n, classes), for encoded samples, uint8 (n, features)."""
        votes = np.zeros((len(encoded), len(self.classes)), np.int64)
        for tree in self.trees:
            votes[np.arange(len(encoded)), tree.decide(encoded)] += 1
        return votes

    def decide(self, samples: ArrayLike) -> NDArray[np.int64]:
        """Return the index of each sample's class: int64 (n,), for samples (n, features)."""
        best: NDArray[np.int64] = self.votes(samples).argmax(axis=1)
        return best

    def predict(self, samples: ArrayLike) -> NDArray[Any]:
        """Return the class of each sample: (n,), for samples (n, features), as a switch with the model answers."""
        return np.array(self.classes)[self.decide(samples)]

    def check(self) -> None:
        """Check that a switch can have the model.

        Raises:
            ModelError: The trees are malformed.
            ModelTooLarge: The model is beyond a limit.
        """
        if not self.trees or not self.classes:
            raise ModelError("has no tree, or no class", place="model")
        _check_sizes(self.n_features, len(self.classes), len(self.trees))
        if self.edges is not None:
            self._check_edges(self.edges)
        for number, tree in enumerate(self.trees):
            _check_tree(tree, number, self.n_features, len(self.classes))
            if (leaves := sum(1 for _ in tree.leaves())) > MAX_LEAVES:
                raise ModelTooLarge(f"leaves of tree {number}", leaves, MAX_LEAVES)
        for number, key in enumerate(self.keys):
            if len(key) > MAX_KEY_BITS:
                raise ModelTooLarge(f"distinct thresholds of tree {number}", len(key), MAX_KEY_BITS)

    def _check_edges(self, edges: Sequence[Sequence[float]]) -> None:
        if len(edges) != self.n_features:
            raise ModelError(f"edges of {len(edges)} features for {self.n_features}", place="model", value=len(edges))
        for feature, edge in enumerate(edges):
            if len(edge) > MAX_FEATURE_THRESHOLDS:
                raise ModelTooLarge(f"distinct thresholds of feature {feature}", len(edge), MAX_FEATURE_THRESHOLDS)
            if not all(np.isfinite(edge)) or any(a >= b for a, b in pairwise(edge)):
                raise ModelError("edges must be finite and ascend", place=f"model: feature {feature}")


def _integers(values: Any) -> tuple[int, ...]:
    """Whole numbers of a file. Raises TypeError or OverflowError."""
    for value in values:
        if type(value) is not int:
            raise TypeError(f"{value!r:.40} is no whole number")
        if abs(value) > _LARGEST:
            raise OverflowError("a number is too large")
    return tuple(values)


def _labels(values: Any) -> tuple[Label, ...]:
    """Classes of a file: distinct numbers, or distinct texts. Raises TypeError or ValueError."""
    if not isinstance(values, list):
        raise TypeError("classes are no list")
    texts = [isinstance(value, str) for value in values]
    if not all(isinstance(value, Label) for value in values) or any(texts) != all(texts):
        raise TypeError("classes are neither all numbers nor all text")
    if len(set(values)) < len(values) or not all(
        text or math.isfinite(v) for text, v in zip(texts, values, strict=True)
    ):
        raise ValueError("classes are not distinct, or not finite")
    return tuple(values)


def _check_sizes(features: int, classes: int, trees: int) -> None:
    """Raise ModelTooLarge unless a switch has room for so many."""
    if features < 1:
        raise ModelError("has no features", place="model", value=features)
    for limit, value, most in (
        ("features", features, FEATURES),
        ("classes", classes, MAX_CLASSES),
        ("trees", trees, MAX_TREES),
    ):
        if value > most:
            raise ModelTooLarge(limit, value, most)


def _bounds(path: Sequence[Condition], feature: int) -> tuple[int, int]:
    """Lowest and highest byte of a feature that meet a path's conditions."""
    low, high = 0, 255
    for other, threshold, above in path:
        if other == feature and above:
            low = max(low, threshold + 1)
        elif other == feature:
            high = min(high, threshold)
    return low, high


def _check_tree(tree: DecisionTree, number: int, features: int, classes: int) -> None:
    """Raise ModelError unless the arrays are a tree: each node but the root follows one earlier node."""
    place, size = f"model: tree {number}", len(tree.feature)
    if not size or any(len(part) != size for part in (tree.threshold, tree.left, tree.right, tree.decision)):
        raise ModelError("its arrays differ in length, or are empty", place=place)
    followers = []
    for node, feature in enumerate(tree.feature):
        if feature == LEAF:
            if not 0 <= tree.decision[node] < classes:
                raise ModelError(f"class {tree.decision[node]} is not in 0…{classes - 1}", place=place)
            continue
        if not 0 <= feature < features:
            raise ModelError(f"feature {feature} is not in 0…{features - 1}", place=place, value=feature)
        if not -1 <= tree.threshold[node] <= 255:
            raise ModelError(f"threshold {tree.threshold[node]} is not in -1…255", place=place)
        if not (node < tree.left[node] < size and node < tree.right[node] < size):
            raise ModelError(f"node {node} is not followed by later nodes", place=place, value=node)
        followers += [tree.left[node], tree.right[node]]
    if sorted(followers) != list(range(1, size)):
        raise ModelError("a node is reached twice, or never", place=place)


def _edges(read: Sequence[Part], n_features: int) -> tuple[tuple[float, ...], ...]:
    """All thresholds by feature, ascending. Raises ModelTooLarge if a feature has more than a byte can tell apart."""
    thresholds: list[set[float]] = [set() for _ in range(n_features)]
    for tree, picked, _ in read:
        for feature, threshold, left in zip(tree.feature, tree.threshold, tree.children_left, strict=True):
            if left != LEAF:
                thresholds[picked[feature]].add(float(threshold))
    for feature, each in enumerate(thresholds):
        if len(each) > MAX_FEATURE_THRESHOLDS:
            raise ModelTooLarge(f"distinct thresholds of feature {feature}", len(each), MAX_FEATURE_THRESHOLDS)
    return tuple(tuple(sorted(edges)) for edges in thresholds)


def _tree(
    tree: Any, picked: Sequence[int], index: Sequence[int], edges: Sequence[Sequence[float]] | None
) -> DecisionTree:
    """Convert a tree of scikit-learn."""
    is_leaf = tree.children_left == LEAF
    if not ((tree.feature >= 0) | is_leaf).all():
        raise ValueError("a node compares no feature")
    features = [LEAF if leaf else picked[feature] for leaf, feature in zip(is_leaf, tree.feature, strict=True)]
    thresholds = []
    for feature, threshold in zip(features, tree.threshold, strict=True):
        if feature == LEAF:
            thresholds.append(0)
        elif edges is None:
            thresholds.append(int(np.clip(np.floor(threshold), -1, 255)))
        else:
            thresholds.append(int(np.searchsorted(edges[feature], threshold)))
    chosen = tree.value[:, 0, :].argmax(axis=1)
    decision = [index[best] if leaf else 0 for leaf, best in zip(is_leaf, chosen, strict=True)]
    return DecisionTree(
        tuple(features),
        tuple(thresholds),
        tuple(0 if leaf else int(to) for leaf, to in zip(is_leaf, tree.children_left, strict=True)),
        tuple(0 if leaf else int(to) for leaf, to in zip(is_leaf, tree.children_right, strict=True)),
        tuple(decision),
    )


def _plain(label: Any) -> Label:
    """A class of NumPy's as JSON has it. Raises ModelError."""
    value = label.item() if hasattr(label, "item") else label
    if not isinstance(value, Label):
        raise ModelError(f"class {value!r} is neither a number nor text", place="model", value=value)
    return value
