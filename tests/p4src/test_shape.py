"""The compiled program has the shape of a chip's: on any path each register is touched once, and conditions test bits.

A Tofino has a register in one stage, where one action reads, changes and writes it as the packet passes; its conditions
compare a few bits of metadata with constants. Computed values are therefore judged in tables.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from weir import p4src

PROGRAM: Any = json.loads(p4src.FABRIC_JSON.read_text())
METADATA = {header["name"] for header in PROGRAM["headers"] if header["metadata"]}
PIPELINES = ("ingress", "egress")
CLAIM = "FabricIngress.aggregation.claim"
ROUND = "FabricIngress.aggregation.slot_round"

Access = tuple[str, Any]
"""Kind and index of an access; an index that p4c keeps in a temporary stands for itself."""


def accesses(program: Any) -> dict[int, dict[str, list[Access]]]:
    """Reads and writes in order, by action and register."""
    found: dict[int, dict[str, list[Access]]] = {}
    for action in program["actions"]:
        own = found.setdefault(action["id"], {})
        assigned: dict[str, Any] = {}
        for primitive in action["primitives"]:
            parameters = primitive["parameters"]
            if primitive["op"] == "assign":
                assigned[str(parameters[0])] = parameters[1]
            elif primitive["op"] == "register_read":
                index = assigned.get(str(parameters[2]), parameters[2])
                own.setdefault(parameters[1]["value"], []).append(("read", index))
            elif primitive["op"] == "register_write":
                index = assigned.get(str(parameters[1]), parameters[1])
                own.setdefault(parameters[0]["value"], []).append(("write", index))
    return found


def touches(program: Any, pipeline: str) -> dict[str, int]:
    """Each register's largest number of actions that touch it, over all paths through a pipeline."""
    [control] = [item for item in program["pipelines"] if item["name"] == pipeline]
    touched = accesses(program)
    ways: dict[str, list[tuple[int | None, str | None]]] = {}
    """Ways by node: (action that runs, next node)."""
    for condition in control["conditionals"]:
        ways[condition["name"]] = [(None, condition["true_next"]), (None, condition["false_next"])]
    for table in control["tables"]:
        if "__HIT__" in table["next_tables"]:
            ways[table["name"]] = [(run, to) for run in table["action_ids"] for to in table["next_tables"].values()]
        else:
            ids = dict(zip(table["actions"], table["action_ids"], strict=True))
            ways[table["name"]] = [(ids[name], to) for name, to in table["next_tables"].items()]

    @cache
    def most(node: str | None, register: str) -> int:
        if node is None:
            return 0
        return max(
            most(following, register) + (run is not None and register in touched[run]) for run, following in ways[node]
        )

    return {array["name"]: most(control["init_table"], array["name"]) for array in program["register_arrays"]}


def fields(expression: Any) -> Iterator[list[str]]:
    """Every field that an expression uses, as [header, field]."""
    if isinstance(expression, dict):
        if expression.get("type") == "field":
            yield expression["value"]
        for value in expression.values():
            yield from fields(value)


def operators(expression: Any) -> Iterator[str]:
    if isinstance(expression, dict):
        if "op" in expression:
            yield expression["op"]
        for value in expression.values():
            yield from operators(value)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_path_accesses_each_register_in_one_action_at_most(pipeline: str) -> None:
    assert {name: count for name, count in touches(PROGRAM, pipeline).items() if count > 1} == {}


def test_every_register_is_touched_in_one_pipeline() -> None:
    ingress, egress = (touches(PROGRAM, pipeline) for pipeline in PIPELINES)
    assert {name: ingress[name] + egress[name] for name in ingress} == dict.fromkeys(ingress, 1)


def test_an_action_reads_then_writes_a_register_at_one_index() -> None:
    for action, registers in accesses(PROGRAM).items():
        for register, done in registers.items():
            assert [kind for kind, _ in done] in (["read"], ["write"], ["read", "write"]), (action, register)
            assert all(index == done[0][1] for _, index in done), (action, register)


def test_conditions_compare_metadata_and_validity_with_constants() -> None:
    conditions = [item for control in PROGRAM["pipelines"] for item in control["conditionals"]]
    assert conditions
    for condition in conditions:
        where = json.dumps(condition)
        for header, field in fields(condition["expression"]):
            assert header in METADATA or field == "$valid$", where
        assert set(operators(condition["expression"])) <= {"==", "!=", "and", "or", "not", "d2b", "&", ">>"}, where


def test_a_second_touch_is_found() -> None:
    """A program that reads a slot's round in one action and writes it in the next one, as software would."""
    split = copy.deepcopy(PROGRAM)
    [claim] = [action for action in split["actions"] if action["name"] == CLAIM]
    [gather] = [action for action in split["actions"] if action["name"] == "FabricIngress.aggregation.gather"]
    [write] = [primitive for primitive in claim["primitives"] if primitive["op"] == "register_write"]
    claim["primitives"].remove(write)
    gather["primitives"].append(write)
    assert touches(split, "ingress")[ROUND] == 2
