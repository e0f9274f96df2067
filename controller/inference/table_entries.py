"""Table entries of a forest in one bank of a switch.

::

    value of feature f ─feature_f─▶ one bit per (tree, threshold) below it ─tree_t─▶ vote of the matching leaf

A byte below a feature's first threshold sets no bit and needs no entry. Conditions of a leaf are bits of its tree's
key: the matching entry of each tree is the one of the leaf that the sample reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..p4runtime.entries import Entry, FieldValue, SwitchState, call, entry
from ..p4runtime.tables import FEATURE, MODELS, TREE
from .forest import MAX_KEY_BITS, Forest

BANKS: Final = (0, 1)
_CLASS_BITS: Final = 8


def model_state(forest: Forest, bank: int) -> SwitchState:
    """Return all entries by which a switch serves the forest from a bank."""
    return SwitchState.of([*serving(forest, bank), *_intervals(forest, bank), *_leaves(forest, bank)])


def serving(forest: Forest, bank: int) -> Iterator[Entry]:
    """Yield the numbers that requests may have: the model's, and 0 if any sender's bytes are its features."""
    serve = call("serve", in_bank=bank, model=forest.number, n_trees=len(forest.trees))
    numbers = [forest.number] if forest.edges is not None else [0, forest.number]
    for number in numbers:
        yield entry(MODELS, {"model": number}, serve)


def _intervals(forest: Forest, bank: int) -> Iterator[Entry]:
    """Rows of each feature: the thresholds below the values from one threshold to the next."""
    bits: dict[tuple[int, int], int] = {}
    for tree, key in enumerate(forest.keys):
        for bit, condition in enumerate(key):
            bits[condition] = bits.get(condition, 0) | 1 << tree * MAX_KEY_BITS + bit
    for feature, thresholds in forest.thresholds.items():
        above = 0
        for threshold, last in zip(thresholds, (*thresholds[1:], 255), strict=True):
            above |= bits[feature, threshold]
            match: dict[str, FieldValue] = {"bank": bank, "value": (threshold + 1, last)}
            yield entry(FEATURE[feature], match, call("encode", above=above), priority=1)


def _leaves(forest: Forest, bank: int) -> Iterator[Entry]:
    for number, (tree, key) in enumerate(zip(forest.trees, forest.keys, strict=True)):
        bit_of = {condition: 1 << bit for bit, condition in enumerate(key)}
        for path, decision in tree.leaves():
            value = sum(bit_of[feature, threshold] for feature, threshold, above in path if above)
            mask = sum(bit_of[feature, threshold] for feature, threshold, _ in path)
            match: dict[str, FieldValue] = {"bank": bank}
            if mask:  # else the tree is one leaf, and its entry matches any code
                match["code"] = (value, mask)
            yield entry(TREE[number], match, call("vote", ballot=1 << _CLASS_BITS * decision), priority=1)
