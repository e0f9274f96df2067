"""WriteRequests of many plain updates as the bytes that came, and the native parser that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....machine_code.functions import NativeCode
from ...runtime.build import native_code
from .layout import HEAD_OPERATION, UPDATES_OPERATION, Job
from .schema import Schema

LEAST: Final = 8
"""Updates from which on bulk writing is faster than one by one."""
_LEAST_BYTES: Final = 16
"""Bytes that a plain update has at least."""
_WORD: Final = (1 << 64) - 1


@lru_cache(maxsize=1)
def bulk_parser() -> NativeCode:
    """Return the parser, which is compiled where its code is not on disk."""
    folder = Path(__file__).parent
    return native_code("weir.emulator.p4runtime.bulk.parser", [folder / "layout.py", folder / "parser.py"])


@dataclass(frozen=True, slots=True)
class Batch:
    """A WriteRequest without a role: what stands around its updates."""

    data: bytes
    count: int
    """Number of updates."""
    device_id: int
    election_id: int | None
    atomicity: int

    @classmethod
    def of(cls, data: bytes) -> Batch | None:
        """Return a message of many updates as a batch; None if it has few, or if something else than updates is in it.

        Its updates may be anything.
        """
        if len(data) < LEAST * _LEAST_BYTES:
            return None
        job = _job(data)
        count = _call(job, HEAD_OPERATION)
        if count < LEAST:
            return None
        election_id = None
        if job[Job.HAS_ELECTION]:
            election_id = (int(job[Job.ELECTION_HIGH]) & _WORD) << 64 | int(job[Job.ELECTION_LOW]) & _WORD
        return cls(data, count, int(job[Job.DEVICE]) & _WORD, election_id, int(job[Job.ATOMICITY]))

    def records(self, schema: Schema) -> NDArray[np.uint64] | None:
        """Return a record of each update (`layout`), shape (updates, words); None if one is not plain, or wrong."""
        records = np.empty((self.count, schema.stride), np.uint64)
        job = _job(self.data)
        job[Job.SCHEMA], job[Job.RECORDS] = schema.words.ctypes.data, records.ctypes.data
        job[Job.STRIDE], job[Job.CAPACITY] = schema.stride, self.count
        return records if _call(job, UPDATES_OPERATION) == self.count else None


def _job(data: bytes) -> NDArray[np.int64]:
    """Return the parser's argument for a message, which must live as long."""
    job = np.zeros(len(Job), np.int64)
    job[Job.DATA], job[Job.SIZE] = np.frombuffer(data, np.uint8).ctypes.data, len(data)
    return job


def _call(job: NDArray[np.int64], operation: int) -> int:
    (entry,) = bulk_parser().functions
    return entry(job.ctypes.data, operation)
