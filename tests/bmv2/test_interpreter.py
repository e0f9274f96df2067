"""The interpreter compared with the emulated switch: programs compiled in the repository, and random ones if p4c is
installed.
"""

from __future__ import annotations

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from weir.p4src import FABRIC_JSON
from weir.tests.bmv2.expression_programs import ExpressionProgram
from weir.tests.bmv2.harness import Compiled, needs_p4c
from weir.tests.bmv2.interpreter import Interpreter, Unsupported, dictionaries
from weir.tests.bmv2.judges import Judges, judged
from weir.tests.bmv2.random_programs import RandomProgram
from weir.tests.paths import P4RUNTIME_PROGRAMS, PROGRAMS, ROOT, STF

WITHIN: Final = [
    ROOT / "examples" / "exercise" / "build" / "router.json",
    ROOT / "examples" / "p4_program" / "firewall.json",
    *(PROGRAMS / f"{name}.json" for name in ("absent_port", "hashes", "loops", "pairs", "tables")),
    *(
        STF / f"{name}.json"
        for name in (
            "arithmetic",
            "arrays",
            "checksums",
            "last_index",
            "metadata",
            "parameters",
            "parsing",
            "passes",
            "payload",
            "replication",
            "tables",
            "turns",
            "unions",
            "validity",
            "varbit",
            "wide",
        )
    ),
]
OUTSIDE: Final = {
    "build/fabric": "table FabricIngress.routing.routes, which is indirect_ws",
    "programs/aggregates": "a value of the type union_stack",
    "programs/constructs": "parser operation primitive",
    "programs/every_entity": "table MainIngress.profile_table, which is indirect",
    "programs/externs": "table ExternsIngress.flows with meters",
    "programs/lanes": "table LanesIngress.routes, which is indirect_ws",
    "programs/selector": "table SelectorIngress.grouped, which is indirect_ws",
    "programs/signs": "entries of table SignsIngress.signs with numbers below zero",
    "programs/stages": "table StagesIngress.initial with meters",
    "stf/absent": "operator dereference_header_stack",
    "stf/corners": "operator access_field",
    "stf/elements": "a value of the type union_stack",
    "stf/meters": "table Forward.metered with meters",
    "stf/selector": "table Forward.spread_more, which is indirect_ws",
    "stf/stacks": "operator access_field",
    "stf/statements": "primitive assert",
}
"""First construct that the interpreter does not support, for each of the other programs."""
PACKETS: Final = 120
MANY_PACKETS: Final = 400
TRIES: Final = 24
BATCH: Final = 50
SHARE: Final = 9
"""Sampling of damages: one in this many is examined."""


# ---- programs that are compiled here


def programs() -> list[Path]:
    folders = (STF, PROGRAMS, P4RUNTIME_PROGRAMS)
    examples = [path for path in ROOT.glob("examples/**/*.json") if path.with_suffix(".p4info.txtpb").exists()]
    return [FABRIC_JSON, *examples, *(path for folder in folders for path in sorted(folder.glob("*.json")))]


@pytest.mark.parametrize("path", WITHIN, ids=lambda path: path.stem)
def test_programs_that_are_compiled_here(path: Path) -> None:
    assert sum(judged(path.read_bytes(), seed, PACKETS).forwarded for seed in range(3)) > PACKETS // 4


@pytest.mark.parametrize("path", sorted(set(programs()) - set(WITHIN)), ids=lambda path: name_of(path))
def test_unsupported_constructs_are_named(path: Path) -> None:
    with pytest.raises(Unsupported, match=f"^the interpreter does not know {re.escape(OUTSIDE[name_of(path)])}$"):
        Interpreter(path.read_bytes())


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


# ---- the judges notice what is changed


SWAPPED: Final = {
    **dict(pair.split() for pair in ("+ -", "- +", "* +", "& |", "| &", "^ &", "<< >>", ">> <<", "d2b not")),
    **dict(pair.split() for pair in ("== !=", "!= ==", "< >=", ">= <", "> <=", "<= >", "and or", "or and")),
    **dict.fromkeys(("sat_cast", "usat_cast"), "two_comp_mod"),
    "two_comp_mod": "sat_cast",
    "add_header": "remove_header",
    "remove_header": "add_header",
}
"""Another operator, or another primitive, for each."""
DAMAGED: Final = ("arithmetic", "parsing", "tables", "turns", "validity", "wide")
SAME: Final = {"arithmetic": {27, 37}}
"""Damages that change nothing, since the number that they would saturate is within the range already."""


def damaged(text: bytes, number: int) -> bytes:
    """The program with one of its `places` changed: another operator or primitive, or no state after a transition."""
    document = json.loads(text)
    container, key = places(document)[number]
    container[key] = SWAPPED[container["op"]] if key == "op" else None
    return json.dumps(document).encode()


def places(node: Any) -> list[tuple[dict[str, Any], str]]:
    """Places at which a program can be changed: a part of its JSON and a key in it."""
    found = []
    for part in dictionaries(node):
        found += [(part, "op")] if part.get("op") in SWAPPED else []
        found += [(part, "next_state")] if part.get("next_state") is not None else []
    return found


def misread(text: bytes, op: str) -> bytes:
    """The program with one operator or primitive read as another one, wherever it stands."""
    document = json.loads(text)
    for node, key in places(document):
        if node[key] == op:
            node[key] = SWAPPED[op]
    return json.dumps(document).encode()


def noticed(text: bytes, wrong: bytes, tries: int = TRIES) -> bool:
    """Return whether the emulated switch, with the sound program, and the interpreter differ in some packet."""
    for seed in range(tries):
        judges, rng = Judges(text, interpreted=wrong), random.Random(seed)
        judges.fill(rng)
        packets = [
            (port, bytes([rng.choice(asked_for(text))]) + frame[1:])
            for port, frame in judges.random_packets(rng, MANY_PACKETS)
        ]
        if any(judges.differences(packets[first : first + BATCH]) for first in range(0, MANY_PACKETS, BATCH)):
            return True
    return False


@cache
def asked_for(text: bytes) -> tuple[int, ...]:
    """Bytes of a program's numbers: most programs here act on a packet's first byte."""
    numbers = re.findall(rb'"value" ?: ?"0x((?:[0-9a-f]{2}){1,2})"', text)
    return tuple(sorted({byte for number in numbers for byte in bytes.fromhex(number.decode())}))


@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_program_that_was_changed_for_one_of_them_is_noticed(name: str, share: int) -> None:
    text = (STF / f"{name}.json").read_bytes()
    numbers = range(0, len(places(json.loads(text))), share)
    unnoticed = {number for number in numbers if not noticed(text, damaged(text, number))}
    assert unnoticed == SAME.get(name, set()) & set(numbers)


# ---- random programs


def compiled(kind: type[ExpressionProgram], seed: int, folder: Path) -> bytes:
    source = folder / f"program_{seed}.p4"
    source.write_text(kind(seed).source)
    return Compiled.compile(source, folder).json


@pytest.mark.p4c
@needs_p4c
@pytest.mark.parametrize("kind", [RandomProgram, ExpressionProgram])
@pytest.mark.parametrize(
    "seed", [21, *(pytest.param(seed, marks=pytest.mark.long) for seed in (22, 23, *range(2000, 2300)))]
)
def test_random_programs(kind: type[ExpressionProgram], seed: int, tmp_path: Path) -> None:
    judges = judged(compiled(kind, seed, tmp_path), seed, PACKETS)
    assert judges.compared > PACKETS // 2


@pytest.mark.p4c
@needs_p4c
def test_an_operator_that_one_of_them_misreads_is_noticed(tmp_path: Path) -> None:
    text = compiled(ExpressionProgram, 1, tmp_path)
    ops = {node["op"] for node, key in places(json.loads(text)) if key == "op"}
    assert len(ops) > 12
    assert {op for op in ops if not noticed(text, misread(text, op), tries=1)} == set()
