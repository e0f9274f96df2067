"""Fitted classifiers of scikit-learn: their trees, and the files that people keep them in.

- skops files are read with skops' check of types. A file with a type that is neither scikit-learn's nor NumPy's is
  refused before anything of it is made.
- joblib and pickle files run code of the file, so they are read only on request.

skops leaves the content of a tree to its reader. scikit-learn's own `predict` would follow its numbers of nodes and
features without a check; here they are read as arrays, and `Forest.check` compares them with their ranges.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...imports.extras import explained
from .errors import ModelError

ZIP_MAGIC: Final = b"PK\x03\x04"
MAX_FILE_BYTES: Final = 1 << 28
"""Largest skops file, unpacked."""

Part = tuple[Any, Sequence[int], Sequence[int]]
"""(tree, features by the tree's number, class indices by the tree's class number)."""

_TREE: Final = "sklearn.tree._tree.Tree"
_VOTING: Final = frozenset({"ForestClassifier", "BaggingClassifier", "VotingClassifier"})
"""Classes of scikit-learn, and bases, whose trees have one vote each."""
MALFORMED: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
)
"""Exceptions of a file whose content is not what its form says."""


def read_file(path: Path, start: bytes, *, trust: bool) -> Any:
    """Read a fitted classifier from a skops file, or from a pickle if it is trusted.

    Args:
        path: The file.
        start: Its first bytes, which tell the format.
        trust: True to execute the code in a pickle (joblib, pkl).

    Raises:
        ModelError: The file is malformed, has untrusted types, or is a pickle that is not trusted.
    """
    if start.startswith(ZIP_MAGIC):
        return _read_skops(path)
    if not trust:
        raise ModelError(
            "is neither a model file of Weir nor of skops. A pickle (joblib, pkl) runs code when it is read: "
            "if you trust its sender, use --trust (Forest.load: trust=True)",
            place=str(path),
        )
    try:
        from joblib import load  # type: ignore[import-untyped]
    except ImportError as error:
        raise explained(error, f"reading {path}", "models") from None
    try:
        return load(path)
    except Exception as error:  # noqa: BLE001 - the file's code is trusted, and may raise anything
        raise ModelError(f"cannot be unpickled: {type(error).__name__}: {error}", place=str(path)) from None


def _read_skops(path: Path) -> Any:
    try:
        import skops.io
        from skops.io.exceptions import UntrustedTypesFoundException
    except ImportError as error:
        raise explained(error, f"reading {path}", "models") from None
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(member.file_size for member in packed.infolist())
        if size > MAX_FILE_BYTES:
            raise ModelError(f"has {size} bytes unpacked, up to {MAX_FILE_BYTES} are read", place=str(path), value=size)
        return skops.io.load(path, trusted=[_TREE])
    except UntrustedTypesFoundException:
        untrusted = sorted(set(skops.io.get_untrusted_types(file=path)) - {_TREE})
        raise ModelError(
            f"has types that are not trusted: {', '.join(untrusted)}; save the classifier alone",
            place=str(path),
            value=untrusted,
        ) from None
    except MALFORMED as error:
        raise ModelError(f"is no file of skops: {type(error).__name__}: {error}", place=str(path)) from None


def parts(model: Any) -> list[Part]:
    """Return trees of a classifier.

    Raises:
        ModelError: Trees of this classifier do not vote equally, or it is not fitted.
    """
    name = type(model).__name__
    if not hasattr(model, "classes_"):
        raise ModelError(f"{name} is not a fitted classifier; call fit first", place="model", value=name)
    if getattr(model, "n_outputs_", 1) != 1:
        raise ModelError(f"{name} has several outputs; a switch answers one class", place="model", value=name)
    features = range(int(model.n_features_in_))
    if hasattr(model, "tree_"):
        return [(_checked(model.tree_), features, range(len(model.classes_)))]
    estimators = np.ravel(getattr(model, "estimators_", None) or [None])
    voting = any(base.__name__ in _VOTING for base in type(model).__mro__)
    weighted = getattr(model, "weights", None) is not None
    if (
        not voting
        or weighted
        or not all(hasattr(estimator, "tree_") and hasattr(estimator, "classes_") for estimator in estimators)
    ):
        raise ModelError(
            f"{name} is not a tree, nor an ensemble of trees with one vote each "
            "(random forest, extra trees, bagging, voting)",
            place="model",
            value=name,
        )
    picked: Sequence[Sequence[int]] = [features] * len(estimators)
    if own := getattr(model, "estimators_features_", None):
        picked = [[int(feature) for feature in each] for each in own]
    return [
        (_checked(estimator.tree_), chosen, [int(label) for label in estimator.classes_])
        for estimator, chosen in zip(estimators, picked, strict=True)
    ]


def _checked(tree: Any) -> Any:
    """A tree whose arrays may be read: they lie in the memory that it has."""
    if not 0 < tree.node_count <= tree.capacity:
        raise ValueError(f"{tree.node_count} nodes in {tree.capacity} places")
    return tree


def malformed(model: Any, error: Exception) -> ModelError:
    """Return the error of a classifier whose attributes contradict each other."""
    name = type(model).__name__
    return ModelError(f"{name} is malformed: {type(error).__name__}: {error}", place="model", value=name)
