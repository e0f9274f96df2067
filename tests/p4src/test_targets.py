"""The fabric's model of a kind of switch matches the constants its program was compiled with."""

from __future__ import annotations

import json
import re

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from weir import emulator, p4src
from weir.controller.int_config.table_entries import STACK_SESSION
from weir.controller.planning.plan import EXPANSIONS
from weir.topologies.targets import BMV2, TARGETS, TOFINO, TOFINO_2, Target

EMULATED = {name: target for name, target in TARGETS.items() if target.is_emulated}


@pytest.mark.parametrize("target", EMULATED.values(), ids=EMULATED)
def test_the_program_has_registers_for_the_slots(target: Target) -> None:
    program = json.loads(p4src.json_of(target.program).read_text())
    sizes = {array["size"] for array in program["register_arrays"] if ".aggregation." in array["name"]}
    assert sizes == {target.slots}
    assert p4src.p4info_of(target.program).is_file()


@pytest.mark.parametrize("target", EMULATED.values(), ids=EMULATED)
def test_the_program_has_a_register_for_each_lane(target: Target) -> None:
    program = json.loads(p4src.json_of(target.program).read_text())
    lanes = [array["name"] for array in program["register_arrays"] if ".lane_sums." in array["name"]]
    assert len(lanes) == target.lanes == p4src.LANES[target.program]


@pytest.mark.parametrize("target", EMULATED.values(), ids=EMULATED)
def test_the_program_counts_bytes_for_every_port_of_a_link(target: Target) -> None:
    program = json.loads(p4src.json_of(target.program).read_text())
    [ports] = [array["size"] for array in program["register_arrays"] if array["name"].endswith(".bytes_sent")]
    assert target.last_port < min(target.cpu_port, target.drop_port) <= ports


def test_reserved_ports_match_the_program_and_the_emulator() -> None:
    text = (p4src.ROOT / "bmv2" / "target.p4").read_text()
    cpu_port = re.search(r"CPU_PORT\s*= (\d+);", text)
    assert cpu_port
    assert (BMV2.cpu_port, BMV2.drop_port) == (int(cpu_port[1]), emulator.DROP_PORT)
    assert BMV2.cpu_port == emulator.CPU_PORT


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_program_expands_and_prunes_what_its_target_says(target: Target) -> None:
    """The controller gives a child's bit to every program with software for a switch, and to no chip's."""
    info = text_format.Parse(p4src.p4info_of(target.program).read_text(), p4i.P4Info())
    actions = {action.preamble.name.rsplit(".", 1)[-1]: action for action in info.actions}
    expanded = {lanes for lanes, action in EXPANSIONS.items() if action in actions}
    assert expanded >= {lanes for lanes in EXPANSIONS if lanes <= min(target.lanes, target.present_lanes)}
    registers = {register.preamble.name.rsplit(".", 1)[-1] for register in info.registers}
    assert ("slot_wanting" in registers) >= target.prunes
    assert ("child_bit" in {param.name for param in actions["deliver"].params}) == target.is_emulated


@pytest.mark.parametrize("chip", [TOFINO, TOFINO_2], ids=lambda chip: chip.name)
def test_a_chip_is_what_its_program_was_compiled_for(chip: Target) -> None:
    """Two lanes share a register."""
    info = text_format.Parse(p4src.p4info_of(chip.program).read_text(), p4i.P4Info())
    sizes = {register.preamble.name: register.size for register in info.registers}
    slots = {name: size for name, size in sizes.items() if ".aggregation." in name}
    assert set(slots.values()) == {chip.slots}
    assert 2 * sum(".lane_sums." in name for name in slots) == chip.lanes
    assert chip.pipes
    assert chip.refusal_of_port(chip.cpu_port) is not None, "a link could take the processor's port"
    assert max(chip.last_port, chip.cpu_port) < sizes["FabricEgress.telemetry.bytes_sent"]
    text = (p4src.ROOT / "tofino" / "target.p4").read_text()
    of_tofino_2, _, of_tofino_1 = text.partition("#if __TARGET_TOFINO__ == 2\n")[2].partition("#else\n")
    numbers = dict(re.findall(r"^#define (\w+) (\d+)$", of_tofino_2 if chip == TOFINO_2 else of_tofino_1, re.MULTILINE))
    assert int(numbers["DEFAULT_CPU_PORT"]) == chip.cpu_port
    for pipe in range(chip.pipes.count):
        back = pipe * chip.pipes.stride + int(numbers["RECIRCULATION_PORT"])
        assert chip.refusal_of_port(back) is not None, "a link could take the port that leads back"
    assert f"#define LANES {chip.lanes}\n" in text
    inner = re.search(r"STACK_INNER_BYTES\s*= (\d+);", text)
    session = re.search(r"STACK_SESSION\s*= (\d+);", text)
    assert inner
    assert session
    assert chip.stack_clone_bytes == 14 + int(inner[1])
    around = 60 + 4 + 12  # IPv4, TCP in front and behind, shim, header
    assert int(inner[1]) == around + 4 * chip.max_stack_words >= around + 8 + 4 * chip.max_deep_stack_words
    assert int(session[1]) == STACK_SESSION <= chip.last_clone_session
    assert p4src.TOFINO.keys() == {target.program for target in TARGETS.values() if not target.is_emulated}
