"""Accuracy of decision forests that a switch decides by packets, beside scikit-learn on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...controller.inference.forest import Forest
from ...wire.classification import pack_requests
from ..classification import loaded_switch, request
from .paper import Paper, Quantity, Sample

ACCURACY: Final = Quantity("classes right of 450 held-out digits", "%", less_is_better=False)
SIZES: Final = ((9, 64), (15, 64), (15, 120))
"""Trees of a forest, and leaves of a tree at most."""
_SVM_GAMMA: Final = 0.001
"""That of scikit-learn's own example on these digits."""


def accuracies(paper: Paper) -> Iterator[Sample]:
    """Measure `ACCURACY` of all contenders; seeds divide the digits and draw the forests."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split
    from sklearn.svm import SVC

    images, digits = load_digits(return_X_y=True)
    for seed in range(paper.seeds):
        learned, held_out, of_learned, right = train_test_split(images, digits, test_size=450, random_state=seed)
        unlimited = {
            "large": RandomForestClassifier(100, random_state=seed).fit(learned, of_learned).predict(held_out),
            "svm": SVC(gamma=_SVM_GAMMA).fit(learned, of_learned).predict(held_out),
        }
        for trees, leaves in SIZES:
            model = RandomForestClassifier(trees, max_leaf_nodes=leaves, random_state=seed).fit(learned, of_learned)
            forest = Forest.of(model)
            said: dict[str, NDArray[Any]] = {
                "switch": _by_packets(forest, held_out),
                "hard": forest.predict(held_out),
                "soft": model.predict(held_out),
                "tree": model.estimators_[0].predict(held_out),
                **unlimited,
            }
            for contender in paper.contenders:
                value = 100 * float((said[contender.name] == right).mean())
                yield Sample(ACCURACY.name, f"{trees} trees of {leaves} leaves", contender.name, seed, value)


def _by_packets(forest: Forest, samples: NDArray[Any]) -> NDArray[Any]:
    """Classes by an emulated switch, (n,)."""
    switch = loaded_switch(forest)
    answers = [request(switch, payload) for payload in pack_requests(forest.encode(samples))]
    return np.array(forest.classes)[[answer.class_index for answer in answers if answer is not None]]
