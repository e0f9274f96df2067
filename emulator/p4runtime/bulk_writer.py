"""Batches of plain updates into tables, whole tables' worth at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .bulk.batch import LEAST, Batch
from .bulk.layout import RECORD_HEAD
from .bulk.schema import Schema
from .entities.tables import DELETE, INSERT, MODIFY, TableService


class BulkWriter:
    """The tables of one pipeline that take plain updates."""

    def __init__(self, tables: Iterable[TableService]) -> None:
        plain = [(table, description) for table in tables if (description := table.plain()) is not None]
        self._tables = [table for table, _ in plain]
        self._schema = Schema([description for _, description in plain])

    def write(self, batch: Batch) -> bool:
        """Apply all updates of a batch. Return False, and change nothing, if one is not plain, or would be refused, or
        if the tables are better written one update at a time.
        """
        records = batch.records(self._schema)
        if records is None:
            return False
        steps: list[Callable[[], None]] = []
        tables = records[:, 1]
        chosen = np.unique(tables).tolist()
        if len(chosen) * LEAST > len(records):
            return False
        for number in chosen:
            mine = self._steps(number, records if len(chosen) == 1 else records[tables == number])
            if mine is None:
                return False
            steps += mine
        for step in steps:
            step()
        return True

    def _steps(self, number: int, records: NDArray[np.uint64]) -> list[Callable[[], None]] | None:
        """Return what applies one table's records, none of which has the key of another; None if it would not do."""
        service = self._tables[number]
        middle = RECORD_HEAD + self._schema.identities[number]
        end = middle + self._schema.rows[number]
        identities = np.ascontiguousarray(records[:, RECORD_HEAD:middle])
        keys = np.array(identities.view(f"V{8 * identities.shape[1]}")[:, 0].tolist(), object)
        kinds = records[:, 0]
        given = {kind: kinds == kind for kind in (INSERT, MODIFY, DELETE)}
        names = {kind: keys[mine].tolist() for kind, mine in given.items()}
        if not service.takes(names[INSERT], names[MODIFY], names[DELETE]):
            return None
        table, inserted, modified = service.state, given[INSERT], given[MODIFY]
        steps: list[Callable[[], None]] = []
        if names[DELETE]:
            steps.append(partial(table.delete_many, names[DELETE]))
        if names[MODIFY]:
            steps.append(partial(table.modify_many, names[MODIFY], records[modified, middle:end]))
        if names[INSERT]:
            rows = records[inserted, middle:end]
            steps.append(partial(table.insert_many, names[INSERT], identities[inserted], rows))
        return steps
