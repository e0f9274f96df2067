"""The search's model switch does as the compiled program, packet by packet, and as a root as the parameter server."""

from __future__ import annotations

import numpy as np
import pytest

from weir.hosts import ParameterServerCore
from weir.tests.hosts.protocol.node_model import JobEntry, SwitchModel
from weir.tests.hosts.protocol.search import Search
from weir.tests.hosts.protocol.search_nodes import Setup, bits_of
from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.small_fabric import (
    CHILDREN,
    GENERATION,
    INNER,
    LONE,
    PARENT,
    PARENT_PORT,
    ROOT,
    SLOTS,
    SWITCH,
    WORKERS,
    message,
    packet,
    tables,
)
from weir.wire.aggregation import (
    CHUNKS,
    HEADER,
    HEADER_BYTES,
    LANES,
    MessageFlag,
    MessageType,
    present_width,
    round_near,
    set_checksum,
)
from weir.wire.control import Child, ServerPlan
from weir.wire.fields import REDUCED
from weir.wire.frames import Datagrams

HEADERS = 42
"""Bytes of Ethernet, IPv4 and UDP before a message."""
BITS = {1 << index: address for index, address in enumerate(WORKERS)}
Sent = list[tuple[int, bytes]]


def model_switch() -> SwitchModel:
    """Model switch with the jobs of `small_fabric.tables`."""
    switch = SwitchModel(SWITCH, 3 * SLOTS)
    for generation in range(GENERATION, GENERATION + 4):
        switch.jobs[INNER, generation] = JobEntry(0, SLOTS, BITS, PARENT, 1 << 31)
        switch.jobs[ROOT, generation] = JobEntry(SLOTS, SLOTS, BITS)
        switch.jobs[LONE, generation] = JobEntry(2 * SLOTS, SLOTS, {1: WORKERS[0]})
    return switch


def compiled(node: EmulatedNode, source: int, port: int, payload: bytes) -> Sent:
    """Output of the compiled program: (destination, message)."""
    frames = [frame for _, frame in node.forward(packet(payload, source), port)]
    return [(int.from_bytes(frame[30:34], "big"), frame[HEADERS:]) for frame in frames]


def without_contributors(sent: Sent) -> Sent:
    """A server says who is in a result, a switch does not."""
    result = []
    for address, payload in sent:
        header = np.frombuffer(payload[:HEADER_BYTES], HEADER).copy()
        header["contributors"] = 0
        set_checksum(header)
        result.append((address, header.tobytes() + payload[HEADER_BYTES:]))
    return sorted(result)


def server_sends(server: ParameterServerCore, source: int, payload: bytes) -> Sent:
    server.receive(0, Datagrams(np.array([source], np.uint32), np.frombuffer(payload, np.uint8)[None]))
    return [
        (address, row.tobytes())
        for datagrams in server.poll(0)
        for address, row in zip(datagrams.addresses.tolist(), datagrams.payload, strict=True)
    ]


class Sequence:
    """Sequence of a job's messages with losses, copies, reordering and new generations.

    `wrong`: number of messages that no node should send; without them the rounds advance by `completed` alone.
    """

    def __init__(self, seed: int, *, wrong: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.first = self.round = CHUNKS - 4  # chunk numbers start anew soon
        self.complete: set[int] = set()
        self.generation = GENERATION
        self.wrong = wrong

    def next(self, job: int) -> tuple[int, int, bytes]:
        """(source, port, message)."""
        rng = self.rng
        if self.wrong:
            self.round += rng.random() < 0.1
            if rng.random() < 0.005:
                self.generation = min(self.generation + 1, GENERATION + 3)
        number = max(self.first, int(self.round - rng.choice([0, 0, 0, 1, 1, 2, 3, 4, 5, 8])))
        worker = 0 if job == LONE else int(rng.integers(0, 3))
        kind = MessageType.CONTRIBUTION if number % 3 else MessageType.SCALE
        # the same worker's part of the same round is always the same
        part = np.random.default_rng([number, worker])
        flags = 0 if self.wrong and part.random() < 0.5 else int(MessageFlag.WANTED)  # a server sends no DONE
        if kind is MessageType.CONTRIBUTION and part.random() < 0.3:
            kind = MessageType.PRESENT
        elif kind is MessageType.CONTRIBUTION:
            flags |= MessageFlag.LANES
        source, port = WORKERS[worker], worker
        fields = {"contributors": 1 << worker}
        generation = self.generation
        if rng.random() < self.wrong:
            match int(rng.integers(0, 7)):
                case 0:
                    fields["contributors"] = int(rng.choice([0, 1, 2, 3, 4, 7, 8]))
                case 1:
                    generation -= int(rng.integers(1, 3))
                case 2:
                    fields["slot"] = int(rng.choice([0, 1, SLOTS - 1, SLOTS, 0xFFFF]))
                case 3:
                    kind = MessageType(int(rng.integers(1, max(MessageType) + 1)))
                case 4:
                    job = 1
                case 5:
                    fields["version_type"] = int(rng.integers(0, 256))
                case _:
                    kind = (MessageType.RESULT, MessageType.SCALE_RESULT, MessageType.DONE)[int(rng.integers(0, 3))]
                    source, port = PARENT, PARENT_PORT
                    fields["contributors"] = 0
        reduced = {field.name: int(rng.integers(0, 1 << field.bits)) for field in REDUCED}
        del reduced["check"]  # the message's own is right
        if kind is MessageType.PRESENT:
            fields["reserved"] = present_width(LANES)
        reduced |= {"flags": int(rng.integers(0, 4)) | flags, "window": int(rng.choice([3, 40, 0xFFFF]))}
        payload = message(
            kind,
            round_number=number,
            lanes=part.integers(-(2**31), 2**31, LANES),
            job=job,
            generation=generation,
            bad_checksum=rng.random() < self.wrong / 10,
            **reduced,
            **fields,
        )
        return source, port, payload

    def completed(self, chunk: int) -> None:
        """Two rounds are in flight, S/2."""
        self.complete.add(int(round_near(chunk, self.round)))
        while self.round - SLOTS // 2 + 1 in self.complete:
            self.round += 1


def compare(seed: int, count: int) -> dict[str, int]:
    """Compare the compiled program with the model switch; return the model's drops."""
    sequence, node, model = Sequence(seed, wrong=0.15), EmulatedNode(tables()), model_switch()
    for number in range(count):
        job = int(sequence.rng.choice([INNER, ROOT, LONE], p=[0.45, 0.45, 0.1]))
        source, port, payload = sequence.next(job)
        expected = compiled(node, source, port, payload)
        assert sorted(model.receive(source, payload)) == sorted(expected), f"seed {seed}, packet {number}"
    drops = {reason: n for reason, n in node.drops.items() if n}
    short = drops.pop("truncated", 0)  # the model has no parser: a message whose lanes are missing is malformed
    drops["malformed"] = drops.get("malformed", 0) + short
    assert drops == dict(model.drops), f"seed {seed}"
    return dict(model.drops)


def compare_with_server(seed: int, count: int) -> int:
    """Compare the compiled program and the model switch as roots above the parameter server; return the messages they
    sent.
    """
    sequence, node, model = Sequence(seed, wrong=0), EmulatedNode(tables()), model_switch()
    sequence.round += SLOTS // 2 - 1
    children = tuple(Child(bit, address) for bit, address in BITS.items())
    server = ParameterServerCore(ServerPlan(ROOT, GENERATION, SLOTS, children, 3, sequence.first))
    assert sum(BITS) == CHILDREN
    total = 0
    for number in range(count):
        source, port, payload = sequence.next(ROOT)
        expected = sorted(compiled(node, source, port, payload))
        assert sorted(model.receive(source, payload)) == expected, f"seed {seed}, packet {number}"
        assert without_contributors(server_sends(server, source, payload)) == expected, f"seed {seed}, packet {number}"
        for _, result in expected:
            sequence.completed(int.from_bytes(result[5:8], "big"))
        total += len(expected)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_the_model_switch_does_as_the_compiled_program(seed: int) -> None:
    drops = compare(seed, 500)
    expected = {"malformed", "unknown_job", "not_member", "bad_slot", "duplicate", "late", "no_service"}
    assert expected <= drops.keys()


@pytest.mark.parametrize("seed", range(3))
def test_a_switch_root_does_as_the_parameter_server(seed: int) -> None:
    assert compare_with_server(seed, 400) > 50


@pytest.mark.long
def test_long_sequences_of_packets() -> None:
    for seed in range(100, 120):
        compare(seed, 2000)
        compare_with_server(seed, 2000)


@pytest.mark.parametrize("setup", [Setup("server", slots=4, window=2, chunks=3), Setup("inner", chunks=2)], ids=str)
def test_messages_taken_together_do_as_one_by_one(setup: Setup) -> None:
    """The search delivers one message at a time; a host's driver hands over all that wait. It is the same."""
    search = Search(setup)
    search.run()
    rng = np.random.default_rng(1)
    nodes = search.nodes
    compared = 0
    for state in search.reached():
        for index in range(setup.workers + setup.with_server):
            waiting = bits_of(state[-1] & nodes.destined[index])
            if len(waiting) < 2:
                continue
            size = len(nodes.messages[int(rng.choice(waiting)).bit_length() - 1][2])
            fitting = [bit for bit in waiting if len(nodes.messages[bit.bit_length() - 1][2]) == size]
            batch = [fitting[at] for at in rng.integers(0, len(fitting), int(rng.integers(2, 6)))]
            one_by_one, sent = state[index], 0
            for bit in batch:
                one_by_one, more = nodes.step(index, one_by_one, bit)
                sent |= more
            assert nodes.step(index, state[index], ("batch", tuple(batch))) == (one_by_one, sent)
            compared += 1
    assert compared > 20
