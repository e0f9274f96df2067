"""A Tofino's program, packed for Stratum: whole, and only if the controller's P4Info matches its schema."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from weir.controller.errors import ControllerError
from weir.controller.p4runtime.packing import PipelineConfig, differences, pack
from weir.p4src import fit, p4info_of
from weir.topologies.targets import TOFINO, TOFINO_2, Target

P4INFO = p4info_of(TOFINO.program)
MATCHES = {"EXACT": "Exact", "LPM": "LPM", "TERNARY": "Ternary", "RANGE": "Range"}
CONTEXT = {"program_name": "fabric.p4", "tables": []}


def p4info(target: Target = TOFINO) -> p4i.P4Info:
    return text_format.Parse(p4info_of(target.program).read_text(), p4i.P4Info())


def typed(width: int) -> dict[str, Any]:
    return {"type": "bytes", "width": width}


def schema_of(info: p4i.P4Info) -> dict[str, Any]:
    """Schema as p4c writes it: tables under their own numbers, other objects under others."""
    actions = {action.preamble.id: action for action in info.actions}
    tables: list[dict[str, Any]] = []
    for table in info.tables:
        keys = [
            {
                "id": field.id,
                "name": field.name,
                "match_type": MATCHES[p4i.MatchField.MatchType.Name(field.match_type)],
                "type": typed(field.bitwidth),
            }
            for field in table.match_fields
        ]
        if any(key["match_type"] in {"Ternary", "Range"} for key in keys):
            keys.append({"id": 65537, "name": "$MATCH_PRIORITY", "match_type": "Exact", "type": {"type": "uint32"}})
        specs = [
            {
                "id": action.preamble.id,
                "name": action.preamble.name,
                "data": [
                    {"id": param.id, "name": param.name, "type": typed(param.bitwidth)} for param in action.params
                ],
            }
            for action in (actions[ref.id] for ref in table.action_refs)
        ]
        name = f"pipe.{table.preamble.name}"
        described = {"name": name, "id": table.preamble.id, "size": table.size, "key": keys}
        tables.append(described if table.implementation_id else {**described, "action_specs": specs})
    others: list[Any] = [*info.action_profiles, *info.counters, *info.meters, *info.registers]
    tables += (
        {"name": f"pipe.{other.preamble.name}", "id": 0x8000_0000 + number, "size": 1}
        for number, other in enumerate(others)
    )
    tables.append({"name": "pipe.snapshot.cfg", "id": 0x9000_0000, "size": 12})
    return {"schema_version": "1.0.0", "tables": tables}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Abridged output of p4c for the program on Tofino 1."""
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    (compiled / "bfrt.json").write_text(json.dumps(schema_of(p4info())))
    (compiled / "context.json").write_text(json.dumps(CONTEXT))
    (compiled / "tofino.bin").write_bytes(bytes(range(256)))
    return compiled


def test_a_packed_program_holds_all_that_was_compiled(folder: Path) -> None:
    """Field by field, by Stratum's numbers, which a reader without our names has as well."""
    packed = PipelineConfig.FromString(pack("fabric_tofino", folder, p4info()))
    fields = {field.number: value for field, value in packed.ListFields()}
    assert fields.keys() == {1, 2, 3}
    assert fields[1] == "fabric_tofino"
    assert fields[2] == (folder / "bfrt.json").read_bytes()
    [profile] = fields[3]
    assert {field.number: value for field, value in profile.ListFields()} == {
        1: "pipe",
        2: (folder / "context.json").read_bytes(),
        3: bytes(range(256)),
        4: [0, 1, 2, 3],
    }


@pytest.mark.parametrize("target", [TOFINO, TOFINO_2], ids=lambda target: target.name)
def test_a_schema_of_the_same_program_has_no_differences(target: Target) -> None:
    assert differences(p4info(target), schema_of(p4info(target))) == []


def table(schema: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = (table for table in schema["tables"] if table["name"] == f"pipe.{name}")
    return found  # type: ignore[no-any-return]


def forget(schema: dict[str, Any], name: str) -> None:
    schema["tables"].remove(table(schema, name))


ROUTES, JOBS, DROPS = "FabricIngress.routing.routes", "FabricIngress.aggregation.jobs", "FabricIngress.drops"
CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a table is missing": (lambda s: forget(s, JOBS), f"{JOBS} is missing"),
    "a counter is missing": (lambda s: forget(s, DROPS), f"{DROPS} is missing"),
    "a table has another number": (lambda s: table(s, JOBS).update(id=7), f"{JOBS}: number .*, in the schema 7"),
    "its number is another's": (
        lambda s: (table(s, DROPS).update(id=table(s, JOBS)["id"]), table(s, JOBS).update(id=7)),
        f"{JOBS} has the number .*, which is {DROPS}'s",
    ),
    "a table is smaller": (lambda s: table(s, ROUTES).update(size=10), f"{ROUTES}: 8192 entries, in the schema 10"),
    "a key is wider": (lambda s: table(s, ROUTES)["key"][0].update(type=typed(33)), f"{ROUTES}: keys "),
    "a key has another name": (lambda s: table(s, JOBS)["key"][1].update(name="hdr.ipv4.ttl"), f"{JOBS}: keys "),
    "a key has another number": (lambda s: table(s, JOBS)["key"][1].update(id=3), f"{JOBS}: keys "),
    "a key matches otherwise": (lambda s: table(s, ROUTES)["key"][0].update(match_type="Exact"), f"{ROUTES}: keys "),
    "a key is missing": (lambda s: table(s, JOBS)["key"].pop(), f"{JOBS}: keys "),
    "an action is missing": (lambda s: table(s, JOBS)["action_specs"].pop(0), f"{JOBS}: actions "),
    "an action has another number": (lambda s: table(s, JOBS)["action_specs"][0].update(id=9), f"{JOBS}: actions "),
    "a parameter is narrower": (
        lambda s: table(s, JOBS)["action_specs"][0]["data"][0].update(type=typed(8)),
        f"{JOBS}: actions ",
    ),
    "a parameter has another number": (
        lambda s: table(s, JOBS)["action_specs"][0]["data"][0].update(id=8),
        f"{JOBS}: actions ",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_entities_that_would_be_written_wrongly_are_reported(change: str, folder: Path) -> None:
    schema = copy.deepcopy(schema_of(p4info()))
    spoil, words = CHANGES[change]
    spoil(schema)
    (folder / "bfrt.json").write_text(json.dumps(schema))
    with pytest.raises(ControllerError, match=rf"not of the same program as the P4Info(.|\n)*{words}"):
        pack("fabric_tofino", folder, p4info())


def test_entities_the_controller_does_not_write_may_differ() -> None:
    """Tables with constant entries, and objects without a name in P4Info."""
    schema = schema_of(p4info())
    constant = next(table.preamble.name for table in p4info().tables if table.is_const_table)
    table(schema, constant).update(id=77, size=1, key=[], action_specs=[])
    forget(schema, "snapshot.cfg")
    assert differences(p4info(), schema) == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda at: (at / "bfrt.json").unlink(), "bfrt.json: No such file"),
        (lambda at: (at / "bfrt.json").write_text("{"), "bfrt.json is no JSON"),
        (lambda at: (at / "bfrt.json").write_text("[]"), "bfrt.json holds no JSON object"),
        (lambda at: (at / "bfrt.json").write_text("{}"), "the schema is not as BfRt's version"),
        (
            lambda at: (at / "bfrt.json").write_text('{"tables": [7]}'),
            "the schema is not as BfRt's version",
        ),
        (lambda at: (at / "context.json").write_bytes(b"\xff"), "context.json is no JSON"),
        (lambda at: (at / "context.json").unlink(), "context.json: No such file"),
        (lambda at: (at / "tofino.bin").unlink(), "holds 0 of tofino.bin and tofino2.bin, not one"),
        (lambda at: (at / "tofino2.bin").write_bytes(b""), "holds 2 of tofino.bin and tofino2.bin, not one"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(spoil: Callable[[Path], object], words: str, folder: Path) -> None:
    spoil(folder)
    with pytest.raises(ControllerError, match=words):
        pack("fabric_tofino", folder, p4info())


def packing(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weir.controller.p4runtime.packing", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_writes_the_file_or_says_why_not(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "fabric_tofino.pb.bin"
    done = packing(folder, P4INFO, output)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == pack("fabric_tofino", folder, p4info())
    assert f"{output.stat().st_size:,} bytes" in done.stdout
    for words, said in (
        ((folder, tmp_path / "none.txtpb", output), "none.txtpb: No such file"),
        ((folder, folder / "bfrt.json", output), "packing: "),
        ((folder, folder / "tofino.bin", output), "packing: "),
        ((tmp_path, P4INFO, output), "holds 0 of tofino.bin and tofino2.bin"),
        ((folder, P4INFO, tmp_path / "none" / "x"), "No such file"),
    ):
        done = packing(*words)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.p4c
@pytest.mark.skipif(
    None in (shutil.which(fit.BACK_END), shutil.which(fit.ASSEMBLER)),
    reason=f"{fit.BACK_END} and {fit.ASSEMBLER}, p4c's back end for Tofino, are not on PATH",
)
@pytest.mark.parametrize("chip", fit.CHIPS, ids=lambda chip: chip.target)
def test_the_back_ends_output_agrees_with_the_p4info(chip: fit.Chip, tmp_path: Path) -> None:
    fit.compile_for_chip(chip, tmp_path)
    fit.keep(tmp_path, tmp_path / "kept")
    info = text_format.Parse(p4info_of(chip.program).read_text(), p4i.P4Info())
    packed = PipelineConfig.FromString(pack(chip.program, tmp_path / "kept", info))
    assert packed.p4_name == chip.program
    assert json.loads(packed.profiles[0].context)["tables"]
