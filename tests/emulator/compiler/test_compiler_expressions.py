"""Every operator against Python's own integers, which are bmv2's: any size, cut when they reach a field."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.emulator.abi import HEADROOM
from weir.emulator.bmv2.reader import read
from weir.emulator.compiler.layout import plan
from weir.emulator.compiler.module import build_module
from weir.emulator.program import Program, UnsupportedProgram
from weir.tests.emulator.harness import PacketRig, seeded_random
from weir.tests.paths import PROGRAMS, STF

INPUTS = {"a": 8, "b": 16, "c": 32, "d": 48, "e": 5, "f": 3, "g": 128}
OUTPUT_WIDTHS = (1, 7, 8, 16, 24, 32, 48, 64, 96, 128)
Json = dict[str, Any]


def wrap(op: str, left: Json | None, right: Json | None, **more: Json) -> Json:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def hexstr(value: int) -> Json:
    return {"type": "hexstr", "value": hex(value)}


class Trees:
    """Random expressions within the forms that p4c makes: growing values are cut or cast."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def number(self, depth: int) -> Json:
        rng = self.rng
        if depth == 0:
            if rng.random() < 0.7:
                return {"type": "field", "value": ["in", rng.choice(list(INPUTS))]}
            return hexstr(rng.choice([0, 1, 0xFF, rng.getrandbits(rng.choice([4, 32, 64])), -rng.getrandbits(9)]))
        match rng.randrange(9):
            case 0 | 1:
                left, right = self.number(depth - 1), self.number(depth - 1)
                return wrap(rng.choice(["+", "-", "*", "&", "|", "^"]), left, right)
            case 2:
                width = rng.choice([1, 8, 9, 31, 32, 33, 64])
                inner = wrap(rng.choice(["+", "-", "*"]), self.number(depth - 1), self.number(depth - 1))
                return wrap("&", inner, hexstr((1 << width) - 1))
            case 3:
                return wrap("&", wrap("~", None, self.number(depth - 1)), hexstr(rng.getrandbits(40)))
            case 4:
                amount = hexstr(rng.randrange(70)) if rng.random() < 0.5 else {"type": "field", "value": ["in", "a"]}
                shifted = wrap(rng.choice(["<<", ">>"]), self.cut(depth - 1), amount)
                return wrap("&", shifted, hexstr((1 << rng.choice([8, 32, 48])) - 1))
            case 5:
                size = hexstr(rng.choice([1, 5, 8, 16, 32]))
                return wrap(rng.choice(["two_comp_mod", "sat_cast", "usat_cast"]), self.number(depth - 1), size)
            case 6:
                sides = self.number(depth - 1), self.number(depth - 1)
                return wrap("?", *sides, cond=self.truth(depth - 1))
            case 7:
                return wrap(rng.choice(["/", "%"]), self.small(), self.small())
            case _:
                return wrap("b2d", None, self.truth(depth - 1))

    def cut(self, depth: int) -> Json:
        return wrap("&", self.number(depth), hexstr(0xFFFFFFFFFF))

    def small(self) -> Json:
        return {"type": "field", "value": ["in", self.rng.choice(["a", "b", "c", "d", "e"])]}

    def truth(self, depth: int) -> Json:
        rng = self.rng
        if depth == 0:
            return wrap("d2b", None, {"type": "field", "value": ["in", rng.choice(list(INPUTS))]})
        match rng.randrange(4):
            case 0 | 1:
                op = rng.choice(["==", "!=", "<", "<=", ">", ">="])
                return wrap(op, self.number(depth - 1), self.number(depth - 1))
            case 2:
                return wrap("not", None, self.truth(depth - 1))
            case _:
                return wrap(rng.choice(["and", "or"]), self.truth(depth - 1), self.truth(depth - 1))


def evaluate(item: Json, inputs: dict[str, int]) -> int:
    """The same expression with Python's integers."""
    value = item["value"]
    match item["type"]:
        case "hexstr":
            return int(value, 16)
        case "field":
            return inputs[value[1]]
    op = value["op"]
    if op == "?":
        return evaluate(value["left"] if evaluate(value["cond"], inputs) else value["right"], inputs)
    right = evaluate(value["right"], inputs)
    if op in ("~", "not", "d2b", "b2d"):
        return {"~": ~right, "not": int(not right), "d2b": int(right != 0), "b2d": right}[op]
    left = evaluate(value["left"], inputs)
    match op:
        case "/" | "%":
            quotient = 0 if right == 0 else (abs(left) // abs(right)) * (-1 if (left < 0) != (right < 0) else 1)
            return quotient if op == "/" else left - quotient * right if right else 0
        case "<<":
            return left << right
        case ">>":
            return left >> right
        case "two_comp_mod":
            low = left & ((1 << right) - 1)
            return low - (1 << right) if low >> (right - 1) else low
        case "sat_cast":
            return max(-(1 << (right - 1)), min(left, (1 << (right - 1)) - 1))
        case "usat_cast":
            return max(0, min(left, (1 << right) - 1))
        case "and" | "or":
            return int(left and right) if op == "and" else int(left or right)
    if op in ("==", "!=", "<", "<=", ">", ">="):
        results = {"==": left == right, "!=": left != right, "<": left < right, "<=": left <= right}
        return int(results.get(op, left > right if op == ">" else left >= right))
    return {"+": left + right, "-": left - right, "*": left * right, "&": left & right, "|": left | right}.get(
        op, left ^ right
    )


def program_of(assignments: list[tuple[int, Json]]) -> bytes:
    """BMv2 JSON of one action that assigns each expression to an output field of the given width."""
    fields: list[list[Any]] = [[name, width, False] for name, width in INPUTS.items()]
    outputs: list[list[Any]] = [[f"o{i}", width, False] for i, (width, _) in enumerate(assignments)]
    for group in (fields, outputs):
        group.append(["pad", -sum(width for _, width, _ in group) % 8 + 8, False])
    root = json.loads((PROGRAMS / "constructs.json").read_bytes())
    standard = next(t for t in root["header_types"] if t["name"] == "standard_metadata")
    root["header_types"] = [standard, {"name": "in_t", "fields": fields}, {"name": "out_t", "fields": outputs}]
    root["headers"] = [
        {"name": "standard_metadata", "header_type": "standard_metadata", "metadata": True},
        {"name": "in", "header_type": "in_t", "metadata": False},
        {"name": "out", "header_type": "out_t", "metadata": False},
    ]
    state = {
        "name": "start",
        "parser_ops": [{"op": "extract", "parameters": [{"type": "regular", "value": "in"}]}],
        "transition_key": [],
        "transitions": [{"type": "default", "value": None, "mask": None, "next_state": None}],
    }
    root["parsers"] = [{"name": "parser", "init_state": "start", "parse_states": [state]}]
    primitives = [{"op": "add_header", "parameters": [{"type": "header", "value": "out"}]}]
    for i, (_, tree) in enumerate(assignments):
        target = {"type": "field", "value": ["out", f"o{i}"]}
        primitives.append({"op": "assign", "parameters": [target, {"type": "expression", "value": tree}]})
    root["actions"] = [{"name": "run", "id": 0, "runtime_data": [], "primitives": primitives}]
    entry = {"action_id": 0, "action_const": True, "action_data": [], "action_entry_const": True}
    table = {
        "name": "run_table",
        "key": [],
        "match_type": "exact",
        "type": "simple",
        "max_size": 1,
        "with_counters": False,
        "support_timeout": False,
        "direct_meters": None,
        "action_ids": [0],
        "actions": ["run"],
        "base_default_next": None,
        "next_tables": {"run": None},
        "default_entry": entry,
    }
    root["pipelines"] = [
        {"name": "ingress", "init_table": "run_table", "tables": [table], "action_profiles": [], "conditionals": []},
        {"name": "egress", "init_table": None, "tables": [], "action_profiles": [], "conditionals": []},
    ]
    root["deparsers"] = [{"name": "deparser", "order": ["out"]}]
    for name in ("calculations", "checksums", "register_arrays", "counter_arrays"):
        root[name] = []
    return json.dumps(root).encode()


def outputs_of(rig: PacketRig, widths: list[int], inputs: dict[str, int]) -> list[int]:
    bits = total = 0
    for name, width in INPUTS.items():
        bits, total = bits << width | inputs[name], total + width
    pad = -total % 8 + 8
    out = rig.send((bits << pad).to_bytes((total + pad) // 8, "big")).frame
    assert out is not None
    number, position, values = int.from_bytes(out, "big"), 8 * len(out), []
    for width in widths:
        position -= width
        values.append(number >> position & ((1 << width) - 1))
    return values


def inputs_from(rng: random.Random) -> dict[str, int]:
    return {name: rng.choice([0, 1, (1 << w) - 1, 1 << (w - 1), rng.getrandbits(w)]) for name, w in INPUTS.items()}


def check_random_trees(rng: random.Random, count: int, packets: int) -> None:
    trees = Trees(rng)
    assignments = [(rng.choice(OUTPUT_WIDTHS), trees.number(rng.randrange(1, 5))) for _ in range(count)]
    while sum(width for width, _ in assignments) > 8 * HEADROOM:  # a packet that grows beyond it is dropped
        assignments.pop()
    rig = PacketRig(Program.load(program_of(assignments)))
    for _ in range(packets):
        inputs = inputs_from(rng)
        found = outputs_of(rig, [width for width, _ in assignments], inputs)
        for (width, tree), value in zip(assignments, found, strict=True):
            assert value == evaluate(tree, inputs) & ((1 << width) - 1), (inputs, json.dumps(tree))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs made up here are not worth keeping."""
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path))


def test_random_expressions_agree_with_python() -> None:
    check_random_trees(seeded_random(), 60, 100)


@pytest.mark.long
def test_many_random_expressions_agree_with_python() -> None:
    rng = seeded_random()
    for _ in range(60):
        check_random_trees(rng, 80, 200)


def field(name: str) -> Json:
    return {"type": "field", "value": ["in", name]}


EACH = [
    *[
        (128, wrap("&", wrap(op, field("c"), field("d")), hexstr((1 << 100) - 1)))
        for op in ("+", "-", "*", "|", "^", "&")
    ],
    *[(32, wrap("b2d", None, wrap(op, field("b"), field("a")))) for op in ("==", "!=", "<", "<=", ">", ">=")],
    *[(64, wrap(op, field("d"), field("b"))) for op in ("/", "%")],
    *[(128, wrap(op, field("g"), field(by))) for op in ("/", "%") for by in ("g", "c", "b")],
    *[(64, wrap(op, wrap("two_comp_mod", field("d"), hexstr(32)), field("b"))) for op in ("/", "%")],
    *[(64, wrap("&", wrap(op, field("d"), field("a")), hexstr((1 << 64) - 1))) for op in ("<<", ">>")],
    *[(32, wrap(op, wrap("-", field("a"), field("b")), hexstr(8))) for op in ("two_comp_mod", "sat_cast", "usat_cast")],
    (32, wrap(">>", wrap("two_comp_mod", field("b"), hexstr(16)), field("e"))),
    (128, wrap("+", field("g"), field("g"))),
    (1, wrap("b2d", None, wrap("<", wrap("two_comp_mod", field("a"), hexstr(8)), hexstr(0)))),
    (48, wrap("?", field("d"), field("a"), cond=wrap(">", field("b"), field("c")))),
]


@pytest.fixture(scope="module")
def each_bench(tmp_path_factory: pytest.TempPathFactory) -> PacketRig:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_CACHE", str(tmp_path_factory.mktemp("cache")))
        return PacketRig(Program.load(program_of(EACH)))


@settings(max_examples=150, deadline=None)
@given(inputs=st.fixed_dictionaries({name: st.integers(0, (1 << width) - 1) for name, width in INPUTS.items()}))
def test_each_operator_agrees_with_python(each_bench: PacketRig, inputs: dict[str, int]) -> None:
    found = outputs_of(each_bench, [width for width, _ in EACH], inputs)
    assert found == [evaluate(tree, inputs) & ((1 << width) - 1) for width, tree in EACH]


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        (wrap("rotate", field("a"), field("b")), "operator 'rotate'"),
        (wrap("+", {"type": "register", "value": ["r", 0]}, field("a")), "operand of type 'register'"),
        (wrap("<<", wrap("<<", field("b"), field("b")), field("b")), "may need"),
    ],
)
def test_expressions_out_of_range_are_refused_by_name_and_line(tree: Json, problem: str) -> None:
    text = program_of([(32, wrap("==", tree, field("a")))]) if problem == "may need" else program_of([(32, tree)])
    with pytest.raises(UnsupportedProgram, match=problem) as refusal:
        Program.load(text)
    assert "constructs.p4" in str(refusal.value)


def test_code_of_wide_shifts_and_products_is_shared() -> None:
    """Otherwise compile time would grow as the square of the input."""
    a, g = ({"type": "field", "value": ["in", name]} for name in "ag")
    statements = []
    for number in range(12):
        wide = wrap("&", wrap("*", g, hexstr(2 * number + 3)), hexstr((1 << 1000) - 1))
        changed = wrap("^", wide, wrap("<<", g, hexstr(600)))
        for op, right in (("<<", a), (">>", a), ("*", changed)):
            statements.append((1000, wrap("&", wrap(op, changed, right), hexstr((1 << 1000) - 1))))
    document = read(program_of(statements))
    text = str(build_module(document, plan(document)))
    for op in ("shl", "lshr", "mul"):
        assert len(re.findall(rf"= {op} i1000 %[^,]+, %", text)) == 1, op


def test_wide_metadata_are_read_where_they_lie() -> None:
    """Alignment is a multiple of 8: LLVM assumes multiples of 16 by default, which may crash the process."""
    document = read((STF / "wide.json").read_bytes())
    text = str(build_module(document, plan(document)))
    accesses = re.findall(r"(?:= load i(?:128|192),|store i(?:128|192) ).*", text)
    assert len(accesses) >= 12
    assert all(re.search(r"align [18]$", access) for access in accesses)
