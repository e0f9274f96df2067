"""The tables whose entries may be written in bulk, as the words that the native parser reads (`layout`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from finsy.proto import p4i
from numpy.typing import NDArray

from ...tables.keys import identity_words
from ...tables.rows import RowLayout, param_bytes
from .layout import EXACT, LPM, MAX_FIELDS, OPTIONAL, RANGE, RECORD_HEAD, TERNARY

_KINDS: Final[dict[int, int]] = {
    p4i.MatchField.EXACT: EXACT,
    p4i.MatchField.LPM: LPM,
    p4i.MatchField.TERNARY: TERNARY,
    p4i.MatchField.RANGE: RANGE,
    p4i.MatchField.OPTIONAL: OPTIONAL,
}


@dataclass(frozen=True, slots=True)
class PlainAction:
    """An action that entries may have: its id, its code in rows, and each parameter's id and width in bits."""

    id: int
    code: int
    params: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table: its id, each match field's id and type of match, the layout of its rows, and its actions."""

    id: int
    fields: tuple[tuple[int, int], ...]
    layout: RowLayout
    actions: tuple[PlainAction, ...]

    @property
    def readable(self) -> bool:
        """True if the parser can read the table's entries."""
        sizes = [len(self.fields), *(len(action.params) for action in self.actions)]
        return bool(self.fields) and max(sizes) <= MAX_FIELDS

    def words(self) -> list[int]:
        """Return the table's words."""
        layout = self.layout
        exact = sum(1 << number for number, (_, kind) in enumerate(self.fields) if kind == p4i.MatchField.EXACT)
        words = [
            *(self.id, layout.words, len(layout.ranges), layout.params_at // 8, layout.row_bytes // 8),
            *(int(layout.strategy in ("tuple", "range")), int(layout.strategy == "first"), exact),
            *(len(self.fields), len(self.actions)),
        ]
        for number, ((field_id, kind), place) in enumerate(zip(self.fields, layout.keys, strict=True)):
            bit = layout.ranges.index(number) if number in layout.ranges else place.position
            words += (field_id, _KINDS[kind], place.width, bit)
        for action in self.actions:
            words += (action.id, action.code, len(action.params))
            at = 0
            for param_id, width in action.params:
                words += (param_id, width, at)
                at += param_bytes(width) // 8
        return words


class Schema:
    """Several tables in one."""

    def __init__(self, tables: Sequence[PlainTable]) -> None:
        parts = [table.words() for table in tables]
        begins, at = [], 1 + len(tables)
        for words in parts:
            begins.append(at)
            at += len(words)
        self.words: NDArray[np.int64] = np.array([len(tables), *begins, *chain.from_iterable(parts)], np.int64)
        self.identities = tuple(identity_words(table.layout) for table in tables)
        """Words of an identity of each table."""
        self.rows = tuple(table.layout.row_bytes // 8 for table in tables)
        """Words of a row of each table."""
        sizes = (identity + row for identity, row in zip(self.identities, self.rows, strict=True))
        self.stride = RECORD_HEAD + max(sizes, default=0)
        """Words of the largest record."""
