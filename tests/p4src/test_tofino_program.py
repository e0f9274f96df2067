"""The program for Tofino: p4c's front and mid end take it as TNA, it has the control plane of the one for bmv2, and
does the same, packet by packet.

Run where p4test is on PATH; the rest of what the compiler for the chip would say is not known here.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from weir import p4src
from weir.controller.planning.admission import OF_WORKERS
from weir.tests.p4src.emulated_node import PORTS, EmulatedNode
from weir.tests.p4src.node_model import CPU_PORT
from weir.tests.p4src.program_mutants import let_any_later_round_take_the_slot, rewritten
from weir.tests.p4src.small_fabric import (
    GENERATION,
    INNER,
    OTHER_SWITCH,
    PARENT,
    PARENT_PORT,
    ROOT,
    SLOTS,
    STRANGER,
    STRANGER_PORT,
    SWITCH,
    WORKERS,
    hosts,
    message,
    packet,
    tables,
)
from weir.tests.p4src.tna_node import TnaNode
from weir.tests.p4src.tna_program import Program, controlled, flattened, mutated
from weir.topologies.targets import BMV2_64
from weir.wire.aggregation import MessageType
from weir.wire.fields import REDUCED

WRITTEN = {
    "FabricIngress.node_address",
    "FabricIngress.traffic_class",
    "FabricIngress.aggregation.jobs",
    "FabricIngress.aggregation.members",
    "FabricIngress.aggregation.parents",
    "FabricIngress.admission.hosts",
    "FabricIngress.routing.routes",
    "FabricEgress.replicas",
}
"""Tables that a control plane writes in both programs: those of forwarding, aggregation and replication. The one for
bmv2 has more."""

ABSENT = {"policed", "out_of_window"}
"""Drop reasons of the program for bmv2 alone: what belongs to congestion, and a rule that a chip's register has no
comparison left for (docs/tofino.md)."""

DSCP_BYTE = 15
"""Of a frame. It may say that there is INT, which only the program for bmv2 looks for."""

NEAR_THE_WRAP = 2**24 - 4


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("p4test") is None:
        pytest.skip("p4test (of p4c) is not on PATH")
    return flattened(tmp_path_factory.mktemp("p4test"))


def described(info: Any) -> dict[str, str]:
    """P4Info's tables that a control plane writes, with all ids, in one line each."""
    actions = {action.preamble.id: action for action in info.actions}
    kinds = {value: name.lower() for name, value in p4i.MatchField.MatchType.items()}
    found = {}
    for table in info.tables:
        if table.is_const_table:
            continue
        key = ", ".join(f"{field.name} {kinds[field.match_type]}/{field.bitwidth}" for field in table.match_fields)
        calls = {
            f"{action.preamble.name}#{action.preamble.id & 0xFFFFFF}"
            f"({', '.join(f'{p.name}/{p.bitwidth}' for p in action.params)})"
            for ref in table.action_refs
            if ref.scope != p4i.ActionRef.DEFAULT_ONLY and (action := actions[ref.id]).preamble.name != "NoAction"
        }
        found[table.preamble.name] = f"#{table.preamble.id & 0xFFFFFF} {key} -> {sorted(calls)} {table.size}"
    return found


def test_one_controller_drives_both(text: str) -> None:
    info = text_format.Parse(p4src.p4info_of(BMV2_64.program).read_text(), p4i.P4Info())
    program = Program(text)
    actions = {name: action for control in program.controls.values() for name, action in control.actions.items()}
    mine = {}
    for table in controlled(program):
        calls = {
            f"{action.name}#{action.id}({', '.join(f'{name}/{width}' for _, name, width in action.parameters)})"
            for action in (actions[name] for name in table.actions)
            if action.name != ".NoAction"
        }
        key = ", ".join(f"{name} {kind}/{width}" for name, kind, width in table.key)
        mine[table.name] = f"#{table.id} {key} -> {sorted(calls)} {table.size}"
    theirs = described(info)
    assert mine.keys() == WRITTEN
    # intrinsic metadata has its width in TNA's own headers, which the text names and does not repeat
    for name, line in mine.items():
        widths = {"standard_metadata.ingress_port exact/0": 9, "standard_metadata.egress_rid exact/0": 16}
        for unknown, width in widths.items():
            line = line.replace(unknown, f"{unknown[:-1]}{width}")
        assert line == theirs[name]


class Traffic:
    """Frames and the ports they arrive at: a running protocol of two jobs, with much that can be wrong mixed in."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.round = NEAR_THE_WRAP
        self.generation = GENERATION

    def next(self) -> tuple[bytes, int]:
        rng = self.rng
        kind = rng.choice(["contribution", "result", "plain", "packet-out"], p=[0.8, 0.07, 0.08, 0.05])
        frame, port = {"contribution": self._contribution, "result": self._result}.get(kind, self._plain)()
        if rng.random() < 0.03:
            frame = frame[: int(rng.integers(14, len(frame)))]
        elif rng.random() < 0.02:
            at = int(rng.choice([at for at in range(min(len(frame), 70)) if at != DSCP_BYTE]))
            frame = frame[:at] + rng.bytes(1) + frame[at + 1 :]
        if kind == "packet-out":
            return (int(rng.integers(0, PORTS)) << 7).to_bytes(2) + frame, CPU_PORT
        return frame, port if rng.random() < 0.97 else int(rng.integers(0, PORTS))

    def _message(self, kind: MessageType, job: int, contributors: int) -> bytes:
        rng = self.rng
        self.round += int(rng.random() < 0.15)
        self.generation = min(self.generation + int(rng.random() < 0.01), GENERATION + 3)
        fields = {field.name: int(rng.integers(0, 1 << field.bits)) for field in REDUCED}
        fields |= {"flags": int(rng.integers(0, 4)), "contributors": contributors}
        if rng.random() < 0.03:
            fields["version_type"] = int(rng.integers(0, 256))
        if rng.random() < 0.03:
            fields["slot"] = int(rng.choice([0, 3, 4, 0xFFFF]))
        return message(
            kind,
            round_number=self.round if rng.random() < 0.85 else int(self.round + rng.integers(-6, 2)),
            lanes=rng.integers(-(2**31), 2**31, 64),
            width=64,
            job=job if rng.random() < 0.98 else 1,
            generation=self.generation - int(rng.random() < 0.03),
            bad_checksum=rng.random() < 0.02,
            **fields,
        )

    def _contribution(self) -> tuple[bytes, int]:
        rng = self.rng
        worker = int(rng.integers(0, 3))
        kind = MessageType.CONTRIBUTION if self.round % 3 else MessageType.SCALE
        kind = kind if rng.random() < 0.97 else MessageType(int(rng.integers(5, 8)))
        child = 1 << worker if rng.random() < 0.97 else int(rng.integers(0, 8))
        payload = self._message(kind, int(rng.choice([INNER, ROOT])), child)
        destination = SWITCH if rng.random() < 0.96 else OTHER_SWITCH
        return packet(
            payload, WORKERS[worker], destination, source_port=22341 if rng.random() < 0.97 else 22342
        ), worker

    def _result(self) -> tuple[bytes, int]:
        kind = MessageType.RESULT if self.rng.random() < 0.5 else MessageType.SCALE_RESULT
        return packet(self._message(kind, INNER, 0), PARENT, dscp=int(self.rng.choice([0, 48]))), PARENT_PORT

    def _plain(self) -> tuple[bytes, int]:
        rng = self.rng
        destination = int(rng.choice([SWITCH, WORKERS[0], STRANGER, PARENT, OTHER_SWITCH, 0x01020304]))
        ttl = int(rng.choice([0, 1, 2, 64]))
        # too short for INT, which the program for bmv2 alone looks for: it drops a datagram cut short of its marker
        source = STRANGER if rng.random() < 0.8 else PARENT
        return packet(rng.bytes(15), source, destination, destination_port=9, ttl=ttl), STRANGER_PORT


@cache
def program_of_bmv2() -> bytes:
    """The one for bmv2, without the rule that a chip has no room for."""
    return rewritten(let_any_later_round_take_the_slot, p4src.json_of(BMV2_64.program))


def compared(seed: int, text: str, packets: int) -> TnaNode:
    """Run a sequence through both; the node of the program for Tofino."""
    configured = tables()
    configured.hosts = hosts(OF_WORKERS & ~(1 << MessageType.SCALE))  # the workers sum lanes alone elsewhere
    chip = TnaNode(Program(text), configured)
    bmv2 = EmulatedNode(configured, program_of_bmv2())
    traffic = Traffic(seed)
    for number in range(packets):
        frame, port = traffic.next()
        expected, got = bmv2.forward(frame, port), chip.forward(frame, port)
        assert sorted(got) == sorted(expected), f"seed {seed}, packet {number} at port {port}: {frame.hex()}"
    assert chip.drops == bmv2.drops, f"seed {seed}"
    return chip


@pytest.mark.parametrize("seed", range(3))
def test_it_does_as_the_program_for_bmv2(text: str, seed: int) -> None:
    chip = compared(seed, text, 400)
    assert chip.second_passes > 20
    assert sum(chip.drops.values()) < 250, "the traffic should be mostly good"


def test_the_traffic_meets_every_reason_to_drop(text: str) -> None:
    drops = compared(99, text, 1200).drops
    assert {reason for reason, count in drops.items() if not count} == ABSENT


LANES = "aggregation_lane_sums_lane"
BROKEN = {
    "a later chunk is taken for the same": ("(int<32>)(meta.chunk - held.chunk) > 32s0", "false"),
    "jobs and generations share a slot": ("held.who != meta.who || ", ""),
    "a newer round keeps the former one's children": ("held.bits = meta.child;", "held.bits = held.bits | meta.child;"),
    "an older round has the children of the slot": ("before = 32w0;", "before = held.bits;"),
    "the packet's round is complete without the others": (
        "meta.missing = meta.other_children & ~meta.children;",
        "meta.missing = 32w0;",
    ),
    "what is asked for again goes to all": ("aggregation_go_around_0(1w1);", "aggregation_go_around_0(1w0);"),
    "half a sum leaves": ("aggregation_go_around_0(1w0);", "aggregation_to_parent_0();"),
    "a child that asks again is added": (
        f"(8w2, 32w4 &&& 32w4, 32w4 &&& 32w4) : {LANES}_0_replay_0();",
        f"(8w2, 32w4 &&& 32w4, 32w4 &&& 32w4) : {LANES}_0_add_0();",
    ),
    "the second half of a pair is the first": (
        f"hdr.lanes.lane_63 = {LANES}_62_rest_of_pair",
        f"hdr.lanes.lane_63 = {LANES}_62_replay_pair",
    ),
    "the second half is not added": (
        "held.check = held.check + hdr.aggregation.check;",
        "held.check = hdr.aggregation.check;",
    ),
    "the window is the largest": ("min<bit<16>>(", "max<bit<16>>("),
    "the exponent is the last": (
        "held.exponent = max<bit<16>>(held.exponent, meta.exponent);",
        "held.exponent = meta.exponent;",
    ),
    "a host sends in another's name": ("meta.other_source = hdr.ipv4.src_addr ^ address;", "meta.other_source = 32w0;"),
    "a host sends any message": ("meta.barred = ~messages;", "meta.barred = 8w0;"),
    "messages come from any port": ("meta.src_port != 16w22341", "false"),
    "flags of others are lost": (
        "hdr.aggregation.flags | aggregation_header_sums_all_flags_held_flags",
        "hdr.aggregation.flags",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(text: str, rule: str) -> None:
    with pytest.raises(AssertionError, match=r"^seed \d"):
        _compare_seeds(mutated(text, *BROKEN[rule]))


def _compare_seeds(text: str) -> None:
    for seed in range(3):
        compared(seed, text, 400)


def overtaken(text: str) -> list[tuple[int, bytes]]:
    """What leaves for a worker that asks for a complete round again, whose slot a newer round takes between the
    passes."""

    def send(worker: int, number: int) -> list[tuple[int, bytes]]:
        payload = message(round_number=number, lanes=number, width=64, job=ROOT, contributors=1 << worker)
        return chip.forward(packet(payload, WORKERS[worker]), worker)

    chip = TnaNode(Program(text), tables())
    assert [len(send(worker, 2)) for worker in range(3)] == [0, 0, 3]
    chip.between = lambda: send(1, 2 + SLOTS)
    return send(0, 2)


def test_a_second_pass_never_mixes_two_rounds(text: str) -> None:
    assert overtaken(text) == []
    assert overtaken(mutated(text, "said = 8w4;", "said = 8w3;")) != []


def test_the_sources_are_there_under_the_names_of_the_program_for_bmv2() -> None:
    names = {path.name for path in (p4src.ROOT / "tofino").glob("*.p4")}
    theirs = {path.name for path in Path(p4src.ROOT / "bmv2").glob("*.p4")}
    assert names - theirs == {"metadata.p4"}
