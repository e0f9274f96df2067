"""One switch running fabric.p4, with a bit of everything in its tables, and the frames that meet each of them.

workers 1, 2, 3 ── ports 1, 2, 3 ─┐
parent of job INNER ── port 4 ────┤ switch 10.255.0.1 ── ports 5, 6, 7: equal-cost paths to 10.1.0.0/16
where probes end ── port 8 ───────┘
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from weir.emulator.entries import ActionCall, ActionSet, CloneSession, Exact, Lpm, Replica, TableEntry, WeightedAction
from weir.tests.bmv2.harness import CPU_PORT, Output
from weir.tests.bmv2.p4runtime_client import Encoder, clone_session, multicast_group
from weir.wire import aggregation, frames, int_md
from weir.wire.aggregation import HEADER, LANES, MessageFlag, MessageType
from weir.wire.fields import REDUCED

PORTS: Final = tuple(range(1, 9))
SWITCH: Final = 0x0AFF0001
NODE_ID: Final = 1
WORKERS: Final = (0x0A000101, 0x0A000102, 0x0A000103)
"""Worker i is at port i + 1, with child bit 1 << i."""
PARENT: Final = 0x0A000901
PARENT_PORT: Final = 4
PARENT_BIT: Final = 1 << 9
PATHS: Final = (5, 6, 7)
FAR: Final = 0x0A010000
PROBE_PORT: Final = 8
PROBE_END: Final = 0x0AFF0008
PROBE_SESSION: Final = 9
INNER, ROOT, LONE = 7, 8, 65535
GENERATIONS: Final = (255, 1)
SLOTS: Final = 4
GROUP, LONE_GROUP = 21, 22
CHILDREN: Final = 0b111
NEVER_MARKS, ALWAYS_MARKS = (1 << 19) - 1, 0
NEVER_WAITS = (1 << 32) - 1
ALWAYS = (ALWAYS_MARKS, NEVER_WAITS, 0, 1, 9, 3)


def mac(address: int) -> int:
    return 0x020000000000 | address


def entities(encoder: Encoder) -> Iterator[Any]:
    """Everything to insert; `set_node_id` is the one default action to modify."""

    def entry(table: str, match: tuple[Any, ...], action: str, *params: int) -> Any:
        control = table.rsplit(".", 1)[0]
        return encoder.table_entry(table, TableEntry(match, ActionCall(f"{control}.{action}", params)))

    yield multicast_group(GROUP, [Replica(port, 100 + port) for port in (1, 2, 3)])
    yield multicast_group(LONE_GROUP, [Replica(2, 102), Replica(3, 999)])  # 999 has no address: it ends in egress
    yield clone_session(PROBE_SESSION, CloneSession((Replica(CPU_PORT, 0),)))
    yield entry("FabricIngress.node_address", (Exact(SWITCH),), "to_node")
    aggregating, routing = "FabricIngress.aggregation", "FabricIngress.routing"
    for generation in GENERATIONS:
        g = Exact(generation)
        job = (0, SLOTS, CHILDREN, PARENT, PARENT_BIT)
        yield entry(f"{aggregating}.jobs", (Exact(INNER), g), "inner_node", *job)
        yield entry(f"{aggregating}.jobs", (Exact(ROOT), g), "switch_root", SLOTS, SLOTS, CHILDREN, GROUP)
        yield entry(f"{aggregating}.jobs", (Exact(LONE), g), "switch_root", 2 * SLOTS, SLOTS, 0b10, LONE_GROUP)
        for job_number in (INNER, ROOT):
            for i, worker in enumerate(WORKERS):
                key = (Exact(job_number), g, Exact(1 << i), Exact(i + 1), Exact(worker))
                yield entry(f"{aggregating}.members", key, "accept")
        lone = (Exact(LONE), g, Exact(0b10), Exact(2), Exact(WORKERS[1]))
        yield entry(f"{aggregating}.members", lone, "accept")
        from_parent = (Exact(INNER), g, Exact(PARENT_PORT), Exact(PARENT))
        yield entry(f"{aggregating}.parents", from_parent, "replicate", GROUP)
    yield entry(f"{aggregating}.expand.widths", (Exact(aggregation.present_width(32)),), "expand")
    hosts = [*((i + 1, worker) for i, worker in enumerate(WORKERS)), (PARENT_PORT, PARENT), (PROBE_PORT, PROBE_END)]
    routes = {(address, 32): [port] for port, address in hosts}
    routes |= {(FAR, 16): list(PATHS), (0x0A000000, 8): [4]}
    for (prefix, length), ports in routes.items():
        calls = [
            WeightedAction(ActionCall(f"{routing}.forward", (port, mac(SWITCH + port), mac(prefix)))) for port in ports
        ]
        yield encoder.table_entry(f"{routing}.routes", TableEntry((Lpm(prefix, length),), ActionSet(tuple(calls))))
    for i, messages in ((1, 0xFF), (2, 0b0110_1010)):  # worker 0 is not looked at, worker 2 hands out no scales
        yield entry("FabricIngress.admission.hosts", (Exact(i + 1),), "admit", WORKERS[i], messages)
    for dscp, priority in frames.TRAFFIC_CLASSES.items():
        yield entry("FabricIngress.traffic_class", (Exact(dscp),), "set_class", priority)
    for i, worker in enumerate(WORKERS):
        deliver = (worker, mac(SWITCH + i + 1), mac(worker), 1 << i)
        yield entry("FabricEgress.replicas", (Exact(101 + i),), "deliver", *deliver)
    yield entry("FabricEgress.congestion.marking", (Exact(1),), "bound_queue", NEVER_MARKS, NEVER_WAITS, 0, 1, 5, 2)
    yield entry(
        "FabricEgress.congestion.marking", (Exact(PARENT_PORT),), "bound_queue", ALWAYS_MARKS, NEVER_WAITS, 0, 1, 9, 3
    )
    yield entry(
        "FabricEgress.congestion.marking", (Exact(PATHS[0]),), "bound_queue", ALWAYS_MARKS, NEVER_WAITS, 0, 1, 9, 3
    )
    yield entry("FabricEgress.probe_sinks", (Exact(PROBE_PORT),), "report", PROBE_SESSION)


def set_node_id(encoder: Encoder) -> Any:
    return encoder.default_entry(
        "FabricEgress.telemetry.node", ActionCall("FabricEgress.telemetry.identify", (NODE_ID,))
    )


def message(
    rng: np.random.Generator,
    kind: MessageType,
    *,
    job: int,
    generation: int,
    chunk: int,
    contributors: int = 0,
    slot: int | None = None,
    weight: int = 1,
    lanes: int = LANES,
) -> bytes:
    """One message with random lanes and header fields and right checksums."""
    record = np.zeros(1, [("header", HEADER), ("lanes", ">i4", (lanes,))])
    header = record["header"]
    header["version_type"] = aggregation.version_type(kind)
    contents = np.random.default_rng(int(rng.integers(2**32)))  # so that another field changes nothing else
    for field in REDUCED:
        header[field.name] = contents.integers(1 << field.bits)
    wanted = MessageFlag.WANTED if contents.random() < 0.5 else 0
    header["flags"] = int(rng.integers(4)) | (MessageFlag.LANES if kind.has_lanes else 0) | wanted
    header["reserved"] = aggregation.present_width(lanes) if kind is MessageType.PRESENT else 0
    header["job"], header["tag"] = job, aggregation.make_tag(generation, chunk)
    header["contributors"] = contributors
    header["slot"] = chunk % SLOTS if slot is None else slot
    header["window"] = rng.choice((0xFFFF, 1, 4, 6, int(rng.integers(65536))))
    header["weight"] = weight
    record["lanes"] = rng.integers(-(2**31), 2**31, (1, lanes))
    header["check"] = aggregation.linear_check(record["lanes"], header["weight"])
    aggregation.set_checksum(header)
    return record.tobytes() if kind.has_lanes else np.ascontiguousarray(header, HEADER).tobytes()


def frame(payload: bytes, source: int, destination: int, **fields: int) -> bytes:
    rows = np.frombuffer(payload, np.uint8)[None]
    macs = {"source_mac": mac(source), "destination_mac": mac(SWITCH)}
    return bytes(frames.encapsulate(rows, source=source, destination=destination, **macs, **fields)[0])


def without_times(output: Output) -> Output:
    """A frame with this node's latency, queue depth, times and utilisation blanked, if it is a probe that has them."""
    header = 2 if output.port == CPU_PORT else 0
    data = bytearray(output.frame)
    ip = header + frames.ETHERNET_BYTES
    shim = header + frames.FRAME_HEADER_BYTES
    if (
        len(data) < shim + int_md.INT_HEADER_BYTES
        or data[ip : ip + 1] != b"\x45"
        or data[ip + 9] != frames.PROTOCOL_UDP
    ):
        return output
    if int.from_bytes(data[shim - 6 : shim - 4], "big") != int_md.INT_PORT:
        return output
    instructions = int.from_bytes(data[shim + 8 : shim + 10], "big")
    at = shim + int_md.INT_HEADER_BYTES
    for bit in (1 << position for position in range(15, 7, -1)):
        if instructions & bit:
            size = 4 * int_md.item_words(bit)
            if bit in (
                int_md.Instruction.HOP_LATENCY,
                int_md.Instruction.INGRESS_TIMESTAMP,
                int_md.Instruction.EGRESS_TIMESTAMP,
                int_md.Instruction.UTILISATION,
            ):
                data[at : at + size] = bytes(len(data[at : at + size]))
            elif bit == int_md.Instruction.QUEUE:
                data[at + 1 : at + size] = bytes(len(data[at + 1 : at + size]))
            at += size
    return Output(output.port, bytes(data))
