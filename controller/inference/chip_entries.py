"""Table entries of a forest for the chips' own program (p4src/forest), whose tables have other keys than bmv2's.

All trees share one key: a bit for each distinct threshold of the forest, in a word of 32 bits for each four features. A
row of a tree is matched with all 16 words. A vote adds to one byte of the ballots, in units of 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..p4runtime.entries import Entry, FieldValue, SwitchState, call, entry
from ..p4runtime.tables import FEATURE, TREE
from .errors import ModelTooLarge
from .forest import Forest
from .table_entries import serving

MAX_TREES: Final = 10
WORD_BITS: Final = 32
FEATURES_OF_WORD: Final = 4
MAX_LEAVES: Final = 256
_VOTE: Final = 16
_BALLOT_BYTES: Final = 4
_BALLOTS: Final = 4


def chip_state(forest: Forest, bank: int) -> SwitchState:
    """Return all entries by which a chip serves the forest from a bank. Raises ModelTooLarge for one beyond its
    limits.
    """
    if len(forest.trees) > MAX_TREES:
        raise ModelTooLarge("trees", len(forest.trees), MAX_TREES)
    bits = _bits(forest)
    return SwitchState.of([*serving(forest, bank), *_intervals(forest, bank, bits), *_leaves(forest, bank, bits)])


def _bits(forest: Forest) -> dict[tuple[int, int], tuple[int, int]]:
    """(word, bit of it) of each (feature, threshold)."""
    words: dict[int, list[tuple[int, int]]] = {}
    for feature, thresholds in forest.thresholds.items():
        words.setdefault(feature // FEATURES_OF_WORD, []).extend((feature, threshold) for threshold in thresholds)
    for word, conditions in words.items():
        if len(conditions) > WORD_BITS:
            first = word * FEATURES_OF_WORD
            last = first + FEATURES_OF_WORD - 1
            raise ModelTooLarge(f"distinct thresholds of features {first}…{last}", len(conditions), WORD_BITS)
    return {
        condition: (word, 1 << bit) for word, conditions in words.items() for bit, condition in enumerate(conditions)
    }


def _intervals(forest: Forest, bank: int, bits: dict[tuple[int, int], tuple[int, int]]) -> Iterator[Entry]:
    for feature, thresholds in forest.thresholds.items():
        above = 0
        for threshold, last in zip(thresholds, (*thresholds[1:], 255), strict=True):
            word, bit = bits[feature, threshold]
            above |= bit
            encode = call(f"encode_{word}", above=above)
            for value in range(threshold + 1, last + 1):
                yield entry(FEATURE[feature], {"bank": bank, "value": value}, encode)


def _leaves(forest: Forest, bank: int, bits: dict[tuple[int, int], tuple[int, int]]) -> Iterator[Entry]:
    for number, tree in enumerate(forest.trees):
        vote = "vote_odd" if number % 2 else "vote_even"
        for path, decision in tree.leaves():
            masks: dict[int, tuple[int, int]] = {}
            for feature, threshold, above in path:
                word, bit = bits[feature, threshold]
                value, mask = masks.get(word, (0, 0))
                masks[word] = (value | bit if above else value, mask | bit)
            match: dict[str, FieldValue] = {"bank": bank} | {f"word_{word}": key for word, key in masks.items()}
            yield entry(TREE[number], match, call(vote, **_ballots(decision)), priority=1)


def _ballots(decision: int) -> dict[str, int]:
    """Parameters of a vote: the class's byte of the ballots, class 0 in the highest byte of the first."""
    chosen, place = divmod(decision, _BALLOT_BYTES)
    shift = 8 * (_BALLOT_BYTES - 1 - place)
    return {f"ballot_{word}": _VOTE << shift if word == chosen else 0 for word in range(_BALLOTS)}
