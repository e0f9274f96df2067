"""Programs as older compilers wrote them, with attributes left out that bmv2 does not need.

The programs of `older/` are p4c's output for small programs, changed to the old form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weir.emulator.entries import CloneSession, Replica
from weir.emulator.switch import Switch

OLDER = Path(__file__).parent / "older"
LISTS = (
    *("errors", "enums", "__meta__", "register_arrays", "counter_arrays", "meter_arrays", "calculations"),
    *("checksums", "learn_lists", "field_lists", "parse_vsets", "extern_instances", "header_stacks"),
    *("header_union_types", "header_unions", "header_union_stacks", "force_arith"),
)


def read(name: str) -> dict[str, Any]:
    program: dict[str, Any] = json.loads((OLDER / f"{name}.json").read_bytes())
    return program


def loaded(program: dict[str, Any]) -> Switch:
    switch = Switch(1, ports=range(1, 6))
    switch.load(json.dumps(program).encode())
    return switch


def ports(switch: Switch, rest: bytes) -> list[int]:
    """The ports at which a frame with these bytes behind its addresses leaves."""
    return [port for port, _ in switch.forward(bytes(12) + rest, 1)]


def fields_of(program: dict[str, Any], header_type: str) -> list[list[Any]]:
    """The fields (name, width, signed) of a header type."""
    fields: list[list[Any]] = next(item["fields"] for item in program["header_types"] if item["name"] == header_type)
    return fields


def test_a_group_in_intrinsic_metadata_multicasts() -> None:
    switch = loaded(read("multicast"))
    switch.replication.set_group(3, (Replica(1), Replica(2)))
    assert ports(switch, b"\0\3") == [1, 2]
    assert ports(switch, b"\0\0") == [4]


def test_validity_bit_of_the_parser_is_read_without_a_header() -> None:
    """bmv2 sets the field that conditions read, and its deparser goes by the header itself."""
    assert loaded(read("validity")).forward(bytes(20), 1) == [(3, bytes(20))]


def test_a_program_without_its_optional_lists_runs() -> None:
    program = read("clones")
    for name in LISTS:
        program.pop(name, None)
    for pipeline in program["pipelines"]:
        pipeline.pop("action_profiles", None)
        pipeline.pop("conditionals", None)
        for table in pipeline["tables"]:
            for name in ("action_ids", "with_counters", "support_timeout", "direct_meters"):
                table.pop(name, None)
    assert ports(loaded(program), bytes(6)) == [2]


def test_errors_that_a_program_does_not_number_follow_its_own() -> None:
    program = read("clones")
    program["errors"] = [["Mine", 7], ["NoMatch", 3]]
    switch = loaded(program)
    assert switch.program is not None
    added = (
        "NoError",
        "PacketTooShort",
        "StackOutOfBounds",
        "HeaderTooShort",
        "ParserTimeout",
        "ParserInvalidArgument",
    )
    assert switch.program.errors == {"Mine": 7, "NoMatch": 3} | {name: 8 + i for i, name in enumerate(added)}


def test_a_program_without_multicast_drops_and_forwards() -> None:
    program = read("multicast")
    kept = [field for field in fields_of(program, "standard_metadata") if field[0] != "mcast_grp"]
    fields_of(program, "standard_metadata")[:] = kept
    program["header_types"] = [item for item in program["header_types"] if item["name"] != "intrinsic_metadata_t"]
    program["headers"] = [item for item in program["headers"] if item["name"] != "intrinsic_metadata"]
    ingress = next(item for item in program["pipelines"] if item["name"] == "ingress")
    action = next(item for item in program["actions"] if item["name"] == ingress["tables"][0]["actions"][0])
    action["primitives"] = action["primitives"][:1]
    assert ports(loaded(program), b"\0\3") == [4]
    action["primitives"] = [{"op": "mark_to_drop", "parameters": [{"type": "header", "value": "standard_metadata"}]}]
    switch = loaded(program)
    assert ports(switch, b"\0\3") == []
    assert switch.counters.ingress_drops == 1


def test_a_field_without_bits_reads_zero_and_takes_writes() -> None:
    program = read("clones")
    fields_of(program, "h_t").insert(1, ["empty", 0, False])
    empty = {"type": "field", "value": ["h", "empty"]}
    spec = {"type": "field", "value": ["standard_metadata", "egress_spec"]}
    action = program["actions"][0]
    action["primitives"] += [
        {"op": "assign", "parameters": [empty, spec]},
        {"op": "assign", "parameters": [spec, empty]},
    ]
    switch = loaded(program)
    assert ports(switch, bytes(6)) == []
    assert switch.counters.no_port == 1


@pytest.mark.parametrize("session", [5, 0x8005, 0xFFFF8005])
def test_a_clone_session_is_the_low_15_bits(session: int) -> None:
    switch = loaded(read("clones"))
    switch.replication.set_session(5, CloneSession((Replica(3),)))
    assert ports(switch, b"\0\0" + session.to_bytes(4, "big")) == [3, 2]
