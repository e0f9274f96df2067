"""Bytes of every kind for the native parser of large writes, under guarded memory: `python -m
weir.tests.emulator.p4runtime.bulk_bytes [messages]`. An access outside of its arrays ends the process.

The parser's records are compared with protobuf's messages.
"""

from __future__ import annotations

import random
import sys

import numpy as np
from finsy.proto import p4r
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from weir.emulator.p4runtime.bulk.batch import bulk_parser
from weir.emulator.p4runtime.bulk.layout import HEAD_OPERATION, REFUSED, UPDATES_OPERATION, Job
from weir.emulator.p4runtime.bulk.schema import Schema
from weir.emulator.p4runtime.bulk_writer import BulkWriter
from weir.tests.emulator.harness import seeded_random
from weir.tests.emulator.p4runtime.p4runtime_fuzz import damaged
from weir.tests.emulator.p4runtime.servicer_rig import CONFIGS, ServicerRig
from weir.tests.emulator.p4runtime.test_p4runtime_bulk import Plain
from weir.tests.support.guarded_memory import install

WORD = (1 << 64) - 1


def varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def broken(request: p4r.WriteRequest, rng: random.Random) -> bytes:
    """A message's bytes: cut, changed, or with something put among them that protobuf knows."""
    content = request.SerializeToString()
    at = rng.randrange(len(content) + 1)
    match rng.randrange(6):
        case 0:
            return content[:at]
        case 1:
            return damaged(request, rng)
        case 2:  # an enormous length, or number
            return content[:at] + varint(rng.choice((1 << 31, 1 << 32, 1 << 63, WORD))) + content[at:]
        case 3:  # another field: of any number and type, groups among them
            return content[:at] + bytes([rng.randrange(128)]) + varint(rng.randrange(1 << 20)) + content[at:]
        case 4:  # a part doubled
            return content[:at] + content[rng.randrange(at + 1) :]
        case _:
            return content[:at] + b"\x80" * rng.randrange(12) + content[at:]


def guarded(content: bytes) -> NDArray[np.uint8]:
    """The bytes in an array of their own that ends with the memory that may be read."""
    padded = np.frombuffer(content.rjust((len(content) + 7) // 8 * 8 or 8, b"\0"), np.uint8).copy()
    return padded[len(padded) - len(content) :]


def check(content: bytes, schema: Schema, ids: list[int]) -> bool:
    """Let the parser read bytes; return True if it takes them."""
    data, words = guarded(content), schema.words.copy()
    job = np.zeros(len(Job), np.int64)
    job[Job.DATA], job[Job.SIZE], job[Job.SCHEMA] = data.ctypes.data, len(content), words.ctypes.data
    count = bulk_parser().functions[0](job.ctypes.data, HEAD_OPERATION)
    if count == REFUSED:
        return False
    records = np.empty((count, schema.stride), np.uint64)
    job[Job.RECORDS], job[Job.STRIDE], job[Job.CAPACITY] = records.ctypes.data, schema.stride, count
    taken = bulk_parser().functions[0](job.ctypes.data, UPDATES_OPERATION)
    assert taken in (count, REFUSED)
    try:
        request = p4r.WriteRequest.FromString(content)
    except DecodeError:
        assert taken == REFUSED or not count
        return False
    assert len(request.updates) == count
    head = [int(word) & WORD for word in job[Job.DEVICE : Job.ATOMICITY]]
    election = request.election_id
    assert head == [request.device_id, request.HasField("election_id"), election.high, election.low]
    assert int(job[Job.ATOMICITY]) & (1 << 32) - 1 == request.atomicity & (1 << 32) - 1
    if taken == REFUSED:
        return False
    entries = [update.entity.table_entry for update in request.updates]
    assert [update.type for update in request.updates] == records[:, 0].tolist()
    assert [entry.table_id for entry in entries] == [ids[number] for number in records[:, 1].tolist()]
    return True


def main() -> None:
    rng, messages = seeded_random(), int(sys.argv[1])
    parts = []
    for name in CONFIGS:
        rig = ServicerRig(name)
        pipeline = rig.device._pipeline
        assert pipeline is not None
        writer = BulkWriter(pipeline.services.tables.values())
        parts.append((rig, Plain(rig.info, rng), writer._schema, [table.id for table in writer._tables]))
    install()
    taken = 0
    for _ in range(messages):
        rig, maker, schema, ids = rng.choice(parts)
        request = rig.request(*maker.batch()[: rng.choice((1, 3, 60))])
        assert check(request.SerializeToString(), schema, ids), request
        taken += sum(check(broken(request, rng), schema, ids) for _ in range(20))
    assert taken > messages // 2, taken


if __name__ == "__main__":
    main()
