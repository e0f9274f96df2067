"""One switch among three workers, a parent and a stranger: addresses, tables and frames for the program's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weir.tests.p4src.node_model import Job, Route, Tables
from weir.wire import aggregation, frames
from weir.wire.aggregation import HEADER, LANES, MessageFlag, MessageType
from weir.wire.fields import REDUCED

SWITCH = 0x0AFF0001
OTHER_SWITCH = 0x0AFF0002
WORKERS = (0x0A000101, 0x0A000102, 0x0A000103)
"""Worker i is on port i and has child bit 1 << i."""
PARENT = 0x0A000901
PARENT_PORT = 9
STRANGER = 0x0A000A01
STRANGER_PORT = 10
MAC = 0x020000000000

INNER, ROOT, LONE = 7, 8, 9
"""Jobs: to the parent; with its root here; with its root here and one worker."""
GENERATION = 5
SLOTS = 4
GROUP = 3
CHILDREN = 0b111


def host_mac(address: int) -> int:
    return MAC | address


def tables() -> Tables:
    """Jobs INNER (slots 0…3), ROOT (4…7) and LONE (8…11) in GENERATION and the three after it."""
    result = Tables(addresses={SWITCH}, node_id=1, classes=dict(frames.TRAFFIC_CLASSES))
    for generation in range(GENERATION, GENERATION + 4):
        result.jobs[INNER, generation] = Job(0, SLOTS, CHILDREN, parent=PARENT, parent_bit=1 << 31)
        result.jobs[ROOT, generation] = Job(SLOTS, SLOTS, CHILDREN, group=GROUP)
        result.jobs[LONE, generation] = Job(2 * SLOTS, SLOTS, 1, group=GROUP + 1)
        for port, worker in enumerate(WORKERS):
            result.members |= {(job, generation, 1 << port, port, worker) for job in (INNER, ROOT)}
        result.members.add((LONE, generation, 1, 0, WORKERS[0]))
        result.parents[INNER, generation, PARENT_PORT, PARENT] = GROUP
    result.groups = {GROUP: [(port, 100 + port) for port in range(3)], GROUP + 1: [(0, 100)]}
    for port, worker in enumerate(WORKERS):
        result.replicas[100 + port] = (worker, MAC + port, host_mac(worker), 1 << port)
    for port, address in (*enumerate(WORKERS), (PARENT_PORT, PARENT), (STRANGER_PORT, STRANGER)):
        result.routes.append(Route(address, 32, port, MAC + port, host_mac(address)))
    result.routes.append(Route(OTHER_SWITCH & ~0xFF, 24, PARENT_PORT, MAC + PARENT_PORT, MAC))
    return result


def hosts(messages: int = 0xFF) -> dict[int, tuple[int, int]]:
    """The workers at their ports, who may send messages of these types, a bit each; the stranger, who may send none."""
    return {**{port: (worker, messages) for port, worker in enumerate(WORKERS)}, STRANGER_PORT: (STRANGER, 0)}


def message(
    kind: MessageType = MessageType.CONTRIBUTION,
    *,
    round_number: int = 0,
    lanes: NDArray[Any] | Sequence[int] | int = 0,
    job: int = INNER,
    generation: int = GENERATION,
    bad_checksum: bool = False,
    width: int = LANES,
    **fields: int,
) -> bytes:
    """One aggregation message, of `width` lanes if its type has any; slot and checks are right unless given."""
    parts: list[Any] = [("header", HEADER), ("lanes", ">i4", (width,))]
    record = np.zeros(1, parts if kind.has_lanes else parts[:1])
    header = record["header"]
    if kind.has_lanes:
        record["lanes"] = lanes
    header["version_type"] = aggregation.version_type(kind)
    header["job"] = job
    header["tag"] = aggregation.make_tag(generation, round_number)
    header["slot"] = round_number % aggregation.CHUNKS % SLOTS
    for field in REDUCED:
        header[field.name] = field.neutral
    header["weight"] = fields.get("weight", 0)
    values = record["lanes"] if kind.has_lanes else np.zeros((1, LANES), np.int32)
    header["check"] = aggregation.linear_check(values, header["weight"])
    for name, value in fields.items():
        header[name] = value
    aggregation.set_checksum(header)
    if bad_checksum:
        header["checksum"] ^= 1
    return record.tobytes()


def packet(payload: bytes, source: int, destination: int = SWITCH, **options: int) -> bytes:
    """`payload` in UDP (to the aggregation port unless given), IPv4 and Ethernet."""
    return frames.encapsulate(
        np.frombuffer(payload, np.uint8)[None],
        **{
            "source": source,
            "destination": destination,
            "source_mac": host_mac(source),
            "destination_mac": MAC,
            **options,
        },
    ).tobytes()


def contribution(worker: int, kind: MessageType = MessageType.CONTRIBUTION, **fields: Any) -> tuple[bytes, int]:
    """A worker's contribution and the port that it arrives at. Unless `flags` are given, it wants the lanes."""
    wanted = {MessageType.CONTRIBUTION: MessageFlag.WANTED, MessageType.PRESENT: MessageFlag.WANTED}
    fields = {"contributors": 1 << worker, "flags": int(wanted.get(kind, 0)), **fields}
    return packet(message(kind, **fields), WORKERS[worker]), worker
