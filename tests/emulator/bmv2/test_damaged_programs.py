"""A damaged program is refused by an `UnsupportedProgram`, whatever is wrong with it; one that loads all the same runs.

`WEIR_SEED=…` replays a run.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from weir.emulator.program import Program, UnsupportedProgram
from weir.tests.emulator.harness import watched
from weir.tests.paths import PROGRAMS, STF

SAMPLES = sorted(
    [
        *STF.glob("*.json"),
        *(PROGRAMS / f"{name}.json" for name in ("externs", "constructs", "selector", "aggregates", "loops")),
    ]
)
SILENCE_S = 250
"""Time limit in seconds for some hundred programs that are only read, and one that is compiled."""


def damage(count: int, compiled: int, folder: Path) -> None:
    """The last program, which ended the child or never ended, is then `program.json` in `folder`."""
    seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
    sys.stdout.write(f"WEIR_SEED={seed}; {folder}/program.json is the last one\n")
    command = [sys.executable, "-m", "weir.tests.emulator.bmv2.fuzz_loader", str(seed), str(count), str(compiled)]
    environment = {"WEIR_CACHE": str(folder / "cache")}
    watched([*command, *map(str, SAMPLES)], SILENCE_S, folder, environment)


def test_hundreds_of_damaged_programs(tmp_path: Path) -> None:
    damage(120, 1, tmp_path)


@pytest.mark.long(minutes=5)
def test_a_hundred_thousand_damaged_programs(tmp_path: Path) -> None:
    damage(100_000, 1000, tmp_path)


def tables() -> Any:
    return json.loads((STF / "tables.json").read_text())


def refusal(root: Any) -> str:
    with pytest.raises(UnsupportedProgram) as raised:
        Program.load(json.dumps(root).encode())
    return str(raised.value)


def test_a_circle_in_a_control() -> None:
    root = tables()
    nodes = root["pipelines"][0]["conditionals"]
    nodes[1]["true_next"] = nodes[0]["name"]
    assert f"{nodes[0]['name']} leads back to itself" in refusal(root)


@pytest.mark.parametrize("width", [-9, 0, 1 << 63])
def test_a_select_on_a_field_of_a_width_that_no_field_has(width: int) -> None:
    root = json.loads((PROGRAMS / "loops.json").read_text())
    state = next(state for state in root["parsers"][0]["parse_states"] if state["transition_key"])
    of, name = state["transition_key"][0]["value"]
    header = next(header for header in root["headers"] if header["name"] == of)
    fields = next(kind for kind in root["header_types"] if kind["name"] == header["header_type"])["fields"]
    next(field for field in fields if field[0] == name)[1] = width
    assert f"width of a part of a select's key is {width}, which is not a number from 1 to 8192" in refusal(root)


@pytest.mark.parametrize("name", [-1, None, ["drop"]])
def test_a_statement_whose_name_is_no_text(name: Any) -> None:
    root = tables()
    statement = next(action for action in root["actions"] if action["primitives"])["primitives"][0]
    statement["op"] = name
    assert f"op {name!r} is not the name of a primitive" in refusal(root)


def test_names_that_are_not_there() -> None:
    root = tables()
    root["parsers"][0]["parse_states"][0]["transitions"][0]["next_state"] = "nowhere"
    assert "there is no parser state nowhere in the program" in refusal(root)
    root = tables()
    root["deparsers"][0]["order"] = ["ghost"]
    assert "there is no header ghost in the program" in refusal(root)
    root = tables()
    root["pipelines"][0]["init_table"] = "nowhere"
    assert "there is no table or condition nowhere in the program" in refusal(root)


def test_programs_of_p4c_that_no_switch_runs_are_refused() -> None:
    root = tables()
    table = next(table for table in root["pipelines"][0]["tables"] if table["key"])
    table["key"][0] |= {"name": "h[i].a", "target": {"type": "expression", "value": {"op": "access_field"}}}
    assert (
        refusal(root)
        == f"tables.p4:{table['source_info']['line']}: the expression h[i].a as a key field is not supported"
    )
    root = tables()
    root["calculations"] = [{"name": "calc", "algo": "crc16", "input": [{"type": "expression", "value": 1}]}]
    assert "as input of the calculation calc is not supported" in refusal(root)
    root = tables()
    root["headers"].append({"name": "either", "id": 99, "header_type": "either_t", "metadata": False})
    assert refusal(root) == "tables.p4: either is of type either_t, which is no header"


def test_sizes_that_cannot_be() -> None:
    root = tables()
    root["register_arrays"] = [{"name": "huge", "id": 0, "size": 1 << 40, "bitwidth": 32}]
    assert "size of register huge is 1099511627776, which is not a number from 0 to" in refusal(root)
    root = tables()
    root["header_types"][0]["fields"][0][1] = 1 << 20
    assert "which is not a number from 0 to 8192" in refusal(root)


def with_entries() -> tuple[Any, Any]:
    """A program, and the entries of a table of its own that it has."""
    root = tables()
    return root, next(table for table in root["pipelines"][0]["tables"] if table.get("entries"))["entries"]


def test_a_constant_entry_that_does_not_fit_its_action() -> None:
    root, entries = with_entries()
    entries[0]["action_entry"]["action_data"] = ["0x10000"]
    assert f"tables.p4:{entries[0]['source_info']['line']}: parameter" in refusal(root)
    assert "which is not a number from 0 to 65535" in refusal(root)


def test_an_action_that_its_table_does_not_have() -> None:
    for called in ("entry", "default"):
        root = tables()
        table = next(table for table in root["pipelines"][0]["tables"] if table.get("entries"))
        call = table["entries"][0]["action_entry"] if called == "entry" else table["default_entry"]
        other = next(action for action in root["actions"] if action["id"] not in table["action_ids"])
        call |= {"action_id": other["id"], "action_data": ["0x0"] * len(other["runtime_data"])}
        assert f"table {table['name']} has no action {other['name']} of number {other['id']}" in refusal(root)


@pytest.mark.parametrize("width", [-9, 1 << 63])
def test_a_negative_argument_beyond_any_width_is_refused(width: int) -> None:
    root, entries = with_entries()
    entry = entries[0]["action_entry"]
    entry["action_data"] = ["-0x1"]
    action = next(action for action in root["actions"] if action["id"] == entry["action_id"])
    action["runtime_data"][0]["bitwidth"] = width
    assert f"is {width}, which is not a number from 1 to 8192" in refusal(root)


def test_a_negative_constant_for_an_unsigned_key_is_refused() -> None:
    root, entries = with_entries()
    entries[-1]["match_key"][0]["key"] = "-0x01"
    said = refusal(root)
    assert f"tables.p4:{entries[-1]['source_info']['line']}: Forward." in said
    assert "(value=-1" in said


def test_two_constant_entries_that_match_the_same() -> None:
    root, entries = with_entries()
    entries[1] |= {name: entries[0][name] for name in ("match_key", "priority")}
    assert f"tables.p4:{entries[1]['source_info']['line']}: an entry of Forward." in refusal(root)
    assert refusal(root).endswith("matches the same as one before it")


def test_more_constant_entries_than_the_table_holds() -> None:
    root = tables()
    table = next(table for table in root["pipelines"][0]["tables"] if table.get("entries"))
    table["max_size"] = len(table["entries"]) - 1
    assert f"number of entries of table {table['name']} is {len(table['entries'])}" in refusal(root)


def test_an_action_shorter_than_its_namesake_is_refused() -> None:
    """Its rows would be too short for writes of a control plane, which identifies actions by name."""
    root = tables()
    by_name = {table["name"]: table for table in root["pipelines"][0]["tables"]}
    elsewhere = by_name["Forward.keyless"]["action_ids"][0]
    root["actions"][elsewhere]["runtime_data"].append({"name": "further", "bitwidth": 16})
    answer = root["actions"][elsewhere]["name"]
    exact = by_name["Forward.by_exact"]
    assert (
        f"tables.p4:{exact['source_info']['line']}: {answer} of table {exact['name']} has 1 parameters, and elsewhere "
        "others (2)"
    ) in refusal(root)
