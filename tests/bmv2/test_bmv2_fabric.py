"""fabric.p4 in the emulated switch against bmv2: sums, routes, marks, probes and drops, from seeds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest

from weir import p4src
from weir.emulator.entries import ActionCall, Exact, TableEntry
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.fabric_node import (
    FAR,
    GENERATIONS,
    INNER,
    LONE,
    PARENT,
    PARENT_PORT,
    PATHS,
    PORTS,
    PROBE_END,
    PROBE_PORT,
    ROOT,
    SLOTS,
    SWITCH,
    WORKERS,
    entities,
    frame,
    message,
    set_node_id,
    without_times,
)
from weir.tests.bmv2.harness import CPU_PORT, Compiled, needs_bmv2
from weir.tests.bmv2.mutation import mutate
from weir.wire import frames, int_md
from weir.wire.aggregation import AGGREGATION_PORT, HEADER_BYTES, LANES, MessageType
from weir.wire.int_messages import link_request

pytestmark = [pytest.mark.bmv2, needs_bmv2]

BUILD: Final = p4src.ROOT / "build"
DROPS: Final = "FabricIngress.drops"
COVERING: Final = (1, 2)
"""Seeds whose packets are known to reach everything."""

SEEDS: Final = (*COVERING, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 110)))
(
    TRUNCATED,
    MALFORMED,
    BAD_CHECKSUM,
    NOT_IPV4,
    TTL_EXPIRED,
    NO_ROUTE,
    NO_SERVICE,
    UNKNOWN_JOB,
    NOT_MEMBER,
    NOT_PARENT,
) = range(10)
BAD_SLOT, DUPLICATE, LATE = 10, 11, 12
POLICED, FOREIGN_SOURCE, FOREIGN_TYPE, FOREIGN_PORT, OUT_OF_WINDOW = 13, 14, 15, 16, 17


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(Compiled.read(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb"), PORTS) as pair:
        pair.insert(*entities(pair.encoder))
        pair.modify(set_node_id(pair.encoder))
        yield pair


def drops(pair: Pair) -> list[int]:
    return [packets for packets, _ in pair.compare_counters(DROPS)[DROPS]]


@pytest.mark.parametrize("lanes", [True, False], ids=["lanes", "scales"])
def test_every_row_of_the_state_machine(pair: Pair, lanes: bool) -> None:
    """Restart, add, completion, repeats and late packets, in a node with a parent, in a root, and with one child."""
    rng = np.random.default_rng(3)
    kind = MessageType.CONTRIBUTION if lanes else MessageType.SCALE

    def contribution(job: int, chunk: int, child: int, generation: int = GENERATIONS[0]) -> tuple[int, bytes]:
        fields = {"job": job, "generation": generation, "chunk": chunk, "contributors": 1 << child}
        return child + 1, frame(message(rng, kind, **fields), WORKERS[child], SWITCH)

    for job, complete in ((INNER, {4: 1}), (ROOT, {1: 1, 2: 1, 3: 1})):
        later = GENERATIONS[1]
        steps = [
            (contribution(job, 2, 0), {}),  # an empty slot
            (contribution(job, 2, 0), {}),  # a duplicate
            (contribution(job, 2, 2), {}),  # one more
            (contribution(job, 2, 1), complete),  # the last
            (contribution(job, 2, 1), {4: 1} if job == INNER else {2: 1}),  # again: the sum was lost
            (contribution(job, 6, 1), {}),  # the slot's next round
            (contribution(job, 2, 0), {}),  # late
            (contribution(job, 6, 0, later), {}),  # the next generation: 255 is followed by 1
            (contribution(job, 6, 2), {}),  # any other generation starts anew: `jobs` has but one outside this test
            (contribution(job, 6, 0, later), {}),
            (contribution(job, 6, 1, later), {}),
            (contribution(job, 6, 2, later), complete),
            (contribution(job, 14, 2, later), {}),  # a round that nobody can have begun
            (contribution(job, 6 + (1 << 23), 2, later), {}),  # half the circle ahead counts as older
            (contribution(job, (1 << 24) - 2, 0, later), {}),  # and so does what lies just behind zero
        ]
        outputs = pair.compare([packet for packet, _ in steps])
        left = [
            {port: sum(out.port == port for out in found) for port in {out.port for out in found}} for found in outputs
        ]
        assert left == [expected for _, expected in steps]
    lone = pair.compare([contribution(LONE, chunk, 1) for chunk in (0, 0, 1)])
    assert [[out.port for out in found] for found in lone] == [[2], [2], [2]]
    found = drops(pair)
    assert (found[DUPLICATE], found[LATE], found[OUT_OF_WINDOW]) == (2, 6, 2)


def test_a_program_that_is_loaded_anew_has_empty_slots(pair: Pair) -> None:
    """A controller without knowledge of rounds in the switch relies on this."""
    rng = np.random.default_rng(5)

    def contribution(child: int) -> tuple[int, bytes]:
        fields = {"job": ROOT, "generation": GENERATIONS[0], "chunk": 2, "contributors": 1 << child}
        return child + 1, frame(message(rng, MessageType.CONTRIBUTION, **fields), WORKERS[child], SWITCH)

    done = pair.compare([contribution(child) for child in range(3)])
    assert [len(found) for found in done] == [0, 0, 3]
    assert [len(found) for found in pair.compare([contribution(1)])] == [1]  # complete: the stored sum again
    pair.delete(
        *(e for e in entities(pair.encoder) if e.HasField("packet_replication_engine_entry"))
    )  # bmv2 keeps them
    for client in pair.clients:
        client.set_pipeline(pair.program.p4info, pair.program.json)
    pair.insert(*entities(pair.encoder))
    pair.modify(set_node_id(pair.encoder))
    anew = pair.compare([contribution(child) for child in (1, 1, 0, 2)])
    assert [len(found) for found in anew] == [0, 0, 0, 3]
    assert sorted(out.port for out in anew[3]) == [1, 2, 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_rounds_with_losses_and_repeats(pair: Pair, seed: int) -> None:
    """Some messages carry INT, which continues in the results of their rounds; times and depths are not compared."""
    rng = np.random.default_rng(seed)
    packets: list[tuple[int, bytes]] = []

    def sent(body: bytes, source: int) -> bytes:
        if rng.random() < 0.6:
            return frame(body, source, SWITCH)
        request = link_request(AGGREGATION_PORT, int(rng.choice((0, 1, 9))))
        return frame(request + body, source, SWITCH, destination_port=int_md.INT_PORT)

    front = {INNER: 0, ROOT: (1 << 24) - 6}
    for _ in range(220):
        job = INNER if rng.random() < 0.5 else ROOT
        front[job] += rng.random() < 0.2
        child = int(rng.integers(3))
        kind = MessageType.SCALE if rng.random() < 0.2 else MessageType.CONTRIBUTION
        chunk = (front[job] - int(rng.integers(2 * SLOTS if rng.random() < 0.1 else 2))) % (1 << 24)
        generation = GENERATIONS[0] if len(packets) < 120 or rng.random() < 0.1 else GENERATIONS[1]
        body = message(rng, kind, job=job, generation=generation, chunk=chunk, contributors=1 << child)
        packets.append((child + 1, sent(body, WORKERS[child])))
        if rng.random() < 0.15:
            answer = MessageType.RESULT if kind is MessageType.CONTRIBUTION else MessageType.SCALE_RESULT
            body = message(rng, answer, job=INNER, generation=generation, chunk=chunk, contributors=0)
            packets.append((PARENT_PORT, sent(body, PARENT)))
    left = [out for found in pair.compare(packets, without_times) for out in found]
    ports = [int.from_bytes(out.frame[36:38], "big") for out in left]
    assert {port: ports.count(port) > 20 for port in set(ports)} == {AGGREGATION_PORT: True, int_md.INT_PORT: True}
    found = drops(pair)
    assert found[DUPLICATE] > 0
    assert found[LATE] > 0
    assert pair.forwarded > 100


@pytest.mark.parametrize("seed", SEEDS)
def test_present_among_contributions(pair: Pair, seed: int) -> None:
    """Rounds of 32 lanes in which some children add nothing, with repeats, and with none that adds anything."""
    rng = np.random.default_rng(seed)
    packets: list[tuple[int, bytes]] = []
    for chunk in range(1, 30):
        adding = rng.random(3) < rng.choice([0, 0.5])
        for child in rng.permutation([*range(3), *rng.integers(0, 3, int(rng.integers(4)))]).tolist():
            kind = MessageType.CONTRIBUTION if adding[child] else MessageType.PRESENT
            for job in (INNER, ROOT):
                fields = {"job": job, "generation": GENERATIONS[0], "chunk": chunk, "contributors": 1 << child}
                body = message(rng, kind, lanes=32, **fields)
                packets.append((child + 1, frame(body, WORKERS[child], SWITCH)))
    left = [out for found in pair.compare(packets) for out in found]
    types = {MessageType(out.frame[42] & 15) for out in left}
    assert types == {MessageType.CONTRIBUTION, MessageType.RESULT, MessageType.PRESENT, MessageType.DONE}
    assert drops(pair)[DUPLICATE] > 0


@pytest.mark.parametrize("lanes", [32, LANES])
@pytest.mark.parametrize("seed", SEEDS)
def test_results_without_lanes_for_those_that_want_none(pair: Pair, seed: int, lanes: int) -> None:
    """Rounds of an inner node, whose results come from its parent, and of a root, with requests that come again.

    Some results are DONE already, of other rounds, late or copied, and some carry INT that this node extends.
    """
    rng = np.random.default_rng(seed)
    packets: list[tuple[int, bytes]] = []
    for chunk in range(1, 30):
        for job in (INNER, ROOT):
            for child in rng.permutation([*range(3), *rng.integers(0, 3, int(rng.integers(3)))]).tolist():
                fields = {"job": job, "generation": GENERATIONS[0], "chunk": chunk, "contributors": 1 << child}
                body = message(rng, MessageType.CONTRIBUTION, lanes=lanes, **fields)
                packets.append((child + 1, frame(body, WORKERS[child], SWITCH)))
        for _ in range(2):
            kind = MessageType.RESULT if rng.random() < 0.8 else MessageType.DONE
            of = chunk if rng.random() < 0.8 else int(rng.integers(1, 40))
            body = message(rng, kind, lanes=lanes, job=INNER, generation=GENERATIONS[0], chunk=of)
            if rng.random() < 0.5:
                body = link_request(AGGREGATION_PORT, int(rng.choice((0, 9)))) + body
                packets.append((PARENT_PORT, frame(body, PARENT, SWITCH, destination_port=int_md.INT_PORT)))
            else:
                packets.append((PARENT_PORT, frame(body, PARENT, SWITCH)))
    left = [out for found in pair.compare(packets, without_times) for out in found]
    messages = [out.frame[-HEADER_BYTES:] for out in left if len(out.frame) < frames.FRAME_HEADER_BYTES + 128]
    assert sum(body[0] == 0x19 for body in messages) > 20
    assert sum(len(out.frame) > frames.FRAME_HEADER_BYTES + 4 * lanes for out in left) > 20


@pytest.mark.parametrize("seed", SEEDS)
def test_refusals(pair: Pair, seed: int) -> None:
    """Messages with one thing wrong, and the counter of each reason."""
    rng = np.random.default_rng(seed)
    kinds = tuple(kind for kind in MessageType if kind < MessageType.PRESENT)
    packets: list[tuple[int, bytes]] = []
    for _ in range(150):
        kind = kinds[rng.integers(len(kinds))]
        child = int(rng.integers(3))
        wrong = rng.random(6) < 0.1
        body = bytearray(
            message(
                rng,
                kind,
                job=int(rng.choice((INNER, ROOT, LONE, 0, 9))) if wrong[0] else INNER,
                generation=int(rng.choice((0, 2, 1))) if wrong[1] else GENERATIONS[0],
                chunk=int(rng.integers(8)),
                contributors=int(rng.choice((0, 3, 1 << 31))) if wrong[2] else 1 << child,
                slot=int(rng.choice((SLOTS, 65535))) if wrong[3] else None,
            )
        )
        if wrong[4]:
            body[int(rng.integers(HEADER_BYTES))] ^= 1 << int(rng.integers(8))
        if rng.random() < 0.05:
            body = body[: int(rng.integers(1, len(body)))]
        source = int(rng.choice((PARENT, WORKERS[0]))) if wrong[5] else WORKERS[child]
        port = (
            PARENT_PORT if kind in (MessageType.RESULT, MessageType.SCALE_RESULT) and rng.random() < 0.5 else child + 1
        )
        if port == PARENT_PORT:
            source = PARENT
        packets.append((port, frame(bytes(body), source, SWITCH)))
    pair.compare(packets)
    found = drops(pair)
    for reason in (MALFORMED, BAD_CHECKSUM, NO_SERVICE, UNKNOWN_JOB, NOT_MEMBER, NOT_PARENT, BAD_SLOT):
        assert seed not in COVERING or found[reason] > 0, f"drop reason {reason} was never met"


def test_host_ports_admit_the_same_packets(pair: Pair) -> None:
    """All types of messages to another node: from a host that may send all, one that may not, and one not looked at; in
    their own names and in another's; and to the switch, from another UDP port.
    """
    rng = np.random.default_rng(4)
    packets: list[tuple[int, bytes]] = []
    for child in range(3):
        for kind in MessageType:
            body = message(rng, kind, job=INNER, generation=GENERATIONS[0], chunk=2, contributors=1 << child)
            packets += [(child + 1, frame(body, source, FAR + 1)) for source in (WORKERS[child], PARENT)]
            packets.append((child + 1, frame(body, WORKERS[child], SWITCH, source_port=AGGREGATION_PORT + 1)))
    sent = pair.compare(packets)
    found = drops(pair)
    assert (found[FOREIGN_SOURCE], found[FOREIGN_TYPE], found[FOREIGN_PORT]) == (18, 4, 27)
    assert sum(len(packet) for packet in sent) == 81 - 18 - 4 - 27


def test_policers_go_by_the_class_of_each_dscp(pair: Pair) -> None:
    """Time does not matter: these policers hold back everything, in all 64 DSCPs and of both kinds."""
    rng = np.random.default_rng(6)
    held_back = {(1, 7, 0), (2, 7, 1), (3, 1, 1), (4, 0, 0)}  # port, priority, whether it is a message
    table = "FabricIngress.policing.policers"
    for bucket, key in enumerate(sorted(held_back)):
        call = ActionCall("FabricIngress.policing.police", (bucket, 1, 0))
        pair.insert(pair.encoder.table_entry(table, TableEntry(tuple(Exact(each) for each in key), call)))
    body = message(rng, MessageType.CONTRIBUTION, job=INNER, generation=GENERATIONS[0], chunk=2, contributors=2)
    cases = [(port, dscp, told) for port in (1, 2, 3, 4) for dscp in range(64) for told in (False, True)]
    outputs = pair.compare(
        [
            (
                port,
                frame(
                    body if told else b"no message",
                    (*WORKERS, PARENT)[port - 1],
                    FAR + 1,
                    destination_port=AGGREGATION_PORT if told else 53,
                    source_port=AGGREGATION_PORT,
                    dscp=dscp,
                ),
            )
            for port, dscp, told in cases
        ]
    )
    priorities = [frames.TRAFFIC_CLASSES.get(dscp, frames.BULK_PRIORITY) for _, dscp, _ in cases]
    expected = [
        (port, priority, told) not in held_back for (port, _, told), priority in zip(cases, priorities, strict=True)
    ]
    assert [bool(found) for found in outputs] == expected
    assert drops(pair)[POLICED] == expected.count(False)


@pytest.mark.parametrize("seed", SEEDS)
def test_routing_marking_and_damage(pair: Pair, seed: int) -> None:
    """Plain traffic: longest prefixes, equal-cost paths, TTL, ECN, classes; then the same damaged and cut short."""
    rng, damage = np.random.default_rng(seed), random.Random(seed)
    destinations = (*WORKERS, PARENT, FAR + 1, FAR + 0x1234, FAR + 0xFFFF, 0x0A000505, 0x0B000001, SWITCH)
    packets: list[tuple[int, bytes]] = []
    for _ in range(300):
        udp_ports = {"source_port": int(rng.integers(65536))}
        udp_ports["destination_port"] = int(
            rng.choice((53, AGGREGATION_PORT, int_md.INT_PORT, int(rng.integers(65536))))
        )
        sent = frame(
            rng.bytes(int(rng.integers(1, 80))),
            int(rng.choice(WORKERS)) + int(rng.integers(2)),
            int(rng.choice(destinations)),
            dscp=int(rng.integers(64)),
            ttl=int(rng.choice((64, 2, 1, 0))) if rng.random() < 0.3 else 64,
            **udp_ports,
        )
        packets.append((int(rng.choice(PORTS)), mutate(damage, sent, rate=0.3)))
    outputs = pair.compare(packets, without_times)
    assert {out.port for found in outputs for out in found} >= {1, 2, 3, PARENT_PORT, *PATHS}
    found = drops(pair)
    for reason in (TRUNCATED, BAD_CHECKSUM, NOT_IPV4, TTL_EXPIRED, NO_ROUTE, NO_SERVICE):
        assert seed not in COVERING or found[reason] > 0, f"drop reason {reason} was never met"


def test_equal_cost_paths_of_many_flows(pair: Pair) -> None:
    rng = np.random.default_rng(11)
    packets = [
        (
            1,
            frame(
                b"flow",
                WORKERS[0] + int(rng.integers(256)),
                FAR + int(rng.integers(65536)),
                source_port=i,
                destination_port=9,
            ),
        )
        for i in range(120)
    ]
    outputs = pair.compare(packets)
    assert {found[0].port for found in outputs} == set(PATHS)


@pytest.mark.parametrize("seed", SEEDS)
def test_probes(pair: Pair, seed: int) -> None:
    """INT-MD in transit, to this switch and to a sink, with every mix of instructions; times and depths are not
    compared.
    """
    rng, damage = np.random.default_rng(seed), random.Random(seed)
    packets: list[tuple[int, bytes]] = []
    while len(packets) < 200:
        instructions = int(rng.integers(65536)) if rng.random() < 0.6 else int(int_md.PROBE_INSTRUCTIONS)
        domain = int(rng.choice((0x8000, 0, int(rng.integers(65536)))))
        if int_md.hop_words(instructions, domain) > int_md.MAX_HOP_WORDS:
            continue
        sent = int_md.probe_frame(
            source=WORKERS[0],
            destination=int(rng.choice((WORKERS[1], PARENT, FAR + 7, SWITCH, PROBE_END))),
            source_mac=1,
            destination_mac=2,
            instructions=instructions,
            domain_instructions=domain,
            remaining_hops=int(rng.choice((16, 1, 0, 255))),
            payload=rng.bytes(int(rng.choice((0, 5, 1380, 1420)))),
        )
        packets.append((int(rng.choice(PORTS)), mutate(damage, sent, rate=0.15)))
    outputs = pair.compare(packets, without_times)
    assert sum(out.port == CPU_PORT for found in outputs for out in found) > 20
    ends = [out for found in outputs for out in found if out.port == PROBE_PORT]
    assert seed not in COVERING or not ends, "a probe ends where a sink reports it"


def test_packet_out(pair: Pair) -> None:
    body = frame(b"control message", WORKERS[0], WORKERS[2], destination_port=9)
    for port in (1, PARENT_PORT, 8):
        pair.compare_packet_out(body, [(1, port), (2, 0)], (port << 7).to_bytes(2, "big"))
    pair.compare_packet_out(bytes(60), [(1, 2), (2, 0)], (2 << 7).to_bytes(2, "big"))
    probe = int_md.probe_frame(
        source=WORKERS[0],
        destination=WORKERS[1],
        source_mac=1,
        destination_mac=2,
        instructions=int_md.Instruction.NODE_ID,
    )
    [[through]] = pair.compare([(1, probe)], without_times)
    assert int_md.parse_frames([through.frame]).path(0)[0].bytes_sent == 60, (
        "the bytes of a packet-out that is not IPv4, its header not counted"
    )
