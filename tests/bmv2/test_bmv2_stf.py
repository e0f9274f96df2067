"""The guides' packet tests (docs/stf.md) on the real bmv2, which meets the same expectations as the emulated switch.

These tests cover the supported part of STF; registers are left out, which bmv2's P4Runtime server does not read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from weir.emulator.entries import ActionSet, Replica, TableEntry, WeightedAction
from weir.emulator.program import Program
from weir.emulator.stf.names import action_call, matches, resolve
from weir.emulator.stf.player import difference
from weir.emulator.stf.reader import parse
from weir.emulator.stf.statements import Add, CheckCounter, CheckRegister, Expect, NoPacket, Packet, SwitchCommand
from weir.tests.bmv2.harness import Bmv2, Compiled, Output, needs_bmv2
from weir.tests.bmv2.p4runtime_client import multicast_group
from weir.tests.paths import ROOT, STF
from weir.tests.test_snippets import SNIPPETS

pytestmark = [pytest.mark.bmv2, needs_bmv2]

PORTS: Final = range(8)
FIREWALL: Final = ROOT / "examples" / "p4_program" / "firewall.json"
ROUTER: Final = ROOT / "examples" / "exercise" / "build" / "router.json"
FABRIC: Final = ROOT / "p4src" / "build" / "fabric.json"
(SHOWN,) = (each.text for each in SNIPPETS if each.page == "docs/stf.md" and "expect 2" in each.text)


@dataclass
class Player:
    """Plays a test's statements in their order; frames are compared port by port at the end."""

    program: Program
    bmv2: Bmv2
    last: list[Output] = field(default_factory=list)
    received: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    expected: dict[int, list[Expect]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[int, list[int]] = field(default_factory=dict)
    nodes: list[list[Replica]] = field(default_factory=list)

    def play(self, statement: object) -> None:
        match statement:
            case Packet(_, port, frame):
                (self.last,) = self.bmv2.inject([(port, frame)])
                for output in self.last:
                    self.received[output.port].append(output.frame)
            case NoPacket():
                assert self.last == []
            case Expect(_, port):
                self.expected[port].append(statement)
            case Add():
                self.add(statement)
            case CheckCounter(_, name, int(index), "packets", "==", value):
                (full,) = (counter for counter in self.program.counters if counter.endswith(name))
                assert self.bmv2.client.counter(full)[index][0] == value
            case CheckRegister():
                pass
            case SwitchCommand():
                self.replicate(statement.command, *statement.numbers)
            case _:
                raise NotImplementedError(statement)

    def add(self, add: Add) -> None:
        name = resolve("table", add.table, self.program.tables)
        table = self.program.tables[name]
        (call,) = (action_call(self.program, table, call) for call in add.calls)
        action = call if table.profile is None else ActionSet((WeightedAction(call),))
        entry = TableEntry(matches(table, add.key), action, add.priority or 0)
        encoder = self.bmv2.client.encoder
        assert encoder is not None
        self.bmv2.client.insert(encoder.table_entry(name, entry))

    def replicate(self, command: str, *numbers: int) -> None:
        match command:
            case "mc_mgrp_create":
                self.groups[numbers[0]] = []
                self.bmv2.client.insert(multicast_group(numbers[0], []))
            case "mc_node_create":
                self.nodes.append([Replica(port, numbers[0]) for port in numbers[1:]])
            case "mc_node_associate":
                group, node = numbers
                self.groups[group].append(node)
                replicas = [replica for each in self.groups[group] for replica in self.nodes[each]]
                self.bmv2.client.modify(multicast_group(group, replicas))
            case _:
                raise NotImplementedError(command)

    def compare(self) -> None:
        assert {port: len(frames) for port, frames in self.received.items()} == {
            port: len(expected) for port, expected in self.expected.items()
        }
        for port, expected in self.expected.items():
            found = [difference(*pair) for pair in zip(expected, self.received[port], strict=True)]
            assert found == [None] * len(expected), port


@pytest.mark.parametrize(
    ("program", "text"),
    [(FIREWALL, FIREWALL.with_suffix(".stf").read_text()), (ROUTER, SHOWN), (FABRIC, (STF / "fabric.stf").read_text())],
    ids=["firewall", "the-page", "fabric"],
)
def test_a_packet_test_of_the_guides_passes(program: Path, text: str) -> None:
    with Bmv2(Compiled.read(program, program.with_suffix(".p4info.txtpb")), PORTS) as bmv2:
        player = Player(Program.load(program), bmv2)
        for statement in parse(text, "test"):
            player.play(statement)
        player.compare()
    assert any(player.expected.values())
