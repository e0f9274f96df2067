"""The message that Stratum loads into a Tofino: the chip compiler's complete output for a program.

Sources: stratum/stratum f8f71301, stratum/hal/lib/barefoot: `bf.proto` for the message, `bfrt_id_mapper.cc` for the
mapping from P4Info's objects to the schema (by number, else by name). The schema is BfRt's, of version 1.0.0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from finsy.proto import p4i
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message

from ..errors import ControllerError

SCHEMA: Final = "bfrt.json"
CONTEXT: Final = "context.json"
BINARIES: Final = ("tofino.bin", "tofino2.bin")
"""Files of a compiled program: the control plane's schema, the driver's description of the chip, and the binary under
its assembler's name.
"""

PIPES: Final = range(4)
"""The program runs in all of these; a chip with fewer has the first of them."""

_KINDS: Final = ("tables", "action_profiles", "counters", "meters", "registers")
_MATCHES: Final = {"EXACT": "Exact", "LPM": "LPM", "TERNARY": "Ternary", "RANGE": "Range"}
_PRIORITY: Final = "$MATCH_PRIORITY"
"""The key that the schema gives each table in which several entries may match."""


def pack(name: str, folder: Path, p4info: p4i.P4Info) -> bytes:
    """Return the compiled program in `folder` as Stratum's `p4_device_config`, under this name. Raises
    ControllerError where a file is missing, is not what it is called, or describes another control plane than
    `p4info`.
    """
    binaries = [folder / binary for binary in BINARIES if (folder / binary).is_file()]
    if len(binaries) != 1:
        raise ControllerError(f"{folder} holds {len(binaries)} of {' and '.join(BINARIES)}, not one")
    schema = _read(folder / SCHEMA)
    if mismatches := differences(p4info, _json(folder / SCHEMA, schema)):
        raise ControllerError(
            f"{folder / SCHEMA} is not of the same program as the P4Info, or p4c numbers it otherwise:\n"
            + "\n".join(mismatches)
        )
    context = _read(folder / CONTEXT)
    _json(folder / CONTEXT, context)
    profile = {"profile_name": "pipe", "context": context, "binary": _read(binaries[0]), "pipe_scope": [*PIPES]}
    packed: bytes = PipelineConfig(p4_name=name, bfruntime_info=schema, profiles=[profile]).SerializeToString()
    return packed


def differences(p4info: p4i.P4Info, schema: dict[str, Any]) -> list[str]:
    """Describe differences between P4Info and the schema that would make a controller's writes wrong."""
    try:
        tables = {table["name"].removeprefix("pipe."): table for table in schema["tables"]}
        numbers = {table["id"]: name for name, table in tables.items()}
        actions = {action.preamble.id: action for action in p4info.actions}
        mismatches = []
        for kind in _KINDS:
            for entity in getattr(p4info, kind):
                name, number = entity.preamble.name, entity.preamble.id
                if name not in tables:
                    mismatches.append(f"{name} is missing")
                elif (other := numbers.get(number, name)) != name:
                    mismatches.append(f"{name} has the number {number}, which is {other}'s")
                elif kind == "tables" and not entity.is_const_table:
                    mismatches += (f"{name}: {words}" for words in _table(entity, actions, tables[name]))
        return mismatches
    except (KeyError, TypeError, AttributeError) as error:
        raise ControllerError(f"the schema is not as BfRt's version 1.0.0 has it: {error!r}") from error


def _table(table: p4i.Table, actions: dict[int, p4i.Action], schema: dict[str, Any]) -> Iterable[str]:
    if table.preamble.id != schema["id"]:
        yield f"number {table.preamble.id}, in the schema {schema['id']}"
    if table.match_fields and table.size > schema["size"]:
        yield f"{table.size} entries, in the schema {schema['size']}"
    kinds = p4i.MatchField.MatchType
    ours = [(f.id, f.name, f.bitwidth, _MATCHES[kinds.Name(f.match_type)]) for f in table.match_fields]
    theirs = [
        (key["id"], key["name"], key["type"]["width"], key["match_type"])
        for key in schema["key"]
        if key["name"] != _PRIORITY
    ]
    if ours != theirs:
        yield f"keys {ours}, in the schema {theirs}"
    if table.implementation_id:  # its actions are its profile's members
        return
    called = {
        actions[ref.id].preamble.name: (ref.id, [(param.id, param.bitwidth) for param in actions[ref.id].params])
        for ref in table.action_refs
    }
    meant = {
        action["name"]: (action["id"], [(data["id"], data["type"]["width"]) for data in action["data"]])
        for action in schema["action_specs"]
    }
    if called != meant:
        yield f"actions {called}, in the schema {meant}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ControllerError(f"{path}: {error.strerror}") from error


def _json(path: Path, text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ControllerError(f"{path} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise ControllerError(f"{path} holds no JSON object")
    return document


def _message_class() -> type[Message]:
    """Stratum's BfPipelineConfig: fields by number, name, type, and whether there are several."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="weir/pipeline_config.proto", package="weir", syntax="proto3")
    config = file.message_type.add(name="PipelineConfig")
    profile = config.nested_type.add(name="Profile")
    for message, fields in (
        (
            profile,
            [
                ("profile_name", kinds.TYPE_STRING, False),
                ("context", kinds.TYPE_BYTES, False),
                ("binary", kinds.TYPE_BYTES, False),
                ("pipe_scope", kinds.TYPE_UINT32, True),
            ],
        ),
        (
            config,
            [
                ("p4_name", kinds.TYPE_STRING, False),
                ("bfruntime_info", kinds.TYPE_BYTES, False),
                ("profiles", kinds.TYPE_MESSAGE, True),
            ],
        ),
    ):
        for number, (name, kind, several) in enumerate(fields, 1):
            field = message.field.add(name=name, number=number, type=kind)
            field.label = kinds.LABEL_REPEATED if several else kinds.LABEL_OPTIONAL
            if kind == kinds.TYPE_MESSAGE:
                field.type_name = ".weir.PipelineConfig.Profile"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("weir.PipelineConfig"))


PipelineConfig: Final[Any] = _message_class()


def main(arguments: list[str]) -> int:
    """`python -m weir.controller.p4runtime.packing FOLDER P4INFO OUTPUT`. 0 when done, 2 when not."""
    parser = argparse.ArgumentParser(
        prog="python -m weir.controller.p4runtime.packing",
        description="Pack what p4c has compiled for a Tofino as Stratum loads it, where it agrees with a P4Info.",
    )
    parser.add_argument("folder", type=Path, help=f"holds {SCHEMA}, {CONTEXT}, and {' or '.join(BINARIES)}")
    parser.add_argument("p4info", type=Path, help="the control plane that a controller goes by, as protobuf text")
    parser.add_argument("output", type=Path, help="what to write")
    options = parser.parse_args(arguments)
    try:
        text = _read(options.p4info).decode()
        packed = pack(options.p4info.name.partition(".")[0], options.folder, text_format.Parse(text, p4i.P4Info()))
        options.output.write_bytes(packed)
    except (ControllerError, text_format.ParseError, UnicodeDecodeError, OSError) as error:
        sys.stderr.write(f"packing: {error}\n")
        return 2
    sys.stdout.write(f"{options.output}: {len(packed):,} bytes, for p4_device_config\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
